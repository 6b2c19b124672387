"""Attention over sequences of different lengths, packed behind each other without padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from py_attn.arguments import Window
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention import backward, forward
from py_attn.kernels.attention.config import Config, Variant
from py_attn.kernels.attention.options import Call, Keywords, resolve
from py_attn.kernels.attention.packing import pack
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
    grad_lse: Any = None,
    captured: Sequence[Tensor] = (),
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
    captured : sequence of Tensor
        As in :func:`attention_backward`; their gradients are summed over the sequences.

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
        return backward.plan_call(call, **given, wanted=wanted)

    made = run_call("varlen_attention_backward", tensors | results, (*keywords, *wanted), make)
    inputs = [made[name][0] for name in backward.gradients(None)]
    return *inputs, *([] if sinks is None else [made["d_sinks"]]), *wanted.results(made)


def resolve_packed(
    query: Any, key: Any, value: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, **keywords: Any
) -> Call:
    """Check arguments of packed sequences; the keywords are those of ``options.resolve``."""
    given = (("query", query), ("key", key), ("value", value))
    call = resolve(*(_lead(name, x, 3) for name, x in given), **keywords)
    return pack(call, cu_seqlens_q, cu_seqlens_k)


def _lead(name: str, value: Any, rank: int) -> Any:
    """``value`` with a batch axis of one in front."""
    shape = shape_of(name, value)
    if len(shape) != rank:
        form = "[Hq, total]" if rank == 2 else "[total, H, D]"
        raise ValueError(f"{name}: expected {rank} dimensions {form}, got {len(shape)}: {list(shape)}")
    return value[None] if isinstance(value, Tensor) else np.asarray(value)[None]
