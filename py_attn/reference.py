"""The float64 reference: every public operation in plain numpy, as the formula is written.

``compute_dtype=numpy.float32`` runs the same lines in single precision. Tests derive their bound from it: the
error of a kernel, compared with float64, may be at most twice that of plain numpy in the kernel's precision.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from py_attn.arguments import (
    Layout,
    Problem,
    Window,
    check_layout,
    check_mask_shape,
    check_window,
    resolve,
)
from py_attn.cache_reference import cached as cached
from py_attn.products import product
from py_attn.rotary_reference import rotary as rotary

Array = npt.NDArray[Any]
_F = TypeVar("_F", bound=Callable[..., Any])


def _any_rank(operands: int, rows: int) -> Callable[[_F], _F]:
    """Let a function take operands without a batch axis, [H, S, D], or without heads too, [S, D].

    Of its results the first ``operands`` are shaped like these, and ``rows`` more begin with [B, H].
    """

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def call(*given: Any, **keywords: Any) -> Any:
            ranks = {np.ndim(x) for x in given}
            if ranks not in ({2}, {3}):
                return function(*given, **keywords)
            missing = 4 - ranks.pop()
            swapped = missing == 2 and keywords.get("layout") == "BSHD"
            axes = (0, 2) if swapped else tuple(range(missing))
            for name in keywords.keys() & {"value", "grad_out", "out"}:
                keywords[name] = np.expand_dims(np.asarray(keywords[name]), axes)
            for name in keywords.keys() & {"lse", "grad_lse"}:
                keywords[name] = np.expand_dims(np.asarray(keywords[name]), tuple(range(missing)))
            found = function(*(np.expand_dims(np.asarray(x), axes) for x in given), **keywords)
            results = found if isinstance(found, tuple) else (found,)
            own = [x.squeeze(axes) for x in results[:operands]]
            own += [x[(0,) * missing] for x in results[operands : operands + rows]]
            own += results[operands + rows :]
            return tuple(own) if isinstance(found, tuple) else own[0]

        return cast("_F", call)

    return decorate


@_any_rank(operands=1, rows=1)
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    mask: npt.ArrayLike | None = None,
    causal: bool | str = False,
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
    kv_lengths: npt.ArrayLike | None = None,
    query_offset: int | None = None,
    layout: Layout = "BHSD",
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    sinks: npt.ArrayLike | None = None,
    return_lse: bool = False,
    compute_dtype: npt.DTypeLike = np.float64,
) -> Any:
    """Scaled dot-product attention; arguments and results as in :func:`py_attn.attention`.

    Parameters
    ----------
    query, key, value : array_like
        [B, Hq, Sq, D], [B, Hkv, Sk, D], [B, Hkv, Sk, Dv] (or "BSHD").
    score_mod, mask_mod : callable, optional
        As in :func:`py_attn.attention`, but called with whole arrays, and reading numpy arrays.
    compute_dtype
        Precision of every step, ``float64`` by default.

    Returns
    -------
    numpy.ndarray or (numpy.ndarray, numpy.ndarray)
        Output in ``compute_dtype`` and, with ``return_lse``, the log-sum-exp [B, Hq, Sq].
    """
    swap = check_layout(layout) == "BSHD"
    q, k, v = (_to_bhsd(x, swap, compute_dtype) for x in (query, key, value))
    problem = resolve(
        q.shape,
        k.shape,
        v.shape,
        causal=causal,
        window=window,
        scale=scale,
        softcap=softcap,
        query_offset=query_offset,
        may_share=True,
    )
    s = scores(q, k, problem, mask, kv_lengths, score_mod, mask_mod)
    p, lse = softmax(s, _row_sinks(sinks, compute_dtype))
    out = _sum_of_seen(p, np.isneginf(s), np.repeat(v, problem.group, axis=1))
    out = out.transpose(0, 2, 1, 3) if swap else out
    return (out, lse) if return_lse else out


@_any_rank(operands=0, rows=1)
def attention_weights(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    *,
    value: npt.ArrayLike | None = None,
    grad_out: npt.ArrayLike | None = None,
    mask: npt.ArrayLike | None = None,
    causal: bool | str = False,
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
    kv_lengths: npt.ArrayLike | None = None,
    query_offset: int | None = None,
    layout: Layout = "BHSD",
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    sinks: npt.ArrayLike | None = None,
    compute_dtype: npt.DTypeLike = np.float64,
) -> Array:
    """The probabilities [B, Hq, Sq, Sk] that :func:`attention` multiplies the values with.

    With ``value`` and ``grad_out`` each is multiplied by the gradient with respect to it, grad_out · valueᵀ.
    """
    swap = check_layout(layout) == "BSHD"
    q, k = (_to_bhsd(x, swap, compute_dtype) for x in (query, key))
    problem = resolve(
        q.shape,
        k.shape,
        None,
        causal=causal,
        window=window,
        scale=scale,
        softcap=softcap,
        query_offset=query_offset,
        may_share=True,
    )
    s = scores(q, k, problem, mask, kv_lengths, score_mod, mask_mod)
    weights = softmax(s, _row_sinks(sinks, compute_dtype))[0]
    if value is None or grad_out is None:
        return weights
    v, grad = (_to_bhsd(x, swap, compute_dtype) for x in (value, grad_out))
    weighted = weights * product(grad, np.repeat(v, problem.group, axis=1).swapaxes(-1, -2))
    # Nothing comes from a hidden key, not even NaN.
    return np.where(np.isneginf(s), 0, weighted).astype(weighted.dtype)


@_any_rank(operands=3, rows=0)
def attention_backward(
    grad_out: npt.ArrayLike,
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    mask: npt.ArrayLike | None = None,
    causal: bool | str = False,
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
    kv_lengths: npt.ArrayLike | None = None,
    query_offset: int | None = None,
    layout: Layout = "BHSD",
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    sinks: npt.ArrayLike | None = None,
    grad_lse: npt.ArrayLike | None = None,
    mask_gradient: bool = False,
    captured: Sequence[Array] = (),
    out: npt.ArrayLike | None = None,
    lse: npt.ArrayLike | None = None,
    compute_dtype: npt.DTypeLike = np.float64,
) -> tuple[Array, ...]:
    """Gradients of :func:`attention` with respect to query, key, value and, where there are any, sinks.

    With ``mask_gradient`` that of the mask follows, then those of the ``captured`` arrays of float64: each of
    their elements is moved a little and put back, to see what ``score_mod`` makes of that.

    With the forward pass's ``out`` and ``lse`` the probabilities are recomputed from them, as kernels do;
    in single precision, tests derive the kernels' bound from that.
    """
    swap = check_layout(layout) == "BSHD"
    d_out, q, k, v = (_to_bhsd(x, swap, compute_dtype) for x in (grad_out, query, key, value))
    problem = resolve(
        q.shape,
        k.shape,
        v.shape,
        causal=causal,
        window=window,
        scale=scale,
        softcap=softcap,
        query_offset=query_offset,
        may_share=True,
    )
    m = problem.masking
    s = scores(q, k, problem, mask, kv_lengths, score_mod, mask_mod)
    dp = product(d_out, np.repeat(v, problem.group, axis=1).swapaxes(-1, -2))
    row_sinks = _row_sinks(sinks, compute_dtype)
    if out is None or lse is None:
        p = softmax(s, row_sinks)[0]
        delta = np.where(np.isneginf(s), 0, p * dp).sum(axis=-1)
    else:
        row_lse = np.asarray(lse).astype(compute_dtype)
        p = np.exp(s - np.where(np.isneginf(row_lse), 0, row_lse)[..., None])
        delta = (d_out * _to_bhsd(out, swap, compute_dtype)).sum(axis=-1)
        delta = np.where(np.isneginf(s).all(axis=-1), 0, delta).astype(delta.dtype)
    if grad_lse is not None:
        delta = delta - np.asarray(grad_lse).astype(compute_dtype)
    ds = p * (dp - delta[..., None])
    capped = capped_scores(q, k, problem)
    of_scores = np.where(np.isneginf(s), 0, ds).astype(ds.dtype)
    others = [_sum_like(of_scores, np.asarray(mask))] if mask_gradient else []
    for array in captured:
        moved = _slopes(lambda: score_mod(capped.astype(np.float64), *_indices(problem)), array)  # type: ignore[misc]
        sums = [(of_scores * slope.astype(ds.dtype)).sum() for slope in moved]
        others.append(np.array(sums, ds.dtype).reshape(array.shape))
    if score_mod is not None:
        # The derivative by central differences, good to about 1e-10 in float64.
        step, wide = 1e-5, capped.astype(np.float64)
        ahead, behind = (score_mod(wide + move, *_indices(problem)) for move in (step, -step))
        with np.errstate(invalid="ignore"):
            slope = (ahead - behind) / (2 * step)
        ds = ds * np.where(np.isfinite(slope), slope, 0).astype(q.dtype)
    if m.softcap:
        ds = ds * (1 - (capped / q.dtype.type(m.softcap)) ** 2)
    hidden = np.isneginf(s)
    p, ds = (
        np.where(hidden, 0, p).astype(q.dtype),
        np.where(hidden, 0, ds * q.dtype.type(m.scale)).astype(q.dtype),
    )
    behind = hidden.swapaxes(-1, -2)
    grouped = (problem.batch, problem.kv_heads, problem.group)
    d_query = _sum_of_seen(ds, hidden, np.repeat(k, problem.group, axis=1))
    d_key = _sum_of_seen(ds.swapaxes(-1, -2), behind, q).reshape(*grouped, *k.shape[2:]).sum(axis=2)
    d_value = _sum_of_seen(p.swapaxes(-1, -2), behind, d_out).reshape(*grouped, *v.shape[2:]).sum(axis=2)
    if problem.kv_batch < problem.batch:
        d_key, d_value = (x.sum(axis=0, keepdims=True) for x in (d_key, d_value))
    if swap:
        d_query, d_key, d_value = (x.swapaxes(1, 2) for x in (d_query, d_key, d_value))
    if row_sinks is None:
        return d_query, d_key, d_value, *others
    # The probability of a key whose score is the sink.
    with_sink = np.concatenate([s, np.broadcast_to(row_sinks, (*s.shape[:-1], 1)).astype(s.dtype)], axis=-1)
    share = softmax(with_sink)[0][..., -1]
    return d_query, d_key, d_value, -(share * delta).sum(axis=(0, 2)), *others


def _sum_like(x: Array, like: Array) -> Array:
    """``x`` summed over the axes that ``like`` broadcasts."""
    shape = (1,) * (x.ndim - like.ndim) + like.shape
    axes = tuple(axis for axis, n in enumerate(shape) if n == 1)
    total: Array = x.sum(axis=axes, keepdims=True).reshape(like.shape)
    return total


def _slopes(function: Callable[[], Any], array: Array) -> Iterator[Array]:
    """The derivatives of ``function()`` with respect to each element of ``array``, by central differences."""
    step = 1e-5
    for place in np.ndindex(array.shape):
        own = array[place]
        array[place] = own + step
        ahead = np.asarray(function())
        array[place] = own - step
        behind = np.asarray(function())
        array[place] = own
        with np.errstate(invalid="ignore"):
            slope = (ahead - behind) / (2 * step)
        yield np.where(np.isfinite(slope), slope, 0)


def varlen_attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    cu_seqlens_q: npt.ArrayLike,
    cu_seqlens_k: npt.ArrayLike,
    *,
    seqused_q: npt.ArrayLike | None = None,
    seqused_k: npt.ArrayLike | None = None,
    return_lse: bool = False,
    **keywords: Any,
) -> Any:
    """:func:`attention` of each packed sequence separately; [total, H, D], LSE [H, total].

    A mod's ``b`` is the number of the sequence. Queries behind ``seqused_q`` see nothing, and keys behind
    ``seqused_k`` are seen by nobody.
    """
    q, k, v = (np.asarray(x) for x in (query, key, value))
    outs, lses = [], []
    for b, rows, columns in _sequences(cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k):
        given = (q[None, rows], k[None, columns], v[None, columns])
        out, lse = attention(*given, layout="BSHD", return_lse=True, **_of_sequence(keywords, b))
        outs.append(out[0])
        lses.append(lse[0])
    joined = np.concatenate(outs)
    return (joined, np.concatenate(lses, axis=1)) if return_lse else joined


def varlen_attention_backward(
    grad_out: npt.ArrayLike,
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    cu_seqlens_q: npt.ArrayLike,
    cu_seqlens_k: npt.ArrayLike,
    *,
    seqused_q: npt.ArrayLike | None = None,
    seqused_k: npt.ArrayLike | None = None,
    out: npt.ArrayLike | None = None,
    lse: npt.ArrayLike | None = None,
    grad_lse: npt.ArrayLike | None = None,
    **keywords: Any,
) -> tuple[Array, ...]:
    """Gradients of :func:`varlen_attention`."""
    g, q, k, v = (np.asarray(x) for x in (grad_out, query, key, value))
    parts = []
    for b, rows, columns in _sequences(cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k):
        if out is not None and lse is not None:
            keywords["out"], keywords["lse"] = np.asarray(out)[None, rows], np.asarray(lse)[None, :, rows]
        if grad_lse is not None:
            keywords["grad_lse"] = np.asarray(grad_lse)[None, :, rows]
        parts.append(
            attention_backward(
                *(g[None, rows], q[None, rows], k[None, columns], v[None, columns]),
                **_of_sequence(keywords, b) | {"layout": "BSHD"},
            )
        )
    d_query, d_key, d_value = (np.concatenate([part[n][0] for part in parts]) for n in range(3))
    others = zip(*(part[3:] for part in parts), strict=True)
    return d_query, d_key, d_value, *(np.sum(each, axis=0) for each in others)


def _sequences(
    cu_seqlens_q: npt.ArrayLike,
    cu_seqlens_k: npt.ArrayLike,
    seqused_q: npt.ArrayLike | None,
    seqused_k: npt.ArrayLike | None,
) -> Iterator[tuple[int, slice, slice]]:
    """Which queries are beside which keys, with the number of the sequence; unused ones are beside none."""
    q_edges, k_edges = (np.asarray(cu).tolist() for cu in (cu_seqlens_q, cu_seqlens_k))
    for b, (rows, columns) in enumerate(
        zip(itertools.pairwise(q_edges), itertools.pairwise(k_edges), strict=True)
    ):
        q_end = rows[1] if seqused_q is None else rows[0] + int(np.asarray(seqused_q)[b])
        k_end = columns[1] if seqused_k is None else columns[0] + int(np.asarray(seqused_k)[b])
        yield b, slice(rows[0], q_end), slice(columns[0], k_end)
        if q_end < rows[1]:
            yield b, slice(q_end, rows[1]), slice(k_end, k_end)
        if k_end < columns[1]:
            yield b, slice(rows[1], rows[1]), slice(k_end, columns[1])


def _of_sequence(keywords: dict[str, Any], b: int) -> dict[str, Any]:
    """The keywords for sequence ``b`` alone, which is batch element 0 of what is given to them."""
    mods = {n: keywords[n] for n in ("score_mod", "mask_mod") if keywords.get(n) is not None}
    return keywords | {name: _of_element(mod, b) for name, mod in mods.items()}


def scaled_dot_product_attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    attn_mask: npt.ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    compute_dtype: npt.DTypeLike = np.float64,
) -> Array:
    """PyTorch's function as its documentation defines it, with any number of leading axes; no dropout."""
    q, k, v = (np.asarray(x).astype(compute_dtype) for x in (query, key, value))
    if enable_gqa:
        group = q.shape[-3] // k.shape[-3]
        k, v = np.repeat(k, group, axis=-3), np.repeat(v, group, axis=-3)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    s = product(q * q.dtype.type(factor), k.swapaxes(-1, -2))
    if is_causal:
        s = np.where(np.tri(*s.shape[-2:], dtype=np.bool_), s, -np.inf)
    if attn_mask is not None:
        mask = np.asarray(attn_mask)
        s = np.where(mask, s, -np.inf) if mask.dtype == np.bool_ else s + mask.astype(s.dtype)
    return product(softmax(s)[0], v)


def decode_attention(
    query: npt.ArrayLike,
    keys: npt.ArrayLike,
    values: npt.ArrayLike,
    *,
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    sinks: npt.ArrayLike | None = None,
    capacity: int | None = None,
    sink_tokens: int = 0,
    lengths: npt.ArrayLike | None = None,
    left_padding: npt.ArrayLike | None = None,
    return_lse: bool = False,
    compute_dtype: npt.DTypeLike = np.float64,
) -> Any:
    """Attention of the last S positions over all ``keys`` and ``values`` ever appended.

    A cache of ``capacity`` still holds the newest of these and the first ``sink_tokens``, which are within
    every window. With ``lengths`` [B] only so many of the first positions of each batch element were appended
    to it, and its queries are the last of those. Nobody sees the first ``left_padding`` [B] positions.
    """
    if lengths is not None:
        parts = [
            decode_attention(
                np.asarray(query)[b : b + 1],
                np.asarray(keys)[b : b + 1, :, :length],
                np.asarray(values)[b : b + 1, :, :length],
                window=window,
                scale=scale,
                softcap=softcap,
                sinks=sinks,
                capacity=capacity,
                score_mod=score_mod and _of_element(score_mod, b),
                mask_mod=mask_mod and _of_element(mask_mod, b),
                sink_tokens=sink_tokens,
                left_padding=None if left_padding is None else np.asarray(left_padding)[b : b + 1],
                return_lse=True,
                compute_dtype=compute_dtype,
            )
            for b, length in enumerate(np.asarray(lengths).tolist())
        ]
        out, lse = (np.concatenate(part) for part in zip(*parts, strict=True))
        return (out, lse) if return_lse else out
    total, queries = np.shape(keys)[2], np.shape(query)[2]
    key, position = np.arange(total), np.arange(queries)[:, None] + total - queries
    dropped = 0 if capacity is None else max(0, total - capacity)
    left, right = check_window(window)
    seen = (key < sink_tokens) | (key >= sink_tokens + dropped)
    if left is not None:
        seen = seen & ((key < sink_tokens) | (key >= position - left))
    if right is not None:
        seen = seen & (key <= position + right)
    seen = np.broadcast_to(seen, (queries, total))
    if left_padding is not None:
        seen = seen & (key >= np.asarray(left_padding)[:, None, None, None])

    # The mods of a decode count queries from the first append, those of attention from 0.
    def placed(mod: Callable[..., Any]) -> Any:
        return lambda *at: mod(*at[:-2], at[-2] + total - queries, at[-1])

    return attention(
        query,
        keys,
        values,
        mask=seen,
        causal=True,
        scale=scale,
        softcap=softcap,
        score_mod=score_mod and placed(score_mod),
        mask_mod=mask_mod and placed(mask_mod),
        sinks=sinks,
        return_lse=return_lse,
        compute_dtype=compute_dtype,
    )


def _of_element(mod: Callable[..., Any], b: int) -> Callable[..., Any]:
    """``mod`` for batch element ``b`` alone."""
    return lambda *at: mod(*at[:-4], at[-4] + b, *at[-3:])


def merge(
    partials: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]],
    *,
    return_lse: bool = False,
    compute_dtype: npt.DTypeLike = np.float64,
) -> Any:
    """Attention over all keys, from the results over parts of them; as :func:`py_attn.merge`."""
    outs, lses = (np.stack([np.asarray(x[n]).astype(compute_dtype) for x in partials]) for n in (0, 1))
    top = lses.max(0)
    shift = np.where(np.isneginf(top), 0, top).astype(lses.dtype)
    weights = np.exp(lses - shift)
    total = weights.sum(0)
    with np.errstate(divide="ignore"):
        lse = shift + np.log(total)
    shares = (weights / np.where(total == 0, 1, total))[..., None]
    # Of a part that saw nothing nothing is taken, not even NaN.
    out = (shares * np.where(np.isneginf(lses)[..., None], 0, outs)).sum(0, dtype=outs.dtype)
    return (out, lse) if return_lse else out


def pool(weights: Array, size: tuple[int, int], mode: str = "max") -> Array:
    """Reduce the last two axes to ``size`` cells; cell i covers rows floor(i*R/h) to ceil((i+1)*R/h).

    ``mode`` is "max", "mean", or "furthest" for the value furthest from zero.
    """
    rows, columns = (_cells(n, cells) for n, cells in zip(weights.shape[-2:], size, strict=True))
    reduce: Any = {"max": np.max, "mean": np.mean, "furthest": _furthest}[mode]
    return np.stack(
        [
            np.stack([reduce(weights[..., r0:r1, c0:c1], axis=(-2, -1)) for c0, c1 in columns], axis=-1)
            for r0, r1 in rows
        ],
        axis=-2,
    )


def _furthest(x: Array, axis: tuple[int, ...]) -> Array:
    high, low = x.max(axis=axis), x.min(axis=axis)
    furthest: Array = np.where(-low > high, low, high)
    return furthest


def _cells(n: int, cells: int) -> list[tuple[int, int]]:
    return [(i * n // cells, max(i * n // cells + 1, -(-(i + 1) * n // cells))) for i in range(cells)]


def visible(problem: Problem, kv_lengths: npt.ArrayLike | None = None) -> npt.NDArray[np.bool_]:
    """[B, Sq, Sk]: which keys each query may see by length, causality and window."""
    m = problem.masking
    lengths = (
        np.full(problem.batch, problem.keys)
        if kv_lengths is None
        else np.asarray(kv_lengths).astype(np.int64)
    )
    if lengths.shape != (problem.batch,) or (lengths < 0).any() or (lengths > problem.keys).any():
        raise ValueError(
            f"kv_lengths: expected [{problem.batch}] integers from 0 to {problem.keys}, got {lengths}"
        )
    key = np.arange(problem.keys)
    position = np.arange(problem.queries)[None, :]
    if not m.top_left:
        position = position + (lengths - problem.queries)[:, None]
    position = np.broadcast_to(position, (problem.batch, problem.queries))[:, :, None]
    seen = np.broadcast_to(
        key < lengths[:, None, None], (problem.batch, problem.queries, problem.keys)
    ).copy()
    if m.window_left is not None:
        seen &= key >= position - m.window_left
    if m.window_right is not None:
        seen &= key <= position + m.window_right
    return seen


def scores(
    query: Array,
    key: Array,
    problem: Problem,
    mask: npt.ArrayLike | None = None,
    kv_lengths: npt.ArrayLike | None = None,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
) -> Array:
    """Scaled, capped, modified and masked scores [B, Hq, Sq, Sk]; hidden ones are -inf.

    ``score_mod`` and ``mask_mod`` are called with whole arrays; the arrays that they read must be numpy's.
    """
    s = capped_scores(query, key, problem)
    hidden = ~visible(problem, kv_lengths)[:, None]
    if score_mod is not None:
        s = np.broadcast_to(score_mod(s, *_indices(problem)), s.shape).astype(query.dtype)
    if mask_mod is not None:
        hidden = hidden | ~np.asarray(mask_mod(*_indices(problem)), bool)
    if mask is not None:
        mask = np.asarray(mask)
        check_mask_shape(mask.shape, problem.score_shape)
        if mask.dtype == np.bool_:
            hidden = hidden | ~mask
        else:
            s, hidden = s + mask.astype(query.dtype), hidden | np.isneginf(mask)
    masked: Array = np.where(hidden, query.dtype.type(-np.inf), s)
    return masked


def capped_scores(query: Array, key: Array, problem: Problem) -> Array:
    """Scaled and capped scores [B, Hq, Sq, Sk]."""
    m, dtype = problem.masking, query.dtype
    s = product(query * dtype.type(m.scale), np.repeat(key, problem.group, axis=1).swapaxes(-1, -2))
    return dtype.type(m.softcap) * np.tanh(s / dtype.type(m.softcap)) if m.softcap else s


def _indices(problem: Problem) -> tuple[Array, Array, Array, Array]:
    """b, h, q_idx and kv_idx as arrays that broadcast to the scores."""
    b, h, i, j = np.ogrid[tuple(slice(n) for n in problem.score_shape)]
    return b, h, i, j


def softmax(s: Array, sinks: Array | None = None) -> tuple[Array, Array]:
    """Row-wise softmax and log-sum-exp; a row of -inf gives zeros and -inf, NaN makes its whole row NaN.

    A score of -inf is hidden: its weight is zero, whatever else the row holds.

    ``sinks`` [Hq, 1, 1] take part in every row of their head, and their probabilities are left out.
    """
    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    if sinks is not None:
        top = np.maximum(top, sinks)
    shift = np.where(np.isneginf(top), 0, top)
    e = np.exp(s - shift)
    total = e.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks - shift)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    weights: Array = np.where(np.isneginf(s), 0, e / np.where(total == 0, 1, total)).astype(s.dtype)
    return weights, lse


def _sum_of_seen(weights: Array, hidden: npt.NDArray[np.bool_], x: Array) -> Array:
    """``weights @ x``, to which hidden positions contribute nothing, whatever ``x`` holds there."""
    finite = np.isfinite(x)
    result = product(weights, np.where(finite, x, 0).astype(x.dtype))
    others = np.where(finite, 0, x).astype(x.dtype)
    for j in np.flatnonzero(~finite.all(axis=(0, 1, 3))):
        part = weights[..., j, None] * others[..., j, None, :]
        result = result + np.where(hidden[..., j, None], 0, part).astype(x.dtype)
    return result


def _row_sinks(sinks: npt.ArrayLike | None, dtype: npt.DTypeLike) -> Array | None:
    """Sinks [Hq] as they broadcast to scores [B, Hq, Sq, Sk]."""
    return None if sinks is None else np.asarray(sinks).astype(dtype)[:, None, None]


def _to_bhsd(x: npt.ArrayLike, swap: bool, dtype: npt.DTypeLike) -> Array:
    array: Array = np.asarray(x).astype(dtype)
    return array.swapaxes(1, 2) if swap and array.ndim == 4 else array
