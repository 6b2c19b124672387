"""How a language model keeps keys and values, and which of them a ring still holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py_attn.arguments import check_int, check_positive
from py_attn.kernels.decode.formats import check_dtypes


@dataclass(frozen=True)
class CacheOptions:
    """How keys and values are kept.

    Attributes
    ----------
    dtype : (str, str)
        Of keys and values, as of :class:`py_attn.KVCache`.
    context : int
        Positions that the cache holds.
    ring : bool
        Whether the oldest positions make room once it is full; otherwise the text ends there.
    sink_tokens : int
        With a ring: how many of the first positions are kept for good (StreamingLLM, arXiv 2309.17453).
    history : int
        The longest text. More than ``context`` only with a ring.
    """

    dtype: tuple[str, str] = ("float32", "float32")
    context: int = 2048
    ring: bool = False
    sink_tokens: int = 0
    history: int = 2048


def check_cache(
    cache: object, context: object, ring: object, sink_tokens: object, history: object, trained: int
) -> CacheOptions:
    """The options as they were given to :func:`py_attn.models.load`, checked.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.
    """
    if not isinstance(ring, bool):
        raise TypeError(f"ring: expected True or False, got {ring!r}")
    size, kept = check_positive("context", context), check_int("sink_tokens", sink_tokens)
    if size > trained:
        raise ValueError(f"context: expected at most the {trained} positions of this model, got {size}")
    if not ring and kept:
        raise ValueError(f"sink_tokens: expected 0 without a ring, got {kept}")
    if not 0 <= kept < size:
        raise ValueError(f"sink_tokens: expected 0 to {size - 1}, fewer than the context, got {kept}")
    longest = min(trained, 4 * size) if ring else size
    if history is not None:
        longest = check_positive("history", history)
        if longest < size or (not ring and longest != size) or longest > trained:
            allowed = f"{size} to {trained}" if ring else f"{size}, the context, without a ring"
            raise ValueError(f"history: expected {allowed}, got {longest}")
    return CacheOptions(check_dtypes(cache), size, ring, kept, longest)


def is_held(query: Any, key: Any, context: int, sink_tokens: int) -> Any:
    """Whether a ring holds the key at position ``key``, no later than ``query``, when ``query`` is processed.

    Positions are numbers, arrays, or indices as a ``mask_mod`` gets them; the result is of the same kind.
    """
    return (key < sink_tokens) | (query - key < context - sink_tokens)
