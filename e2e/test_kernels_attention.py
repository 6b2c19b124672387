"""`pa.attention` in the page against the float64 reference: every argument, every variant."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.kernel_cases import (
    FLOATS,
    HEAD_DIMS,
    HEADS,
    LENGTHS,
    VARIANTS,
    VIEWS,
    attention_case,
    dtypes,
    features,
    mask_shapes,
    sharing_cases,
)
from e2e.page.attention import check_attention, has_variant
from py_attn.kernels.attention.tiles import CANDIDATES, Tile


@pytest.fixture(scope="module")
def check(lab, error_ratios):
    """Run attention cases in the page; every ratio must be at most 1."""

    def run(*cases):
        for case, answer in zip(cases, lab.check(check_attention, cases), strict=True):
            error_ratios.note(features(case), case["variant"], max(answer.values()))

    return run


@settings(max_examples=10)
@given(cases=sharing_cases("naive", 2))
def test_naive_on_anything(check, cases):
    check(*cases)


@settings(max_examples=10)
@given(cases=sharing_cases("rows", 2))
def test_rows_on_anything(check, cases):
    check(*cases)


@settings(max_examples=6)
@given(cases=sharing_cases("tiled", 2))
def test_tiled_on_anything(check, cases):
    check(*cases)


@settings(max_examples=6)
@given(cases=sharing_cases("subgroup", 2))
def test_subgroup_on_anything(check, cases):
    check(*cases)


@pytest.mark.quick("tiled")
@pytest.mark.parametrize("variant", VARIANTS)
def test_lengths(check, variant):
    # One pipeline: all lengths are params.
    lengths = LENGTHS if variant in ("naive", "rows") else LENGTHS[::2]
    check(
        *(
            attention_case(variant=variant, queries=q, keys=k, seed=100 * q + k, batch=1)
            for q in lengths
            for k in lengths
            if q * k < 5000
        )
    )


@pytest.mark.quick("rows", "tiled", "subgroup")
@pytest.mark.parametrize("variant", VARIANTS)
def test_causal_and_windows(check, variant):
    windows = [None, 0, 1, 20, [0, None], [None, 0], [3, 5], [None, 2], [40, 0], [1000, None]]
    sizes = [(1, 1), (5, 33), (33, 5), (33, 33), (17, 64), (64, 17)]
    hiding = list(product((False, True, "bottom-right", "top-left"), windows))
    cases = [(size, *each) for size in sizes for each in hiding]
    if variant != "naive":
        # Which keys a row sees is one text for all variants: each way of hiding meets one of the sizes.
        cases = [(sizes[n % 6], *each) for n, each in enumerate(hiding, VARIANTS.index(variant))]
    check(
        *(
            attention_case(variant=variant, queries=q, keys=k, causal=causal, window=window)
            for (q, k), causal, window in cases
        )
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_kv_lengths(check, variant):
    lengths = [[0, 0], [0, 37], [37, 1], [18, 19], [36, 20]]
    check(
        *(
            attention_case(variant=variant, kv_lengths=n, causal=causal, window=window, lengths_as=kind)
            for n in lengths
            for causal in (False, True, "top-left")
            for window in (None, [4, 2])
            for kind in ("list", "int32")
        )
    )


@pytest.mark.quick("*-bool", "naive-float16", "rows-float32", "subgroup-bfloat16")
@pytest.mark.parametrize(
    ("variant", "kind"),
    [
        *((variant, "bool") for variant in VARIANTS),
        *(("naive", kind) for kind in FLOATS),
        *zip(VARIANTS[1:], FLOATS, strict=True),
    ],
)
def test_masks(check, variant, kind):
    # With 37 keys the last row of tiles is never full.
    shapes = mask_shapes((2, 4, 19, 37))
    ways = [(None, False, False), ("hidden", True, True), ("lowest", False, "top-left")]
    cases = [(shape, *way) for shape in shapes for way in ways]
    if kind != "float32" and variant != "naive":
        cases = [(shape, *ways[n % 3]) for n, shape in enumerate(shapes)]
    check(
        *(
            attention_case(
                variant=variant,
                mask={"dtype": kind, "shape": shape, "rows": rows, "transposed": transposed},
                causal=causal,
            )
            for shape, rows, transposed, causal in cases
        )
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_mask_that_hides_everything(check, variant):
    # Whole tiles, and whole rows, are skipped.
    for kind in ("bool", "float32"):
        check(
            *(
                attention_case(
                    variant=variant, queries=1, keys=67, batch=1, seed=seed,
                    mask={"dtype": kind, "shape": [4, 1, 67], "rows": "hidden"},
                )
                for seed in range(8)
            )
        )  # fmt: skip


def test_storage_types(check):
    kinds = [dtypes(q, k, v) for q in FLOATS for k in FLOATS for v in FLOATS]
    check(*(attention_case(dtypes=kind, head_dim=20) for kind in kinds))


@pytest.mark.parametrize("variant", ["tiled", "subgroup"])
def test_storage_types_in_tiles(check, variant):
    kinds = [dtypes("float16"), dtypes("bfloat16"), dtypes("float32", "bfloat16", "float16")]
    check(*(attention_case(variant=variant, dtypes=kind, head_dim=20) for kind in kinds))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("layout", ["BHSD", "BSHD"])
def test_views(check, view, kind, layout):
    for name in ("query", "key", "value"):
        check(attention_case(views={name: view}, dtypes=dtypes(kind), layout=layout, head_dim=12))


@pytest.mark.parametrize("variant", ["tiled", "subgroup"])
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_views_in_tiles(check, variant, kind):
    views = dict(zip(("query", "key", "value"), ("steps", "columns", "offset"), strict=True))
    check(attention_case(variant=variant, views=views, dtypes=dtypes(kind), layout="BSHD", head_dim=13))


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_head_dims(check, head_dim):
    for value_head_dim in {head_dim, 513 - head_dim}:
        check(
            attention_case(
                head_dim=head_dim, value_head_dim=value_head_dim, causal=True, batch=1, heads=2, kv_heads=1
            )
        )


@pytest.mark.quick("1-1-subgroup", "3-70-tiled", "64-64-*", "130-5-subgroup", "512-512-tiled")
@pytest.mark.parametrize("variant", ["tiled", "subgroup"])
@pytest.mark.parametrize(
    ("head_dim", "value_head_dim"), [(1, 1), (3, 70), (64, 64), (128, 128), (130, 5), (256, 256), (512, 512)]
)
def test_head_dims_in_tiles(check, variant, head_dim, value_head_dim):
    check(attention_case(variant=variant, head_dim=head_dim, value_head_dim=value_head_dim, causal=True))


@pytest.mark.quick("auto")
@pytest.mark.parametrize("variant", ["auto", "naive", "rows"])
def test_head_dims_of_latent_attention(check, variant):
    """DeepSeek's MLA with absorbed projections: one key/value head of 512 latent and 64 rotary numbers."""
    common = {
        "variant": variant,
        "head_dim": 576,
        "value_head_dim": 512,
        "batch": 1,
        "heads": 16,
        "kv_heads": 1,
    }
    check(*(attention_case(**common, queries=q, keys=70, causal=True) for q in (1, 33)))


@pytest.mark.parametrize("variant", VARIANTS)
def test_grouped_heads(check, variant):
    check(
        *(
            attention_case(variant=variant, heads=heads, kv_heads=kv)
            for heads, kv in [*HEADS, (16, 1), (40, 8)]
        )
    )


@pytest.mark.quick("naive", "subgroup")
@pytest.mark.parametrize("variant", VARIANTS)
def test_scale_and_softcap(check, variant):
    check(
        *(
            attention_case(variant=variant, scale=scale, softcap=softcap, size=size, causal=True)
            for scale in (None, 0.0, -1.0, 1e-6, 3.0)
            for softcap in (None, 0, 1e-3, 0.3, 10.0, 1e4)
            for size in (1.0, 3.0)
        )
    )


@pytest.mark.quick("naive", "tiled")
@pytest.mark.parametrize("variant", VARIANTS)
def test_sinks(check, variant):
    # Several tiles of keys; rows that see nothing but their sink; sinks far above and below the scores.
    check(
        *(
            attention_case(
                variant=variant, sinks="float32", queries=q, keys=k, causal=causal, size=size, seed=k
            )
            for q, k in ((1, 1), (33, 70), (40, 9))
            for causal, size in ((False, 1.0), (True, 1.0), ("top-left", 20.0))
        ),
        attention_case(
            variant=variant, sinks="bfloat16", mask={"dtype": "bool", "shape": [19, 37], "rows": "hidden"}
        ),
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_far_from_zero(check, variant):
    # Scores up to thousands: one key gets all the weight, and exp2 must neither overflow nor make NaN.
    check(
        *(
            attention_case(variant=variant, size=size, seed=seed)
            for size in (30.0, 100.0)
            for seed in range(4)
        )
    )


def matrix_cases():
    """What the matrix variant does differently: head dims in sixteens, whole and partial tiles, layouts."""
    common = {"variant": "matrix", "dtypes": dtypes("float16"), "without_lse": True}
    return [
        *(attention_case(**common, head_dim=d, queries=70, keys=130) for d in (7, 16, 32, 40, 64, 128, 256)),
        *(
            attention_case(**common, head_dim=64, queries=q, keys=k, causal=causal, window=window)
            for q, k in ((1, 1), (64, 64), (150, 70), (33, 200))
            for causal, window in ((False, None), (True, None), ("top-left", [9, 3]))
        ),
        *(attention_case(**common, views=dict.fromkeys(("query", "key", "value"), view)) for view in VIEWS),
        attention_case(**common, layout="BSHD", softcap=2.0, scale=-0.3, sinks="float32"),
        *(attention_case(**common, causal=True, scale=scale, keys=90) for scale in (0.0, -1.0, 1e-6, 3.0)),
        attention_case(**common, kv_lengths=[0, 37], mask={"dtype": "bool", "shape": [19, 37]}),
        # Tall tiles, and maxima that move within a row.
        attention_case(**common, batch=3, heads=44, kv_heads=44, head_dim=96, queries=256, keys=90, size=2.0),
        attention_case(
            **common, batch=3, heads=44, kv_heads=44, head_dim=128, queries=256, keys=90, size=2.0
        ),
        attention_case(**common, batch=4, heads=64, kv_heads=64, head_dim=64, queries=130, keys=90, size=2.0),
        attention_case(**common, batch=2, heads=64, kv_heads=64, head_dim=64, queries=70, keys=90, size=2.0),
    ]


def test_matrix_runs_or_says_what_the_adapter_lacks(check, lab):
    # Experimental, behind flags of the browser: an adapter that has it is checked, any other goes on.
    if lab.call(has_variant, "matrix", "float16"):
        check(*matrix_cases())
        return
    assert "matrix" not in lab.info.get("variants", [])  # which the page offers
    message = lab.run("""
import numpy as np
import py_attn as pa
device = pa.default_device()
half = device.tensor(np.ones((1, 2, 20, 64)), "float16")
before = device.memory_allocated()
try:
    pa.attention(half, half, half, variant="matrix")
    message = "no error"
except ValueError as error:
    message = str(error)
assert device.memory_allocated() == before
assert (await pa.attention(half, half, half).numpy() == 1).all()
message
""")
    assert message.startswith("variant: matrix needs "), message
    assert "subgroup matrices of f16 with f32 sums" in message, message


@pytest.mark.quick("rows", "tiled")
@pytest.mark.parametrize("variant", VARIANTS)
def test_sums_of_many_weights(check, variant):
    # A few large ones and thousands that are small beside them, all positive.
    plain = {"batch": 1, "heads": 2, "keys": 6000, "head_dim": 16, "queries": 40, "variant": variant}
    check(*(attention_case(**plain, scale=scale) for scale in (0.5, 1.0, 2.0)))


# The tiles that other adapters get. Compiled for a CPU, the large ones take long, the unrolled ones longest.
_SMALL = Tile(tx=4, ty=2, rows=4, keys=16, depth4=2, value_keys=4)


def fitting(tile):
    """A GPU's tile that stages no more at a time than a software adapter's 32 KiB hold."""
    small = dataclasses.replace(tile, depth4=min(tile.depth4, 4), value_keys=min(tile.value_keys, 16))
    return dataclasses.replace(small, ty=small.ty // 2) if small.buffers == 2 else small


TILES = {
    "small": _SMALL,
    "resident": dataclasses.replace(_SMALL, query_resident=True),
    "rows": dataclasses.replace(_SMALL, rows=8, ty=4),
    "deep": dataclasses.replace(_SMALL, depth4=8, value_keys=16),
    "two buffers": dataclasses.replace(_SMALL, buffers=2),
    "two buffers, resident": dataclasses.replace(_SMALL, buffers=2, query_resident=True),
    "two buffers, deep": dataclasses.replace(_SMALL, depth4=4, value_keys=8, buffers=2),
    "wide": dataclasses.replace(_SMALL, tx=8, keys=64, value_keys=8),
    "tall": dataclasses.replace(_SMALL, tx=4, ty=16, keys=32),
    # What GPUs choose between.
    **{name: fitting(tile) for name, tile in CANDIDATES.items()},
}


def tile_cases(tile, **changes):
    """Every kind of loop of the kernel, with lengths that are no multiple of the tile."""
    common = {"tile": dataclasses.asdict(tile), "head_dim": 36, "value_head_dim": 20, **changes}
    return [
        attention_case(**common, queries=q, keys=k, causal=causal, window=window)
        for q, k in ((1, 1), (70, 70), (33, 150))
        for causal, window in ((False, None), (True, None), ("top-left", [9, 3]))
    ]


@pytest.mark.quick("small", "two buffers, deep", "128x128*", "8x16*")
@pytest.mark.parametrize("name", TILES)
def test_tiles(check, name):
    check(*tile_cases(TILES[name], variant="tiled"))


# In subgroups of four: rows of four invocations, and two rows of two, which then are woven.
TILES_WITH_SUBGROUPS = {name: tile for name, tile in list(TILES.items())[::2] if tile.tx <= 4} | {
    "narrow": dataclasses.replace(_SMALL, tx=2, ty=8),
    "narrow, two buffers": dataclasses.replace(_SMALL, tx=2, ty=8, keys=32, value_keys=8, buffers=2),
}


@pytest.mark.quick("rows", "two buffers, deep", "narrow, two buffers")
@pytest.mark.parametrize("name", TILES_WITH_SUBGROUPS)
def test_tiles_with_subgroups(check, name):
    check(*tile_cases(TILES_WITH_SUBGROUPS[name], variant="subgroup"))


@pytest.mark.thorough
@settings(max_examples=6)
@given(cases=sharing_cases("tiled", 2))
def test_two_buffers_on_anything(check, cases):
    tile = dataclasses.asdict(TILES["two buffers"])
    check(*(case | {"tile": tile} for case in cases))


@pytest.mark.quick("64")
@pytest.mark.parametrize("head_dim", [64, 128])
def test_two_buffers_at_head_dims_that_are_scheduled_by_measurement(check, head_dim):
    # Their parts are smaller than what larger tiles compute of a part before the next one is staged.
    tile = dataclasses.asdict(TILES["two buffers"])
    common = {
        "variant": "tiled",
        "tile": tile,
        "head_dim": head_dim,
        "value_head_dim": head_dim,
        "queries": 35,
    }
    check(
        attention_case(**common, keys=64),
        attention_case(**common, keys=16),
        attention_case(**common, keys=64, tail_split=(5, 2)),
        attention_case(**common, keys=70),
        attention_case(**common, keys=70, causal=True),
        attention_case(**common, keys=70, tail_split=(5, 2)),
    )


# Whole tiles before those that are split or none, splits that end within the keys or begin behind them.
TAIL_SPLITS = [(1, 1), (5, 2), (100, 4)]


SPLIT_CHANGES: list[dict[str, Any]] = [
    {"without_lse": True},
    {"dtypes": dtypes("float16"), "layout": "BSHD", "head_dim": 20, "value_head_dim": 37},
    {"sinks": "float32", "softcap": 3.0, "queries": 33},
    {"batch": 3, "kv_lengths": [150, 0, 21], "lengths_as": "int32", "scale": -0.4},
    {"sinks": "bfloat16", "batch": 2, "kv_lengths": [1, 149], "dtypes": dtypes("bfloat16"), "kv_heads": 1},
]


@pytest.mark.quick("changes0-*", "changes3-*")
@pytest.mark.parametrize("tail_split", TAIL_SPLITS)
@pytest.mark.parametrize("changes", SPLIT_CHANGES)
def test_split_tiles(check, tail_split, changes):
    common = {"queries": 70, "keys": 150, "head_dim": 36, "value_head_dim": 36}
    tile = dataclasses.asdict(TILES["two buffers"])
    # Where the keys are split is read when a kernel runs; each change meets one of the variants, in turn.
    variant = ("tiled", "subgroup")[SPLIT_CHANGES.index(changes) % 2]
    check(attention_case(**{**common, **changes}, variant=variant, tile=tile, tail_split=tail_split))


@settings(max_examples=4)
@given(
    cases=sharing_cases("tiled", 2),
    tail_splits=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=2, max_size=2),
)
def test_splits_of_anything(check, cases, tail_splits):
    common = {"causal": False, "window": None, "mask": None, "tile": dataclasses.asdict(TILES["two buffers"])}
    check(*(case | common | {"tail_split": each} for case, each in zip(cases, tail_splits, strict=True)))


@pytest.mark.quick("tiled-2-True")
@pytest.mark.parametrize(
    ("variant", "buffers", "resident"),
    [("tiled", 1, False), ("tiled", 2, True), ("subgroup", 1, True), ("subgroup", 2, False)],
)
def test_unrolled_tiles(check, variant, buffers, resident):
    # As on hardware, where the per-invocation arrays must be indexed by constants.
    tile = dataclasses.replace(_SMALL, query_resident=resident, buffers=buffers)
    check(*tile_cases(tile, variant=variant, unrolled=True, head_dim=8, value_head_dim=8, softcap=2.0))
