"""Checks of attention's arguments, and what they mean; used by the kernels and by the reference.

Letters used throughout: B batch, Hq query heads, Hkv key/value heads, Sq queries, Sk keys,
D head dim of query and key, Dv head dim of value.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

MAX_HEAD_DIM = 576
# Params are float32, and some are multiplied by log2(e) first.
_LARGEST_REAL = 2e38
Layout = Literal["BHSD", "BSHD"]
Window = int | tuple[int | None, int | None] | None


@dataclass(frozen=True, slots=True)
class Masking:
    """Which keys a query may attend to by position, and how its scores are shaped.

    ``window_left`` and ``window_right`` count keys before and after the query's position, both
    inclusive; ``None`` is unbounded. Causal masking is already included in ``window_right``.
    With ``top_left`` query i has position i among the keys, else i + Sk - Sq. A query offset is included in
    the window too, so a side can be negative.
    """

    window_left: int | None
    window_right: int | None
    top_left: bool
    scale: float
    softcap: float


@dataclass(frozen=True, slots=True)
class Problem:
    """One attention call's sizes and masking.

    ``kv_batch`` is 1 where all batch elements share one set of keys and values, else ``batch``.
    """

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    value_head_dim: int
    masking: Masking
    kv_batch: int

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.heads // self.kv_heads

    @property
    def score_shape(self) -> tuple[int, int, int, int]:
        """[B, Hq, Sq, Sk], what a mask broadcasts to."""
        return self.batch, self.heads, self.queries, self.keys


def check_layout(layout: object) -> Layout:
    """Return ``layout`` if it is one of the two known ones."""
    if layout == "BHSD":
        return "BHSD"
    if layout == "BSHD":
        return "BSHD"
    raise ValueError(f'layout: expected "BHSD" or "BSHD", got {layout!r}')


def check_window(window: object) -> tuple[int | None, int | None]:
    """Return ``window`` as (left, right); one int counts for both sides."""
    if window is None:
        return None, None
    if isinstance(window, (tuple, list)):
        if len(window) != 2:
            raise ValueError(f"window: expected (left, right), got {len(window)} values: {window!r}")
        return _window_side("left", window[0]), _window_side("right", window[1])
    side = _window_side("", window)
    return side, side


def _window_side(name: str, value: object) -> int | None:
    if value is None:
        return None
    label = f"window ({name})" if name else "window"
    side = check_int(label, value)
    if side < 0:
        raise ValueError(f"{label}: expected a number of keys >= 0 or None for unbounded, got {side}")
    return side


def check_int(name: str, value: object) -> int:
    """Return ``value`` as an int; bools and fractions are refused."""
    if isinstance(value, bool):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {value!r}") from None


def check_bool(name: str, value: object) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: expected True or False, got {value!r}")
    return value


def check_positive(name: str, value: object) -> int:
    """Return ``value`` as an int of at least 1."""
    number = check_int(name, value)
    if number < 1:
        raise ValueError(f"{name}: expected at least 1, got {number}")
    return number


def check_real(name: str, value: object) -> float:
    """Return ``value`` as a float that float32 can hold; bools, strings and complex numbers are refused."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not abs(number) <= _LARGEST_REAL:
        raise ValueError(f"{name}: expected a finite number within ±{_LARGEST_REAL:g} (float32), got {value}")
    return number


def check_softcap(softcap: object) -> float:
    """Return the softcap, 0.0 where it is off."""
    cap = 0.0 if softcap is None else check_real("softcap", softcap)
    if cap < 0:
        raise ValueError(f"softcap: expected a number > 0, or None or 0 for none, got {cap}")
    return cap


def check_head_dim(name: str, head_dim: int, largest: int = MAX_HEAD_DIM) -> None:
    """Raise unless 1 <= ``head_dim`` <= ``largest``."""
    if not 1 <= head_dim <= largest:
        raise ValueError(f"{name}: expected a head dim from 1 to {largest}, got {head_dim}")


def resolve_masking(
    causal: object,
    window: object,
    scale: object,
    softcap: object,
    head_dim: int,
    query_offset: object = None,
) -> Masking:
    """Check and normalise the masking keywords.

    Raises
    ------
    ValueError, TypeError
        Naming the keyword, what was given and what was expected.
    """
    left, right = check_window(window)
    top_left = False
    if isinstance(causal, np.bool_):
        causal = bool(causal)
    if causal is False or causal is None:
        pass
    elif causal is True or causal == "bottom-right" or causal == "top-left":
        top_left = causal == "top-left"
        right = 0
    else:
        raise ValueError(f'causal: expected False, True, "bottom-right" or "top-left", got {causal!r}')
    if query_offset is not None:
        offset = check_int("query_offset", query_offset)
        if top_left:
            raise ValueError('query_offset: causal="top-left" is query_offset=0 already; give one of the two')
        top_left = True
        left = None if left is None else left - offset
        right = None if right is None else right + offset
    factor = 1.0 / math.sqrt(head_dim) if scale is None else check_real("scale", scale)
    cap = check_softcap(softcap)
    if cap and abs(factor) / _LARGEST_REAL > cap:
        raise ValueError(
            f"softcap: expected a number large enough that scale / softcap is finite in float32, got {cap:g} "
            f"with scale {factor:g}"
        )
    return Masking(left, right, top_left, factor, cap)


def resolve(
    query_shape: Sequence[int],
    key_shape: Sequence[int],
    value_shape: Sequence[int] | None,
    *,
    causal: object = False,
    window: object = None,
    scale: object = None,
    softcap: object = None,
    query_offset: object = None,
    may_share: bool = False,
) -> Problem:
    """Check the shapes of query [B,Hq,Sq,D], key [B,Hkv,Sk,D] and value [B,Hkv,Sk,Dv], and the masking.

    With ``may_share`` the keys and values of a batch of 1 may serve all batch elements of the queries.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.
    """
    shapes = {"query": query_shape, "key": key_shape}
    if value_shape is not None:
        shapes["value"] = value_shape
    for name, shape in shapes.items():
        if len(shape) != 4:
            raise ValueError(f"{name}: expected 4 dimensions [B, H, S, D], got {len(shape)}: {tuple(shape)}")
        check_head_dim(name, shape[3])
    batch, heads, queries, head_dim = query_shape
    kv_batch, kv_heads, keys, key_dim = key_shape
    value_dim = head_dim
    if kv_batch != batch and not (may_share and kv_batch == 1 and batch):
        raise ValueError(f"key: expected the query's batch size {batch}, got {kv_batch}")
    if key_dim != head_dim:
        raise ValueError(f"key: expected the query's head dim {head_dim}, got {key_dim}")
    if value_shape is not None:
        value_dim = value_shape[3]
        if tuple(value_shape[:3]) != tuple(key_shape[:3]):
            raise ValueError(
                f"value: expected the key's batch, heads and length {tuple(key_shape[:3])}, "
                f"got {tuple(value_shape[:3])}"
            )
    if kv_heads == 0 or heads % kv_heads:
        raise ValueError(
            f"query: expected heads to be a multiple of the {kv_heads} key/value heads, got {heads} heads"
        )
    masking = resolve_masking(causal, window, scale, softcap, head_dim, query_offset)
    return Problem(batch, heads, kv_heads, queries, keys, head_dim, value_dim, masking, kv_batch)


def check_mask_shape(mask_shape: Sequence[int], score_shape: Sequence[int], name: str = "mask") -> None:
    """Raise unless ``mask_shape`` broadcasts to ``score_shape``, [B, Hq, Sq, Sk] or a longer one."""
    rank = len(score_shape)
    padded = (1,) * (rank - len(mask_shape)) + tuple(mask_shape)
    if len(padded) > rank or any(m not in (1, s) for m, s in zip(padded, score_shape, strict=True)):
        raise ValueError(
            f"{name}: expected a shape that broadcasts to [B, Hq, Sq, Sk] = {list(score_shape)}, "
            f"got {list(mask_shape)}"
        )
