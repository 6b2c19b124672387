"""Kernels that take rows [B, H, S, D] one by one and write each to a slot of [B, H, capacity, …]."""

from __future__ import annotations

from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Shader
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.options import Operand

ROW_PARAMS = ParamsLayout(
    source_strides="vec4<u32>",
    source_first="u32",
    batch="u32",
    heads="u32",
    count="u32",
    first_slot="u32",
    capacity="u32",
    kept="u32",
)


def dispatch_rows(
    shader: Shader,
    name: str,
    source: Operand,
    target: Tensor,
    workgroups: int,
    first_slot: int = 0,
    kept: int = 0,
) -> None:
    """Record ``shader`` over the rows of ``source``; row n goes to slot first_slot + n.

    Past the last slot it goes on at slot ``kept``. ``name`` is what errors call the source.
    """
    device = target.device
    batch, heads, count = source.tensor.shape[:3]
    bound = device.bind(source.tensor, name)
    params = ROW_PARAMS.pack(
        source_strides=source.strides,
        source_first=bound.first,
        batch=batch,
        heads=heads,
        count=count,
        first_slot=first_slot,
        capacity=target.shape[2],
        kept=kept,
    )
    buffers = [bound, device.bind(target, "target")]
    device.dispatch(shader, params, buffers, device.grid(workgroups, name))
