"""Maps whose rows and columns stand for groups of tokens, from the weights of the tokens."""

from __future__ import annotations

import numpy as np

from py_attn.viewer.engines.engine import Engine, Style, Window
from py_attn.viewer.engines.pooling import pool_as
from py_attn.viewer.sources.derived import DerivedLayer, Groups
from py_attn.viewer.sources.source import Array, Layer, Masking

#: Heads are taken one after another where all of them together have more weights than this.
_MOST_AT_ONCE = 1 << 22


class DerivedEngine(Engine):
    """Groups the weights that another engine computes.

    A score_mod and mask_mod act on the tokens, before they are grouped.

    Parameters
    ----------
    base : Engine
    """

    def __init__(self, base: Engine) -> None:
        self.base = base
        self.name = base.name

    @property
    def most_weights(self) -> int:
        """As of the base."""
        return self.base.most_weights

    def check(self, heads: int, length: int, head_dim: int) -> None:
        """As of the base."""
        self.base.check(heads, length, head_dim)

    async def weights(
        self, layer: Layer, masking: Masking, window: Window, style: Style | None = None
    ) -> Array:
        """Weights of the groups, or what else ``style.show`` selects: float32 [heads, rows, columns].

        They are pooled to the window's size. Shares of the output by gradient have signs, and are not
        renormalised.
        """
        assert isinstance(layer, DerivedLayer)
        style = style or Style()
        renormalise = layer.groups.renormalise and style.show == "weights"
        rows = _part(layer.groups, window.rows)
        # A row's sum needs all of its columns.
        columns = layer.groups if renormalise else _part(layer.groups, window.columns)
        base = Window(window.heads, _span(rows), _span(columns))
        together = len(window.heads) * _count(base.rows) * _count(base.columns) <= _MOST_AT_ONCE
        found = []
        for heads in [window.heads] if together else [[head] for head in window.heads]:
            part = await self.base.weights(layer.base, masking, base._replace(heads=heads), style)
            part = group(part, rows, columns)
            if renormalise:
                part = renormalised(part)[..., window.columns]
            part = part[:, :: window.rows.step or 1]
            found.append(pool_as(part, window.size, style.pool, signed=style.show == "gradient"))
        return np.ascontiguousarray(np.concatenate(found), np.float32)


def group(weights: Array, rows: Groups, columns: Groups) -> Array:
    """Sum the columns of each group, and take the mean of its rows.

    Parameters
    ----------
    weights : array
        [heads, positions, positions] from the first position of the groups to the last.
    rows, columns : Groups

    Returns
    -------
    array
        [heads, rows, columns].
    """
    summed = _sums(_sums(weights, -1, columns), -2, rows)
    sizes = (rows.stops - rows.starts).astype(weights.dtype)
    result: Array = summed if (sizes == 1).all() else summed / sizes[:, None]
    return result


def renormalised(weights: Array) -> Array:
    """Rows divided by their sums; a row of zeros stays one."""
    totals = weights.sum(axis=-1, keepdims=True, dtype=np.float64)
    result: Array = (weights / np.where(totals == 0, 1.0, totals)).astype(weights.dtype)
    return result


def _sums(weights: Array, axis: int, groups: Groups) -> Array:
    sizes = groups.stops - groups.starts
    shown = np.concatenate([np.arange(a, b) for a, b in zip(groups.starts, groups.stops, strict=True)])
    kept: Array = np.take(weights, shown - groups.starts[0], axis)
    if (sizes == 1).all():
        return kept
    result: Array = np.add.reduceat(kept, np.cumsum(sizes) - sizes, axis)
    return result


def _part(groups: Groups, part: slice) -> Groups:
    """The groups from the first one of a slice to its last, without a step."""
    some = slice(part.start, part.stop)
    return Groups(groups.starts[some], groups.stops[some], groups.renormalise)


def _span(groups: Groups) -> slice:
    return slice(int(groups.starts[0]), int(groups.stops[-1]))


def _count(part: slice) -> int:
    return int(part.stop - part.start)
