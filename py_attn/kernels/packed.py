"""Tensors of any dtypes copied into one, where a kernel has too few buffers to bind each."""

from __future__ import annotations

from collections.abc import Mapping

from py_attn.gpu.device import Device
from py_attn.gpu.kernel import Arg, Kernel, Launch, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.copy import four_axes
from py_attn.kernels.mods import PACKED, places

_PACK = Kernel(
    "pack_words",
    "pack_words.wgsl",
    ParamsLayout(shape="vec4<u32>", strides="vec4<u32>", source_first="u32", begin="u32", count="u32"),
)
_ELEMENTS = {"float32": "f32", "int32": "i32", "uint32": "i32"}
_WORKGROUP = 64


def with_packed(device: Device, plan: Plan, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """``tensors`` and, where the plan reads it, the one that holds those that its mods look things up in."""
    if not any(PACKED in each.tensors for each in plan.launches):
        return tensors
    captured = [tensor for name, tensor in tensors.items() if name.startswith(f"{PACKED}_")]
    begins = places(captured)
    sources = {f"source_{n}": four_axes(tensor) for n, tensor in enumerate(captured)}
    launches = [
        _launch(device, name, source, begin)
        for (name, source), begin in zip(sources.items(), begins, strict=False)
    ]
    packed = NewTensor(PACKED, (begins[-1],), "uint32")
    made = device.run(Plan((packed,), tuple(launches)), sources)
    return {**tensors, PACKED: made[PACKED]}


def _launch(device: Device, name: str, source: Tensor, begin: int) -> Launch:
    element = Arg("source", _ELEMENTS.get(source.dtype, "u32"), tensor=name)
    return launch(
        _PACK,
        [element, Arg("out", "u32", writes=True, tensor=PACKED)],
        {name: source},
        device.info.limits,
        variant=source.dtype,
        workgroups=-(-source.size // _WORKGROUP),
        params={"shape": source.shape, "strides": source.strides, "begin": begin, "count": source.size},
        constants={"dtype": source.dtype, "dtypes": (source.dtype,), "WORKGROUP": _WORKGROUP},
        grid_name="score_mod",
    )
