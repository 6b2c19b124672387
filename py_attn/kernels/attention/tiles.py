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


class _Entry(NamedTuple):
    """A tile of the forward pass for hardware adapters, and for what.

    Attributes
    ----------
    tile : Tile
    speeds : tuple of float
        For head dims of the products in each range of ``_HEAD_DIMS4``, how fast it computes where all tiles
        are full and there are many of them: the time of the fastest tile over that of this one; 0 where it
        is not for these head dims.
    values4 : int
        For values of at least so many vec4s; fewer leave many invocations without a column to sum.
    float32_only : bool
        Whether it is no faster than others with operands of half precision.
    """

    tile: Tile
    speeds: tuple[float, float, float, float, float]
    values4: int = 1
    float32_only: bool = False


# Head dims in vec4s: up to 16, 24, 32, 64 and 512.
_HEAD_DIMS4 = (range(1, 5), range(5, 7), range(7, 9), range(9, 17), range(17, 129))
# Measured on an H200; bench/NOTES.md says how. backward_config.py has the tiles of the backward pass.
_HARDWARE = (
    _Entry(Tile(16, 8, 8, 64, 2, 32), (0, 1, 1, 0, 0), values4=5, float32_only=True),
    _Entry(Tile(8, 16, 4, 64, 4, 16), (1, 0.83, 0.97, 0.87, 0)),
    _Entry(Tile(8, 16, 4, 32, 4, 16, True), (0.9, 0.72, 0.93, 0, 0)),
    _Entry(Tile(16, 16, 8, 128, 2, 16, buffers=2), (1, 1, 1, 1, 1), values4=9),
    _Entry(Tile(16, 16, 8, 128, 4, 32), (0.93, 0.93, 0.93, 0.93, 0), values4=9),
    _Entry(Tile(16, 16, 8, 64, 8, 32), (0.84, 0.84, 0.84, 0.84, 0), values4=9),
    _Entry(Tile(16, 16, 8, 64, 4, 16), (0.79, 0.79, 0.79, 0.79, 0.77), values4=9),
    _Entry(Tile(16, 16, 4, 64, 4, 16), (0.79, 0.79, 0.79, 0.79, 0.75), values4=9),
    _Entry(Tile(16, 8, 4, 64, 4, 16), (0.75, 0.75, 0.75, 0.75, 0.69), values4=9),
    _Entry(Tile(8, 16, 4, 32, 4, 16), (0.8, 0.6, 0.8, 0.78, 0.7)),
    _Entry(Tile(8, 8, 4, 32, 4, 8), (0.66, 0.66, 0.66, 0.7, 0.66)),
    _Entry(Tile(8, 4, 4, 32, 2, 8), (0.65, 0.65, 0.65, 0.6, 0.57)),
    _Entry(Tile(8, 2, 4, 32, 2, 8), (0.4, 0.4, 0.4, 0.3, 0.27)),
    _Entry(Tile(4, 8, 4, 16, 2, 8), (0.6, 0.6, 0.6, 0.55, 0.5)),
    _Entry(Tile(4, 2, 4, 16, 2, 4), (0.2, 0.2, 0.2, 0.14, 0.12)),
)


def name_of(tile: Tile) -> str:
    """Rows and keys, invocations along both, and what is staged at a time."""
    return (
        f"{tile.queries}x{tile.keys} by {tile.tx}x{tile.ty}, {tile.depth4} and {tile.value_keys}"
        f"{', resident' if tile.query_resident else ''}{', two buffers' if tile.buffers == 2 else ''}"
    )


#: What a GPU may get forward, by name; :meth:`Device.tune` chooses between them, and the tests run them all.
CANDIDATES: Mapping[str, Tile] = {name_of(entry.tile): entry.tile for entry in _HARDWARE}
# A software adapter pays for every byte of workgroup memory when it compiles (SwiftShader clears it
# with one store each) and gains nothing from large tiles. By these speeds the first one is taken that is not
# too tall.
SOFTWARE = {Tile(4, 8, 4, 16, 4, 8): 1.0, Tile(4, 4, 4, 16, 2, 4): 0.5, Tile(4, 2, 4, 16, 2, 4): 0.25}
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
    inline: bool = False,
    float32: bool = True,
) -> Mapping[Tile, float]:
    """What this adapter can run forward for these head dims, with its speed, the fastest first.

    Parameters
    ----------
    d4, wide4 : int
        Head dims of query and key, and of the values, in vec4s.
    limits : mapping
        The adapter's limits by WebGPU's names.
    subgroup_min_size : int
        The smallest subgroup of the adapter, or 0 for the variant without subgroups.
    software : bool
        Whether the adapter computes on the CPU.
    inline : bool
        As of :func:`that_fit`.
    float32 : bool
        Whether query, key and value are float32.
    """
    room = tuple(limits[name] for name in _LIMITS)
    return _tiles_for(d4, wide4, room, subgroup_min_size, software, inline, float32)


@functools.lru_cache(maxsize=512)
def _tiles_for(
    d4: int,
    wide4: int,
    room: tuple[int, ...],
    subgroup_min_size: int,
    software: bool,
    inline: bool,
    float32: bool,
) -> Mapping[Tile, float]:
    table = {
        entry.tile: entry.speeds
        for entry in _HARDWARE
        if wide4 >= entry.values4 and (float32 or not entry.float32_only)
    }
    suitable = {
        tile: speed
        for tile, speed in (SOFTWARE if software else speeds_at(d4, _HEAD_DIMS4, table)).items()
        if not subgroup_min_size or tile.tx <= subgroup_min_size
    }
    return that_fit(suitable, d4, wide4, dict(zip(_LIMITS, room, strict=True)), sums4=(wide4,), inline=inline)


def speeds_at(
    d4: int, ranges: Sequence[range], table: Mapping[Tile, Sequence[float]]
) -> Mapping[Tile, float]:
    """The speeds that the table has for a head dim of so many vec4s, a column for each of the ranges."""
    columns = [n for n, dims4 in enumerate(ranges) if d4 in dims4]
    return {tile: speeds[n] for n in columns for tile, speeds in table.items()}


def fastest_first(speeds: Mapping[Tile, float]) -> Mapping[Tile, float]:
    """The same in order, without tiles whose speed is 0."""
    return {tile: speeds[tile] for tile in sorted(speeds, key=lambda tile: -speeds[tile]) if speeds[tile]}


def that_fit(
    speeds: Mapping[Tile, float],
    d4: int,
    wide4: int,
    limits: Mapping[str, int],
    *,
    sums4: Sequence[int],
    scores: int = 1,
    inline: bool = False,
) -> Mapping[Tile, float]:
    """Those of ``speeds`` that this adapter can run for these head dims, the fastest first.

    Parameters
    ----------
    speeds : mapping of Tile to float
        How fast each of them computes, in relation to each other; 0 where it is not for these head dims.
    d4, wide4 : int
        Head dim of the products and the widest operand of ``accumulate`` in vec4s.
    limits : mapping
        The adapter's limits by WebGPU's names.
    sums4 : sequence of int
        The widths of what is accumulated, in vec4s.
    scores : int
        How many scores an invocation holds for each row and column.
    inline : bool
        Whether code of some length stands in the shader once for each score (masks, mods), so that
        many scores would take long to compile.
    """
    fitting = [
        tile
        for tile in fastest_first(speeds)
        if tile.fits(d4, wide4, limits) and not (inline and tile.rows * tile.keys > 16 * tile.tx)
    ]
    # The last resort for the widest heads is to let the compiler spill.
    kept = [tile for tile in fitting if tile.registers(scores, sums4) <= _MAX_REGISTERS] or fitting[-1:]
    return {tile: speeds[tile] for tile in kept}


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
