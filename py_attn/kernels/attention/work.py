"""What a launch of attention goes through, and which tile computes it in the least time."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from py_attn.kernels.attention.options import Options
from py_attn.kernels.attention.packing import usual_length
from py_attn.kernels.attention.tiles import BUSY_WORKGROUPS, Tile, choose_tail_split

Side = Literal["query", "key"]
# So many invocations let every core hide the latency of its memory.
_BUSY_INVOCATIONS = 3 * 128 * BUSY_WORKGROUPS
# Packed sequences count as if their lengths were spread evenly between none and twice their mean. Multiples
# of the golden ratio, unlike those of a fraction, do not all end at the same place of a tile.
_SPREAD = 2 * (np.arange(1, 17)[:, None] * (math.sqrt(5) - 1) / 2 % 1)
_ALONE = np.ones((1, 1))


@dataclass(frozen=True, slots=True)
class Work:
    """What a launch goes through.

    Attributes
    ----------
    rows, columns : int
        Of a head: the rows that its workgroups own, and the columns that each of them goes through.
    heads : int
        How many there are in all batch elements or packed sequences.
    before, after : int or None
        Row i sees the columns from i - ``before`` to i + ``after``, both inclusive; None is unbounded.
    varied : bool
        Whether rows and columns are means, those of packed sequences.
    """

    rows: int
    columns: int
    heads: int
    before: int | None = None
    after: int | None = None
    varied: bool = False

    def computed(self, tile: Tile) -> float:
        """The scores of a head that tiles of this size compute, with those beyond the last row and column."""
        return _computed(self, tile.queries, tile.keys)


# Several tiles have the same size, and several launches of a call the same work.
@functools.lru_cache(maxsize=256)
def _computed(work: Work, tile_rows: int, tile_columns: int) -> float:
    spread = _SPREAD if work.varied else _ALONE
    rows, columns = np.ceil(work.rows * spread), np.ceil(work.columns * spread)
    first = np.arange(0, rows.max(), tile_rows)
    last = np.minimum(first + tile_rows, rows) - 1
    begin = 0 if work.before is None else np.maximum(0, first - work.before)
    end = columns if work.after is None else np.clip(last + work.after + 1, 0, columns)
    steps = np.ceil(np.maximum(0, end - begin) / tile_columns) * (first < rows)
    return float(steps.sum()) / len(spread) * tile_rows * tile_columns


def work_of(options: Options, heads: int, side: Side = "query") -> Work:
    """The work of a launch whose rows are queries or keys, and whose columns are the others.

    Parameters
    ----------
    heads : int
        Heads in all batch elements, of packed sequences in all of them.
    """
    p, m = options.problem, options.problem.masking
    queries, keys = (usual_length(n, options.sequences) for n in (p.queries, p.keys))
    # The query at i has position i + shift among the keys.
    shift = 0 if m.top_left else keys - queries
    before = None if m.window_left is None else m.window_left - shift
    after = None if m.window_right is None else m.window_right + shift
    varied = options.sequences is not None
    if side == "query":
        return Work(queries, keys, heads, before, after, varied)
    return Work(keys, queries, heads, after, before, varied)


def choose_tile(work: Work, tiles: Mapping[Tile, float], *, split_keys: int = 0) -> Tile | None:
    """The one of ``tiles`` that takes the least time, or None if there is none.

    Tiles that reach beyond the last row or key compute what nobody needs. So of those that are not taller
    than the rows and keep a GPU busy, that one is taken which computes the least in relation to its speed.

    Parameters
    ----------
    work : Work
    tiles : mapping of Tile to float
        The tiles and their speeds, the fastest first.
    split_keys : int
        Where tiles may be split along the keys, the argument ``keys`` of :func:`choose_tail_split`.
    """

    def workgroups(tile: Tile) -> int:
        count = work.heads * -(-work.rows // tile.queries)
        tail = choose_tail_split(count, split_keys, tile) if split_keys else None
        return count + tail.tiles * (tail.splits - 1) if tail else count

    def invocations(tile: Tile) -> int:
        return workgroups(tile) * tile.tx * tile.ty

    suitable = [
        tile
        for tile in tiles
        if not tile.too_tall(work.rows) and (tile.queries <= 32 or workgroups(tile) >= BUSY_WORKGROUPS)
    ]
    if not suitable:
        return [*tiles][-1] if tiles else None
    # Speeds are those of many workgroups, which hide each other's latency: with fewer invocations a tile is
    # slower than its speed tells.
    enough = min(invocations(suitable[0]), _BUSY_INVOCATIONS)
    busy = [tile for tile in suitable if invocations(tile) >= enough]
    return min(busy, key=lambda tile: time_of(work, tile, tiles))


def time_of(work: Work, tile: Tile, tiles: Mapping[Tile, float]) -> float:
    """The time that the work takes in relation to others, with one of the tiles whose speeds these are."""
    return work.computed(tile) / tiles[tile]
