"""Attention over sequences of different lengths, packed behind each other without padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from py_attn.arguments import Window
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention import backward, forward
from py_attn.kernels.attention.backward_config import BackwardConfig, BackwardVariant
from py_attn.kernels.attention.config import Config, Variant
from py_attn.kernels.attention.options import Call, Keywords, resolve
from py_attn.kernels.attention.packing import pack, split_at_gaps
from py_attn.kernels.attention.score_gradients import Wanted
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.checks import shape_of


def varlen_attention(
    query: Any,
    key: Any,
    value: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    *,
    causal: bool | Literal["bottom-right", "top-left"] = False,
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    sinks: Any = None,
    seqused_q: Any = None,
    seqused_k: Any = None,
    variant: Variant | Config = "auto",
    return_lse: bool = False,
) -> Any:
    """:func:`attention` of each packed sequence by itself, in one dispatch.

    Parameters
    ----------
    query : Tensor or array_like
        [total_q, Hq, D]: the queries of all sequences, one sequence behind the other.
    key, value : Tensor or array_like
        [total_k, Hkv, D] and [total_k, Hkv, Dv].
    cu_seqlens_q, cu_seqlens_k : Tensor or array_like of int
        [sequences + 1]: where each sequence begins, from 0 to the total. Sequences may be empty on
        either side. A Tensor's values are not read back but clamped on the GPU.
    seqused_q, seqused_k : array_like of int, optional
        [sequences]: how many of each sequence's first positions are used, all unless given. The others give
        zeros and influence nothing. Neither these nor ``cu_seqlens`` may then be Tensors: read
        them first.
    causal, window, scale, softcap, score_mod, mask_mod, sinks, variant, return_lse
        As in :func:`attention`, per sequence ("bottom-right" by its own lengths; a mod's ``b`` is the
        sequence, its ``q_idx`` and ``kv_idx`` count within it).

    Returns
    -------
    Tensor or (Tensor, Tensor)
        [total_q, Hq, Dv] in the query's dtype; LSE [Hq, total_q] float32 (natural log). Rows without a
        visible key give zeros and -inf.

    Raises
    ------
    ValueError, TypeError
        For an argument that does not fit.
    """
    cu_seqlens_q, cu_seqlens_k, score_mod, mask_mod = _without_gaps(
        query, key, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, score_mod, mask_mod
    )
    tensors = {
        "query": query,
        "key": key,
        "value": value,
        "sinks": sinks,
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
    }
    keywords = Keywords(causal, window, scale, softcap, None, "BSHD", score_mod, mask_mod)

    def make() -> Planned:
        return forward.plan_call(
            resolve_packed(**tensors, **keywords._asdict(), buffers=6), variant, return_lse=return_lse
        )

    made = run_call("varlen_attention", tensors, (*keywords, variant, return_lse), make)
    return (made["out"][0], made["lse"][0]) if return_lse else made["out"][0]


def varlen_attention_backward(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    lse: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    *,
    causal: bool | Literal["bottom-right", "top-left"] = False,
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    sinks: Any = None,
    seqused_q: Any = None,
    seqused_k: Any = None,
    grad_lse: Any = None,
    captured: Sequence[Tensor] = (),
    variant: BackwardVariant | BackwardConfig = "auto",
) -> tuple[Tensor, ...]:
    """The gradients of :func:`varlen_attention` with respect to query, key and value, and to sinks.

    Parameters
    ----------
    grad_out, out : Tensor or array_like
        [total_q, Hq, Dv].
    lse : Tensor or array_like
        [Hq, total_q], from the forward call.
    grad_lse : Tensor or array_like, optional
        Gradient of the LSE, [Hq, total_q], where the objective depends on it too.
    seqused_q, seqused_k : array_like of int, optional
        As in the forward call. Gradients of what is not used are zeros, whatever ``grad_out`` holds there.
        With ``sinks``, ``grad_lse`` must be zero there.
    captured : sequence of Tensor
        As in :func:`attention_backward`; their gradients are summed over the sequences.
    variant : str
        As in :func:`attention_backward`. What fits with "stored" depends on the lengths, so it takes no
        Tensors for ``cu_seqlens``; for these "auto" takes "tiled".

    Returns
    -------
    d_query, d_key, d_value : Tensor
        Shaped and typed like query, key and value.
    d_sinks : Tensor
        [Hq] float32, a fourth one where there are ``sinks``.
    *d_captured : Tensor
        One for each of ``captured``, shaped and typed like it.

    Raises
    ------
    ValueError, TypeError
        For an argument that does not fit.
    """
    cu_seqlens_q, cu_seqlens_k, score_mod, mask_mod = _without_gaps(
        query, key, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, score_mod, mask_mod
    )
    tensors = {
        "query": query,
        "key": key,
        "value": value,
        "sinks": sinks,
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
    }
    results = {"grad_out": grad_out, "out": out, "lse": lse, "grad_lse": grad_lse}
    wanted = Wanted(captured=tuple(captured))
    keywords = Keywords(causal, window, scale, softcap, None, "BSHD", score_mod, mask_mod)

    def make() -> Planned:
        call = resolve_packed(
            **tensors, **keywords._asdict(), slope=True, differentiated=wanted.captured, buffers=8
        )
        given = {
            name: _lead(name, x, 2 if name in ("lse", "grad_lse") else 3)
            for name, x in results.items()
            if x is not None
        }
        return backward.plan_call(call, **given, variant=variant, wanted=wanted)

    made = run_call("varlen_attention_backward", tensors | results, (*keywords, *wanted, variant), make)
    inputs = [made[name][0] for name in backward.gradients(None)]
    return *inputs, *([] if sinks is None else [made["d_sinks"]]), *wanted.results(made)


def resolve_packed(
    query: Any, key: Any, value: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, **keywords: Any
) -> Call:
    """Check arguments of packed sequences; the keywords are those of ``options.resolve``."""
    given = (("query", query), ("key", key), ("value", value))
    call = resolve(*(_lead(name, x, 3) for name, x in given), **keywords)
    return pack(call, cu_seqlens_q, cu_seqlens_k)


def _without_gaps(
    query: Any,
    key: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    seqused_q: Any,
    seqused_k: Any,
    score_mod: Callable[..., Any] | None,
    mask_mod: Callable[..., Any] | None,
) -> tuple[Any, Any, Callable[..., Any] | None, Callable[..., Any] | None]:
    """cu_seqlens in which gaps are sequences of their own, and the functions that count without them."""
    if seqused_q is None and seqused_k is None:
        return cu_seqlens_q, cu_seqlens_k, score_mod, mask_mod
    given = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
    shapes = {"cu_seqlens_q": shape_of("query", query), "cu_seqlens_k": shape_of("key", key)}
    totals = {name: shape[0] if shape else 0 for name, shape in shapes.items()}
    ends = split_at_gaps(given, {"seqused_q": seqused_q, "seqused_k": seqused_k}, totals)
    changed_score, changed_mask = score_mod, mask_mod
    if callable(score_mod):
        changed_score = lambda s, b, *rest: score_mod(s, b // 3, *rest)  # noqa: E731
    if callable(mask_mod):
        changed_mask = lambda b, *rest: mask_mod(b // 3, *rest)  # noqa: E731
    return ends["cu_seqlens_q"], ends["cu_seqlens_k"], changed_score, changed_mask


def _lead(name: str, value: Any, rank: int) -> Any:
    """``value`` with a batch axis of one in front."""
    shape = shape_of(name, value)
    if len(shape) != rank:
        form = "[Hq, total]" if rank == 2 else "[total, H, D]"
        raise ValueError(f"{name}: expected {rank} dimensions {form}, got {len(shape)}: {list(shape)}")
    return value[None] if isinstance(value, Tensor) else np.asarray(value)[None]
