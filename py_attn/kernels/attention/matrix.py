"""The variant ``matrix``: attention on subgroup matrices of float16, where an adapter has them.

https://github.com/gpuweb/gpuweb/blob/main/proposals/subgroup-matrix.md. Experimental, so "auto" never takes
it: in Chromium behind ``--enable-unsafe-webgpu``, on NVIDIA with Vulkan also behind
``--enable-dawn-features=vulkan_enable_f16_on_nvidia``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from py_attn.gpu.binding import most_invocations
from py_attn.gpu.bridge import AdapterInfo, MatrixConfig
from py_attn.gpu.kernel import Arg
from py_attn.gpu.shader import SUBGROUP_ID
from py_attn.kernels.attention.options import Options
from py_attn.kernels.attention.tiles import BUSY_WORKGROUPS, Tile
from py_attn.kernels.operands import HALF_ELEMENTS

#: What the shader's text enables.
ENABLE = ("f16", "subgroups", "chromium_experimental_subgroup_matrix")
#: What the device must have.
_FEATURES = ("shader-f16", "subgroups", "chromium-experimental-subgroup-matrix", SUBGROUP_ID)
_CONFIG = MatrixConfig("f16", "f32", 16, 16, 16)
_SUBGROUP = 32
_ROWS = 16
_MAX_HEAD_DIM = 256
# How far, in powers of two, a row's maximum may rise before its acc is rescaled.
_SLACK = 8
_MAX_PAIR_HEAD_DIM = 128
_PAIR_ROWS = (16, 32, 64, 128)
# float32, for head dims up to so many: keys of a tile, and after how many tiles sums are taken out.
_PAIR_KEYS = ((64, 32, 4), (128, 16, 8))
# Up to this head dim keys and values take turns, so that three workgroups fit into a core in place of two.
_MOST_IN_TURN = 32


class _Subgroups:
    """Tiles of workgroups whose subgroups have 16 query rows each."""

    __slots__ = ()
    subgroups: int

    @property
    def queries(self) -> int:
        """Query rows of a tile."""
        return _ROWS * self.subgroups

    def workgroup_bytes(self, head_dim: int, value_head_dim: int) -> int:
        """Workgroup memory that the shader declares, in bytes."""
        raise NotImplementedError

    def _of_subgroups(self, keys: int) -> dict[str, object]:
        """The template's variables that all of them have, for tiles of so many keys."""
        return {
            "SUBGROUPS": self.subgroups,
            "BQ": self.queries,
            "BK": keys,
            "WORKGROUP": _SUBGROUP * self.subgroups,
        }

    def fits(self, head_dim: int, value_head_dim: int, limits: Mapping[str, int]) -> bool:
        """Whether workgroup memory and invocations are within the adapter's limits."""
        threads = _SUBGROUP * self.subgroups
        return self.workgroup_bytes(head_dim, value_head_dim) <= limits[
            "maxComputeWorkgroupStorageSize"
        ] and threads <= most_invocations(limits)


@dataclass(frozen=True, slots=True)
class MatrixTile(_Subgroups):
    """One configuration of ``attention/matrix.wgsl``.

    Attributes
    ----------
    subgroups : int
        Subgroups of a workgroup, each with 16 query rows.
    keys : int
        Keys of a tile, a multiple of 16 · ``team`` that divides ``queries``.
    in_turn : bool
        Whether keys and values take turns in the same workgroup memory.
    team : int
        So many subgroups, 1 or 2, share the keys and the values' columns for the rows of both. They divide
        ``subgroups``.

    Raises
    ------
    ValueError
        When these numbers do not go together.
    """

    subgroups: int
    keys: int
    in_turn: bool = False
    team: int = 1

    def __post_init__(self) -> None:
        if (
            self.team not in (1, 2)
            or self.subgroups % self.team
            or self.keys < 1
            or self.keys % (_ROWS * self.team)
            or self.queries % self.keys
        ):
            raise ValueError(
                "tile: expected a team of 1 or 2 that divides the subgroups, and keys that are a multiple "
                f"of {_ROWS} · team and divide the {self.queries} query rows, got {self}"
            )

    @property
    def weights_apart(self) -> bool:
        """Whether weights have memory of their own, else they lie in their scores' place."""
        return self.team > 1 and not self.in_turn

    def workgroup_bytes(self, head_dim: int, value_head_dim: int) -> int:
        """Workgroup memory that the shader declares, in bytes."""
        key_blocks, value_blocks = (-(-n // 16) for n in (head_dim, value_head_dim))
        # Vec4s of a member's part of the keys, and of the values; one more to each line.
        keys = self.keys // self.team * (2 * key_blocks + 1)
        values = self.keys * (2 * -(-value_blocks // self.team) + 1)
        staged = self.team * (max(keys, values) if self.in_turn else keys + values)
        scores = self.keys // 4 + (2 if self.weights_apart else 1)
        weights = self.keys // 8 + 1 if self.weights_apart else 0
        return 16 * (staged + self.queries * (scores + weights)) + 32

    def constants(self) -> dict[str, object]:
        """The template's variables."""
        return self._of_subgroups(self.keys) | {
            "in_turn": self.in_turn,
            "team": self.team,
            "weights_apart": self.weights_apart,
            "slack": _SLACK,
        }


@dataclass(frozen=True, slots=True)
class PairTile(_Subgroups):
    """One configuration of ``attention/matrix_float32.wgsl``, whose numbers are pairs of halves.

    Attributes
    ----------
    subgroups : int
        Subgroups of a workgroup, each with 16 query rows.
    keys : int
        Keys of a tile, a multiple of 16 that divides ``queries``.
    turns_summed : int
        After so many tiles of keys the sums are taken out of the matrices.
    in_turn : bool
        Whether keys and values take turns in the same workgroup memory.
    other : Tile
        What computes a tile whose numbers do not fit into halves, with as many rows.
    other_variant : str
        "subgroup" or "tiled", by which it does so.
    """

    subgroups: int
    keys: int
    turns_summed: int
    in_turn: bool
    other: Tile
    other_variant: str = "subgroup"

    def workgroup_bytes(self, head_dim: int, value_head_dim: int) -> int:
        """Workgroup memory that the shader declares, in bytes."""
        pitches = [2 * -(-n // 16) + 1 for n in (head_dim, value_head_dim)]
        lines = 2 * self.keys * (max(pitches) if self.in_turn else sum(pitches))
        return 16 * (lines + self.queries * (self.keys // 4 + 2)) + 16

    def constants(self) -> dict[str, object]:
        """The template's variables."""
        return self._of_subgroups(self.keys) | {
            "TURNS_SUMMED": self.turns_summed,
            "in_turn": self.in_turn,
        }


# Measured in bench/NOTES.md. For head dims up to so many: tiles, and how many workgroups a call must at least
# have of each; with fewer, smaller tiles keep more of a GPU's cores at work.
_TILES = (
    (32, ((MatrixTile(4, 16), 0),)),
    (
        64,
        (
            (MatrixTile(8, 32, in_turn=True), 512),
            (MatrixTile(4, 32, in_turn=True, team=2), 256),
            (MatrixTile(4, 32), 0),
        ),
    ),
    (128, ((MatrixTile(8, 32, team=2), 256), (MatrixTile(4, 32), 0))),
    (256, ((MatrixTile(8, 16), 256), (MatrixTile(4, 16), 0))),
)
# For adapters with little workgroup memory.
_SMALL = (MatrixTile(4, 16), MatrixTile(2, 16), MatrixTile(1, 16))
#: Every tile that a call may get.
TILES = tuple(dict.fromkeys([*(tile for _, tiles in _TILES for tile, _ in tiles), *_SMALL]))


def missing(info: AdapterInfo) -> list[str]:
    """What ``info`` lacks of what the variant needs, in words."""
    lacks = [name for name in _FEATURES if name not in info.features]
    if _CONFIG not in info.matrix_configs:
        lacks.append("subgroup matrices of f16 with f32 sums, 16×16×16")
    if not info.subgroup_min_size == info.subgroup_max_size == _SUBGROUP:
        lacks.append(f"subgroups of {_SUBGROUP}")
    return lacks


def matrix_tile(options: Options, info: AdapterInfo, others: Iterable[Tile] = ()) -> MatrixTile | PairTile:
    """The tile for checked arguments.

    ``others`` are float32 tiles that this adapter can run, the fastest first.

    Raises
    ------
    ValueError
        When the adapter or these arguments rule the variant out, naming what is missing.
    """
    p = options.problem
    if options.sequences is not None:
        raise ValueError(
            "variant: matrix is for pa.attention; varlen_attention runs naive, rows, tiled or subgroup"
        )
    if lacks := missing(info):
        raise ValueError(f"variant: matrix needs {', '.join(lacks)}, which {info} lacks")
    if options.all_float32:
        return _pair_tile(options, info, others)
    for x in options.operands():
        if x.dtype != "float16":
            raise ValueError(
                f"variant: matrix needs float16 query, key and value, got {x.name} in {x.dtype}; "
                "or all three in float32"
            )
    if max(p.head_dim, p.value_head_dim) > _MAX_HEAD_DIM:
        raise ValueError(
            f"variant: matrix takes head dims up to {_MAX_HEAD_DIM}, got {p.head_dim} and {p.value_head_dim}"
        )
    widest = max(p.head_dim, p.value_head_dim)
    tiles = next(tiles for most, tiles in _TILES if widest <= most)
    enough = [tile for tile, least in tiles if p.batch * p.heads * -(-p.queries // tile.queries) >= least]
    for tile in (*enough, *_SMALL):
        if tile.fits(p.head_dim, p.value_head_dim, info.limits):
            return tile
    raise ValueError(
        f"variant: matrix with head dims {p.head_dim} and {p.value_head_dim} needs more workgroup memory"
    )


def _pair_tile(options: Options, info: AdapterInfo, others: Iterable[Tile]) -> PairTile:
    p = options.problem
    widest = max(p.head_dim, p.value_head_dim)
    if widest > _MAX_PAIR_HEAD_DIM:
        raise ValueError(
            f"variant: matrix takes float32 head dims up to {_MAX_PAIR_HEAD_DIM}, got {p.head_dim} and "
            f"{p.value_head_dim}"
        )
    if options.runs_code_per_score or p.masking.softcap or options.sinks_dtype:
        raise ValueError(
            "variant: matrix takes float32 without mask, score_mod, mask_mod, softcap and sinks; subgroup "
            "takes them"
        )
    tiles = [
        tile
        for other in others
        if other.queries in _PAIR_ROWS
        if (tile := _pair_tile_with(other, p.head_dim, p.value_head_dim, info.limits))
    ]
    # The fastest one that keeps a GPU busy, or the one with the most workgroups.
    for tile in tiles:
        if p.batch * p.heads * -(-p.queries // tile.queries) >= BUSY_WORKGROUPS:
            return tile
    if tiles:
        return min(tiles, key=lambda tile: tile.queries)
    raise ValueError(
        f"variant: matrix with float32 head dims {p.head_dim} and {p.value_head_dim} needs more workgroup "
        "memory"
    )


def _pair_tile_with(
    other: Tile, head_dim: int, value_head_dim: int, limits: Mapping[str, int]
) -> PairTile | None:
    """The tile of as many rows as ``other``, or None where no form of it fits."""
    widest = max(head_dim, value_head_dim)
    keys, turns = next((keys, turns) for most, keys, turns in _PAIR_KEYS if widest <= most)
    for in_turn in (True,) if widest <= _MOST_IN_TURN else (False, True):
        tile = PairTile(other.queries // _ROWS, min(keys, other.queries), turns, in_turn, other)
        if tile.fits(head_dim, value_head_dim, limits):
            return tile
    return None


def template_variables(options: Options) -> dict[str, object]:
    """Template variables of the layouts in memory, and whether references of rows may stay as they are."""
    only_scaled = not options.problem.masking.softcap and not options.runs_code_per_score
    return {
        "keeps_references": only_scaled,
        "out_layout": _output_layout(options),
        **{f"{x.name}_layout": x.layout for x in options.operands()},
    }


def matrix_args(options: Options) -> list[Arg]:
    """Declarations of the inputs: query, key and value are read as wide as their layouts allow."""
    wide = [x.wide_arg for x in options.operands()]
    return wide + options.args()[len(wide) :]


def matrix_output(options: Options) -> Arg:
    """The output's declaration: written eight elements at a time where rows begin at multiples of eight."""
    return Arg("out", HALF_ELEMENTS[_output_layout(options)], writes=True)


def _output_layout(options: Options) -> str:
    return "packed4" if options.problem.value_head_dim % 8 else "packed8"
