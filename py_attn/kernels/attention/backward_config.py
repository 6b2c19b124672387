"""How a backward pass is compiled: which tiles each side takes, or none on adapters that compute on a CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from py_attn.gpu.bridge import AdapterInfo
from py_attn.kernels.attention.config import ROWS, TILED_MAX_HEAD_DIM
from py_attn.kernels.attention.options import Options
from py_attn.kernels.attention.packing import usual_rows
from py_attn.kernels.attention.tiles import Tile, choose_tile, tiles_for
from py_attn.kernels.operands import in_vec4s

BackwardVariant = Literal["auto", "rows", "tiled"]
VARIANTS = ("auto", "rows", "tiled")


@dataclass(frozen=True, slots=True)
class BackwardConfig:
    """What a call is compiled with; tests and the bench pass their own as ``variant``.

    Attributes
    ----------
    query, key : Tile or None
        Of the launch for the query's gradient, whose rows are queries, and of that for the others, whose
        rows are keys. None gives several rows to an invocation, for adapters that compute on a CPU.
    unrolled : bool
        Whether inner loops are written out.
    """

    query: Tile | None
    key: Tile | None
    unrolled: bool = True

    def tile(self, side: str) -> Tile | None:
        """That of one side, "query" or "key"."""
        return self.query if side == "query" else self.key

    def rows(self, side: str) -> int:
        """Rows of that side that a workgroup takes."""
        tile = self.tile(side)
        return tile.queries if tile else ROWS["BQ"]


def configure(options: Options, info: AdapterInfo, variant: object = "auto") -> BackwardConfig:
    """The configuration by the static tables.

    Raises
    ------
    ValueError
        For a variant that does not exist, or when the head dims need more workgroup memory than the adapter
        has.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant: expected one of {', '.join(VARIANTS)}, got {variant!r}")
    p = options.problem
    if max(p.head_dim, p.value_head_dim) > TILED_MAX_HEAD_DIM:
        raise ValueError(
            f"query: the backward pass takes head dims up to {TILED_MAX_HEAD_DIM}, got {p.head_dim} and "
            f"{p.value_head_dim}"
        )
    if variant == "rows" or (variant == "auto" and info.software):
        return BackwardConfig(None, None, unrolled=False)
    query = _choose_tile(options, info, "query", p.queries, p.heads)
    key = _choose_tile(options, info, "key", p.keys, p.kv_heads)
    return BackwardConfig(query, key, unrolled=not info.software)


def fitting_tiles(options: Options, info: AdapterInfo, side: str) -> list[Tile]:
    """What this adapter can run for the gradients of the query, or of key and value, the fastest first."""
    d4, dv4 = in_vec4s(options.problem.head_dim), in_vec4s(options.problem.value_head_dim)
    sums4 = (d4,) if side == "query" else (d4, dv4)
    tiles = tiles_for(
        max(d4, dv4),
        max(sums4),
        info.limits,
        0,
        info.software,
        scores=2,
        sums4=sums4,
        inline=options.runs_code_per_score,
    )
    return [tile for tile in tiles if not tile.query_resident and tile.buffers == 1]


def _choose_tile(options: Options, info: AdapterInfo, side: str, rows: int, heads: int) -> Tile:
    p, sequences = options.problem, options.sequences
    plain = fitting_tiles(options, info, side)
    tile = choose_tile(usual_rows(rows, sequences), heads * p.batch * (sequences or 1), plain)
    if tile is None:
        allowed = info.limits["maxComputeWorkgroupStorageSize"]
        raise ValueError(
            f"query: the backward pass with head dims {p.head_dim} and {p.value_head_dim} needs more "
            f"workgroup memory than the {allowed:,} bytes of {info}"
        )
    return tile
