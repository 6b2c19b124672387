"""Kernels made to run with another configuration than they would choose on this adapter."""

import dataclasses
from unittest import mock

from py_attn.kernels.attention import tiles
from py_attn.kernels.attention.config import config_for_tile, configure, may_cut, query_tiles
from py_attn.kernels.attention.options import resolve
from py_attn.kernels.attention.tiles import Cut, Tile


def variant_of(case, tensors, keywords):
    """The variant that a case asks for, or a configuration where it names more.

    ``tile`` has the fields of a tile; ``unrolled`` says whether loops are written out; ``cut`` cuts the last
    tiles as on a GPU: how many of them, and the steps of a piece.
    """
    variant = case.get("variant", "auto")
    if all(case.get(name) is None for name in ("tile", "unrolled", "cut")):
        return variant
    call = resolve(*tensors, **keywords)
    options, info = call.options, call.device.info
    config = configure(options, info, variant)
    if case.get("tile") is not None:
        config = config_for_tile(options, info, variant, Tile(**case["tile"]))
    if case.get("unrolled") is not None:
        config = dataclasses.replace(config, unrolled=case["unrolled"])
    if case.get("cut") is not None and may_cut(options):
        config = dataclasses.replace(config, cut=_cut(options, config.tile, *case["cut"]))
    return config


def _cut(options, tile, count, steps):
    p = options.problem
    workgroups = query_tiles(options, tile.queries) * p.heads * p.batch
    pieces = -(-p.keys // (steps * tile.keys))
    return Cut(min(count, workgroups), pieces, steps * tile.keys) if pieces else None


def smallest_tile_only():
    """The tuner has a single tile to choose, named "small"."""
    return mock.patch.dict(tiles.CANDIDATES, {"small": tiles.SOFTWARE[-1]}, clear=True)
