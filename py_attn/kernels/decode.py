"""Attention of the newest positions over a KV cache, split along the keys (Flash-Decoding)."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from py_attn.arguments import Window, check_int, resolve
from py_attn.gpu.device import Device
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, Shader, render
from py_attn.gpu.tensor import Tensor
from py_attn.kernels import turboquant
from py_attn.kernels._inputs import (
    SCORE_PARAMS,
    Operand,
    float_tensor,
    masking_params,
    operand,
    output_type,
    pad4,
    shape_of,
)
from py_attn.kernels.cache import KVCache

_SPLIT_PARAMS = ParamsLayout(
    **SCORE_PARAMS,
    kv_heads="u32",
    chunks="u32",
    splits="u32",
    split_keys="u32",
    first_key="u32",
    start="u32",
    capacity="u32",
)
_REDUCE_PARAMS = ParamsLayout(rows="u32", splits="u32", empty_lse="f32")
_WORKGROUP = 128
_REDUCE_WORKGROUP = 64
MAX_SPLITS = 1024
# Shorter splits than this cost more to combine than they gain.
_MIN_SPLIT_KEYS = 128
# Enough workgroups to fill any GPU of today; a software adapter has one per core.
_BUSY_WORKGROUPS = 1024
_BUSY_SOFTWARE = 4


def decode_attention(
    query: Any,
    cache: KVCache,
    *,
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
    splits: int | str = "auto",
    return_lse: bool = False,
) -> Any:
    """Attention of the last S positions over ``cache``, causal ("bottom-right").

    The keys are cut into ``splits`` that run beside each other; a second pass combines them by their
    LSEs. Each key and value is read once for all query heads of its group.

    Parameters
    ----------
    query : Tensor or array_like
        [B, Hq, S, D]; query i stands at position length - S + i. Usually S = 1.
    cache : KVCache
        Not empty; Hq a multiple of its heads.
    window, scale, softcap
        As in :func:`attention`.
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
    plan = _plan(query, cache, window, scale, softcap, splits)
    device = cache.device
    # A quantised cache's output comes rotated, and is rounded to its dtype once it is turned back.
    dtype = "float32" if cache.value_format else plan.out_dtype
    out = device.empty(plan.out_shape, dtype, pitch=pad4(cache.value_head_dim))
    lse = device.empty(plan.out_shape[:3]) if return_lse else None
    if out.size and plan.splits == 1:
        _dispatch_splits(plan, out, lse)
    elif out.size:
        partial_out, partial_lse = _empty_partials(plan)
        _dispatch_splits(plan, partial_out, partial_lse)
        _dispatch_reduce(plan, partial_out, partial_lse, out, lse)
    if cache.value_format:
        out = turboquant.rotate_back(out, cache.value_head_dim, plan.out_dtype)
    return (out, lse) if return_lse else out


def decode_partials(
    query: Any,
    cache: KVCache,
    *,
    splits: int | str = "auto",
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """What :func:`decode_attention` combines: each split's own attention and its LSE.

    Returns
    -------
    partial_out : Tensor
        [B, Hq, S, splits, Dv] float32, each split normalised by itself.
    partial_lse : Tensor
        [B, Hq, S, splits] float32; -inf for a split that may see nothing. The result is
        Σ exp(partial_lse - lse) · partial_out with lse = log Σ exp(partial_lse).
    """
    plan = _plan(query, cache, window, scale, softcap, splits)
    partial_out, partial_lse = _empty_partials(plan)
    if partial_out.size:
        _dispatch_splits(plan, partial_out, partial_lse)
    if cache.value_format:
        batch, heads, queries, splits, dim = partial_out.shape
        rows = partial_out.reshape(batch, heads, queries * splits, dim)
        partial_out = turboquant.rotate_back(rows, dim, "float32").reshape(*partial_out.shape)
    return partial_out, partial_lse


def choose_splits(keys: int, workgroups: int, software: bool) -> int:
    """How many splits keep a device busy that would otherwise run ``workgroups`` workgroups."""
    busy = _BUSY_SOFTWARE if software else _BUSY_WORKGROUPS
    return max(1, min(-(-busy // workgroups), keys // _MIN_SPLIT_KEYS, MAX_SPLITS))


@dataclass(slots=True)
class _Plan:
    cache: KVCache
    query: Operand
    out_dtype: str
    out_shape: tuple[int, int, int, int]
    splits: int
    rows: int
    chunks: int
    softcap: bool
    params: bytes


def _plan(
    query: object, cache: object, window: object, scale: object, softcap: object, splits: object
) -> _Plan:
    if not isinstance(cache, KVCache):
        raise TypeError(f"cache: expected a KVCache, got {type(cache).__name__}")
    cache.keys.storage("cache")
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
    device = cache.device
    given_query = float_tensor("query", query, device)
    # Keys lie rotated; a rotation of both leaves the scores as they are.
    form = cache.key_format
    tensor = operand("query", turboquant.rotate_query(given_query, form) if form else given_query)
    rows = _rows_per_workgroup(problem.group * problem.queries, cache, device)
    chunks = -(-problem.group * problem.queries // rows)
    left = problem.masking.window_left
    first = 0 if left is None else max(0, cache.length - problem.queries - left)
    visible = cache.length - first
    count = given or choose_splits(
        visible, max(1, problem.batch * problem.kv_heads * chunks), device.info.software
    )
    count = max(1, min(count, visible))
    params = _SPLIT_PARAMS.pack(
        query_strides=tensor.strides,
        key_strides=(0, 0, 0, 0),
        mask_strides=(0, 0, 0, 0),
        query_first=device.bind(tensor.tensor, "query").first,
        key_first=0,
        mask_first=0,
        lengths_first=0,
        lengths_stride=0,
        batch=problem.batch,
        heads=problem.heads,
        group=problem.group,
        queries=problem.queries,
        keys=problem.keys,
        **masking_params(problem.masking),
        kv_heads=problem.kv_heads,
        chunks=chunks,
        splits=count,
        split_keys=-(-visible // count),
        first_key=first,
        start=cache.start,
        capacity=cache.capacity,
    )
    out_shape = (problem.batch, problem.heads, problem.queries, problem.value_head_dim)
    return _Plan(
        cache,
        tensor,
        given_query.dtype,
        out_shape,
        count,
        rows,
        chunks,
        bool(problem.masking.softcap),
        params,
    )


def _rows_per_workgroup(rows: int, cache: KVCache, device: Device) -> int:
    """As many rows as there are, or as fit: their queries and products lie in workgroup memory."""
    per_row = 4 * (pad4(cache.key_format.width if cache.key_format else cache.head_dim) + 2 * _WORKGROUP + 2)
    shared = 20 * _WORKGROUP
    allowed = device.info.limits["maxComputeWorkgroupStorageSize"] - shared
    return max(1, min(rows, 16, allowed // per_row))


def _empty_partials(plan: _Plan) -> tuple[Tensor, Tensor]:
    device = plan.cache.device
    shape = (*plan.out_shape[:3], plan.splits)
    pitch = pad4(plan.cache.value_head_dim)
    return device.empty((*shape, plan.cache.value_head_dim), pitch=pitch), device.empty(shape)


def _dispatch_splits(plan: _Plan, out: Tensor, lse: Tensor | None) -> None:
    cache, device = plan.cache, plan.cache.device
    shader = _split_shader(
        plan.query.binding,
        plan.query.tensor.dtype,
        plan.query.packed,
        cache.dtype,
        out.dtype,
        (plan.query.tensor.shape[3], cache.value_head_dim),
        (cache.key_format, cache.value_format),
        plan.rows,
        plan.softcap,
        lse is not None,
    )
    tensors: Sequence[tuple[str, Tensor | None]] = (
        ("query", plan.query.tensor),
        ("cache", cache.keys),
        ("cache", cache.values),
        ("out", out),
        ("lse", lse),
    )
    buffers = [device.bind(tensor, name) for name, tensor in tensors if tensor is not None]
    workgroups = cache.batch * cache.kv_heads * plan.chunks * plan.splits
    device.dispatch(shader, plan.params, buffers, device.grid(workgroups, "query"))


def _dispatch_reduce(
    plan: _Plan, partial_out: Tensor, partial_lse: Tensor, out: Tensor, lse: Tensor | None
) -> None:
    device, dv4 = plan.cache.device, pad4(plan.cache.value_head_dim) // 4
    buffers = [device.bind(partial_out, "partial_out"), device.bind(partial_lse, "partial_lse")]
    buffers += [device.bind(t, n) for n, t in (("out", out), ("lse", lse)) if t is not None]
    rows = math.prod(plan.out_shape[:3])
    params = _REDUCE_PARAMS.pack(rows=rows, splits=plan.splits, empty_lse=-math.inf)
    shader = _reduce_shader(out.dtype, dv4, lse is not None)
    device.dispatch(shader, params, buffers, device.grid(-(-rows * dv4 // _REDUCE_WORKGROUP), "query"))


@functools.lru_cache(maxsize=64)
def _split_shader(
    query: Binding,
    query_dtype: str,
    query_packed: bool,
    cache_dtype: tuple[str, str],
    out_dtype: str,
    dims: tuple[int, int],
    formats: tuple[turboquant.Format | None, turboquant.Format | None],
    rows: int,
    softcap: bool,
    write_lse: bool,
) -> Shader:
    d4, dv4 = (pad4(dim) // 4 for dim in dims)
    key_form, value_form = formats
    bindings = [
        query,
        Binding("key", "u32" if key_form else output_type(cache_dtype[0])),
        Binding("value", "u32" if value_form else output_type(cache_dtype[1])),
        Binding("out", output_type(out_dtype), writes=True),
    ]
    if write_lse:
        bindings.append(Binding("lse", "f32", writes=True))
    return render(
        "decode_split.wgsl",
        "decode_split",
        f"{rows}-row{'s' if rows > 1 else ''}",
        params=_SPLIT_PARAMS,
        bindings=tuple(bindings),
        constants={
            "query_dtype": query_dtype,
            "query_packed": query_packed,
            "key_dtype": cache_dtype[0],
            "value_dtype": cache_dtype[1],
            "key_row": key_form.row() if key_form else None,
            "value_row": value_form.row() if value_form else None,
            # From one row of the cache to the next: words of codes, or elements.
            "KEY_PITCH": key_form.words if key_form else 4 * d4,
            "VALUE_PITCH": value_form.words if value_form else 4 * dv4,
            "out_dtype": out_dtype,
            "dtypes": (query_dtype, *cache_dtype, out_dtype),
            "softcap": softcap,
            "mask_kind": "none",
            "masks": False,
            "has_score_mod": False,
            "has_mask_mod": False,
            "has_lengths": False,
            "D": dims[0],
            "D4": d4,
            "DV": dims[1],
            "DV4": dv4,
            "ROWS": rows,
            "LANES": min(8, 1 << (d4 - 1).bit_length()),
            "WORKGROUP": _WORKGROUP,
            "write_lse": write_lse,
        },
    )


@functools.lru_cache(maxsize=32)
def _reduce_shader(dtype: str, dv4: int, write_lse: bool) -> Shader:
    bindings = [
        Binding("partial_out", "vec4<f32>"),
        Binding("partial_lse", "f32"),
        Binding("out", output_type(dtype), writes=True),
    ]
    if write_lse:
        bindings.append(Binding("lse", "f32", writes=True))
    return render(
        "decode_reduce.wgsl",
        "decode_reduce",
        dtype,
        params=_REDUCE_PARAMS,
        bindings=tuple(bindings),
        constants={
            "out_dtype": dtype,
            "dtypes": (dtype,),
            "DV4": dv4,
            "WORKGROUP": _REDUCE_WORKGROUP,
            "write_lse": write_lse,
        },
    )
