"""Attention on subgroup matrices against the float64 reference, on adapters without such matrices.

They are emulated (e2e/page/emulated_half_matrices.py), so that all else of the kernel runs as it is. Adapters
that have them are checked by e2e/test_kernels_attention.py and e2e/test_kernels_hidden.py.
"""

from __future__ import annotations

import dataclasses

import pytest

from e2e.kernel_cases import attention_case, dtypes
from e2e.page.attention import check_attention
from e2e.page.hidden import check_hidden
from e2e.test_kernels_hidden import HIDING, WHAT, WHERE, hidden
from py_attn.kernels.attention.matrix import MatrixTile

#: Each form of the kernel, in 32 KiB of workgroup memory beside what emulation needs.
TILES = {
    "plain": MatrixTile(2, 16),
    "tall": MatrixTile(8, 16),
    "wide": MatrixTile(2, 32),
    "in-turn": MatrixTile(2, 32, in_turn=True),
    "pairs": MatrixTile(4, 32, team=2),
    "pairs-in-turn": MatrixTile(2, 32, in_turn=True, team=2),
}
EACH_TILE = pytest.mark.parametrize("tile", TILES.values(), ids=TILES)


def emulated(case, tile):
    return case | {"emulated": dataclasses.asdict(tile)}


@pytest.mark.quick("plain")
@EACH_TILE
def test_products_and_softmax(lab, tile):
    common = {"variant": "matrix", "dtypes": dtypes("float16"), "without_lse": True, "batch": 1}
    keys = 10 * tile.keys + 3
    cases = [
        # Maxima that move, over whole and partial tiles of both.
        attention_case(**common, head_dim=40, queries=tile.queries + 5, keys=keys, size=3.0),
        attention_case(
            **common,
            head_dim=16,
            value_head_dim=20,
            queries=tile.queries + 5,
            keys=keys,
            size=3.0,
            causal=True,
        ),
        # Scores so large that float32 has no fractions of them, from the first key on and from a later one.
        attention_case(**common, head_dim=16, queries=20, keys=keys, size=3e3),
        attention_case(
            **common, head_dim=16, queries=20, keys=keys, size=180, growth=[5 * tile.keys + 7, 64]
        ),
    ]
    lab.check(check_attention, [emulated(case, tile) for case in cases])


@pytest.mark.quick("pairs-in-turn")
@EACH_TILE
def test_references_that_stay(lab, tile):
    """Steady turns (see attention/matrix.wgsl); after 16 of them the kernel looks whether it can go on."""
    common = {
        "variant": "matrix",
        "dtypes": dtypes("float16"),
        "batch": 1,
        "head_dim": 24,
        "without_lse": True,
    }
    keys = 20 * tile.keys + 3
    cases = [
        attention_case(**common, queries=tile.queries + 5, keys=keys),
        # Scores rise within what float16 has room for, and further: in the first turns and after the first
        # look. (By powers of two, so that keys stay float16 numbers.)
        attention_case(**common, queries=20, keys=keys, growth=[3 * tile.keys, 2]),
        attention_case(**common, queries=20, keys=keys, size=1.5, growth=[3 * tile.keys, 4]),
        attention_case(**common, queries=20, keys=keys, size=1.5, growth=[18 * tile.keys, 4]),
        attention_case(**common, queries=20, keys=keys, causal=True, scale=0.0),
        # The tiles in which a row does not see every key come first: both ends of a window, the last ones.
        attention_case(
            **common, queries=tile.queries + 5, keys=keys, window=[tile.queries + 4 * tile.keys, 3]
        ),
        attention_case(**common, queries=tile.queries + 5, keys=keys, causal=True, growth=[2 * tile.keys, 8]),
        attention_case(**common, queries=tile.queries + 5, keys=4 * tile.keys, causal="top-left"),
    ]
    lab.check(check_attention, [emulated(case, tile) for case in cases])


@pytest.mark.quick("in-turn")
@EACH_TILE
def test_options(lab, tile):
    common = {"variant": "matrix", "dtypes": dtypes("float16"), "batch": 1, "head_dim": 24, "keys": 90}
    cases = [
        attention_case(**common, queries=33, window=[30, 5], scale=-0.7, sinks="float32"),
        attention_case(**common, queries=20, softcap=2.0, mask={"dtype": "float16", "shape": [20, 90]}),
        attention_case(
            **common | {"batch": 2}, queries=9, kv_lengths=[0, 37], layout="BSHD", value_head_dim=7
        ),
    ]
    lab.check(check_attention, [emulated(case, tile) for case in cases])


@pytest.mark.thorough
@EACH_TILE
def test_hidden_numbers(lab, tile):
    n = list(TILES.values()).index(tile)
    case = {"variant": "matrix", "dtype": "float16", "forward_only": True, "head_dim": 32}
    cases = [
        hidden(
            **case,
            value_dim=40 - 20 * (m % 2),
            hide=HIDING[m % len(HIDING)],
            where=WHERE[m % 3],
            what=WHAT[m % 3],
        )
        for m in range(2 * n, 2 * n + 2)
    ]
    infinite = {"where": ["value"], "what": ["inf"], "share": 0.5, "value_dim": 24}
    cases += [hidden(**case, **infinite, hide=hide) for hide in ([], ["lengths"])]
    lab.check(check_hidden, [emulated(case, tile) for case in cases])
