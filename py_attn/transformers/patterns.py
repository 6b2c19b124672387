"""Masks of transformers' models, read back as the rules that they were made from.

A mask of a long text has more elements than all queries and keys together. Almost always it says no more than
"causal", "a window" and "these positions are padding", so that is what is kept of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Sides = tuple[int | None, int | None]

#: Elements of a mask that are looked at together.
_AT_ONCE = 1 << 24
#: Additive masks hide a key with the lowest number of their dtype; anything below this hides.
HIDDEN_BELOW = -1e4


@dataclass(frozen=True, eq=False)
class Pattern:
    """The rules by which queries see keys.

    Attributes
    ----------
    causal : bool
    window : tuple of int or None, optional
        Keys before and after the query's own position.
    visible : array, optional
        Keys that are no padding, bool [B, K]; None for all.
    """

    causal: bool
    window: Sides | None = None
    visible: Array | None = None

    def seen(self, queries: Array, keys: Array) -> Array:
        """Which keys a query sees by their positions alone, bool [queries, keys]."""
        distance = keys[None, :] - queries[:, None]
        found = distance <= 0 if self.causal else np.ones(distance.shape, np.bool_)
        before, after = self.window or (None, None)
        if before is not None:
            found &= distance >= -before
        if after is not None:
            found &= distance <= after
        return found


@dataclass(frozen=True)
class MaskRows:
    """A mask, read some rows at a time.

    Attributes
    ----------
    read : callable
        The rows of a slice: [B, H, rows, K], bool (True = visible) or numbers that are added to scores.
    shape : tuple of int
        (B, H, queries, K).
    queries, keys : array of int
        The positions of the rows and columns in the text.
    """

    read: Callable[[slice], Array]
    shape: tuple[int, int, int, int]
    queries: Array
    keys: Array

    def parts(self) -> Iterator[tuple[slice, Array]]:
        """All rows, in parts that fit into memory."""
        batch, heads, rows, keys = self.shape
        step = max(1, _AT_ONCE // (batch * heads * keys))
        for start in range(0, rows, step):
            part = slice(start, min(start + step, rows))
            yield part, self.read(part)


def find_pattern(mask: MaskRows, window: int | None, *, causal: bool = True) -> Pattern | Array:
    """The rules that a mask stands for, or, where it is none of ours, the mask itself.

    Parameters
    ----------
    mask : MaskRows
    window : int, optional
        The model's sliding window in tokens, the query's own among them.
    causal : bool
        Whether to try causal rules first; a single row does not tell.

    Returns
    -------
    Pattern or array
        The mask as bool [B, H, queries, K], or in float16 with -inf for hidden keys where it adds to scores.
    """
    if mask.shape[1] == 1 and not _adds(mask):
        for candidate in _candidates(window, causal):
            visible = _fit(mask, candidate)
            if visible is not None:
                return Pattern(candidate.causal, candidate.window, None if visible.all() else visible)
    return _explicit(mask)


def _candidates(window: int | None, causal: bool) -> list[Pattern]:
    plain = [Pattern(causal), Pattern(not causal)]
    if window is None:
        return plain
    # A bidirectional model's window is its whole width, one side, or one side and the token.
    both = [Pattern(False, (side, side)) for side in (window // 2, window - 1, window)]
    windowed = [Pattern(True, (window - 1, None)), *both]
    return ([*windowed, *plain]) if causal else ([*both, windowed[0], *plain])


def _seen(part: Array) -> Array:
    return part if part.dtype == np.bool_ else part > HIDDEN_BELOW


def _adds(mask: MaskRows) -> bool:
    """Whether numbers other than 0 are added to visible scores."""
    return any(part.dtype != np.bool_ and part[_seen(part)].any() for _, part in mask.parts())


def _fit(mask: MaskRows, rules: Pattern) -> Array | None:
    """Which keys are no padding, bool [B, K], if the mask is these rules with padding; else None.

    Rows of padding that would see nothing are often made to see everything, so that no NaN arises. Both are
    accepted: nobody reads these rows.
    """
    visible = np.zeros((mask.shape[0], mask.shape[3]), np.bool_)
    for part, values in mask.parts():
        seen, by_rule, whole = _rows(mask, rules, part, values)
        if (seen & ~by_rule & ~whole[..., None]).any():
            return None
        visible |= (seen & ~whole[..., None]).any(axis=1)
    for part, values in mask.parts():
        seen, by_rule, whole = _rows(mask, rules, part, values)
        expected = by_rule & visible[:, None, :]
        wrong = (seen != expected).any(axis=-1)
        if (wrong & ~(whole & ~expected.any(axis=-1))).any():
            return None
    return visible


def _rows(mask: MaskRows, rules: Pattern, part: slice, values: Array) -> tuple[Array, Array, Array]:
    """What rows see, [B, rows, K]; what they would by the rules; and which see all against the rules."""
    seen = _seen(values)[:, 0]
    by_rule = rules.seen(mask.queries[part], mask.keys)
    against = np.asarray(seen.all(axis=-1)) & ~by_rule.all(axis=-1)
    return seen, by_rule[None], against


def _explicit(mask: MaskRows) -> Array:
    if not _adds(mask):
        return np.concatenate([_seen(part) for _, part in mask.parts()], axis=2)
    parts = [np.where(_seen(part), part, -np.inf).astype(np.float16) for _, part in mask.parts()]
    return np.concatenate(parts, axis=2)
