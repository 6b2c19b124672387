"""Decoding and appending at a position that only the GPU knows, for a step that is recorded and replayed.

What :func:`py_attn.kernels.decode.attention.decode_attention` and :meth:`KVCache.append` take from
``cache.total`` follows here from POSITION in a state (:mod:`py_attn.kernels.steps`), which the step advances:
the entry of POSITION is the newest, and POSITION + 1 entries were appended in all. ``cache.total`` is neither
read nor changed; :meth:`KVCache.set_total` sets it once the steps are submitted.
"""

from __future__ import annotations

from typing import Any

from py_attn.gpu.kernel import Plan
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.checks import float_tensor
from py_attn.kernels.decode.cache import KVCache, check_cache
from py_attn.kernels.decode.config import configure
from py_attn.kernels.decode.options import resolve_step
from py_attn.kernels.decode.plan import plan_attention, plan_step_partials
from py_attn.kernels.steps import check_state


def decode_attention_step(query: Any, cache: KVCache, state: Tensor, *, splits: int | str = "auto") -> Tensor:
    """Attention of the query at the state's position over ``cache``.

    Parameters
    ----------
    query : Tensor
        [B, Hq, history, D], the queries of all positions; row POSITION is read. A log stored
        [history, Hq, D] is given as a view, transposed.
    cache : KVCache
        Of any dtype; the entry of POSITION is in its slot already. The query attends to all
        min(POSITION + 1, capacity) entries.
    state : Tensor
        As :func:`py_attn.kernels.steps.new_state` makes it.
    splits : int or str
        1 to 1024, or "auto": from the capacity. While the cache holds few entries, some splits are empty.

    Returns
    -------
    Tensor
        [B, Hq, 1, Dv] in the query's dtype.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.
    """
    tensors = _tensors(query, cache, state)

    def make() -> Planned:
        call = resolve_step(tensors, cache, splits=splits)
        plan = plan_attention(call, configure(call), return_lse=False)
        return Planned(call.device, plan, call.tensors)

    return run_call("decode_attention_step", tensors, (cache.storage_description, splits), make)["out"]


def decode_partials_step(
    query: Any, cache: KVCache, state: Tensor, *, splits: int | str = "auto"
) -> tuple[Tensor, Tensor]:
    """The splits of :func:`decode_attention_step` before they are combined, which another kernel does.

    Parameters
    ----------
    query, cache, state, splits
        As of :func:`decode_attention_step`; the cache's values are not TurboQuant's codes.

    Returns
    -------
    partial_out : Tensor
        [B, Hq, 1, splits, Dv] float32, each split normalised by itself; 0 for an empty split.
    partial_rows : Tensor
        [B, Hq, 1, splits, 2] float32: each split's row_max, in units of log2, and row_sum; the lowest finite
        number and 0 for an empty split. With
        w = row_sum · 2^(row_max - the largest row_max) the result is Σ w · partial_out / Σ w.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.
    """
    tensors = _tensors(query, cache, state)

    def make() -> Planned:
        if cache.value_format:
            raise ValueError(
                f"cache: expected no TurboQuant values, got {cache.dtype[1]}, whose sums are rotated back "
                "after the splits are combined; call decode_attention_step"
            )
        call = resolve_step(tensors, cache, splits=splits)
        return Planned(call.device, plan_step_partials(call, configure(call)), call.tensors)

    made = run_call("decode_partials_step", tensors, (cache.storage_description, splits), make)
    return made["partial_out"], made["partial_rows"]


def append_step(key: Any, value: Any, cache: KVCache, state: Tensor) -> None:
    """Write S new positions from the state's on into ``cache``, as :meth:`KVCache.append` does.

    Parameters
    ----------
    key, value : Tensor
        [B, Hkv, S, D] and [B, Hkv, S, Dv], with S at most capacity - sink_tokens: no row may take the slot
        of another.
    cache : KVCache
        Of any dtype.
    state : Tensor
        As :func:`py_attn.kernels.steps.new_state` makes it.

    Raises
    ------
    ValueError, TypeError
        As :meth:`KVCache.append`, and for more rows than the ring holds.
    """
    _check_cache(cache)
    tensors = {"key": key, "value": value, "state": state, **cache.tensors}

    def make() -> Planned:
        check_state(state)
        count, room = cache.check_new(key, value), cache.capacity - cache.sink_tokens
        if count > room:
            raise ValueError(f"key: expected at most the {room} positions that the ring holds, got {count}")
        new = {name: float_tensor(name, tensors[name], cache.device) for name in ("key", "value")}
        given = {**tensors, **new}
        launches = cache.launch_write("key", given), cache.launch_write("value", given)
        return Planned(cache.device, Plan((), launches), given)

    run_call("append_step", tensors, (cache.storage_description,), make)


def _tensors(query: Any, cache: object, state: Tensor) -> dict[str, Any]:
    """The call's tensors by the names that its plan uses, after the check of the cache."""
    checked = _check_cache(cache)
    return {"query": query, "state": state, **checked.tensors}


def _check_cache(cache: object) -> KVCache:
    checked = check_cache(cache)
    if checked.ragged:
        raise ValueError("cache: expected one that is not ragged, since the state says how long it is")
    return checked
