"""Tile sizes for the register-tiled attention kernel, from the shape and the adapter's limits."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

# Registers for one invocation's outputs, in vec4s; beyond this compilers spill.
_MAX_OUTPUTS = 32


@dataclass(frozen=True, slots=True)
class Tile:
    """One configuration of ``attention_tiled.wgsl``.

    Attributes
    ----------
    tx, ty : int
        Invocations along the keys and along the query rows of a tile.
    rows : int
        Query rows of one invocation.
    keys : int
        Keys of a tile, a multiple of 4·tx.
    depth4 : int
        How many vec4s of the head dim are staged at a time.
    value_keys : int
        How many rows of values are staged at a time, a multiple of 4.
    query_resident : bool
        Whether the whole query tile stays in workgroup memory.
    """

    tx: int
    ty: int
    rows: int
    keys: int
    depth4: int
    value_keys: int
    query_resident: bool

    @property
    def queries(self) -> int:
        """Query rows of a tile."""
        return self.ty * self.rows

    def workgroup_bytes(self, d4: int, dv4: int, subgroups: bool) -> int:
        """Workgroup memory that the shader declares, in bytes."""
        staged_rows = self.keys + (0 if self.query_resident else self.queries)
        vec4s = max(staged_rows * (self.depth4 + 1), self.value_keys * dv4)
        vec4s += self.queries * self.keys // 4
        if self.query_resident:
            vec4s += self.queries * (d4 + 1)
        return 16 * vec4s + (4 if subgroups else 4 * self.queries * self.tx) + 8

    def constants(self) -> dict[str, object]:
        """The template's variables."""
        return {
            "TX": self.tx,
            "ROWS": self.rows,
            "BQ": self.queries,
            "BK": self.keys,
            "DEPTH4": self.depth4,
            "VALUE_KEYS": self.value_keys,
            "WORKGROUP": self.tx * self.ty,
            "query_resident": self.query_resident,
        }

    def fits(self, d4: int, dv4: int, subgroups: bool, limits: Mapping[str, int]) -> bool:
        """Whether workgroup memory and invocations are within the adapter's limits."""
        invocations = self.tx * self.ty
        return (
            self.workgroup_bytes(d4, dv4, subgroups) <= limits["maxComputeWorkgroupStorageSize"]
            and invocations <= limits["maxComputeInvocationsPerWorkgroup"]
            and invocations <= limits["maxComputeWorkgroupSizeX"]
        )


@dataclass(frozen=True, slots=True)
class _Choices:
    """What is tried in turn, largest first; ``stage`` pairs depth4 and value_keys."""

    tx: tuple[int, ...]
    ty: tuple[int, ...]
    keys: tuple[int, ...]
    stage: tuple[tuple[int, int], ...]


_HARDWARE = _Choices((16, 8, 4), (16, 8, 4, 2), (64, 32, 16), ((8, 16), (4, 16), (4, 8), (2, 4)))
# A software adapter pays for every byte of workgroup memory when it compiles (SwiftShader clears it
# with one store each) and gains nothing from large tiles.
_SOFTWARE = _Choices((4,), (8, 4, 2), (16,), ((4, 8), (2, 4)))


def choose_tile(
    queries: int, d4: int, dv4: int, limits: Mapping[str, int], subgroup_min_size: int, software: bool = False
) -> Tile | None:
    """The first configuration of a fixed preference that fits, or None.

    Parameters
    ----------
    queries : int
        Query rows; short inputs get short tiles.
    d4, dv4 : int
        Head dims of key and value in vec4s.
    limits : mapping
        The adapter's limits by WebGPU's names.
    subgroup_min_size : int
        The smallest subgroup of the adapter, or 0 for the variant without subgroups.
    software : bool
        Whether the adapter computes on the CPU.
    """
    choices = _SOFTWARE if software else _HARDWARE
    for tx, ty, rows, keys, (depth4, value_keys) in itertools.product(
        choices.tx, choices.ty, (4, 2, 1), choices.keys, choices.stage
    ):
        tile = Tile(tx, ty, rows, keys, depth4, value_keys, False)
        fitting = fitted(tile, queries, d4, dv4, limits, subgroup_min_size)
        if fitting is not None:
            return fitting
    return None


def fitted(
    tile: Tile, queries: int, d4: int, dv4: int, limits: Mapping[str, int], subgroup_min_size: int
) -> Tile | None:
    """``tile`` for head dims that may be shorter than what it stages, or None where it does not suit."""
    subgroups = subgroup_min_size > 0
    too_wide = (subgroups and tile.tx > subgroup_min_size) or (tile.tx > 4 and tile.tx >= 2 * dv4)
    too_tall = tile.queries > 8 and tile.queries >= 2 * queries
    # The last resort for the widest heads is to let the compiler spill.
    spills = tile.rows > 1 and tile.rows * -(-dv4 // tile.tx) > _MAX_OUTPUTS
    if too_wide or too_tall or spills or tile.keys % (4 * tile.tx):
        return None
    short = dataclasses.replace(tile, depth4=min(tile.depth4, d4))
    return short if short.fits(d4, dv4, subgroups, limits) else None


#: What :meth:`Device.tune` chooses between, by name; the tests run all of them.
CANDIDATES: Mapping[str, Tile] = {
    f"{tile.queries}x{tile.keys} by {tile.tx}x{tile.ty}": tile
    for tile in (
        Tile(16, 16, 4, 64, 8, 16, False),
        Tile(16, 16, 2, 64, 8, 16, False),
        Tile(16, 8, 4, 64, 8, 16, False),
        Tile(8, 16, 4, 64, 8, 16, False),
        Tile(8, 8, 4, 32, 4, 16, False),
    )
}
