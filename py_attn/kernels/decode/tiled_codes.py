"""Decode over a cache of tiles of 4-bit codes, by subgroup matrices of 8-bit integers.

The head of ``shaders/decode/integer_split.wgsl`` says who computes what; ``shaders/lib/code_tiles.wgsl`` has
the tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py_attn.gpu.binding import most_invocations
from py_attn.gpu.bridge import AdapterInfo, MatrixConfig
from py_attn.gpu.shader import SUBGROUP_ID, SUBGROUP_UNIFORMITY
from py_attn.kernels.quantization.turboquant import Format
from py_attn.turboquant_reference import TILE

#: The feature; WGSL's extension has underscores.
_FEATURE = "chromium-experimental-subgroup-matrix"
MATRICES = _FEATURE.replace("-", "_")
_CONFIG = MatrixConfig("i8", "i32", 16, 16, 32)
_SUBGROUP = 32
_WORKGROUP = 128
_WORKGROUP_BYTES = 16 * (3 * 4 * 9 + 4 * 160 + 4 * 4)
#: Query rows of a workgroup.
ROWS = 4
# Tiles of a run, whose scores an invocation keeps; the most that were measured to gain (bench/NOTES.md).
_TILES = (4, 2, 1)
#: Two workgroups to each of 132 cores; four would fit.
BUSY_WORKGROUPS = 264


def keeps_tiles(keys: Format | None, values: Format | None, info: AdapterInfo) -> bool:
    """Whether a cache whose keys and values are kept as these codes keeps them in tiles on an adapter."""
    return (
        keys is not None
        and keys == values
        and (keys.code_bits, keys.dim) == (4, TILE)
        and {"subgroups", SUBGROUP_ID, SUBGROUP_UNIFORMITY, _FEATURE} <= info.features
        and _CONFIG in info.matrix_configs
        and info.subgroup_min_size == info.subgroup_max_size == _SUBGROUP
        and info.limits["maxComputeWorkgroupStorageSize"] >= _WORKGROUP_BYTES
        and most_invocations(info.limits) >= _WORKGROUP
    )


@dataclass(frozen=True, slots=True)
class TileRuns:
    """How the tiles of a cache are spread over workgroups.

    Attributes
    ----------
    tiles : int
        Tiles of a run, which a workgroup takes at a time.
    first_tile : int
        The first tile that any query may see.
    row_tiles : int
        Workgroups that share the query rows of a key/value head.
    splits : int
    split_first : int
        Tiles from the first tile of one split to that of the next.
    split_stride : int
        Tiles from one run of a split to its next.
    steps : int
        Runs of a split.
    """

    tiles: int
    first_tile: int
    row_tiles: int
    splits: int
    split_first: int
    split_stride: int
    steps: int

    # As of a Config: the launch over the splits rotates the query, the one that combines them the output.
    rotates = rotates_back = combines = True

    def params(self) -> dict[str, int]:
        """Values of the kernel's params."""
        return {
            "first_tile": self.first_tile,
            "split_first": self.split_first,
            "split_span": 0,
            "split_stride": self.split_stride,
            "steps": self.steps,
            "zero": 0,
        }

    def constants(self, form: Format) -> dict[str, Any]:
        """The template's variables, for codes of a format."""
        return {
            "D": TILE,
            "WORKGROUP": _WORKGROUP,
            "TILES": self.tiles,
            "loops": self.steps > 1,
            "uniform": form.uniform,
            "half_step": form.book.levels[0],
        }


def choose_runs(
    slots: int,
    first: int,
    workgroups: int,
    row_tiles: int,
    splits: int | None,
    most_splits: int,
    *,
    in_runs: bool,
) -> TileRuns:
    """Spread the tiles of slots ``first`` … ``slots`` - 1 over splits.

    Parameters
    ----------
    slots, first : int
    workgroups : int
        How many there are without splitting.
    row_tiles : int
        How many of them share a key/value head.
    splits : int or None
        As asked for; None for as many as keep a GPU busy, with the largest runs that allow it.
    most_splits : int
    in_runs : bool
        Give each split neighbouring tiles.
    """
    first_tile = first // TILE
    count = max(1, -(-slots // TILE) - first_tile)
    busy = min(count, -(-BUSY_WORKGROUPS // workgroups))
    tiles = next(n for n in _TILES if -(-count // n) >= busy or n == 1)
    chosen = splits or min(-(-count // tiles), most_splits)
    steps = -(-count // (chosen * tiles))
    first_of_next, stride = (steps * tiles, tiles) if in_runs else (tiles, chosen * tiles)
    return TileRuns(tiles, first_tile, row_tiles, chosen, first_of_next, stride, steps)
