"""Tile sizes for the register-tiled attention kernel, from the shape and the adapter's limits."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from py_attn.gpu.binding import most_invocations


@dataclass(frozen=True, slots=True)
class Tile:
    """One configuration of ``lib/tiles.wgsl``; forward, rows are queries and columns keys.

    Attributes
    ----------
    tx, ty : int
        Invocations along the keys and along the query rows of a tile; ty is even.
    rows : int
        Query rows of one invocation.
    keys : int
        Keys of a tile, a multiple of 4·tx.
    depth4 : int
        How many vec4s of the head dim are staged at a time, an even number.
    value_keys : int
        How many rows of values are staged at a time, a multiple of tx.
    query_resident : bool
        Whether the whole query tile stays in workgroup memory.
    buffers : int
        2: what comes next is staged while this is computed, for tiles that have a core to themselves; the
        keys are then an even multiple of value_keys. For forward only.
    """

    tx: int
    ty: int
    rows: int
    keys: int
    depth4: int
    value_keys: int
    query_resident: bool = False
    buffers: int = 1

    @property
    def queries(self) -> int:
        """Query rows of a tile."""
        return self.ty * self.rows

    def workgroup_bytes(self, d4: int, wide4: int) -> int:
        """Workgroup memory that the shader declares, in bytes."""
        keys = 4 * self.depth4 * (self.keys // 4 + 1)
        queries = 4 * self.depth4 * (self.queries // 4 + 1)
        values = self.value_keys * wide4
        lines = keys if self.query_resident else keys + queries
        # Values use the memory of the lines that QKᵀ read, with two buffers those of the second buffer.
        vec4s = max(2 * values, values + lines) + lines if self.buffers == 2 else max(values, lines)
        if self.query_resident:
            vec4s += queries * -(-d4 // self.depth4)
        vec4s += self.buffers * self.value_keys * (self.queries // 4 + 2)
        return 16 * vec4s + 16

    def shares(self, wide4: int) -> int:
        """Groups of a row's invocations that each sum the products of their own columns, 1 or 2.

        Two need registers for twice as many sums of ``wide4`` vec4s, and room to exchange one of each
        invocation where lines are staged (lib/tiles.wgsl).
        """
        fits = self.registers(1, (2 * wide4,)) <= _MAX_REGISTERS
        exchanges = self.tx * self.ty <= self.depth4 * (self.keys + self.queries)
        # Where sixteen would own one vec4 each, too (bench/NOTES.md).
        worth = wide4 <= self.tx == 16 or self.fewer_empty(wide4)
        return 2 if fits and exchanges and worth else 1

    def fewer_empty(self, wide4: int) -> bool:
        """Whether two shares leave fewer of the columns empty that invocations sum of ``wide4`` vec4s."""
        lanes = self.tx // 2
        return lanes * -(-wide4 // lanes) < self.tx * -(-wide4 // self.tx)

    def constants(self, shares: int = 1) -> dict[str, object]:
        """The template's variables."""
        return {
            "TX": self.tx,
            "TY": self.ty,
            "ROWS": self.rows,
            "BQ": self.queries,
            "BK": self.keys,
            "DEPTH4": self.depth4,
            "VALUE_KEYS": self.value_keys,
            "BUFFERS": self.buffers,
            "SHARES": shares,
            "WORKGROUP": self.tx * self.ty,
            "query_resident": self.query_resident,
        }

    def fits(self, d4: int, wide4: int, limits: Mapping[str, int]) -> bool:
        """Whether workgroup memory and invocations are within the adapter's limits."""
        return self.workgroup_bytes(d4, wide4) <= limits[
            "maxComputeWorkgroupStorageSize"
        ] and self.tx * self.ty <= most_invocations(limits)

    def too_tall(self, rows: int) -> bool:
        """Whether at least half of it would stand empty above ``rows``."""
        return self.queries > 8 and self.queries >= 2 * rows

    def registers(self, scores: int, sums4: Sequence[int]) -> int:
        """Registers of one invocation's scores and outputs, in vec4s."""
        return self.rows * (scores * self.keys // (4 * self.tx) + sum(-(-n // self.tx) for n in sums4))


# For head dims up to so many vec4s, the fastest first; bench/NOTES.md has the measurements.
_HARDWARE = (
    (8, Tile(8, 16, 4, 32, 4, 16, True)),
    # Up to a sixth faster without a mask where there are many rows; slower elsewhere, so it is for the tuner.
    (8, Tile(8, 16, 8, 32, 4, 8)),
    (128, Tile(16, 16, 8, 128, 2, 16, buffers=2)),
    (16, Tile(16, 16, 8, 128, 4, 32)),
    (16, Tile(16, 16, 8, 64, 8, 32)),
    (128, Tile(16, 16, 8, 64, 4, 16)),
    (128, Tile(16, 16, 4, 64, 4, 16)),
    (128, Tile(16, 8, 4, 64, 4, 16)),
    (128, Tile(8, 16, 4, 32, 4, 16)),
    (128, Tile(8, 8, 4, 32, 4, 8)),
    (128, Tile(8, 4, 4, 32, 2, 8)),
    (128, Tile(8, 2, 4, 32, 2, 8)),
    (128, Tile(4, 8, 4, 16, 2, 8)),
    (128, Tile(4, 2, 4, 16, 2, 4)),
)


def name_of(tile: Tile) -> str:
    """Rows and keys, invocations along both, and what is staged at a time."""
    return (
        f"{tile.queries}x{tile.keys} by {tile.tx}x{tile.ty}, {tile.depth4} and {tile.value_keys}"
        f"{', resident' if tile.query_resident else ''}{', two buffers' if tile.buffers == 2 else ''}"
    )


#: What a GPU may get, by name; :meth:`Device.tune` chooses between them and the tests run all of them.
CANDIDATES: Mapping[str, Tile] = {name_of(tile): tile for _, tile in _HARDWARE}
# A software adapter pays for every byte of workgroup memory when it compiles (SwiftShader clears it
# with one store each) and gains nothing from large tiles.
SOFTWARE = (Tile(4, 8, 4, 16, 4, 8), Tile(4, 4, 4, 16, 2, 4), Tile(4, 2, 4, 16, 2, 4))
# The limits that Tile.fits looks at.
_LIMITS = (
    "maxComputeWorkgroupStorageSize",
    "maxComputeInvocationsPerWorkgroup",
    "maxComputeWorkgroupSizeX",
)
# Registers for scores and outputs, in vec4s; beyond this compilers spill.
_MAX_REGISTERS = 40
#: Fewer workgroups than this leave a GPU's cores idle; then shorter tiles are better.
BUSY_WORKGROUPS = 128
# WebGPU does not tell how many cores there are. On fewer, a split gains less and costs as little.
_CORES = 132
# Steps of BK keys that splitting must save, to make up for writing and joining partial results.
_WORTH = 2


def tiles_for(
    d4: int,
    wide4: int,
    limits: Mapping[str, int],
    subgroup_min_size: int = 0,
    software: bool = False,
    *,
    scores: int = 1,
    sums4: tuple[int, ...] | None = None,
    inline: bool = False,
) -> list[Tile]:
    """What this adapter can run for these head dims, the fastest first.

    Parameters
    ----------
    d4, wide4 : int
        Head dim of the products and the widest operand of ``accumulate`` in vec4s.
    limits : mapping
        The adapter's limits by WebGPU's names.
    subgroup_min_size : int
        The smallest subgroup of the adapter, or 0 for the variant without subgroups.
    software : bool
        Whether the adapter computes on the CPU.
    scores : int
        How many scores an invocation holds for each row and column.
    sums4 : tuple of int, optional
        The widths of what is accumulated, in vec4s; ``(wide4,)`` unless given.
    inline : bool
        Whether code of some length stands in the shader once for each score (masks, mods), so that
        many scores would take long to compile.
    """
    room = tuple(limits[name] for name in _LIMITS)
    return _tiles_for(d4, wide4, room, subgroup_min_size, software, scores, sums4 or (wide4,), inline)


@functools.lru_cache(maxsize=512)
def _tiles_for(
    d4: int,
    wide4: int,
    room: tuple[int, ...],
    subgroup_min_size: int,
    software: bool,
    scores: int,
    sums4: tuple[int, ...],
    inline: bool,
) -> list[Tile]:
    limits = dict(zip(_LIMITS, room, strict=True))
    fitting = [
        tile
        for tile in (SOFTWARE if software else [tile for most, tile in _HARDWARE if d4 <= most])
        if tile.fits(d4, wide4, limits)
        and (not subgroup_min_size or tile.tx <= subgroup_min_size)
        and (tile.tx <= 8 or tile.tx < 2 * wide4)
        and not (inline and tile.rows * tile.keys > 16 * tile.tx)
    ]
    # The last resort for the widest heads is to let the compiler spill.
    return [tile for tile in fitting if tile.registers(scores, sums4) <= _MAX_REGISTERS] or fitting[-1:]


class TailSplit(NamedTuple):
    """Which tiles are split along the keys, each split being a workgroup of its own.

    Attributes
    ----------
    tiles : int
        How many tiles are split: the last ones to begin.
    splits : int
        Splits of each of these tiles.
    keys : int
        Keys of a split; the last split of a tile takes those that are left.
    """

    tiles: int
    splits: int
    keys: int


@functools.lru_cache(maxsize=512)
def choose_tail_split(tiles: int, keys: int, tile: Tile) -> TailSplit | None:
    """How the last round of workgroups is split along the keys, or None where that is not worth it.

    Each core takes one tile after the other. A last round that does not fill the GPU takes as long as the
    others. Where its tiles are split, and their partial results joined afterwards, it takes only as long as
    its share of the work, as in Stream-K (Osama et al., arXiv 2301.03598).

    Parameters
    ----------
    tiles : int
        Tiles of all heads.
    keys : int
        Keys that each tile goes through.
    tile : Tile
    """
    last_round = tiles % _CORES
    if tile.buffers == 1 or not last_round:
        return None
    steps = -(-keys // tile.keys)
    shortest = -(-last_round * steps // _CORES)
    for longest in range(shortest, steps - _WORTH + 1):
        splits = -(-steps // longest)
        short = steps - (splits - 1) * longest
        # A core for each long split; the others take short ones, one after the other.
        if last_round * (splits - 1) + -(-last_round // (longest // short)) > _CORES:
            continue
        return TailSplit(last_round, splits, longest * tile.keys)
    return None


def choose_tile(rows: int, heads: int, tiles: Sequence[Tile], *, split_keys: int = 0) -> Tile | None:
    """The first of ``tiles`` that is not taller than the rows and keeps a GPU busy, or None if there is none.

    Parameters
    ----------
    rows : int
        Rows of a head.
    heads : int
        Heads in all batch elements.
    tiles : sequence of Tile
        From :func:`tiles_for`.
    split_keys : int
        Where tiles may be split, the argument ``keys`` of :func:`choose_tail_split`.
    """
    for tile in tiles:
        workgroups = heads * -(-rows // tile.queries)
        tail = choose_tail_split(workgroups, split_keys, tile) if split_keys else None
        if tail:
            workgroups += tail.tiles * (tail.splits - 1)
        too_few = tile.queries > 32 and workgroups < BUSY_WORKGROUPS
        if not tile.too_tall(rows) and not too_few:
            return tile
    return tiles[-1] if tiles else None
