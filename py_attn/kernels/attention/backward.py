"""Gradients of attention, recomputed from the LSE (FlashAttention-2, Dao, arXiv 2307.08691)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from py_attn.arguments import Layout, Window
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, Shader, render
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.options import (
    SCORE_PARAMS,
    Inputs,
    Operand,
    check_lse,
    operand,
    output_like,
    output_type,
    pad4,
    padded_output,
    prepare,
    score_params,
)
from py_attn.kernels.attention.packing import TILES, tile_slots, tile_table
from py_attn.kernels.attention.tiles import Tile, choose_tile, tiles_for
from py_attn.kernels.mods import MOD_PARAMS, mod_params
from py_attn.kernels.sinks import SINK_PARAMS, sink_binding, sink_constants, sink_params

_DELTA_PARAMS = ParamsLayout(
    grad_strides="vec4<u32>",
    out_strides="vec4<u32>",
    lse_strides="vec4<u32>",
    grad_first="u32",
    out_first="u32",
    lse_first="u32",
    heads="u32",
    queries="u32",
    rows="u32",
)
_COMMON = {
    **SCORE_PARAMS,
    **MOD_PARAMS,
    "value_strides": "vec4<u32>",
    "grad_strides": "vec4<u32>",
    "value_first": "u32",
    "grad_first": "u32",
    "tiles": "u32",
    "grad_scale": "f32",
}
_QUERY_PARAMS = ParamsLayout(**_COMMON, d_query_strides="vec4<u32>")
_KEY_PARAMS = ParamsLayout(**_COMMON, d_key_strides="vec4<u32>", d_value_strides="vec4<u32>")
_SINK_PARAMS = ParamsLayout(batch="u32", heads="u32", queries="u32", **SINK_PARAMS)
_DELTA_WORKGROUP = 64
_SINK_WORKGROUP = 64


def attention_backward(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    lse: Any,
    *,
    mask: Any = None,
    causal: bool | Literal["bottom-right", "top-left"] = False,
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
    kv_lengths: Any = None,
    query_offset: int | None = None,
    layout: Layout = "BHSD",
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    sinks: Any = None,
) -> tuple[Tensor, ...]:
    """The gradients of :func:`attention` with respect to query, key and value, and to sinks where given.

    The probabilities are recomputed tile by tile from the LSE. Each gradient has one workgroup that
    writes it, so there are no atomics and results are the same from run to run; with grouped heads,
    those of key and value are summed over the group. The keywords must be those of the forward call; the
    tensors that a ``score_mod`` looks things up in get no gradient.

    Parameters
    ----------
    grad_out : Tensor or array_like
        Gradient of the output, [B, Hq, Sq, Dv] (or "BSHD").
    query, key, value : Tensor or array_like
        As in :func:`attention`.
    out, lse : Tensor or array_like
        What :func:`attention` returned with ``return_lse=True``.

    Returns
    -------
    d_query, d_key, d_value : Tensor
        Shaped and typed like query, key and value.
    d_sinks : Tensor
        [Hq] float32, a fourth one where there are ``sinks``.

    Raises
    ------
    ValueError, TypeError
        For an argument that does not fit.
    """
    inputs = prepare(
        query,
        key,
        value,
        mask=mask,
        causal=causal,
        window=window,
        scale=scale,
        softcap=softcap,
        kv_lengths=kv_lengths,
        query_offset=query_offset,
        layout=layout,
        score_mod=score_mod,
        mask_mod=mask_mod,
        sinks=sinks,
        slope=True,
    )
    gradients, d_sinks = run(inputs, grad_out, out, lse)
    return (*(inputs.as_bhsd(gradient) for gradient in gradients), *d_sinks)


def run(
    inputs: Inputs, grad_out: Any, out: Any, lse: Any
) -> tuple[tuple[Tensor, Tensor, Tensor], list[Tensor]]:
    """The gradients of checked inputs: of query, key and value as [B, H, S, D], and of sinks if any."""
    p = inputs.problem
    out_shape = (p.batch, p.heads, p.queries, p.value_head_dim)
    grad = output_like("grad_out", grad_out, out_shape, inputs)
    result = output_like("out", out, out_shape, inputs)
    row_lse = check_lse(lse, inputs)
    d_query, d_key, d_value = (
        padded_output(inputs, x.tensor.shape, x.tensor.dtype) for x in inputs.operands()
    )
    row_values = _row_values(inputs, grad, result, row_lse)
    backward = _Backward(inputs, grad, row_values)
    if d_query.size:
        backward.dispatch("query", p.queries, p.heads, {"d_query": d_query})
    if d_key.size:
        backward.dispatch("key", p.keys, p.kv_heads, {"d_key": d_key, "d_value": d_value})
    d_sinks = [] if inputs.sinks is None else [_sink_gradient(inputs, inputs.sinks, row_values)]
    return (d_query, d_key, d_value), d_sinks


def _row_values(inputs: Inputs, grad: Operand, out: Operand, lse: Tensor) -> Tensor:
    """The LSE and Σ grad·out of every row, [B, Hq, Sq, 2] float32."""
    p, device = inputs.problem, inputs.device
    rows = device.empty((p.batch, p.heads, p.queries, 2))
    if not rows.size:
        return rows
    named = (("grad_out", grad.tensor), ("out", out.tensor), ("lse", lse), ("rows", rows))
    bound = [device.bind(tensor, name) for name, tensor in named]
    constants = {
        "grad_dtype": grad.tensor.dtype,
        "grad_packed": grad.packed,
        "out_dtype": out.tensor.dtype,
        "out_packed": out.packed,
        "dtypes": (grad.tensor.dtype, out.tensor.dtype),
        "DV": p.value_head_dim,
        "DV4": pad4(p.value_head_dim) // 4,
        "WORKGROUP": _DELTA_WORKGROUP,
    }
    shader = _render_delta((grad.binding, out.binding), tuple(constants.items()))
    params = _DELTA_PARAMS.pack(
        grad_strides=grad.strides,
        out_strides=out.strides,
        grad_first=bound[0].first,
        out_first=bound[1].first,
        lse_strides=(*lse.strides, 0),
        lse_first=bound[2].first,
        heads=p.heads,
        queries=p.queries,
        rows=rows.size // 2,
    )
    device.dispatch(shader, params, bound, device.grid(-(-rows.size // 2 // _DELTA_WORKGROUP), "query"))
    return rows


def _sink_gradient(inputs: Inputs, sinks: Tensor, row_values: Tensor) -> Tensor:
    """The gradient of the sinks, float32 [Hq], from the rows' LSEs and Σ grad·out."""
    p, device = inputs.problem, inputs.device
    if not row_values.size:
        return device.tensor(np.zeros(p.heads, np.float32))
    d_sinks = device.empty((p.heads,))
    named = (("rows", row_values), ("sinks", sinks), ("d_sinks", d_sinks))
    bound = [device.bind(tensor, name) for name, tensor in named]
    params = _SINK_PARAMS.pack(
        batch=p.batch, heads=p.heads, queries=p.queries, **sink_params(sinks, bound[1].first)
    )
    device.dispatch(_render_sinks(sinks.dtype), params, bound, device.grid(p.heads, "sinks"))
    return d_sinks


class _Backward:
    """What the two passes share."""

    def __init__(self, inputs: Inputs, grad: Operand, row_values: Tensor) -> None:
        self.inputs = inputs
        self.grad = grad
        self.row_values = row_values

    def dispatch(self, side: str, rows: int, heads: int, outputs: dict[str, Tensor]) -> None:
        """One pass: ``side`` owns the rows."""
        inputs, p, device = self.inputs, self.inputs.problem, self.inputs.device
        d4, dv4 = pad4(p.head_dim) // 4, pad4(p.value_head_dim) // 4
        limits, software = device.info.limits, device.info.software
        sums4 = (d4,) if side == "query" else (d4, dv4)
        tiles = tiles_for(
            max(d4, dv4),
            max(sums4),
            limits,
            0,
            software,
            scores=2,
            sums4=sums4,
            inline=inputs.masked_one_by_one,
        )
        plain = [tile for tile in tiles if not tile.query_resident and tile.buffers == 1]
        tile = choose_tile(rows, heads * p.batch, plain)
        if tile is None:
            allowed = device.info.limits["maxComputeWorkgroupStorageSize"]
            raise ValueError(
                f"query: the backward pass with head dims {p.head_dim} and {p.value_head_dim} needs more "
                f"workgroup memory than the {allowed:,} bytes of {device.info}"
            )
        named = [*inputs.tensors(), ("grad", self.grad.tensor), ("rows", self.row_values)]
        named += outputs.items()
        packing = inputs.packing
        if packing:
            slots = tile_slots(rows, packing, tile.queries)
            table = tile_table(inputs, tile.queries, side)
            named.insert(-len(outputs), ("tiles", table))
        else:
            slots = -(-rows // tile.queries)
        bound = {name: device.bind(tensor, name) for name, tensor in named}
        assert inputs.value is not None
        firsts = {name: buffer.first for name, buffer in bound.items()}
        params = (_QUERY_PARAMS if side == "query" else _KEY_PARAMS).pack(
            **score_params(inputs, firsts),
            **mod_params(inputs.mods, firsts),
            value_strides=inputs.value.strides,
            grad_strides=self.grad.strides,
            value_first=bound["value"].first,
            grad_first=bound["grad"].first,
            tiles=slots,
            grad_scale=p.masking.scale,
            **{f"{name}_strides": operand(name, tensor).strides for name, tensor in outputs.items()},
        )
        constants = inputs.constants() | {
            "grad_dtype": self.grad.tensor.dtype,
            "grad_packed": self.grad.packed,
            "dtypes": tuple(sorted({*inputs.dtypes(), self.grad.tensor.dtype})),
            "DV": p.value_head_dim,
            "DV4": dv4,
            "side": side,
            "unrolled": not device.info.software,
        }
        bindings = [*inputs.bindings(), self.grad.binding, Binding("row_values", "vec2<f32>")]
        if packing:
            bindings.append(TILES)
        bindings += [Binding(name, output_type(t.dtype), writes=True) for name, t in outputs.items()]
        shader = _render_backward(side, tile, tuple(bindings), tuple(constants.items()))
        device.dispatch(shader, params, list(bound.values()), device.grid(slots * heads * p.batch, "query"))


@functools.lru_cache(maxsize=64)
def _render_delta(inputs: tuple[Binding, ...], constants: tuple[tuple[str, Any], ...]) -> Shader:
    return render(
        "attention/backward_delta.wgsl",
        "backward_delta",
        "rows",
        params=_DELTA_PARAMS,
        bindings=(*inputs, Binding("lse", "f32"), Binding("row_values", "vec2<f32>", writes=True)),
        constants=dict(constants),
    )


@functools.cache
def _render_sinks(dtype: str) -> Shader:
    return render(
        "attention/sink_gradient.wgsl",
        "sink_gradient",
        dtype,
        params=_SINK_PARAMS,
        bindings=(
            Binding("row_values", "vec2<f32>"),
            sink_binding(dtype),
            Binding("d_sinks", "f32", writes=True),
        ),
        constants={**sink_constants(dtype, ()), "WORKGROUP": _SINK_WORKGROUP},
    )


@functools.lru_cache(maxsize=128)
def _render_backward(
    side: str, tile: Tile, bindings: tuple[Binding, ...], constants: tuple[tuple[str, Any], ...]
) -> Shader:
    return render(
        "attention/backward.wgsl",
        "attention_backward",
        side,
        params=_QUERY_PARAMS if side == "query" else _KEY_PARAMS,
        bindings=bindings,
        constants=dict(constants) | tile.constants(),
    )
