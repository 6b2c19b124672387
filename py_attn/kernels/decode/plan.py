"""The launches of a decode: rotation of the query, the splits, their reduction, rotation of the output."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from py_attn.gpu.binding import Workgroups, fits_in_grid, most_invocations
from py_attn.gpu.kernel import Arg, Kernel, Launch, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import SUBGROUP_ID, SUBGROUP_UNIFORMITY
from py_attn.kernels.decode.config import Config, RowLoads
from py_attn.kernels.decode.formats import Integers
from py_attn.kernels.decode.options import Call
from py_attn.kernels.decode.pages import PAGE_PARAMS, TABLE, page_args, page_constants, page_params
from py_attn.kernels.decode.tiled_codes import MATRICES, TileRuns
from py_attn.kernels.lse import LSE_PARAMS, lse_plane, new_lse
from py_attn.kernels.mods import MOD_PARAMS
from py_attn.kernels.operands import Operand, in_vec4s, new_operand, output_type, padded_rows, power_of_two
from py_attn.kernels.quantization import turboquant
from py_attn.kernels.rotary import launch_rotary
from py_attn.kernels.scores import SCORE_PARAMS
from py_attn.kernels.sinks import SINK_PARAMS, sink_args, sink_constants
from py_attn.kernels.steps import READS_STATE, STATE_PARAMS

_SPLIT_PARAMS = {
    **SCORE_PARAMS,
    "kv_heads": "u32",
    "row_tiles": "u32",
    "splits": "u32",
    "split_first": "u32",
    "split_span": "u32",
    "split_stride": "u32",
    "first_key": "u32",
    "start": "u32",
    "capacity": "u32",
    "kept": "u32",
    "dropped": "i32",
    "query_position": "i32",
    **MOD_PARAMS,
    **SINK_PARAMS,
    **LSE_PARAMS,
    **STATE_PARAMS,
}
# Of tiles: where splits begin and how they go on, in tiles; and a 0 that the compiler does not know.
_TILE_PARAMS = {"first_tile": "u32", "steps": "u32", "zero": "u32"}
_ELEMENT_PARAMS = {"totals_first": "u32", "left_padding_first": "u32", "left_padding_stride": "u32"}
_SPLIT = Kernel("decode_split", "decode/split.wgsl", ParamsLayout(**_SPLIT_PARAMS))
# What differs between batch elements: their lengths, or how many of their first positions are padding.
_SPLIT_ELEMENTS = Kernel(
    "decode_split", "decode/split.wgsl", ParamsLayout(**_SPLIT_PARAMS, **_ELEMENT_PARAMS)
)
_SPLIT_PAGES = Kernel(
    "decode_split", "decode/split.wgsl", ParamsLayout(**_SPLIT_PARAMS, **_ELEMENT_PARAMS, **PAGE_PARAMS)
)
_SPLIT_TILES = Kernel(
    "decode_split", "decode/integer_split.wgsl", ParamsLayout(**_SPLIT_PARAMS, **_TILE_PARAMS)
)
_SPLIT_TILES_ELEMENTS = Kernel(
    "decode_split",
    "decode/integer_split.wgsl",
    ParamsLayout(**_SPLIT_PARAMS, **_TILE_PARAMS, **_ELEMENT_PARAMS),
)
_REDUCE = Kernel(
    "decode_reduce",
    "decode/reduce.wgsl",
    ParamsLayout(
        rows="u32",
        splits="u32",
        heads="u32",
        queries="u32",
        empty_lse="f32",
        **LSE_PARAMS,
        **SINK_PARAMS,
    ),
)
_REDUCE_WORKGROUP = 256
# Columns of a workgroup of the reduction, in vec4s: 128 bytes are read together by memory; twice as many are
# faster where there are at least so many workgroups of them (bench/NOTES.md).
_REDUCE_COLUMNS = 8
_REDUCE_BUSY = 64
# Splits that an invocation of the reduction asks memory for before it uses the first; where one workgroup
# computes a whole row there are few of them, and each asks for more.
_REDUCE_TOGETHER = 2
_REDUCE_TOGETHER_OF_ROWS = 8


def plan_attention(call: Call, config: Config | TileRuns, *, return_lse: bool) -> Plan:
    """The plan that makes ``out`` and, where asked for, ``lse``."""
    cache, shape, dtype = call.cache, call.out_shape, call.query.dtype
    # An output that comes rotated is rounded to its dtype only after it has been rotated back.
    comes_rotated = cache.value_format is not None and not config.rotates_back
    name = "rotated_out" if comes_rotated else "out"
    result = padded_rows(name, shape, "float32" if comes_rotated else dtype)
    lse = _new_lse(call, "lse", shape[:3]) if return_lse else None
    makes = [result.as_scratch if comes_rotated else result, *([lse] if lse else [])]
    launches: list[Launch] = []
    main = 0
    if 0 not in shape:
        query = _rotated_query(call, config, makes, launches)
        main = len(launches)
        if config.combines:
            partials = _new_partials(call, config)
            makes += [each.as_scratch for each in partials]
            launches.append(_launch_splits(call, config, query, partials[0], None, is_partial=True))
            launches.append(_launch_reduce(call, config, result, lse))
        else:
            launches.append(_launch_splits(call, config, query, result, lse, with_sinks=True))
    if comes_rotated:
        _rotate_back(call, result, "out", dtype, makes, launches)
    return Plan(tuple(makes), tuple(launches), main)


def plan_partials(call: Call, config: Config | TileRuns) -> Plan:
    """The plan that makes ``partial_out`` and ``partial_lse``."""
    partial_out = _new_partial_out(call, config)
    partial_lse = _new_lse(call, "partial_lse", partial_out.shape[:4])
    makes = [partial_lse]
    launches: list[Launch] = []
    rotated = call.cache.value_format is not None
    if rotated:
        partial_out = partial_out._replace(name="rotated_out").as_scratch
    makes.append(partial_out)
    main = 0
    if 0 not in partial_out.shape:
        query = _rotated_query(call, config, makes, launches)
        main = len(launches)
        launches.append(_launch_splits(call, config, query, partial_out, partial_lse))
    if rotated:
        _rotate_back(call, partial_out, "partial_out", "float32", makes, launches)
    return Plan(tuple(makes), tuple(launches), main)


def plan_step_partials(call: Call, config: Config | TileRuns) -> Plan:
    """The plan that makes ``partial_out`` and ``partial_rows``, which another kernel combines.

    Values are floats, so that no sum has to be rotated back.
    """
    makes: list[NewTensor] = []
    launches: list[Launch] = []
    query = _rotated_query(call, config, makes, launches)
    partials = _new_partials(call, config)
    makes += partials
    launches.append(_launch_splits(call, config, query, partials[0], None, is_partial=True))
    return Plan(tuple(makes), tuple(launches), main=len(launches) - 1)


def _new_partials(call: Call, config: Config | TileRuns) -> list[NewTensor]:
    """The output of each split, and its row_max and row_sum."""
    rows = NewTensor("partial_rows", (*call.out_shape[:3], config.splits, 2))
    return [_new_partial_out(call, config), rows]


def _new_partial_out(call: Call, config: Config | TileRuns) -> NewTensor:
    """The output of each split, normalised by itself."""
    shape = (*call.out_shape[:3], config.splits, call.cache.value_head_dim)
    return padded_rows("partial_out", shape, "float32")


def _new_lse(call: Call, name: str, shape: tuple[int, ...]) -> NewTensor:
    return new_lse(name, shape, call.device.info.limits, natural=call.mods.has_score_mod)


def _rotated_query(
    call: Call, config: Config | TileRuns, makes: list[NewTensor], launches: list[Launch]
) -> tuple[str, Operand]:
    """The query and its name; rotated where the keys are, unless the launch over the splits does that."""
    form = call.cache.key_format
    name, query = _turned_query(call, makes, launches)
    if form is None or config.rotates:
        return name, query
    b, h, s, _ = query.shape
    rotated = turboquant.new_rotated("rotated_query", (b, h, s), form, "float32", "forth")
    source = dataclasses.replace(query, name="source")
    limits = call.device.info.limits
    makes.append(rotated.as_scratch)
    launches.append(
        turboquant.launch_rotation(source, rotated, form, "forth", call.tensors, limits, name=name)
    )
    return rotated.name, new_operand("query", rotated)


def _turned_query(call: Call, makes: list[NewTensor], launches: list[Launch]) -> tuple[str, Operand]:
    """The query and its name; with its rotary embeddings where they are asked for, in float32."""
    if call.rotary is None:
        return "query", call.query
    turned = padded_rows("turned_query", call.query.shape, "float32")
    source = dataclasses.replace(call.query, name="source")
    limits, first = call.device.info.limits, call.position_params()["query_position"]
    makes.append(turned.as_scratch)
    launches.append(
        launch_rotary(source, turned, call.rotary, call.tensors, limits, name="query", first_position=first)
    )
    return turned.name, new_operand("query", turned)


def _rotate_back(
    call: Call, rotated: NewTensor, name: str, dtype: str, makes: list[NewTensor], launches: list[Launch]
) -> None:
    """Plan the tensor ``name``: the sums of rotated rows, rotated back and rounded to ``dtype``."""
    shape = rotated.shape
    form = turboquant.Format(turboquant.MAX_BITS, shape[-1])
    # Here each split of a row is a row of its own.
    rows = (*shape[:2], math.prod(shape[2:-1]))
    as_rows = rotated._replace(shape=(*rows, shape[-1]))
    out = turboquant.new_rotated(name, rows, form, dtype, "back")
    makes.append(out._replace(shape=shape))
    if 0 not in shape:
        limits = call.device.info.limits
        source = new_operand("source", as_rows)
        launches.append(turboquant.launch_rotation(source, out, form, "back", {}, limits, name=rotated.name))


def _row_type(dtype: str, form: turboquant.Format | Integers | None, loads: RowLoads) -> str:
    if form:
        return "u32"
    return "vec4<u32>" if loads.wide else output_type(dtype)


def _launch_splits(
    call: Call,
    config: Config | TileRuns,
    query: tuple[str, Operand],
    out: NewTensor,
    lse: NewTensor | None,
    *,
    with_sinks: bool = False,
    is_partial: bool = False,
) -> Launch:
    """The launch over the splits; it takes sinks only where no other launch combines splits.

    With ``is_partial`` it also writes ``partial_rows``: each row's row_max and row_sum in each split.
    """
    if isinstance(config, TileRuns):
        return _launch_tiles(call, config, query, out, lse)
    cache, info = call.cache, call.device.info
    name, query_operand = query
    sinks = call.sinks_dtype if with_sinks else None
    key_form = cache.key_format or cache.key_integers
    value_form = cache.value_format or cache.value_integers
    args = [
        Arg("query", query_operand.arg.type, tensor=name),
        *([READS_STATE] if call.has_state else []),
        *(Arg(name, "i32") for name in _element_names(call)),
        *page_args(call.tensors),
        Arg("key", _row_type(cache.dtype[0], key_form, config.keys), tensor="cache keys"),
        Arg("value", _row_type(cache.dtype[1], value_form, config.values), tensor="cache values"),
        *([Arg("scales", "f32")] if "scales" in call.tensors else []),
        *call.mods.args(),
        *sink_args(sinks),
        Arg("out", output_type(out.dtype), writes=True, tensor=out.name),
    ]
    if lse:
        args.append(Arg("lse", "f32", writes=True, tensor=lse.name))
    if is_partial:
        args.append(Arg("partial_rows", "vec2<f32>", writes=True))
    count = config.shape.rows
    subgroup_ids = config.shape.subgroups and SUBGROUP_ID in info.features
    return launch(
        _SPLIT_PAGES if TABLE in call.tensors else _SPLIT_ELEMENTS if _element_names(call) else _SPLIT,
        args,
        call.tensors,
        info.limits,
        variant=f"{count}-row{'s' if count > 1 else ''}{', subgroup' if config.shape.subgroups else ''}",
        workgroups=_split_grid(call, config),
        params={
            **_split_params(call, config, query_operand, lse),
            **config.split_range._asdict(),
            "sinks_stride": call.tensors["sinks"].strides[0] if sinks else 0,
            **page_params(call.tensors),
        },
        constants=_split_constants(call, config, query_operand, out, sinks)
        | _common_constants(call, config, query, lse)
        | {
            "subgroup_ids": subgroup_ids,
            "is_partial": is_partial,
            **page_constants(call.tensors),
        },
        enable=("subgroups",) if config.shape.subgroups else (),
        requires=(SUBGROUP_ID,) if subgroup_ids else (),
    )


def _split_params(
    call: Call, config: Config | TileRuns, query: Operand, lse: NewTensor | None
) -> dict[str, Any]:
    cache = call.cache
    return {
        **call.score_params(),
        "query_strides": query.strides,
        "kv_heads": call.problem.kv_heads,
        "row_tiles": config.row_tiles,
        "splits": config.splits,
        "first_key": call.first_key,
        "capacity": cache.capacity,
        "kept": cache.sink_tokens,
        **call.position_params(),
        "lse_plane": lse_plane(lse),
        **_element_params(call),
    }


def _split_grid(call: Call, config: Config | TileRuns) -> Workgroups:
    """Workgroups of either launch over the splits; their number where a dimension would be too long."""
    cache = call.cache
    sizes = config.splits * config.row_tiles, cache.kv_heads, cache.batch
    return sizes if fits_in_grid(sizes, call.device.info.limits) else math.prod(sizes)


def _common_constants(
    call: Call, config: Config | TileRuns, query: tuple[str, Operand], lse: NewTensor | None
) -> dict[str, Any]:
    """Template variables of either launch over the splits."""
    name, operand = query
    return {
        "flat_grid": isinstance(_split_grid(call, config), int),
        "one_row_tile": config.row_tiles == 1,
        "one_query": call.problem.queries == 1,
        "query_dtype": operand.dtype,
        "query_packed": operand.packed,
        "softcap": bool(call.problem.masking.softcap),
        **call.mods.constants(),
        "natural": call.mods.has_score_mod,
        "mask_kind": "none",
        "masks": call.mods.has_mask_mod,
        "has_lengths": False,
        "in_cache": True,
        "has_kept": call.cache.sink_tokens > 0,
        "return_lse": lse is not None,
        "has_state": call.has_state,
        "has_totals": call.cache.ragged,
        "has_left_padding": "left_padding" in call.tensors,
        # A query that an earlier launch rotated is no row of the log any more.
        "query_in_log": call.has_state and name == "query",
        **turboquant.ROTATION,
    }


def _launch_tiles(
    call: Call, runs: TileRuns, query: tuple[str, Operand], out: NewTensor, lse: NewTensor | None
) -> Launch:
    """The launch over the splits of a cache of tiles; without ``lse`` it writes ``partial_rows``."""
    cache, (name, query_operand) = call.cache, query
    assert cache.key_format is not None
    last = Arg("lse", "f32", True, lse.name) if lse else Arg("partial_rows", "vec2<f32>", True)
    args = [
        Arg("query", query_operand.arg.type, tensor=name),
        *([READS_STATE] if call.has_state else []),
        *(Arg(name, "i32") for name in _element_names(call)),
        Arg("key", "vec4<u32>", tensor="cache keys"),
        Arg("value", "vec4<u32>", tensor="cache values"),
        *call.mods.args(),
        Arg("out", "vec4<f32>", writes=True, tensor=out.name),
        last,
    ]
    dtypes = query_operand.dtype, *call.mods.captured
    return launch(
        _SPLIT_TILES_ELEMENTS if _element_names(call) else _SPLIT_TILES,
        args,
        call.tensors,
        call.device.info.limits,
        variant="4-row, matrices of integers",
        workgroups=_split_grid(call, runs),
        params={**_split_params(call, runs, query_operand, lse), **runs.params(), "sinks_stride": 0},
        constants=_common_constants(call, runs, query, lse)
        | {
            "dtypes": dtypes,
            **sink_constants(None, dtypes),
            "turned": call.is_turned,
            "subgroup_ids": True,
            "is_partial": lse is None,
            **runs.constants(cache.key_format),
        },
        enable=("subgroups", MATRICES),
        requires=(SUBGROUP_ID,),
    )


def _element_names(call: Call) -> list[str]:
    """The tensors that say what differs between batch elements."""
    return [name for name in ("totals", "left_padding") if name in call.tensors]


def _element_params(call: Call) -> dict[str, int]:
    if not _element_names(call):
        return {}
    padding = call.tensors.get("left_padding")
    return {"left_padding_stride": padding.strides[0] if padding is not None else 0}


def _split_constants(
    call: Call, config: Config, query: Operand, out: NewTensor, sinks: str | None
) -> dict[str, Any]:
    cache = call.cache
    key_form, value_form = cache.key_format, cache.value_format
    key_words, value_words = key_form or cache.key_integers, value_form or cache.value_integers
    head_dim, value_head_dim = query.shape[3], cache.value_head_dim
    d4, dv4 = in_vec4s(head_dim), in_vec4s(value_head_dim)
    dtypes = query.dtype, *cache.dtype, out.dtype, *call.mods.captured
    return {
        "key_dtype": cache.dtype[0],
        "value_dtype": cache.dtype[1],
        # From one row of the cache to the next: words of integers or codes, or elements.
        "KEY_PITCH": key_words.words if key_words else 4 * d4,
        "VALUE_PITCH": value_words.words if value_words else 4 * dv4,
        "key_wide": config.keys.wide,
        "value_wide": config.values.wide,
        "out_dtype": out.dtype,
        "dtypes": dtypes,
        **sink_constants(sinks, dtypes),
        "D": head_dim,
        "D4": d4,
        "DV": value_head_dim,
        "DV4": dv4,
        **config.shape.constants(),
        "rotates": config.rotates,
        "unrolled": config.unrolled,
        "prefetches": config.prefetches,
        "in_pairs": config.in_pairs,
        "key_row": key_form.row() if key_form else None,
        "value_row": value_form.row() if value_form else None,
        "hides": call.hides,
    }


def _launch_reduce(call: Call, config: Config | TileRuns, out: NewTensor, lse: NewTensor | None) -> Launch:
    """The launch that combines the splits by their maxima and sums; sinks come in here."""
    info, sinks, dim = call.device.info, call.sinks_dtype, call.cache.value_head_dim
    args = [
        Arg("partial_out", "vec4<f32>"),
        Arg("partial_rows", "vec2<f32>"),
        *sink_args(sinks),
        Arg("out", output_type(out.dtype), writes=True, tensor=out.name),
    ]
    if lse:
        args.append(Arg("lse", "f32", writes=True))
    rotates = config.rotates_back
    rows, vec4s = math.prod(call.out_shape[:3]), in_vec4s(dim)
    wide = 2 * _REDUCE_COLUMNS
    columns = wide if rows * -(-vec4s // wide) >= _REDUCE_BUSY else _REDUCE_COLUMNS
    # A row can be rotated only where one workgroup has all its columns.
    columns = vec4s if rotates else min(columns, power_of_two(vec4s))
    workgroup = min(_REDUCE_WORKGROUP, most_invocations(info.limits))
    together = _REDUCE_TOGETHER_OF_ROWS if rotates else _REDUCE_TOGETHER
    subgroup_ids = rotates and SUBGROUP_ID in info.features
    return launch(
        _REDUCE,
        args,
        call.tensors,
        info.limits,
        variant=f"{out.dtype}, subgroup" if rotates else out.dtype,
        workgroups=rows * -(-vec4s // columns),
        params={
            "rows": rows,
            "splits": config.splits,
            "heads": call.out_shape[1],
            "queries": call.out_shape[2],
            "empty_lse": -math.inf,
            "lse_plane": lse_plane(lse),
            "sinks_stride": call.tensors["sinks"].strides[0] if sinks else 0,
        },
        constants={
            "out_dtype": out.dtype,
            "dtypes": (out.dtype,),
            **sink_constants(sinks, (out.dtype,)),
            "D": dim,
            "DV4": vec4s,
            "COLUMNS": columns,
            "WORKGROUP": workgroup,
            "together": together,
            "in_one_turn": config.splits == together * (workgroup // columns),
            "return_lse": lse is not None,
            "natural": call.mods.has_score_mod,
            "rotates": rotates,
            "others_end": subgroup_ids and SUBGROUP_UNIFORMITY in info.features,
            "subgroup_ids": subgroup_ids,
            **turboquant.ROTATION,
        },
        enable=("subgroups",) if rotates else (),
        requires=(SUBGROUP_ID,) if subgroup_ids else (),
    )
