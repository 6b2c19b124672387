"""Attention of the newest positions over a KV cache, split along the keys (Flash-Decoding)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

from py_attn.arguments import Window, check_int, resolve
from py_attn.gpu.shader import SUBGROUP_ID
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.options import Operand, masking_params, operand, pad4
from py_attn.kernels.checks import float_tensor, shape_of
from py_attn.kernels.decode.cache import KVCache
from py_attn.kernels.decode.config import (
    MAX_SPLITS,
    Shape,
    choose_splits,
    reading,
    walk_of_splits,
    workgroup_shape,
)
from py_attn.kernels.decode.shaders import (
    REDUCE_PARAMS,
    SPLIT_PARAMS,
    reduce_columns,
    reduce_shader,
    split_shader,
)
from py_attn.kernels.forms import Launch, form_of
from py_attn.kernels.mods import Mods, mod_params, trace_mods
from py_attn.kernels.quantization import turboquant
from py_attn.kernels.sinks import check_sinks, sink_params


def decode_attention(
    query: Any,
    cache: KVCache,
    *,
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    sinks: Any = None,
    splits: int | str = "auto",
    return_lse: bool = False,
) -> Any:
    """Attention of the last S positions over ``cache``, causal ("bottom-right").

    The keys are cut into ``splits`` that run beside each other; a second pass combines them by their
    LSEs. Each key and value is read once for all query heads of its group.

    Parameters
    ----------
    query : Tensor or array_like
        [B, Hq, S, D], the newest positions: query i stands at ``cache.total`` - S + i. Usually S = 1.
    cache : KVCache
        Not empty; Hq a multiple of its heads.
    window, scale, softcap, sinks
        As in :func:`attention`; the cache's sink tokens are within every window.
    score_mod, mask_mod
        As in :func:`attention`, with positions for ``q_idx`` and ``kv_idx``: both count from the first
        append, also where a ring has dropped entries since. So ``q_idx - kv_idx`` is a distance between
        tokens, and a table of documents is looked up by the number of a token.
    splits : int or str
        1 to 1024, or "auto": from the number of keys and of workgroups without splitting.
    return_lse : bool
        Also return the LSE.

    Returns
    -------
    Tensor or (Tensor, Tensor)
        [B, Hq, S, Dv] in the query's dtype; LSE [B, Hq, S] float32 (natural log).

    Raises
    ------
    ValueError, TypeError
        For an argument that does not fit, or an empty cache.
    """
    plan = _plan(
        query,
        cache,
        window=window,
        scale=scale,
        softcap=softcap,
        splits=splits,
        score_mod=score_mod,
        mask_mod=mask_mod,
        sinks=sinks,
    )
    device = cache.device
    # Where the output comes rotated, it is rounded to its dtype once it is turned back.
    comes_rotated = cache.value_format and not plan.form.rotates_back
    dtype = "float32" if comes_rotated else plan.form.out_dtype
    out = device.empty(plan.form.out_shape, dtype, pitch=pad4(cache.value_head_dim))
    lse = device.empty(plan.form.out_shape[:3]) if return_lse else None
    if out.size and plan.form.splits == 1:
        _dispatch_splits(plan, out, lse, plan.sinks)
    elif out.size:
        partial_out, partial_lse = _empty_partials(plan)
        _dispatch_splits(plan, partial_out, partial_lse)
        _dispatch_reduce(plan, partial_out, partial_lse, out, lse)
    if comes_rotated:
        out = turboquant.rotate_back(out, cache.value_head_dim, plan.form.out_dtype)
    return (out, lse) if return_lse else out


def decode_partials(
    query: Any,
    cache: KVCache,
    *,
    splits: int | str = "auto",
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
) -> tuple[Tensor, Tensor]:
    """Each split's own attention and its LSE, to be combined as :func:`decode_attention` does.

    Here each split takes a run of neighbouring keys, the oldest in the first; :func:`decode_attention` may
    deal them out in smaller blocks. Sinks come in when the splits are combined.

    Returns
    -------
    partial_out : Tensor
        [B, Hq, S, splits, Dv] float32, each split normalised by itself.
    partial_lse : Tensor
        [B, Hq, S, splits] float32; -inf for a split that may see nothing. The result is
        Σ exp(partial_lse - lse) · partial_out with lse = log Σ exp(partial_lse).
    """
    plan = _plan(
        query,
        cache,
        window=window,
        scale=scale,
        softcap=softcap,
        splits=splits,
        score_mod=score_mod,
        mask_mod=mask_mod,
        in_runs=True,
    )
    partial_out, partial_lse = _empty_partials(plan)
    if partial_out.size:
        _dispatch_splits(plan, partial_out, partial_lse)
    if cache.value_format:
        batch, heads, queries, splits, dim = partial_out.shape
        rows = partial_out.reshape(batch, heads, queries * splits, dim)
        partial_out = turboquant.rotate_back(rows, dim, "float32").reshape(*partial_out.shape)
    return partial_out, partial_lse


class _Form(NamedTuple):
    """What was checked and laid out, the same for all calls of one form."""

    out_dtype: str
    out_shape: tuple[int, int, int, int]
    splits: int
    wide: tuple[bool, bool]
    #: Whether the pass over the splits rotates the query itself, and the second one the output.
    rotates: bool
    rotates_back: bool
    laid_out: Shape
    chunks: int
    softcap: bool
    params: dict[str, object]
    #: The passes that were planned so far, by what else they depend on.
    launches: dict[Hashable, Launch]


@dataclass(slots=True)
class _Plan:
    """A call: its form and its tensors."""

    form: _Form
    cache: KVCache
    query: Operand
    mods: Mods
    sinks: Tensor | None


def _plan(
    query: Any,
    cache: object,
    *,
    window: object,
    scale: object,
    softcap: object,
    splits: object,
    score_mod: object,
    mask_mod: object,
    sinks: Any = None,
    in_runs: bool = False,
) -> _Plan:
    if not isinstance(cache, KVCache):
        raise TypeError(f"cache: expected a KVCache, got {type(cache).__name__}")
    cache.keys.storage("cache")
    device = cache.device
    form = None
    if isinstance(query, Tensor) and score_mod is None and mask_mod is None:
        form = form_of((query, sinks), ("decode", cache.form, window, scale, softcap, splits, in_runs))
        known: _Form | None = device.known(form)
        if known and query.lives_on(device) and (sinks is None or sinks.lives_on(device)):
            return _Plan(known, cache, _query_operand(query, cache, known.rotates), Mods(), sinks)
    shape = shape_of("query", query)
    kv_shape = (cache.batch, cache.kv_heads, cache.length)
    problem = resolve(
        shape,
        (*kv_shape, cache.head_dim),
        (*kv_shape, cache.value_head_dim),
        causal=True,
        window=window,
        scale=scale,
        softcap=softcap,
    )
    if cache.length == 0:
        raise ValueError("cache: it is empty; append keys and values first")
    given = None if splits == "auto" else check_int("splits", splits)
    if given is not None and not 1 <= given <= MAX_SPLITS:
        raise ValueError(f'splits: expected "auto" or a number from 1 to {MAX_SPLITS}, got {given}')
    check_sinks(sinks, problem.heads)
    mods = trace_mods(score_mod, mask_mod, device)
    given_query = float_tensor("query", query, device)
    rotates = turboquant.rotates_in_subgroup(cache.key_format, device.info)
    tensor = _query_operand(given_query, cache, rotates)
    rows = problem.group * problem.queries
    width = cache.key_format.width if cache.key_format else cache.head_dim
    keys = reading(cache.dtype[0], cache.key_format, pad4(width))
    values = reading(cache.dtype[1], cache.value_format, pad4(cache.value_head_dim))
    laid_out = workgroup_shape(rows, keys, values, device.info)
    chunks = -(-rows // laid_out.rows)
    left = problem.masking.window_left
    first = 0 if left is None else max(0, cache.length - problem.queries - left - cache.sink_tokens)
    visible = cache.length - first
    workgroups = max(1, problem.batch * problem.kv_heads * chunks)
    count = given or choose_splits(max(1, visible), laid_out.block, workgroups, device.info.software)
    count = max(1, min(count, visible))
    params = dict(
        query_strides=tensor.strides,
        key_strides=(0, 0, 0, 0),
        mask_strides=(0, 0, 0, 0),
        key_first=0,
        mask_first=0,
        lengths_first=0,
        lengths_stride=0,
        batch=problem.batch,
        heads=problem.heads,
        group=problem.group,
        queries=problem.queries,
        keys=problem.keys,
        **masking_params(problem.masking, natural=mods.has_score_mod),
        kv_heads=problem.kv_heads,
        chunks=chunks,
        splits=count,
        **walk_of_splits(visible, count, laid_out.block, in_runs=in_runs)._asdict(),
        first_key=first,
        start=cache.start,
        capacity=cache.capacity,
        kept=cache.sink_tokens,
        dropped=cache.total - cache.length,
        query_place=cache.total - problem.queries,
    )
    out_shape = (problem.batch, problem.heads, problem.queries, problem.value_head_dim)
    made = _Form(
        out_dtype=given_query.dtype,
        out_shape=out_shape,
        splits=count,
        wide=(keys.wide, values.wide),
        rotates=rotates,
        rotates_back=count > 1 and turboquant.rotates_in_subgroup(cache.value_format, device.info),
        laid_out=laid_out,
        chunks=chunks,
        softcap=bool(problem.masking.softcap),
        params=params,
        launches={},
    )
    if form is not None:
        device.remember(form, made)
    return _Plan(made, cache, tensor, mods, None if sinks is None else float_tensor("sinks", sinks, device))


def _query_operand(query: Tensor, cache: KVCache, rotates: bool) -> Operand:
    """The query; where keys lie rotated, rotated too unless that comes later: scores stay as they are."""
    form = cache.key_format
    return operand("query", turboquant.rotate_query(query, form) if form and not rotates else query)


def _empty_partials(plan: _Plan) -> tuple[Tensor, Tensor]:
    device = plan.cache.device
    shape = (*plan.form.out_shape[:3], plan.form.splits)
    pitch = pad4(plan.cache.value_head_dim)
    return device.empty((*shape, plan.cache.value_head_dim), pitch=pitch), device.empty(shape)


def _dispatch_splits(plan: _Plan, out: Tensor, lse: Tensor | None, sinks: Tensor | None = None) -> None:
    """Record the pass over the splits; ``sinks`` only where it is the only pass."""
    cache, device, form = plan.cache, plan.cache.device, plan.form
    named = [("query", plan.query.tensor), ("cache", cache.keys), ("cache", cache.values)]
    named += [(f"captured_{n}", tensor) for n, tensor in enumerate(plan.mods.tensors)]
    named += [(name, t) for name, t in (("sinks", sinks), ("out", out), ("lse", lse)) if t is not None]
    buffers = [device.bind(tensor, name) for name, tensor in named]
    key = "splits", out.dtype, lse is not None, sinks is not None
    launch = form.launches.get(key)
    if launch is None:
        firsts = {name: buffer.first for (name, _), buffer in zip(named, buffers, strict=True)}
        params = SPLIT_PARAMS.pack(
            **form.params,
            query_first=firsts["query"],
            **mod_params(plan.mods, firsts),
            **sink_params(sinks, firsts.get("sinks", 0)),
        )
        shader = split_shader(
            cache,
            plan.query,
            plan.mods,
            form.laid_out,
            wide=form.wide,
            softcap=form.softcap,
            rotates=form.rotates,
            out_dtype=out.dtype,
            write_lse=lse is not None,
            sinks=sinks.dtype if sinks is not None else None,
        )
        workgroups = cache.batch * cache.kv_heads * form.chunks * form.splits
        launch = form.launches[key] = Launch(shader, params, device.grid(workgroups, "query"))
    launch.record(device, buffers)


def _dispatch_reduce(
    plan: _Plan, partial_out: Tensor, partial_lse: Tensor, out: Tensor, lse: Tensor | None
) -> None:
    device, form, sinks = plan.cache.device, plan.form, plan.sinks
    named = [("partial_out", partial_out), ("partial_lse", partial_lse)]
    named += [(name, t) for name, t in (("sinks", sinks), ("out", out), ("lse", lse)) if t is not None]
    buffers = {name: device.bind(tensor, name) for name, tensor in named}
    key = "reduce", out.dtype, lse is not None
    launch = form.launches.get(key)
    if launch is None:
        rows = math.prod(form.out_shape[:3])
        params = REDUCE_PARAMS.pack(
            rows=rows,
            splits=form.splits,
            heads=form.out_shape[1],
            queries=form.out_shape[2],
            empty_lse=-math.inf,
            **sink_params(sinks, buffers["sinks"].first if sinks is not None else 0),
        )
        dim = plan.cache.value_head_dim
        shader = reduce_shader(
            out.dtype,
            dim,
            write_lse=lse is not None,
            sinks_dtype=sinks.dtype if sinks is not None else None,
            rotates=form.rotates_back,
            subgroup_ids=form.rotates_back and SUBGROUP_ID in device.info.features,
        )
        blocks = -(-pad4(dim) // (4 * reduce_columns(dim, form.rotates_back)))
        grid = device.grid(rows * blocks, "query")
        launch = form.launches[key] = Launch(shader, params, grid)
    launch.record(device, list(buffers.values()))
