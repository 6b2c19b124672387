"""How a backward pass is compiled: which tiles each side takes, or none on adapters that compute on a CPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from py_attn.gpu.binding import most_invocations
from py_attn.gpu.bridge import AdapterInfo
from py_attn.kernels.attention.config import ROWS, TILED_MAX_HEAD_DIM
from py_attn.kernels.attention.options import Options
from py_attn.kernels.attention.packing import slots_of
from py_attn.kernels.attention.stored import Turns, choose_turns, stored_vec4s
from py_attn.kernels.attention.tiles import (
    BUSY_WORKGROUPS,
    SOFTWARE,
    Tile,
    fastest_first,
    speeds_at,
    that_fit,
)
from py_attn.kernels.attention.work import Side, choose_tile, time_of, work_of
from py_attn.kernels.operands import in_vec4s

BackwardVariant = Literal["auto", "rows", "tiled", "stored"]
VARIANTS = ("auto", "rows", "tiled", "stored")
# Storage buffers of the launch that stores the scores' gradients, beside those of mask, lengths and mods:
# four operands, the values of rows, two gradients and what is stored; the table of packed tiles is one more.
_STORING_BUFFERS = 8
#: Bytes that the gradients of scores may take: the first in any case, up to the second where the call's
#: query, key, value and their gradients take as much. The last MiB is for the diagonals of triangles under
#: causal masks, which are a little more than a half.
MOST_BYTES = (256 + 1) << 20, (512 + 1) << 20
# Head dims of query and value together below which reading the scores' gradients back takes as long as
# computing them again.
_WORTH = 128
# Keys of a workgroup of the launch that stores, in most cases.
_USUAL_ROWS = 64


class _Speeds(NamedTuple):
    """How fast a tile computes gradients where all of it is full, in relation to others; 0 where it may not.

    Attributes
    ----------
    tile : Tile
    of_head_dims : tuple of float
        Of a launch that makes one gradient or those of key and value, for each range of ``_HEAD_DIMS4``.
    separate : tuple of float
        Of two launches, one for the key and one for the value, for the same ranges, in relation to one launch
        for both.
    """

    tile: Tile
    of_head_dims: tuple[float, float, float, float]
    separate: tuple[float, float, float, float] = (0, 0, 0, 0)


# The wider of the head dims in vec4s: up to 16, 32, 64 and 512.
_HEAD_DIMS4 = (range(1, 5), range(5, 9), range(9, 17), range(17, 129))
# Measured on an H200; bench/NOTES.md says how.
_HARDWARE = (
    _Speeds(Tile(16, 8, 8, 64, 4, 16), (0.65, 0.77, 1, 0), (0, 0, 0.9, 0.9)),
    _Speeds(Tile(8, 16, 4, 64, 2, 32), (0.95, 1, 0.94, 0)),
    _Speeds(Tile(8, 16, 4, 64, 4, 16), (1, 0.95, 0.98, 0)),
    _Speeds(Tile(16, 16, 8, 128, 2, 16, buffers=2), (0, 0, 0, 0), (0, 0, 0.88, 1)),
    _Speeds(Tile(16, 16, 8, 64, 8, 32), (0.6, 0.78, 0.98, 0)),
    _Speeds(Tile(16, 16, 8, 64, 4, 16), (0.6, 0.7, 0.95, 0), (0, 0, 0.95, 0.82)),
    _Speeds(Tile(16, 16, 4, 64, 4, 16), (0.6, 0.7, 0.96, 0.77), (0, 0, 0.92, 0.87)),
    _Speeds(Tile(8, 16, 4, 32, 4, 16), (0.94, 0.87, 0.93, 0.6), (0.8, 0.8, 0.8, 0.6)),
    _Speeds(Tile(16, 8, 4, 64, 4, 16), (0.6, 0.7, 0.9, 0.83), (0, 0, 0.85, 0.82)),
    _Speeds(Tile(8, 8, 4, 32, 4, 8), (0.86, 0.84, 0.86, 0.75), (0.75, 0.75, 0.75, 0.72)),
    _Speeds(Tile(8, 4, 4, 32, 2, 8), (0.7, 0.63, 0.7, 0.55), (0.6, 0.6, 0.6, 0.5)),
    _Speeds(Tile(8, 2, 4, 32, 2, 8), (0.4, 0.4, 0.36, 0.27), (0.3, 0.3, 0.3, 0.2)),
    _Speeds(Tile(4, 8, 4, 16, 2, 8), (0.6, 0.6, 0.65, 0.5), (0.5, 0.5, 0.5, 0.4)),
    _Speeds(Tile(4, 2, 4, 16, 2, 4), (0.2, 0.2, 0.18, 0.12), (0.1, 0.1, 0.1, 0.1)),
)
# Of the product of the scores' gradients with the keys: speeds for head dims up to 32, up to 64 where all
# rows see all keys, up to 64 where they do not, and up to 256. A tile has as many keys as are staged at a
# time, and its depth4 is not used.
_PRODUCTS = {
    Tile(8, 16, 8, 16, 2, 16): (1, 0, 0, 0),
    Tile(16, 16, 8, 16, 2, 16): (0.9, 1, 0.95, 0.95),
    Tile(16, 16, 8, 32, 2, 32): (0, 0.8, 0.9, 1),
    Tile(16, 8, 8, 16, 2, 16): (0.9, 0.91, 1, 0.85),
    Tile(16, 8, 4, 16, 2, 16): (0.8, 0.84, 0.9, 0.86),
    Tile(8, 8, 4, 8, 2, 8): (0.85, 0.8, 0.91, 0.6),
    Tile(4, 2, 4, 4, 2, 4): (0.2, 0.2, 0.2, 0.1),
}
# The widest head dim in vec4s that it takes.
_MOST_PRODUCT4 = 64
_SOFTWARE_PRODUCTS = {Tile(8, 8, 4, 8, 2, 8): 1.0, Tile(4, 2, 4, 4, 2, 4): 0.5}


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
    stored : Turns or None
        Of how much at a time the launch for key and value stores the gradients of all scores, of which that
        for the query only takes the product with the keys; None where both compute them.
    separate : bool
        Whether key and value have a launch each, where gradients are stored: that of the value stores the
        weights, and that of the key puts the gradients in their place. Both have the tile ``key``.
    """

    query: Tile | None
    key: Tile | None
    unrolled: bool = True
    stored: Turns | None = None
    separate: bool = False

    def tile(self, side: str) -> Tile | None:
        """That of one side, "query" or "key"."""
        return self.query if side == "query" else self.key

    def rows(self, side: str) -> int:
        """Rows of that side that a workgroup takes."""
        tile = self.tile(side)
        return tile.queries if tile else ROWS["BQ"]

    def shares(self, side: str, d4: int, dv4: int) -> int:
        """How many groups of a row's invocations share its sums of so many vec4s (lib/tiles.wgsl)."""
        tile = self.tile(side)
        if tile is None:
            return 1
        if side == "query" and self.stored:
            # What is exchanged lies where keys are staged.
            return 2 if tile.fewer_empty(d4) and tile.tx * tile.ty <= tile.value_keys * d4 else 1
        return tile.shares(max(d4, dv4)) if tile.buffers == 2 else 1


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
    turns = stored_turns(options, info)
    worth = p.head_dim + p.value_head_dim >= _WORTH
    unrolled = not info.software
    if turns and (variant == "stored" or (variant == "auto" and worth)):
        # Of packed sequences, as many as a turn takes on average.
        heads = max(1, turns.heads * (options.sequences or 1) // (len(turns.sequences) or 1))
        query = choose_tile(work_of(options, heads * p.group), product_tiles(options, info))
        key, separate = _of_key(options, info, heads)
        return BackwardConfig(query, key, unrolled, turns, separate)
    sizes = stored_vec4s(options)
    products = p.queries * p.keys if sizes is None else sizes.max()
    if variant == "stored" and p.batch * p.kv_heads * products:
        if sizes is None:
            raise ValueError(
                "variant: 'stored' needs the lengths of packed sequences: give cu_seqlens as arrays, not as "
                "Tensors, or take 'tiled'"
            )
        raise ValueError(
            f"variant: {info} has no room for the scores' gradients that 'stored' keeps; take 'tiled'"
        )
    sequences = options.sequences or 1
    query, _ = _fastest(options, info, "query", p.batch * p.heads * sequences)
    key, _ = _fastest(options, info, "key", p.batch * p.kv_heads * sequences)
    return BackwardConfig(query, key, unrolled)


def stored_turns(options: Options, info: AdapterInfo) -> Turns | None:
    """Of how much at a time the scores' gradients may be stored.

    None where so little fits that a launch leaves cores idle, where a launch cannot bind that many buffers,
    and where :func:`choose_turns` finds no turns.
    """
    p, packed = options.problem, options.sequences is not None
    bound = _STORING_BUFFERS + packed + len(options.args()) - len(options.operands())
    if bound > info.limits["maxStorageBuffersPerShaderStage"] or not product_tiles(options, info):
        return None
    bytes_of_call = 2 * 4 * sum(math.prod(x.shape) for x in options.operands())
    room = min(max(MOST_BYTES[0], bytes_of_call), MOST_BYTES[1])
    room = min(room, info.limits["maxStorageBufferBindingSize"], info.limits["maxBufferSize"])
    turns = choose_turns(options, room)
    if turns is None:
        return None
    all_heads = p.batch * p.kv_heads
    count = turns.count(all_heads)
    lengths = [keys for _, keys in options.lengths] if options.lengths else [p.keys]
    if count > 1 and all_heads * slots_of(lengths, _USUAL_ROWS) < BUSY_WORKGROUPS * count:
        return None
    return turns


def product_tiles(options: Options, info: AdapterInfo) -> Mapping[Tile, float]:
    """What this adapter can run for the product of the scores' gradients with the keys, the fastest first."""
    d4 = in_vec4s(options.problem.head_dim)
    memory = info.limits["maxComputeWorkgroupStorageSize"]
    column = 0 if d4 <= 8 else 3 if d4 > 16 else 2 if options.hides else 1
    of_hardware = {tile: speeds[column] for tile, speeds in _PRODUCTS.items()}
    return {
        tile: speed
        for tile, speed in fastest_first(_SOFTWARE_PRODUCTS if info.software else of_hardware).items()
        if d4 <= _MOST_PRODUCT4
        and 16 * tile.value_keys * (d4 + tile.queries // 4 + 1) <= memory
        and tile.tx * tile.ty <= most_invocations(info.limits)
    }


def may_separate(options: Options) -> bool:
    """Whether key and value may have a launch each: what a score was before its softmax is not stored."""
    return not options.problem.masking.softcap and not options.mods.has_score_mod


def fitting_tiles(
    options: Options, info: AdapterInfo, side: Side, separate: bool = False
) -> Mapping[Tile, float]:
    """What this adapter can run for the gradients of the query, or of key and value, the fastest first.

    Key and value have a launch each where they are ``separate``.
    """
    d4, dv4 = in_vec4s(options.problem.head_dim), in_vec4s(options.problem.value_head_dim)
    widest4 = max(d4, dv4)
    sums4 = (widest4,) if separate else (d4,) if side == "query" else (d4, dv4)
    table = {each.tile: each.separate if separate else each.of_head_dims for each in _HARDWARE}
    return that_fit(
        SOFTWARE if info.software else speeds_at(widest4, _HEAD_DIMS4, table),
        widest4,
        max(sums4),
        info.limits,
        sums4=sums4,
        scores=1 if separate else 2,
        inline=options.runs_code_per_score,
    )


def _of_key(options: Options, info: AdapterInfo, heads: int) -> tuple[Tile, bool]:
    """The tile of key and value, and whether they have a launch each, with what is stored."""
    tile, time = _fastest(options, info, "key", heads)
    if may_separate(options):
        other, time_of_two = _fastest(options, info, "key", heads, separate=True)
        if time_of_two < time:
            return other, True
    return tile, False


def _fastest(
    options: Options, info: AdapterInfo, side: Side, heads: int, separate: bool = False
) -> tuple[Tile, float]:
    """The tile of a launch for so many heads, counted through batch or packed sequences, and its time.

    Times are as of :func:`time_of`.
    """
    p = options.problem
    tiles, work = fitting_tiles(options, info, side, separate), work_of(options, heads, side)
    tile = choose_tile(work, tiles)
    if tile is None:
        allowed = info.limits["maxComputeWorkgroupStorageSize"]
        raise ValueError(
            f"query: the backward pass with head dims {p.head_dim} and {p.value_head_dim} needs more "
            f"workgroup memory than the {allowed:,} bytes of {info}"
        )
    return tile, time_of(work, tile, tiles)
