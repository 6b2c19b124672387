"""Tile sizes for the register-tiled attention kernel, from the shape and the adapter's limits."""

from __future__ import annotations

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
        How many rows of values are staged at a time, a multiple of tx.
    query_resident : bool
        Whether the whole query tile stays in workgroup memory.
    """

    tx: int
    ty: int
    rows: int
    keys: int
    depth4: int
    value_keys: int
    query_resident: bool = False

    @property
    def queries(self) -> int:
        """Query rows of a tile."""
        return self.ty * self.rows

    def workgroup_bytes(self, d4: int, dv4: int) -> int:
        """Workgroup memory that the shader declares, in bytes."""
        keys = 4 * self.depth4 * (self.keys // 4 + 1)
        queries = 4 * self.depth4 * (self.queries // 4 + 1)
        values = self.value_keys * dv4
        # The values take the place of what QKᵀ needed, but for a query that stays.
        if self.query_resident:
            vec4s = max(keys, values) + queries * -(-d4 // self.depth4)
        else:
            vec4s = max(keys + queries, values)
        vec4s += self.value_keys * (self.queries // 4 + 1)
        return 16 * vec4s + 16

    def constants(self) -> dict[str, object]:
        """The template's variables."""
        return {
            "TX": self.tx,
            "TY": self.ty,
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
            self.workgroup_bytes(d4, dv4) <= limits["maxComputeWorkgroupStorageSize"]
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
    subgroups = subgroup_min_size > 0
    choices = _SOFTWARE if software else _HARDWARE
    for tx, ty, rows, keys, (depth4, value_keys) in itertools.product(
        choices.tx, choices.ty, (4, 2, 1), choices.keys, choices.stage
    ):
        too_wide = (subgroups and tx > subgroup_min_size) or (tx > 4 and tx >= 2 * dv4)
        too_tall = ty * rows > 8 and ty * rows >= 2 * queries
        # The last resort for the widest heads is to let the compiler spill.
        spills = rows > 1 and rows * -(-dv4 // tx) > _MAX_OUTPUTS
        if too_wide or too_tall or spills or keys % (4 * tx):
            continue
        tile = Tile(tx, ty, rows, keys, min(depth4, d4), value_keys)
        if tile.fits(d4, dv4, subgroups, limits):
            return tile
    return None
