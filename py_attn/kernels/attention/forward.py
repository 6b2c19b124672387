"""Scaled dot-product attention (Vaswani et al., arXiv 1706.03762), fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from py_attn.arguments import Layout, Window
from py_attn.gpu.binding import fits_in_grid
from py_attn.gpu.bridge import AdapterInfo
from py_attn.gpu.kernel import Arg, Kernel, Launch, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import SUBGROUP_ID
from py_attn.kernels.attention.config import Config, Variant, configure, query_tiles
from py_attn.kernels.attention.join import SPLIT_PARAMS, new_partials, partials_arg, plan_join, split_params
from py_attn.kernels.attention.leading import Leading
from py_attn.kernels.attention.matrix import (
    ENABLE,
    MatrixTile,
    PairTile,
    matrix_args,
    matrix_output,
    template_variables,
)
from py_attn.kernels.attention.options import Call, Keywords, Options, resolve
from py_attn.kernels.attention.packing import TILES, plan_tile_table
from py_attn.kernels.attention.tiles import Tile
from py_attn.kernels.attention.tuning import tuned
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.lse import LSE_PARAMS, lse_plane, new_lse
from py_attn.kernels.mods import MOD_PARAMS
from py_attn.kernels.operands import in_vec4s, output_type
from py_attn.kernels.scores import SCORE_PARAMS
from py_attn.kernels.sinks import SINK_PARAMS, sink_args, sink_constants

_PARAMS = ParamsLayout(
    **SCORE_PARAMS,
    **MOD_PARAMS,
    **SINK_PARAMS,
    **SPLIT_PARAMS,
    **LSE_PARAMS,
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
    variant: Variant | Config = "auto",
    return_lse: bool = False,
) -> Any:
    """softmax(scale · query keyᵀ + mask) value, without ever storing the scores.

    Query i stands at position i + Sk - Sq among the keys ("bottom-right": the queries are the last
    ones), or at i with ``causal="top-left"``; with ``kv_lengths``, Sk is that batch element's length.
    Storage may be any mix of the three float types, all arithmetic is float32.

    Parameters
    ----------
    query : Tensor or array_like
        [B, Hq, Sq, D]; D from 1 to 576. Any strides. All three may come without B, or without B and H;
        results then lack the same axes.
    key : Tensor or array_like
        [B, Hkv, Sk, D]; Hq a multiple of Hkv (grouped-query attention, arXiv 2305.13245). Keys and values
        [1, Hkv, Sk, …] are shared by all batch elements of the queries, as in FlexAttention.
    value : Tensor or array_like
        [B, Hkv, Sk, Dv]; Dv from 1 to 576.
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
        (workgroup memory), "subgroup" (also shuffles), or "auto", which chooses among these. "matrix"
        multiplies on tensor cores through WebGPU's experimental subgroup matrices. For float16 inputs and
        head dims up to 256 that means float16 weights and float32 sums, so within float16's error and not
        float32's. For float32 inputs and head dims up to 128, without mask, mods, softcap and sinks, each
        number is the sum of two halves, within the error that float32 arithmetic may have; rows whose numbers
        do not fit into halves are computed in float32. It needs an adapter with such matrices and with
        shader-f16, in Chromium behind flags (docs/attention.md).
        A :class:`~py_attn.kernels.attention.config.Config` in place of a name is taken as it is.
    return_lse : bool
        Also return the log-sum-exp of each row's scores.

    Returns
    -------
    Tensor or (Tensor, Tensor)
        Output like query but with Dv, in the query's dtype; LSE [B, Hq, Sq] float32 (natural log).
        A row that may see nothing gives zeros and -inf, or the LSE of its sink alone. NaN that a row sees
        makes its output and LSE NaN.

    Raises
    ------
    ValueError, TypeError
        For an argument that does not fit, or a variant that this adapter cannot run.
    """
    if value is None:
        raise TypeError("value: expected a Tensor or an array, got None")
    leading = Leading(layout, query=query, key=key, value=value)
    tensors = {
        "query": leading.operand(query),
        "key": leading.operand(key),
        "value": leading.operand(value),
        "mask": mask,
        "kv_lengths": kv_lengths,
        "sinks": sinks,
    }
    keywords = Keywords(causal, window, scale, softcap, query_offset, layout, score_mod, mask_mod)

    def make() -> Planned:
        return plan_call(resolve(**tensors, **keywords._asdict()), variant, return_lse=return_lse)

    made = run_call("attention", tensors, (*keywords, variant, return_lse), make)
    out = leading.take(made["out"])
    return (out, leading.take_first(made["lse"])) if return_lse else out


def plan_call(call: Call, variant: object, *, return_lse: bool) -> Planned:
    """Plan attention of checked arguments; it makes ``out`` and, where asked for, ``lse``.

    Raises
    ------
    ValueError
        For a variant that does not exist or that this adapter cannot run.
    """
    if isinstance(variant, Config):
        config = variant
    else:
        config = configure(call.options, call.device.info, variant)
        if variant == "auto":
            config = tuned(call, config, plan_forward)
    return Planned(call.device, plan_forward(call, config, return_lse=return_lse), call.tensors)


def plan_forward(call: Call, config: Config, *, return_lse: bool = False) -> Plan:
    """The plan of attention with this configuration."""
    options, p = call.options, call.options.problem
    makes = [options.result("out", options.out_shape, options.query.dtype)]
    lse = None
    if return_lse:
        limits = call.device.info.limits
        lse = new_lse("lse", options.lse_shape, limits, natural=options.natural)
        makes.append(lse)
    if 0 in options.out_shape:
        return Plan(tuple(makes), ())
    launches = []
    if options.sequences is not None:
        table, launch_table = plan_tile_table(call, config.tile_rows, "query", "tiles")
        makes.append(table.as_scratch)
        launches.append(launch_table)
    tiles = query_tiles(options, config.tile_rows)
    main = len(launches)
    launches.append(_launch(call, config, tiles, lse))
    if isinstance(config.tile, PairTile):
        makes.append(NewTensor("unfit", (tiles * p.heads * p.batch,), "uint32").as_scratch)
        other = Config(config.tile.other_variant, config.tile.other, unrolled=config.unrolled)
        launches.append(_launch(call, other, tiles, lse, only_unfit=True))
    if config.tail_split:
        makes.append(new_partials(config.tail_split, config.tile_rows, p.value_head_dim).as_scratch)
        launches.append(plan_join(call, config.tail_split, config.tile_rows, tiles, lse))
    return Plan(tuple(makes), tuple(launches), main)


def _launch(
    call: Call, config: Config, tiles: int, lse: NewTensor | None, *, only_unfit: bool = False
) -> Launch:
    """The launch over tiles of queries, or over rows where the variant is naive.

    With ``only_unfit`` it computes the tiles that attention/matrix_float32.wgsl could not.
    """
    options, info, tail = call.options, call.device.info, config.tail_split
    p = options.problem
    assert options.value is not None
    rows = p.batch * p.heads * p.queries
    if options.sequences is not None:
        workgroups = tiles * p.heads
    elif config.variant == "naive":
        tiles, workgroups = 0, -(-rows // config.tile_rows)
    else:
        workgroups = tiles * p.heads * p.batch
    params = {
        **options.score_params(),
        **options.sink_params(),
        **split_params(tail, workgroups),
        "lse_plane": lse_plane(lse),
        "value_strides": options.value.strides,
        "out_strides": options.result_strides(options.out_shape),
        "rows": rows,
        "tiles": tiles,
    }
    if tail:
        workgroups += tail.tiles * (tail.splits - 1)
    name = "matrix_float32" if isinstance(config.tile, PairTile) else config.variant
    kernel = _KERNELS.get(name, _KERNELS["tiled"])
    sizes = _grid_of_tiles(options, config, tiles, info)
    subgroup_ids = config.variant in ("subgroup", "matrix") and SUBGROUP_ID in info.features
    return launch(
        kernel,
        _args(options, config, lse is not None, only_unfit),
        call.tensors,
        info.limits,
        variant=config.variant,
        workgroups=sizes or workgroups,
        params=params,
        constants=_constants(options, config, info, lse is not None)
        | {"subgroup_ids": subgroup_ids, "only_unfit": only_unfit, "grid_of_tiles": sizes is not None},
        enable={"subgroup": ("subgroups",), "matrix": ENABLE}.get(config.variant, ()),
        requires=(SUBGROUP_ID,) if subgroup_ids else (),
    )


def _grid_of_tiles(
    options: Options, config: Config, tiles: int, info: AdapterInfo
) -> tuple[int, int, int] | None:
    """Heads, batch elements and tiles as the sizes of the grid, where a kernel finds its tile so.

    That is faster for float16 on subgroup matrices only (bench/NOTES.md); packed sequences have a table.
    """
    sizes = options.problem.heads, options.problem.batch, tiles
    is_faster = isinstance(config.tile, MatrixTile) and options.sequences is None
    return sizes if is_faster and fits_in_grid(sizes, info.limits) else None


_KERNELS = {
    name: Kernel("attention", f"attention/{name}.wgsl", _PARAMS)
    for name in ("naive", "rows", "tiled", "matrix", "matrix_float32")
}


def _args(options: Options, config: Config, return_lse: bool, only_unfit: bool) -> list[Arg]:
    on_halves = isinstance(config.tile, MatrixTile)
    args = matrix_args(options) if on_halves else options.args()
    args += sink_args(options.sinks_dtype)
    if options.sequences is not None:
        args.append(TILES)
    out = Arg("out", output_type(options.query.dtype), writes=True)
    args.append(matrix_output(options) if on_halves else out)
    if return_lse:
        args.append(Arg("lse", "f32", writes=True))
    if config.tail_split:
        args.append(partials_arg(writes=True))
    if isinstance(config.tile, PairTile) or only_unfit:
        args.append(Arg("unfit", "u32", writes=not only_unfit))
    return args


def _constants(options: Options, config: Config, info: AdapterInfo, return_lse: bool) -> dict[str, Any]:
    found = options.constants() | options.value_constants() | config.constants()
    found |= sink_constants(options.sinks_dtype, found["dtypes"])
    if isinstance(config.tile, MatrixTile):
        found |= template_variables(options)
    elif isinstance(config.tile, Tile):
        found |= {
            "SHARES": config.tile.shares(in_vec4s(options.problem.value_head_dim)),
            "woven": config.variant == "tiled" or info.subgroup_min_size >= 2 * config.tile.tx,
        }
    return found | {
        # Where a call hides keys, numbers that are not finite are looked at afterwards.
        "fills_up": _ends_within_a_step(options, config) and not options.hides,
        "has_splits": config.tail_split is not None,
        "return_lse": return_lse,
    }


def _ends_within_a_step(options: Options, config: Config) -> bool:
    """Whether the keys that a workgroup takes at a time may be more than are left of a sequence."""
    one_length = options.sequences is None and options.lengths_stride is None
    return bool(options.problem.keys % config.keys_of_step) if one_length else config.keys_of_step > 1
