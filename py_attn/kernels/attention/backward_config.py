"""How a backward pass is compiled: which tiles each side takes, or none on adapters that compute on a CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from py_attn.gpu.binding import most_invocations
from py_attn.gpu.bridge import AdapterInfo
from py_attn.kernels.attention.config import ROWS, TILED_MAX_HEAD_DIM
from py_attn.kernels.attention.options import Options
from py_attn.kernels.attention.packing import slots_of, usual_length
from py_attn.kernels.attention.stored import Turns, choose_turns, stored_vec4s
from py_attn.kernels.attention.tiles import BUSY_WORKGROUPS, Tile, choose_tile, tiles_for
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
#: Key and value take a launch each where tiles become at least so many times as tall by it. To write the
#: weights and read them again costs 6%.
WORTH_SEPARATING = 2
# Keys of a workgroup of the launch that stores, in most cases.
_USUAL_ROWS = 64
# For head dims up to so many vec4s, the fastest first. Only tx, ty, rows and value_keys are used.
_PRODUCTS = (
    (8, Tile(8, 16, 8, 32, 2, 16)),
    (16, Tile(16, 16, 8, 64, 2, 16)),
    (64, Tile(16, 16, 8, 64, 2, 32)),
    (64, Tile(16, 16, 8, 64, 2, 16)),
    (64, Tile(16, 8, 4, 64, 2, 16)),
    (64, Tile(8, 8, 4, 32, 2, 8)),
    (64, Tile(4, 2, 4, 16, 2, 4)),
)


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
        rows = usual_length(p.queries, options.sequences)
        query = choose_tile(rows, heads * p.group, product_tiles(options, info))
        key = _choose_tile(options, info, "key", p.keys, heads)
        if may_separate(options):
            tall = _choose_tile(options, info, "key", p.keys, heads, separate=True)
            if tall.queries >= WORTH_SEPARATING * key.queries:
                return BackwardConfig(query, tall, unrolled, turns, separate=True)
        return BackwardConfig(query, key, unrolled, turns)
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
    query = _choose_tile(options, info, "query", p.queries, p.batch * p.heads * sequences)
    key = _choose_tile(options, info, "key", p.keys, p.batch * p.kv_heads * sequences)
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


def product_tiles(options: Options, info: AdapterInfo) -> list[Tile]:
    """What this adapter can run for the product of the scores' gradients with the keys, the fastest first."""
    d4 = in_vec4s(options.problem.head_dim)
    memory = info.limits["maxComputeWorkgroupStorageSize"]
    tiles = _PRODUCTS[-2:] if info.software else _PRODUCTS
    return [
        tile
        for most, tile in tiles
        if d4 <= most
        and 16 * tile.value_keys * (d4 + tile.queries // 4 + 1) <= memory
        and tile.tx * tile.ty <= most_invocations(info.limits)
    ]


def may_separate(options: Options) -> bool:
    """Whether key and value may have a launch each: what a score was before its softmax is not stored."""
    return not options.problem.masking.softcap and not options.mods.has_score_mod


def fitting_tiles(options: Options, info: AdapterInfo, side: str, separate: bool = False) -> list[Tile]:
    """What this adapter can run for the gradients of the query, or of key and value, the fastest first.

    Key and value have a launch each where they are ``separate``.
    """
    d4, dv4 = in_vec4s(options.problem.head_dim), in_vec4s(options.problem.value_head_dim)
    sums4: tuple[int, ...] = (d4,) if side == "query" else (d4, dv4)
    if separate:
        sums4 = (max(sums4),)
    tiles = tiles_for(
        max(d4, dv4),
        max(sums4),
        info.limits,
        0,
        info.software,
        scores=1 if separate else 2,
        sums4=sums4,
        inline=options.runs_code_per_score,
        backward=True,
    )
    return [tile for tile in tiles if not tile.query_resident and (separate or tile.buffers == 1)]


def _choose_tile(
    options: Options, info: AdapterInfo, side: str, rows: int, heads: int, separate: bool = False
) -> Tile:
    """That of a launch for ``rows`` rows of so many ``heads``, counted through batch or packed sequences."""
    p = options.problem
    tiles = fitting_tiles(options, info, side, separate)
    tile = choose_tile(usual_length(rows, options.sequences), heads, tiles)
    if tile is None:
        allowed = info.limits["maxComputeWorkgroupStorageSize"]
        raise ValueError(
            f"query: the backward pass with head dims {p.head_dim} and {p.value_head_dim} needs more "
            f"workgroup memory than the {allowed:,} bytes of {info}"
        )
    return tile
