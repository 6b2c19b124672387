"""Kernels made to run with another configuration than they would choose on this adapter."""

import contextlib
import dataclasses
from unittest import mock

from py_attn.gpu.kernel import PlanCache
from py_attn.kernels.attention import tiles
from py_attn.kernels.attention.config import config_for_tile, configure, may_split, query_tiles
from py_attn.kernels.attention.options import resolve
from py_attn.kernels.attention.tiles import TailSplit, Tile


@contextlib.contextmanager
def another_adapter(device, changes):
    """Kernels are planned as for an adapter that differs from this one in ``changes``.

    Limits that are not among them stay.
    """
    limits = {**device.info.limits, **changes.get("limits", {})}
    info = dataclasses.replace(device.info, **(changes | {"limits": limits}))
    with mock.patch.object(device, "info", info), mock.patch.object(device, "plans", PlanCache()):
        yield


def variant_of(case, tensors, keywords):
    """The variant that a case asks for, or a configuration where it names more.

    ``tile`` has the fields of a tile; ``unrolled`` says whether loops are written out; ``tail_split``
    splits the last tiles as on a GPU: how many of them, and the steps of a split.
    """
    variant = case.get("variant", "auto")
    if all(case.get(name) is None for name in ("tile", "unrolled", "tail_split")):
        return variant
    call = resolve(*tensors, **keywords)
    options, info = call.options, call.device.info
    config = configure(options, info, variant)
    if case.get("tile") is not None:
        config = config_for_tile(options, info, variant, Tile(**case["tile"]))
    if case.get("unrolled") is not None:
        config = dataclasses.replace(config, unrolled=case["unrolled"])
    if case.get("tail_split") is not None and may_split(options):
        tail = _tail_split(options, config.tile, *case["tail_split"])
        config = dataclasses.replace(config, tail_split=tail)
    return config


def _tail_split(options, tile, count, steps):
    p = options.problem
    workgroups = query_tiles(options, tile.queries) * p.heads * p.batch
    splits = -(-p.keys // (steps * tile.keys))
    return TailSplit(min(count, workgroups), splits, steps * tile.keys) if splits else None


def smallest_tile_only():
    """The tuner has a single tile to choose, named "small"."""
    return mock.patch.dict(tiles.CANDIDATES, {"small": [*tiles.SOFTWARE][-1]}, clear=True)
