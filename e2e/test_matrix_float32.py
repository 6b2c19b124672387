"""float32 attention by pairs of halves on subgroup matrices, emulated as in e2e/test_matrix_attention.py.

Emulated sums are rounded. That matrix units cut sums off shows on GPUs only (bench/NOTES.md).
"""

from __future__ import annotations

import dataclasses

import pytest

from e2e.kernel_cases import attention_case, dtypes
from e2e.page.attention import check_attention
from e2e.page.hidden import check_hidden
from e2e.test_kernels_hidden import hidden
from py_attn.kernels.attention.matrix import PairTile
from py_attn.kernels.attention.tiles import Tile

TILES = {
    "one-block": PairTile(2, 16, 2, False, Tile(4, 8, 4, 16, 2, 4), "tiled"),
    "two-blocks": PairTile(2, 32, 3, False, Tile(4, 8, 4, 16, 2, 4), "tiled"),
    "tall": PairTile(4, 16, 4, False, Tile(4, 16, 4, 16, 2, 4), "tiled"),
    "in-turn": PairTile(2, 32, 2, True, Tile(4, 8, 4, 16, 2, 4), "tiled"),
}
EACH_TILE = pytest.mark.parametrize("tile", TILES.values(), ids=TILES)
COMMON = {"variant": "matrix", "dtypes": dtypes("float32"), "batch": 1}


def emulated(case, tile, **changes):
    return case | {"emulated": dataclasses.asdict(tile)} | changes


def alone(case, tile):
    """Without what computes the tiles that do not fit."""
    # In a text of its own, as pipelines are kept by their texts.
    other = dataclasses.replace(tile.other, keys=2 * tile.other.keys)
    return emulated(case, dataclasses.replace(tile, other=other), alone=True)


@pytest.mark.quick("one-block")
@EACH_TILE
def test_products_and_softmax(lab, tile):
    keys, queries = 9 * tile.keys + 3, tile.queries + 5
    cases = [
        attention_case(**COMMON | {"batch": 2}, head_dim=40, queries=queries, keys=keys, without_lse=True),
        attention_case(**COMMON, head_dim=16, queries=queries, keys=keys, causal=True),
        attention_case(**COMMON, head_dim=23, queries=7, keys=keys, scale=-0.7),
        attention_case(**COMMON, head_dim=8, queries=queries, keys=tile.keys, causal="top-left"),
        # Rows whose first keys are in a tile that other rows see too, and in one of their own.
        attention_case(**COMMON, head_dim=16, queries=3 * tile.queries, keys=keys, window=[20, 5]),
        attention_case(**COMMON, head_dim=16, queries=queries, keys=keys, window=[3 * tile.keys, 0]),
        attention_case(
            **COMMON | {"batch": 2}, head_dim=12, queries=9, keys=90, kv_lengths=[0, 37], layout="BSHD"
        ),
        # As large and as small as numbers may be, and scores that rise within what halves have room for.
        attention_case(**COMMON, head_dim=24, queries=20, keys=keys, size=150, scale=1e-5),
        attention_case(**COMMON, head_dim=24, queries=20, keys=keys, size=1e-3, scale=2e5),
        attention_case(**COMMON, head_dim=24, queries=20, keys=keys, growth=[3 * tile.keys, 2]),
    ]
    lab.check(check_attention, [alone(case, tile) for case in cases])


@pytest.mark.quick("one-block")
@EACH_TILE
def test_what_does_not_fit_is_computed_in_float32(lab, tile):
    keys, queries = 9 * tile.keys + 3, tile.queries + 5
    cases = [
        attention_case(**COMMON, head_dim=24, queries=queries, keys=keys, size=2e3, scale=1e-7),
        attention_case(**COMMON, head_dim=24, queries=queries, keys=keys, size=1e-6, scale=1e11),
        attention_case(**COMMON, head_dim=24, queries=queries, keys=keys, size=1e-4, scale=1e8),
        attention_case(**COMMON, head_dim=16, queries=queries, keys=keys, growth=[3 * tile.keys, 64]),
    ]
    lab.check(check_attention, [emulated(case, tile) for case in cases])


@pytest.mark.thorough
@EACH_TILE
def test_hidden_numbers(lab, tile):
    case = {"variant": "matrix", "forward_only": True, "head_dim": 32, "value_dim": 40}
    cases = [
        hidden(**case, hide=["causal"], where=["value"], what=["nan", "inf"]),
        hidden(**case, hide=["window"], where=["key"], what=["inf", "-inf"]),
        hidden(**case, hide=["lengths"], where=["key", "value"], what=["nan"]),
        hidden(**case, hide=["causal"], where=["query"], what=["nan"]),
        hidden(**case, hide=[], where=["value"], what=["inf"]),
    ]
    lab.check(check_hidden, [emulated(case, tile) for case in cases])
