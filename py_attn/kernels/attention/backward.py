"""Gradients of attention, recomputed from the LSE (FlashAttention-2, Dao, arXiv 2307.08691)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np

from py_attn.arguments import Layout, Window, check_bool
from py_attn.gpu.kernel import Arg, Kernel, Launch, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.backward_config import (
    BackwardConfig,
    BackwardVariant,
    configure,
)
from py_attn.kernels.attention.config import ROWS
from py_attn.kernels.attention.leading import Leading
from py_attn.kernels.attention.options import (
    Call,
    Keywords,
    Options,
    resolve,
    resolve_like_output,
    resolve_lse,
)
from py_attn.kernels.attention.packing import SCORE_PLACES, TILES, plan_tile_table, slots_of, tile_slots
from py_attn.kernels.attention.score_gradients import NOTHING_ELSE, Wanted, plan_score_gradient
from py_attn.kernels.attention.stored import Turn, places, turns
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.lse import ROW_PARTS_PARAMS, row_parts_params
from py_attn.kernels.mods import MOD_PARAMS
from py_attn.kernels.operands import Operand, in_vec4s, output_type
from py_attn.kernels.scores import SCORE_PARAMS
from py_attn.kernels.sinks import SINK_PARAMS, sink_args, sink_constants
from py_attn.kernels.sums import plan_sum

_DELTA = Kernel(
    "backward_delta",
    "attention/backward_delta.wgsl",
    ParamsLayout(
        grad_strides="vec4<u32>",
        out_strides="vec4<u32>",
        lse_strides="vec4<u32>",
        grad_lse_strides="vec4<u32>",
        grad_first="u32",
        out_first="u32",
        lse_first="u32",
        grad_lse_first="u32",
        heads="u32",
        queries="u32",
        rows="u32",
        **ROW_PARTS_PARAMS,
    ),
)
_COMMON = {
    **SCORE_PARAMS,
    **MOD_PARAMS,
    "value_strides": "vec4<u32>",
    "grad_strides": "vec4<u32>",
    "value_first": "u32",
    "grad_first": "u32",
    "tiles": "u32",
    "first_slot": "u32",
    "first_head": "u32",
    "launched_heads": "u32",
    "stored_length": "u32",
    "grad_scale": "f32",
}
#: One launch for the gradient of the query, one for those of key and value.
_PARAMS = {
    "query": ParamsLayout(**_COMMON, d_query_strides="vec4<u32>"),
    "key": ParamsLayout(**_COMMON, d_key_strides="vec4<u32>", d_value_strides="vec4<u32>"),
}
_TILED, _ROWS = (
    {side: Kernel("attention_backward", f"attention/{name}.wgsl", params) for side, params in _PARAMS.items()}
    for name in ("backward", "backward_rows")
)
_PRODUCT = Kernel("attention_backward", "attention/backward_product.wgsl", _PARAMS["query"])
_SINKS = Kernel(
    "sink_gradient",
    "attention/sink_gradient.wgsl",
    ParamsLayout(batch="u32", heads="u32", queries="u32", **SINK_PARAMS),
)
#: The gradients of all scores of a turn, float32 [heads, numbers of a head]; see lib/stored_scores.wgsl.
_SCORE_GRADIENTS = "score_gradients"
_DELTA_WORKGROUP = 64
#: Invocations that share a row there, at most; a power of two.
_DELTA_LANES = 8
_SINK_WORKGROUP = 64
#: row_max, 1 / row_sum and Σ grad·out - grad_lse of every row, and nothing, [B, Hq, Sq, 4] float32.
_ROW_VALUES = Arg("row_values", "vec4<f32>")


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
    grad_lse: Any = None,
    mask_gradient: bool = False,
    captured: Sequence[Tensor] = (),
    variant: BackwardVariant | BackwardConfig = "auto",
) -> tuple[Tensor, ...]:
    """The gradients of :func:`attention` with respect to query, key and value, and to sinks where given.

    The probabilities are recomputed tile by tile from the LSE. Each gradient has one workgroup that
    writes it, so there are no atomics and results are deterministic; with grouped heads,
    those of key and value are summed over the group, and over the batch where all of it shares them. The
    keywords must be those of the forward call.

    Parameters
    ----------
    grad_out : Tensor or array_like
        Gradient of the output, [B, Hq, Sq, Dv] (or "BSHD").
    query, key, value : Tensor or array_like
        As in :func:`attention`.
    out, lse : Tensor or array_like
        What :func:`attention` returned with ``return_lse=True``. The LSE of a kernel, or a view of it, also
        holds each row's maximum and sum; an array that was read back does not, which loses digits where
        scores lie far from zero.
    grad_lse : Tensor or array_like, optional
        Gradient of the LSE, [B, Hq, Sq], where the objective depends on it too.
    mask_gradient : bool
        Also return the gradient of a ``mask`` of floats.
    captured : sequence of Tensor
        Tensors of floats that ``score_mod`` looks things up in, whose gradients are wanted too: learned
        biases, slopes of ALiBi and the like. The sums over the scores that read an element are taken in a
        fixed order.
    variant : str
        "tiled" (workgroup memory; the scores are computed once for the query's gradient and once more for
        those of key and value), "stored" (the scores' gradients are kept between the two, in at most
        513 MiB: some heads, or packed sequences, go through at a time; wide heads also keep the weights
        there, between a launch for the value's gradient and one for the key's), "rows" (several rows to an
        invocation, for adapters that compute on a CPU), or "auto", which chooses between them.

    Returns
    -------
    d_query, d_key, d_value : Tensor
        Shaped and typed like query, key and value.
    d_sinks : Tensor
        [Hq] float32, a fourth one where there are ``sinks``.
    d_mask : Tensor
        Shaped and typed like the mask, summed over the axes that it broadcasts; with ``mask_gradient``.
    *d_captured : Tensor
        One for each of ``captured``, shaped and typed like it.

    Raises
    ------
    ValueError, TypeError
        For an argument that does not fit, or a variant that this adapter cannot run.
    """
    leading = Leading(layout, query=query, key=key, value=value)
    tensors = {
        "query": leading.operand(query),
        "key": leading.operand(key),
        "value": leading.operand(value),
        "mask": mask,
        "kv_lengths": kv_lengths,
        "sinks": sinks,
    }
    results = {
        "grad_out": leading.operand(grad_out),
        "out": leading.operand(out),
        "lse": leading.rows(lse),
        "grad_lse": leading.rows(grad_lse),
    }
    wanted = Wanted(check_bool("mask_gradient", mask_gradient), tuple(captured))
    keywords = Keywords(causal, window, scale, softcap, query_offset, layout, score_mod, mask_mod)

    def make() -> Planned:
        call = resolve(**tensors, **keywords._asdict(), slope=True, differentiated=wanted.captured, buffers=7)
        return plan_call(call, **results, variant=variant, wanted=wanted)

    made = run_call("attention_backward", tensors | results, (*keywords, *wanted, variant), make)
    inputs = [leading.take(made[name]) for name in gradients(None)]
    return *inputs, *([] if sinks is None else [made["d_sinks"]]), *wanted.results(made)


def gradients(sinks: object) -> tuple[str, ...]:
    """The names of a call's results."""
    return ("d_query", "d_key", "d_value", *(() if sinks is None else ("d_sinks",)))


def plan_call(
    call: Call,
    grad_out: Any,
    out: Any,
    lse: Any,
    *,
    grad_lse: Any = None,
    variant: object = "auto",
    wanted: Wanted = NOTHING_ELSE,
) -> Planned:
    """Plan the gradients of checked arguments; it makes what :func:`gradients` names.

    Raises
    ------
    ValueError, TypeError
        When ``grad_out``, ``out`` or ``lse`` does not fit, for a variant that does not exist, or when the
        head dims need more workgroup memory than there is.
    """
    grad, grad_tensor = resolve_like_output("grad_out", grad_out, call)
    result, out_tensor = resolve_like_output("out", out, call)
    results = {"grad_out": grad_tensor, "out": out_tensor, "lse": resolve_lse(lse, call)}
    if grad_lse is not None:
        results["grad_lse"] = resolve_lse(grad_lse, call, "grad_lse")
    wanted.check(call.options)
    call = call.with_({}, results)
    config = (
        variant if isinstance(variant, BackwardConfig) else configure(call.options, call.device.info, variant)
    )
    if config.stored is not None and config.stored.sequences:
        found = places(call.options, config.stored).astype(np.uint32)
        call = call.with_({}, {SCORE_PLACES: call.device.tensor(found)})
    return Planned(call.device, _plan(call, grad, result, config, wanted), call.tensors)


def _plan(call: Call, grad: Operand, result: Operand, config: BackwardConfig, wanted: Wanted) -> Plan:
    options = call.options
    makes: list[NewTensor] = []
    launches: list[Launch] = []
    row_count = options.problem.batch * options.problem.heads * options.problem.queries
    makes.append(NewTensor("row_values", (*options.lse_shape, 4)).as_scratch)
    if row_count:
        launches.append(_launch_row_values(call, grad, result, row_count))
    sides: list[_Side] = []
    tables: set[str] = set()
    limits = call.device.info.limits
    sums: list[Launch] = []
    for side, names in _launches(call, grad, config):
        outputs = {f"d_{x.name}": x for x in options.operands() if x.name in names}
        makes += [options.result(name, x.shape, x.dtype) for name, x in outputs.items()]
        shared = side == "key" and options.problem.kv_batch < options.problem.batch
        totals = makes[-len(names) :] if shared else []
        if shared:
            # Each batch element's gradients by themselves, to be summed.
            outputs = {f"{name}_parts": _of_every_element(x, options) for name, x in outputs.items()}
            makes += [options.result(name, x.shape, x.dtype).as_scratch for name, x in outputs.items()]
        if 0 in next(iter(outputs.values())).shape:
            continue
        if options.sequences is not None and side not in tables:
            tables.add(side)
            table, launch_table = plan_tile_table(
                call, config.rows(side), side, f"{side}_tiles", stores_scores=config.stored is not None
            )
            makes.append(table.as_scratch)
            launches.append(launch_table)
        sides.append(_Side(side, outputs))
        sums += [plan_sum(f"{total.name}_parts", options.problem.batch, total, limits) for total in totals]
    if config.stored is not None:
        shape = config.stored.heads * options.problem.group, 4 * config.stored.length
        makes.append(NewTensor(_SCORE_GRADIENTS, shape).as_scratch)
    slots = [_slots_of_parts(options, config, side.name) for side in sides]
    for turn in _turns(options, config):
        launches += [
            _launch_side(call, grad, config, side, turn, each[turn.part])
            for side, each in zip(sides, slots, strict=True)
            if each[turn.part].number
        ]
    launches += sums
    if options.sinks_dtype:
        makes.append(NewTensor("d_sinks", (options.problem.heads,)))
        if options.problem.heads:
            launches.append(_launch_sinks(call))
    for each in wanted.sums(options):
        made, launched = plan_score_gradient(call, grad, _ROW_VALUES, each)
        makes += made
        launches += launched
    main = next((n for n, each in enumerate(launches) if each.shader.name == "attention_backward"), 0)
    return Plan(tuple(makes), tuple(launches), main)


class _Side(NamedTuple):
    """What a launch goes through: rows that are queries or keys, and the gradients of them that it writes."""

    name: str
    outputs: dict[str, Operand]


def _turns(options: Options, config: BackwardConfig) -> Iterator[Turn]:
    """What each launch, or pair of launches, goes through."""
    if config.stored is not None:
        yield from turns(options, config.stored)
    else:
        yield Turn(0, options.problem.batch * options.problem.kv_heads, 0)


class _Slots(NamedTuple):
    """The tiles of a head, or of packed sequences those of all that a turn goes through."""

    first: int
    number: int


def _slots_of_parts(options: Options, config: BackwardConfig, side: str) -> list[_Slots]:
    """The tiles of each part of the packed sequences that goes through at a time; of a batch there is one."""
    tile_rows = config.rows(side)
    rows = options.problem.queries if side == "query" else options.problem.keys
    if options.sequences is None:
        return [_Slots(0, -(-rows // tile_rows))]
    parts = config.stored.sequences if config.stored else ()
    if len(parts) <= 1:
        return [_Slots(0, tile_slots(rows, options.sequences, tile_rows))]
    assert options.lengths is not None
    lengths = [each[side != "query"] for each in options.lengths]
    numbers = [slots_of([lengths[n] for n in part], tile_rows) for part in parts]
    return [_Slots(end - number, number) for end, number in zip(accumulate(numbers), numbers, strict=True)]


def _launches(call: Call, grad: Operand, config: BackwardConfig) -> list[tuple[str, tuple[str, ...]]]:
    """The launches: whose rows each goes through, and whose gradients it writes.

    Those of key and value are two where the adapter does not bind the buffers of both at a time.
    """
    both = ("key", "value")
    if config.stored is not None:
        # What the launches for key and value store is read by that for the query.
        by_key = [("key", ("value",)), ("key", ("key",))] if config.separate else [("key", both)]
        return [*by_key, ("query", ("query",))]
    buffers = len(_inputs(call.options, grad, "key")) + 2
    if buffers <= call.device.info.limits["maxStorageBuffersPerShaderStage"]:
        return [("query", ("query",)), ("key", both)]
    return [("query", ("query",)), ("key", ("key",)), ("key", ("value",))]


def _inputs(options: Options, grad: Operand, side: str) -> list[Arg]:
    """What a launch reads whose rows are of ``side``."""
    tiles = [] if options.sequences is None else [Arg(TILES.name, TILES.type, tensor=f"{side}_tiles")]
    return [*options.args(), _grad_arg(grad), _ROW_VALUES, *tiles]


def _of_every_element(x: Operand, options: Options) -> Operand:
    """The gradient of a shared operand before it is summed over the batch, which is done in float32."""
    return replace(x, shape=(options.problem.batch, *x.shape[1:]), dtype="float32")


def _launch_row_values(call: Call, grad: Operand, out: Operand, rows: int) -> Launch:
    """What every row's gradients need: its maximum and sum, and Σ grad·out less the gradient of its LSE."""
    p, lse, grad_lse = call.options.problem, call.tensors["lse"], call.tensors.get("grad_lse")
    lanes = min(_DELTA_LANES, 1 << (in_vec4s(p.value_head_dim).bit_length() - 1))
    return launch(
        _DELTA,
        [
            _grad_arg(grad),
            out.arg,
            Arg("lse", "f32"),
            *([] if grad_lse is None else [Arg("grad_lse", "f32")]),
            Arg(_ROW_VALUES.name, _ROW_VALUES.type, writes=True),
        ],
        call.tensors,
        call.device.info.limits,
        variant="rows",
        workgroups=-(-rows * lanes // _DELTA_WORKGROUP),
        params={
            "grad_strides": grad.strides,
            "out_strides": out.strides,
            "lse_strides": (*lse.strides, 0),
            "grad_lse_strides": (0, 0, 0, 0) if grad_lse is None else (*grad_lse.strides, 0),
            "heads": p.heads,
            "queries": p.queries,
            "rows": rows,
            **row_parts_params(lse, call.device.info.limits, natural=call.options.natural),
        },
        constants={
            **grad.constants(),
            **out.constants(),
            "dtypes": (grad.dtype, out.dtype),
            **call.options.value_constants(),
            "has_grad_lse": grad_lse is not None,
            "WORKGROUP": _DELTA_WORKGROUP,
            "LANES": lanes,
        },
    )


def _grad_arg(grad: Operand) -> Arg:
    return Arg(grad.name, grad.arg.type, tensor="grad_out")


def _launch_side(
    call: Call, grad: Operand, config: BackwardConfig, side: _Side, turn: Turn, slots: _Slots
) -> Launch:
    """The launch whose tiles are rows of ``side``, which alone writes their gradients, of one turn."""
    options, info, p = call.options, call.device.info, call.options.problem
    assert options.value is not None
    by_query = side.name == "query"
    tile, of_group = config.tile(side.name), p.group if by_query else 1
    d4, dv4 = in_vec4s(p.head_dim), in_vec4s(p.value_head_dim)
    written = {name.removesuffix("_parts"): x for name, x in side.outputs.items()}
    name = next(iter(written)).removeprefix("d_")  # "key" for key and value together
    strides = {f"{name}_strides": options.result_strides(x.shape) for name, x in written.items()}
    no_strides = {name: (0, 0, 0, 0) for name in _PARAMS[side.name].fields if name.startswith("d_")}
    stored = [Arg(_SCORE_GRADIENTS, "vec4<f32>", writes=not by_query)] if config.stored else []
    args = [
        *_inputs(options, grad, side.name),
        *(
            Arg(name, output_type(x.dtype), writes=True, tensor=tensor)
            for (name, x), tensor in zip(written.items(), side.outputs, strict=True)
        ),
        *stored,
    ]
    constants = options.constants() | {
        **grad.constants(),
        "dtypes": options.dtypes(grad.dtype),
        **options.value_constants(),
        "side": side.name,
        "writes": tuple((name, x.dtype) for name, x in written.items()),
        "stores_scores": bool(stored),
        "unrolled": config.unrolled,
        "woven": True,
    }
    kernels = _TILED if tile else _ROWS
    return launch(
        _PRODUCT if by_query and config.stored else kernels[side.name],
        args,
        call.tensors,
        info.limits,
        variant=" ".join([name, *(["stored"] if config.stored else []), *([] if tile else ["rows"])]),
        workgroups=slots.number * turn.heads * of_group,
        params={
            **options.score_params(),
            "value_strides": options.value.strides,
            "grad_strides": grad.strides,
            "tiles": slots.number,
            "first_slot": slots.first,
            "first_head": turn.first_head * of_group,
            "launched_heads": turn.heads * of_group,
            "stored_length": config.stored.length if config.stored else 0,
            "grad_scale": p.masking.scale,
            **no_strides,
            **strides,
        },
        constants=constants | (tile.constants(config.shares(side.name, d4, dv4)) if tile else ROWS),
    )


def _launch_sinks(call: Call) -> Launch:
    """The gradient of the sinks, float32 [Hq], from what :func:`_launch_row_values` writes."""
    options, p = call.options, call.options.problem
    return launch(
        _SINKS,
        [_ROW_VALUES, *sink_args(options.sinks_dtype), Arg("d_sinks", "f32", writes=True)],
        call.tensors,
        call.device.info.limits,
        variant=str(options.sinks_dtype),
        workgroups=p.heads,
        params={"batch": p.batch, "heads": p.heads, "queries": p.queries, **options.sink_params()},
        constants={
            **sink_constants(options.sinks_dtype, ()),
            "natural": options.natural,
            "WORKGROUP": _SINK_WORKGROUP,
        },
        grid_name="sinks",
    )
