"""Attention of the newest positions over a KV cache, split along the keys (Flash-Decoding)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py_attn.arguments import Window
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.decode.cache import KVCache, check_cache
from py_attn.kernels.decode.config import configure
from py_attn.kernels.decode.options import resolve
from py_attn.kernels.decode.plan import plan_attention, plan_partials
from py_attn.kernels.rotary import tables_of


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
    left_padding: Any = None,
    rotary: Any = None,
    rotary_interleaved: bool = False,
    splits: int | str = "auto",
    return_lse: bool = False,
) -> Any:
    """Attention of the last S positions over ``cache``, causal ("bottom-right").

    The keys are divided into ``splits`` that run at the same time; a second launch combines their partial
    results by their LSEs. Each key and value is read once for all query heads of its group.

    Parameters
    ----------
    query : Tensor or array_like
        [B, Hq, S, D], the newest positions: query i stands at ``cache.total`` - S + i, of a ragged cache at
        ``cache.totals[b]`` - S + i. Usually S = 1.
    cache : KVCache
        Not empty; Hq a multiple of its heads. A batch element of a ragged cache may be empty: its rows are 0
        with LSE -inf. A recorded decode that is submitted again sees what a ragged cache then holds, and of
        others the entries that there were when it was recorded.
    window, scale, softcap, sinks
        As in :func:`attention`; the cache's sink tokens are within every window.
    score_mod, mask_mod
        As in :func:`attention`, with positions for ``q_idx`` and ``kv_idx``: both count from the first
        append, also where a ring has dropped entries since. So ``q_idx - kv_idx`` is a distance between
        tokens, and a table of documents is looked up by the number of a token.
    left_padding : Tensor or array_like of int, optional
        [B], how many of the first positions of each batch element are padding that nobody sees, from 0 on, as
        where prompts of several lengths were appended with padding in front. Positions keep their numbers.
    rotary : (cos, sin), optional
        Give the query rotary position embeddings at its positions before it is multiplied with the keys, by
        tables as of :meth:`KVCache.append`. The keys are taken as they are cached.
    rotary_interleaved : bool
        Which numbers are pairs, as ``interleaved`` of :func:`py_attn.rotary`.
    splits : int or str
        1 to 1024, or "auto": from the number of keys (the capacity of a ragged cache) and of workgroups
        without splitting; 1 where the adapter has a buffer too few for several. A tiled cache is divided by
        tiles.
    return_lse : bool
        Also return the LSE.

    Returns
    -------
    Tensor or (Tensor, Tensor)
        [B, Hq, S, Dv] in the query's dtype; LSE [B, Hq, S] float32 (natural log).

    Raises
    ------
    ValueError, TypeError
        For an argument that does not fit, an empty cache, or a position that the tables of ``rotary`` do not
        have. Where only the GPU knows the position, the rows of such a query are NaN.
    """
    tensors = _tensors(query, cache, sinks, left_padding, rotary)
    options = {
        "window": window,
        "scale": scale,
        "softcap": softcap,
        "splits": splits,
        "score_mod": score_mod,
        "mask_mod": mask_mod,
        "rotary_interleaved": rotary_interleaved,
    }

    def make() -> Planned:
        call = resolve(tensors, cache, **options)
        plan = plan_attention(call, configure(call), return_lse=return_lse)
        return Planned(call.device, plan, call.tensors)

    made = run_call("decode_attention", tensors, (cache.description, *options.values(), return_lse), make)
    return (made["out"], made["lse"]) if return_lse else made["out"]


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
    left_padding: Any = None,
    rotary: Any = None,
    rotary_interleaved: bool = False,
) -> tuple[Tensor, Tensor]:
    """Each split's own attention and its LSE, to be combined as :func:`decode_attention` does.

    Here each split takes a run of neighbouring keys, the first split the oldest; in :func:`decode_attention`
    a split may take many smaller blocks, as it does here where the cache is ragged. Of a tiled cache a split
    takes neighbouring tiles, in the order in which they lie. Sinks count only when the splits are combined.

    Returns
    -------
    partial_out : Tensor
        [B, Hq, S, splits, Dv] float32, each split normalised by itself.
    partial_lse : Tensor
        [B, Hq, S, splits] float32; -inf for a split that may see nothing. The result is
        Σ exp(partial_lse - lse) · partial_out with lse = log Σ exp(partial_lse).
    """
    tensors = _tensors(query, cache, None, left_padding, rotary)
    options = {
        "window": window,
        "scale": scale,
        "softcap": softcap,
        "splits": splits,
        "score_mod": score_mod,
        "mask_mod": mask_mod,
        "rotary_interleaved": rotary_interleaved,
    }

    def make() -> Planned:
        call = resolve(tensors, cache, **options)
        plan = plan_partials(call, configure(call, in_runs=True))
        return Planned(call.device, plan, call.tensors)

    made = run_call("decode_partials", tensors, (cache.description, *options.values()), make)
    return made["partial_out"], made["partial_lse"]


def _tensors(query: Any, cache: object, sinks: Any, left_padding: Any, rotary: Any) -> dict[str, Any]:
    """The call's tensors by the names that its plan uses.

    Raises
    ------
    TypeError, ValueError
        When ``cache`` is none, or was destroyed, or ``rotary`` no pair.
    """
    checked = check_cache(cache)
    given = {"query": query, "sinks": sinks, "left_padding": left_padding}
    return {**given, **checked.tensors, **tables_of(rotary)}
