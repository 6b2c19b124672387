"""Scaled dot-product attention (Vaswani et al., arXiv 1706.03762), fused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from py_attn.arguments import Layout, Window
from py_attn.gpu.device import Device
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import SUBGROUP_ID, Binding, Shader, render
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.join import CUT_PARAMS, PIECES, cut_params, empty_pieces, plan_join
from py_attn.kernels.attention.matrix import ENABLE, MatrixTile, bindings, layouts, matrix_tile, missing
from py_attn.kernels.attention.options import (
    SCORE_PARAMS,
    Inputs,
    operand,
    output_type,
    pad4,
    padded_output,
    prepare,
    score_params,
)
from py_attn.kernels.attention.packing import TILES, tile_slots, tile_table
from py_attn.kernels.attention.tiles import Cut, Tile, choose_tile, cut_of, tiles_for
from py_attn.kernels.attention.tuning import tuned
from py_attn.kernels.forms import Launch
from py_attn.kernels.mods import MOD_PARAMS, mod_params
from py_attn.kernels.sinks import SINK_PARAMS, sink_binding, sink_constants, sink_params

Variant = Literal["auto", "naive", "rows", "tiled", "subgroup", "matrix"]
VARIANTS = ("auto", "naive", "rows", "tiled", "subgroup", "matrix")
_NAIVE_WORKGROUP = 64
# Few invocations to a workgroup, so that short inputs still make work for every core.
_ROWS = {"WORKGROUP": 16, "ROWS": 4, "BQ": 64}
# Fewer queries leave parts of a CPU's vector registers empty, and the textbook form is as fast.
_ROWS_MIN_QUERIES = 16
_PARAMS = ParamsLayout(
    **SCORE_PARAMS,
    **MOD_PARAMS,
    **SINK_PARAMS,
    **CUT_PARAMS,
    value_strides="vec4<u32>",
    out_strides="vec4<u32>",
    value_first="u32",
    rows="u32",
    tiles="u32",
)


def attention(
    query: Any,
    key: Any,
    value: Any,
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
    variant: Variant = "auto",
    return_lse: bool = False,
) -> Any:
    """softmax(scale · query keyᵀ + mask) value, without ever storing the scores.

    Query i stands at position i + Sk - Sq among the keys ("bottom-right": the queries are the last
    ones), or at i with ``causal="top-left"``; with ``kv_lengths``, Sk is that batch element's length.
    Storage may be any mix of the three float types, all arithmetic is float32.

    Parameters
    ----------
    query : Tensor or array_like
        [B, Hq, Sq, D]; D from 1 to 512. Any strides.
    key : Tensor or array_like
        [B, Hkv, Sk, D]; Hq a multiple of Hkv (grouped-query attention, arXiv 2305.13245).
    value : Tensor or array_like
        [B, Hkv, Sk, Dv]; Dv from 1 to 512.
    mask : Tensor or array_like, optional
        Booleans (True = may attend) or floats (added to the scores), of any shape that broadcasts to
        [B, Hq, Sq, Sk]; broadcast axes are never expanded in memory.
    causal : bool or str
        False, True or "bottom-right", or "top-left": no key after the query's position.
    window : int or (int or None, int or None), optional
        How many keys before and after the position may be seen, itself always included.
    scale : float, optional
        Factor on the dot products; 1/√D unless given.
    softcap : float, optional
        c > 0 turns a score s into c·tanh(s/c) before the mask (Gemma 2, arXiv 2408.00118).
    kv_lengths : Tensor or array_like of int, optional
        [B] valid keys per batch element. A Tensor's values are clamped to 0 … Sk on the GPU.
    query_offset : int, optional
        Query i stands at key i + query_offset, however many keys there are.
    layout : str
        "BHSD" or "BSHD", for query, key, value and output alike.
    score_mod : callable, optional
        ``score_mod(score, b, h, q_idx, kv_idx)`` gives the score to use: arithmetic on its arguments,
        ``pa.where`` and its like, and tensors indexed by them. It sees the score after scale and softcap
        and before the mask, and is traced into the kernel; see :mod:`py_attn.mods`.
    mask_mod : callable, optional
        ``mask_mod(b, h, q_idx, kv_idx)`` says whether the query may attend. Tiles that it empties are
        not computed.
    sinks : Tensor or array_like, optional
        [Hq] attention sinks: a logit of each head, compared with the scores (scaled and capped) in each
        row's softmax without having a value, as in GPT-OSS: out = Σ exp(s) v / (exp(sink) + Σ exp(s)).
        It counts in the LSE too; a head whose sink is -inf has none.
    variant : str
        "naive", "rows" (several query rows to an invocation, for adapters that compute on a CPU), "tiled"
        (workgroup memory), "subgroup" (also shuffles), or "auto", which chooses among these. "matrix", for
        float16 inputs and head dims up to 256, multiplies on tensor cores through WebGPU's experimental
        subgroup matrices: float16 weights, float32 sums, so within float16's error instead of float32's.
        It needs an adapter with them and with shader-f16, in Chromium behind flags (docs/attention.md).
    return_lse : bool
        Also return the log-sum-exp of each row's scores.

    Returns
    -------
    Tensor or (Tensor, Tensor)
        Output like query but with Dv, in the query's dtype; LSE [B, Hq, Sq] float32 (natural log).
        A row that may see nothing gives zeros and -inf, or the LSE of its sink alone.

    Raises
    ------
    ValueError, TypeError
        For an argument that does not fit, or a variant that this adapter cannot run.
    """
    if value is None:
        raise TypeError("value: expected a Tensor or an array, got None")
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
    )
    out, lse = run(inputs, variant, return_lse=return_lse)
    return (inputs.as_bhsd(out), lse) if return_lse else inputs.as_bhsd(out)


def run(inputs: Inputs, variant: object, *, return_lse: bool) -> tuple[Tensor, Tensor | None]:
    """Attention of checked inputs: the output seen as [B, Hq, Sq, Dv], and the LSE [B, Hq, Sq]."""
    if variant == "matrix":
        return _record(inputs, (variant, matrix_tile(inputs)), return_lse)
    choice = choose_variant(inputs, variant)
    if variant == "auto" and not inputs.masked_one_by_one:
        choice = tuned(inputs, choice, _record)
    return _record(inputs, choice, return_lse)


def _record(
    inputs: Inputs, choice: tuple[str, Tile | MatrixTile | None], return_lse: bool = False
) -> tuple[Tensor, Tensor | None]:
    p, (chosen, tile) = inputs.problem, choice
    out = padded_output(inputs, (p.batch, p.heads, p.queries, p.value_head_dim), inputs.query.tensor.dtype)
    lse = inputs.device.empty((p.batch, p.heads, p.queries)) if return_lse else None
    if out.size:
        _dispatch(inputs, chosen, tile, out, lse)
    return out, lse


def choose_variant(inputs: Inputs, variant: object) -> tuple[str, Tile | None]:
    """The variant to run, any but "matrix", and its tile.

    Raises
    ------
    ValueError
        When ``variant`` is unknown or this adapter cannot run it, naming what is missing.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant: expected one of {', '.join(VARIANTS)}, got {variant!r}")
    info = inputs.device.info
    # Workgroup memory is no faster than other memory on a CPU, and costs there when a pipeline is made.
    p = inputs.problem
    if variant == "auto" and info.software:
        variant = "rows" if p.queries >= _ROWS_MIN_QUERIES else "naive"
    if variant in ("naive", "rows"):
        return str(variant), None
    d4, dv4 = pad4(p.head_dim) // 4, pad4(p.value_head_dim) // 4
    inline = inputs.masked_one_by_one
    sizes = {"cut_keys": p.keys if _may_cut(inputs) else 0, "wide4": dv4}
    if variant in ("subgroup", "auto"):
        if info.subgroup_min_size >= 4:
            tiles = tiles_for(d4, dv4, info.limits, info.subgroup_min_size, info.software, inline=inline)
            tile = choose_tile(p.queries, p.batch * p.heads, tiles, **sizes)
            if tile:
                return "subgroup", tile
        if variant == "subgroup":
            missing = "subgroups of 4 or more" if info.subgroup_min_size < 4 else "more workgroup memory"
            raise ValueError(f"variant: subgroup needs {missing}, which {info} lacks")
    tiles = tiles_for(d4, dv4, info.limits, 0, info.software, inline=inline)
    tile = choose_tile(p.queries, p.batch * p.heads, tiles, **sizes)
    if tile:
        return "tiled", tile
    if variant == "tiled":
        allowed = info.limits["maxComputeWorkgroupStorageSize"]
        raise ValueError(
            f"variant: tiled with head dims {p.head_dim} and {p.value_head_dim} needs more workgroup memory "
            f"than the {allowed:,} bytes of {info}"
        )
    return "naive", None


def _may_cut(inputs: Inputs) -> bool:
    """Whether all tiles walk along all keys."""
    m = inputs.problem.masking
    unmasked = m.window_left is None and m.window_right is None and not inputs.masked_one_by_one
    return unmasked and not inputs.packing


class Plan(NamedTuple):
    """What is dispatched, the rows of its tiles, which of these are cut, and what joins their pieces."""

    launch: Launch
    tile_rows: int
    cut: Cut | None
    join: Launch | None


def _dispatch(
    inputs: Inputs, variant: str, tile: Tile | MatrixTile | None, out: Tensor, lse: Tensor | None
) -> None:
    device = inputs.device
    named = inputs.tensors()
    if inputs.sinks is not None:
        named.append(("sinks", inputs.sinks))
    buffers = [device.bind(tensor, name) for name, tensor in named]
    sequences = inputs.packing.sequences if inputs.packing else None
    key = (variant, tile, lse is not None, sequences)
    plan: Plan | None = inputs.plans.get(key)
    if plan is None:
        firsts = {name: bound.first for (name, _), bound in zip(named, buffers, strict=True)}
        plan = inputs.plans[key] = _plan(inputs, variant, tile, firsts, out, lse is not None)
    if inputs.packing:
        buffers.append(device.bind(tile_table(inputs, plan.tile_rows, "query"), "cu_seqlens_q"))
    buffers.append(device.bind(out, "out"))
    if lse is not None:
        buffers.append(device.bind(lse, "lse"))
    if plan.cut is None or plan.join is None:
        plan.launch.record(device, buffers)
        return
    outputs = buffers[len(inputs.tensors()) :]
    pieces = empty_pieces(device, plan.cut, plan.tile_rows, inputs.problem.value_head_dim)
    buffers.append(device.bind(pieces, "pieces"))
    plan.launch.record(device, buffers)
    plan.join.record(device, [buffers[-1], *outputs])


def _plan(
    inputs: Inputs,
    variant: str,
    tile: Tile | MatrixTile | None,
    firsts: dict[str, int],
    out: Tensor,
    return_lse: bool,
) -> Plan:
    problem = inputs.problem
    tile_rows = tile.queries if tile else _ROWS["BQ"] if variant == "rows" else _NAIVE_WORKGROUP
    assert inputs.value is not None
    rows = problem.batch * problem.heads * problem.queries
    if inputs.packing:
        tiles = tile_slots(problem.queries, inputs.packing, tile_rows)
        workgroups = tiles * problem.heads
    elif variant != "naive":
        tiles = -(-problem.queries // tile_rows)
        workgroups = tiles * problem.heads * problem.batch
    else:
        tiles, workgroups = 0, -(-rows // tile_rows)
    cut = join = None
    if isinstance(tile, Tile) and _may_cut(inputs):
        cut = cut_of(workgroups, problem.keys, tile, pad4(problem.value_head_dim) // 4)
    params = _PARAMS.pack(
        **score_params(inputs, firsts),
        **mod_params(inputs.mods, firsts),
        **sink_params(inputs.sinks, firsts.get("sinks", 0)),
        **cut_params(cut, workgroups),
        value_strides=inputs.value.strides,
        out_strides=operand("out", out).strides,
        value_first=firsts["value"],
        rows=rows,
        tiles=tiles,
    )
    if cut and isinstance(tile, Tile):
        join = plan_join(inputs, cut, tile, tiles, out, firsts.get("sinks", 0), return_lse=return_lse)
        workgroups += cut.tiles * (cut.pieces - 1)
    shader = attention_shader(inputs, variant, tile, return_lse, in_pieces=cut is not None)
    return Plan(Launch(shader, params, inputs.device.grid(workgroups, "query")), tile_rows, cut, join)


def attention_shader(
    inputs: Inputs, variant: str, tile: Tile | MatrixTile | None, return_lse: bool, *, in_pieces: bool = False
) -> Shader:
    """The shader of one call, rendered once for each set of constants."""
    constants = inputs.constants()
    constants["in_pieces"] = in_pieces
    constants["DV"] = inputs.problem.value_head_dim
    constants["DV4"] = pad4(inputs.problem.value_head_dim) // 4
    constants["return_lse"] = return_lse
    info = inputs.device.info
    constants["subgroup_ids"] = variant in ("subgroup", "matrix") and SUBGROUP_ID in info.features
    if variant == "matrix":
        constants |= layouts(inputs)
    declared = bindings(inputs) if variant == "matrix" else inputs.bindings()
    sinks = inputs.sinks.dtype if inputs.sinks is not None else None
    constants |= sink_constants(sinks, inputs.dtypes())
    if sinks:
        declared.append(sink_binding(sinks))
    return _render(variant, tile, not info.software, tuple(declared), tuple(constants.items()))


@functools.lru_cache(maxsize=256)
def _render(
    variant: str,
    tile: Tile | MatrixTile | None,
    unrolled: bool,
    inputs: tuple[Binding, ...],
    constants: tuple[tuple[str, Any], ...],
) -> Shader:
    values = dict(constants)
    if variant == "rows":
        values |= _ROWS
    else:
        values |= tile.constants() if tile else {"WORKGROUP": _NAIVE_WORKGROUP}
    values["subgroups"] = variant == "subgroup"
    values["unrolled"] = unrolled
    outputs = [TILES] if values["varlen"] else []
    outputs.append(Binding("out", output_type(values["query_dtype"]), writes=True))
    if values["return_lse"]:
        outputs.append(Binding("lse", "f32", writes=True))
    if values["in_pieces"]:
        outputs.append(PIECES)
    return render(
        f"attention/{variant if variant in ('naive', 'rows', 'matrix') else 'tiled'}.wgsl",
        "attention",
        variant,
        params=_PARAMS,
        bindings=(*inputs, *outputs),
        constants=values,
        enable={"subgroup": ("subgroups",), "matrix": ENABLE}.get(variant, ()),
        requires=(SUBGROUP_ID,) if values["subgroup_ids"] else (),
    )


def device_variants(device: Device, dtype: str = "float32") -> list[str]:
    """The variants that ``device`` can run for inputs of ``dtype`` with common head dims, fastest first."""
    found = ["matrix"] if dtype == "float16" and not missing(device.info) else []
    if device.info.subgroup_min_size >= 4:
        found.append("subgroup")
    return [*(["rows"] if device.info.software else []), *found, "tiled", "naive"]
