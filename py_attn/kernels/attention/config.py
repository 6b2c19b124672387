"""Which variant computes attention, and what it is compiled with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from py_attn.gpu.bridge import AdapterInfo
from py_attn.gpu.device import Device
from py_attn.kernels.attention.matrix import MatrixTile, PairTile, matrix_tile, missing
from py_attn.kernels.attention.options import Options
from py_attn.kernels.attention.packing import tile_slots
from py_attn.kernels.attention.tiles import TailSplit, Tile, choose_tail_split, tiles_for
from py_attn.kernels.attention.work import choose_tile, work_of
from py_attn.kernels.operands import in_vec4s

Variant = Literal["auto", "naive", "rows", "tiled", "subgroup", "matrix"]
VARIANTS = ("auto", "naive", "rows", "tiled", "subgroup", "matrix")
NAIVE_WORKGROUP = 64
# Few invocations to a workgroup, so that short inputs still make work for every core.
ROWS = {"WORKGROUP": 16, "ROWS": 4, "BQ": 64}
# Keys that attention/rows.wgsl takes at a time.
_KEYS_OF_ROWS = 4
# Fewer queries leave parts of a CPU's vector registers empty, and the textbook form is as fast.
_ROWS_MIN_QUERIES = 16
# Subgroups of 4 allow only small tiles, and shuffles gain no more than a few percent.
_FEWEST_LANES = 8
# They add a score's products one by one; over more than these, float32's error exceeds what the tests allow.
TILED_MAX_HEAD_DIM = 512


@dataclass(frozen=True, slots=True)
class Config:
    """What one call is compiled with; tests, the tuner and the bench pass their own as ``variant``.

    Attributes
    ----------
    variant : str
        Any but "auto".
    tile : Tile or MatrixTile or PairTile or None
        None for "naive" and "rows".
    tail_split : TailSplit or None
        Which of the tiles are split along the keys.
    unrolled : bool
        Whether inner loops are written out.
    """

    variant: str
    tile: Tile | MatrixTile | PairTile | None = None
    tail_split: TailSplit | None = None
    unrolled: bool = True

    @property
    def tile_rows(self) -> int:
        """Query rows that a workgroup takes."""
        if self.tile:
            return self.tile.queries
        return ROWS["BQ"] if self.variant == "rows" else NAIVE_WORKGROUP

    @property
    def keys_of_step(self) -> int:
        """Keys that a workgroup, or an invocation of "naive" and "rows", takes at a time."""
        if self.tile:
            return self.tile.keys
        return _KEYS_OF_ROWS if self.variant == "rows" else 1

    def constants(self) -> dict[str, object]:
        """The templates' variables."""
        found: dict[str, object] = {"subgroups": self.variant == "subgroup", "unrolled": self.unrolled}
        if self.tile:
            return found | self.tile.constants()
        return found | (ROWS if self.variant == "rows" else {"WORKGROUP": NAIVE_WORKGROUP})


def configure(options: Options, info: AdapterInfo, variant: object) -> Config:
    """The configuration by the static tables.

    Raises
    ------
    ValueError
        When ``variant`` is unknown or this adapter cannot run it, naming what is missing.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant: expected one of {', '.join(VARIANTS)}, got {variant!r}")
    if variant == "matrix":
        others = fitting_tiles(options, info, "subgroup")
        return Config(variant, matrix_tile(options, info, others), unrolled=not info.software)
    # Workgroup memory is no faster than other memory on a CPU, and costs there when a pipeline is made.
    if variant == "auto" and info.software:
        variant = "rows" if options.problem.queries >= _ROWS_MIN_QUERIES else "naive"
    if variant in ("naive", "rows"):
        return Config(str(variant), unrolled=not info.software)
    p = options.problem
    if variant != "auto" and _too_wide(options):
        raise ValueError(
            f"variant: {variant} takes head dims up to {TILED_MAX_HEAD_DIM}, got {p.head_dim} and "
            f"{p.value_head_dim}; naive and rows take more"
        )
    fewest = 4 if variant == "subgroup" else _FEWEST_LANES
    if variant in ("subgroup", "auto"):
        tile = None
        if info.subgroup_min_size >= fewest:
            tile = _choose_tile(options, info, "subgroup")
        if tile:
            return config_for_tile(options, info, "subgroup", tile)
        if variant == "subgroup":
            lacks = "subgroups of 4 or more" if info.subgroup_min_size < 4 else "more workgroup memory"
            raise ValueError(f"variant: subgroup needs {lacks}, which {info} lacks")
    tile = _choose_tile(options, info, "tiled")
    if tile:
        return config_for_tile(options, info, "tiled", tile)
    if variant == "tiled":
        allowed = info.limits["maxComputeWorkgroupStorageSize"]
        raise ValueError(
            f"variant: tiled with head dims {p.head_dim} and {p.value_head_dim} needs more workgroup memory "
            f"than the {allowed:,} bytes of {info}"
        )
    return Config("naive", unrolled=not info.software)


def fitting_tiles(options: Options, info: AdapterInfo, variant: str) -> Mapping[Tile, float]:
    """What this adapter can run as "tiled" or "subgroup", with its speed, the fastest first."""
    d4, dv4 = in_vec4s(options.problem.head_dim), in_vec4s(options.problem.value_head_dim)
    size = info.subgroup_min_size if variant == "subgroup" else 0
    if _too_wide(options):
        return {}
    return tiles_for(
        d4,
        dv4,
        info.limits,
        size,
        info.software,
        inline=options.runs_code_per_score,
        float32=options.all_float32,
    )


def _too_wide(options: Options) -> bool:
    return max(options.problem.head_dim, options.problem.value_head_dim) > TILED_MAX_HEAD_DIM


def _choose_tile(options: Options, info: AdapterInfo, variant: str) -> Tile | None:
    p = options.problem
    return choose_tile(
        work_of(options, p.batch * p.heads * (options.sequences or 1)),
        fitting_tiles(options, info, variant),
        split_keys=p.keys if may_split(options) else 0,
    )


def config_for_tile(options: Options, info: AdapterInfo, variant: str, tile: Tile) -> Config:
    """The configuration of a tiled variant with this tile."""
    tail = None
    if may_split(options):
        workgroups = query_tiles(options, tile.queries) * options.problem.heads * options.problem.batch
        tail = choose_tail_split(workgroups, options.problem.keys, tile)
    return Config(variant, tile, tail, unrolled=not info.software)


def query_tiles(options: Options, tile_rows: int) -> int:
    """Tiles of one head; of all sequences together in a packed call."""
    queries = options.problem.queries
    if options.sequences is not None:
        return tile_slots(queries, options.sequences, tile_rows)
    return -(-queries // tile_rows)


def may_split(options: Options) -> bool:
    """Whether the last tiles may be split along the keys: only where every tile takes all keys."""
    m = options.problem.masking
    unmasked = m.window_left is None and m.window_right is None and not options.runs_code_per_score
    return unmasked and options.sequences is None


def device_variants(device: Device, dtype: str = "float32") -> list[str]:
    """The variants that ``device`` can run for inputs of ``dtype`` with common head dims, fastest first."""
    found = ["matrix"] if dtype == "float16" and not missing(device.info) else []
    if device.info.subgroup_min_size >= 4:
        found.append("subgroup")
    return [*(["rows"] if device.info.software else []), *found, "tiled", "naive"]
