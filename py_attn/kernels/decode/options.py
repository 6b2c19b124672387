"""What a call of decode asks for: its arguments, checked once, and its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from py_attn.arguments import Problem, check_int
from py_attn.arguments import resolve as resolve_problem
from py_attn.gpu.device import Device
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.checks import check_lengths, float_tensor, integer_tensor, shape_of
from py_attn.kernels.decode.cache import KVCache
from py_attn.kernels.decode.pages import TABLE
from py_attn.kernels.mods import Mods, trace_mods
from py_attn.kernels.operands import Operand, operand
from py_attn.kernels.rotary import Rotary, check_keyword
from py_attn.kernels.scores import UNBOUNDED, masking_params
from py_attn.kernels.sinks import check_sinks
from py_attn.kernels.steps import check_state

MAX_SPLITS = 1024


class Call(NamedTuple):
    """Checked arguments of a call.

    Attributes
    ----------
    cache : KVCache
    problem : Problem
        Sizes and masking.
    query : Operand
        As it was given; with a state [B, Hq, 1, D] with the strides of the log that it is a row of.
    mods : Mods
    tensors : mapping
        The call's tensors by name, all on the device.
    first_key : int
        The oldest entry that any query may see.
    splits : int or None
        As it was asked for; None for "auto".
    rotary : Rotary or None
        The rotary embeddings that the query gets.
    """

    cache: KVCache
    problem: Problem
    query: Operand
    mods: Mods
    tensors: Mapping[str, Tensor]
    first_key: int
    splits: int | None
    rotary: Rotary | None = None

    @property
    def device(self) -> Device:
        """The cache's."""
        return self.cache.device

    @property
    def sinks_dtype(self) -> str | None:
        """None without sinks."""
        sinks = self.tensors.get("sinks")
        return None if sinks is None else sinks.dtype

    @property
    def has_state(self) -> bool:
        """Whether the query's position, and so the cache's length, is read from a state on the GPU."""
        return "state" in self.tensors

    @property
    def buffers_of_splits(self) -> int:
        """How many buffers the launch over several splits binds: what it reads, its output and row sums."""
        read = ("query", "state", "totals", "left_padding", TABLE, "cache keys", "cache values", "scales")
        return sum(name in self.tensors for name in read) + len(self.mods.args()) + 2

    @property
    def on_gpu(self) -> bool:
        """Whether only the GPU knows how many entries the cache holds: with a state, or in a ragged cache."""
        return self.has_state or self.cache.ragged

    @property
    def is_turned(self) -> bool:
        """Whether the ring is turned, so that entries do not lie in order, as far as it is known here."""
        return self.on_gpu or self.cache.start > 0

    @property
    def visible_keys(self) -> int:
        """Entries from the first visible one on; the most that there can be where only the GPU knows."""
        left = self.problem.masking.window_left
        if self.cache.ragged and left is not None:
            return min(self.problem.keys, self.problem.queries + left + self.cache.sink_tokens)
        return self.problem.keys - self.first_key

    @property
    def rows(self) -> int:
        """Query rows that read the same keys."""
        return self.problem.group * self.problem.queries

    @property
    def out_shape(self) -> tuple[int, int, int, int]:
        """[B, Hq, S, Dv]."""
        p = self.problem
        return p.batch, p.heads, p.queries, p.value_head_dim

    def position_params(self) -> dict[str, int]:
        """How far the ring is turned and which positions its entries are; 0 where only the GPU knows."""
        cache = self.cache
        if self.on_gpu:
            return {"start": 0, "dropped": 0, "query_position": 0}
        return {
            "start": cache.start,
            "dropped": cache.total - cache.length,
            "query_position": cache.total - self.problem.queries,
        }

    @property
    def hides(self) -> bool:
        """Whether a row may not see some of the keys that a split goes through."""
        windowed = self.problem.masking.window_left is not None
        return self.problem.queries > 1 or windowed or bool(self.mods.wgsl) or "left_padding" in self.tensors

    def score_params(self) -> dict[str, Any]:
        """Values of ``SCORE_PARAMS``, without the query's strides; there are no mask and no lengths."""
        p, nothing = self.problem, (0, 0, 0, 0)
        return {
            "key_strides": nothing,
            "mask_strides": nothing,
            "lengths_stride": 0,
            "batch": p.batch,
            "heads": p.heads,
            "group": p.group,
            "queries": p.queries,
            "keys": p.keys,
            **masking_params(p.masking, natural=self.mods.has_score_mod),
        }


def resolve_step(tensors: Mapping[str, Any], cache: KVCache, *, splits: object) -> Call:
    """As :func:`resolve`, for the row of the state's position in "query" [B, Hq, history, D].

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.
    """
    check_state(tensors["state"])
    shape = shape_of("query", tensors["query"])
    if len(shape) != 4 or shape[2] < 1:
        raise ValueError(f"query: expected [B, Hq, history >= 1, D], got {list(shape)}")
    kv_shape = (cache.batch, cache.kv_heads, cache.capacity)
    problem = resolve_problem(
        (*shape[:2], 1, shape[3]),
        (*kv_shape, cache.head_dim),
        (*kv_shape, cache.value_head_dim),
        causal=True,
    )
    given_splits = _check_splits(splits)
    log = float_tensor("query", tensors["query"], cache.device)
    row = replace(operand("query", log), shape=(*shape[:2], 1, shape[3]))
    return Call(cache, problem, row, Mods(), {**tensors, "query": log}, 0, given_splits)


def _check_splits(splits: object) -> int | None:
    """The number of splits, None for "auto"."""
    given = None if splits == "auto" else check_int("splits", splits)
    if given is not None and not 1 <= given <= MAX_SPLITS:
        raise ValueError(f'splits: expected "auto" or a number from 1 to {MAX_SPLITS}, got {given}')
    return given


def resolve(
    tensors: Mapping[str, Any],
    cache: KVCache,
    *,
    window: object,
    scale: object,
    softcap: object,
    splits: object,
    score_mod: object,
    mask_mod: object,
    rotary_interleaved: object,
) -> Call:
    """Check everything, then upload what is not on the device yet.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.
    """
    device = cache.device
    kv_shape = (cache.batch, cache.kv_heads, cache.capacity if cache.ragged else cache.length)
    problem = resolve_problem(
        shape_of("query", tensors["query"]),
        (*kv_shape, cache.head_dim),
        (*kv_shape, cache.value_head_dim),
        causal=True,
        window=window,
        scale=scale,
        softcap=softcap,
    )
    if not cache.ragged and cache.length == 0:
        raise ValueError("cache: it is empty; append keys and values first")
    given_splits = _check_splits(splits)
    check_sinks(tensors["sinks"], problem.heads)
    if tensors["left_padding"] is not None:
        most = UNBOUNDED if cache.ragged else cache.total
        check_lengths(tensors["left_padding"], problem.batch, most, "left_padding")
    end = None if cache.ragged else cache.total
    rotary = check_keyword(tensors, rotary_interleaved, cache.head_dim, end)
    # Beside the query, the cache's own tensors and these two, the splits write their output and row sums.
    also = 3 + len(cache.tensors) + sum(tensors[name] is not None for name in ("sinks", "left_padding"))
    mods, captured = trace_mods(score_mod, mask_mod, device, others=also)
    ready = {**tensors, **captured, "query": float_tensor("query", tensors["query"], device)}
    if (padding := tensors["left_padding"]) is not None:
        ready["left_padding"] = integer_tensor("left_padding", padding, device)
    if tensors["sinks"] is not None:
        ready["sinks"] = float_tensor("sinks", tensors["sinks"], device)
    if rotary:
        rotary.upload(ready, device)
    left = problem.masking.window_left
    first = (
        0
        if left is None or cache.ragged
        else max(0, cache.length - problem.queries - left - cache.sink_tokens)
    )
    given = {name: tensor for name, tensor in ready.items() if tensor is not None}
    return Call(cache, problem, operand("query", given["query"]), mods, given, first, given_splits, rotary)
