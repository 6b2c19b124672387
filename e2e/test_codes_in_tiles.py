"""Caches of 4-bit codes against float64: in tiles, as where an adapter multiplies these, and in rows.

The tests' adapter has no matrices of 8-bit integers. They are emulated, so that the kernels' own text is what
runs.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.page.cached import check_cached
from e2e.page.quantization import check_quantized_decode, check_stored, check_tiled_decode
from e2e.page.step import check_step
from e2e.test_kernels_rotary import cached_case
from e2e.test_kernels_step import step_case

UNIFORM, TURBOQUANT = ["uniform4"] * 2, ["turboquant4"] * 2


@pytest.fixture(scope="module")
def check(lab, error_ratios):
    """Run cases in the page; every ratio must be at most 1."""

    def run(*cases, how=check_cached):
        for answer in lab.check(how, cases):
            error_ratios.note(["codes in tiles"], "decode", max(answer.values()))

    return run


def tiled(*steps, **changes):
    """A case of `check_cached` whose codes lie in tiles."""
    common = {"dtypes": TURBOQUANT, "head_dim": 128, "value_head_dim": 128, "positions": 4000, "pairs": 0}
    return cached_case(*steps, **{**common, "tiled": True, **changes})


@pytest.mark.thorough
def test_splits_that_the_reduction_reads_in_one_turn(check):
    steps = [("append", 65 * 128), *(("decode", 1, {"splits": n}) for n in (63, 64, 65))]
    check(tiled(*steps, batch=1, heads=2, kv_heads=1, capacity=65 * 128, positions=9000))


@pytest.mark.thorough
def test_where_a_dimension_of_the_grid_is_too_short(check):
    # Workgroups then find by divisions what else their place in the grid says.
    limits = {"maxComputeWorkgroupsPerDimension": 40}
    steps = [("append", 600), ("decode", 20, {"splits": 5}), ("decode", 1, {"splits": 3})]
    check(tiled(*steps, heads=4, kv_heads=2, capacity=640, adapter={"limits": limits}))


@pytest.mark.parametrize("dtype", ["uniform4", "turboquant4"])
@pytest.mark.parametrize(
    ("shape", "is_tiled"), [((2, 3, 130, 128), True), ((1, 2, 40, 128), False), ((3, 2, 9, 40), False)]
)
def test_codes_are_those_of_the_reference(lab, shape, is_tiled, dtype):
    answer = lab.call(check_stored, shape, 5, dtype, is_tiled)
    assert answer["different"] <= 1
    assert answer["scales"] <= 1


@pytest.mark.quick("dims0-dtypes0")
@pytest.mark.parametrize(
    ("dims", "dtypes"), [((64, 64), UNIFORM), ((80, 36), UNIFORM), ((128, 20), ["uniform4", "float16"])]
)
def test_rows(lab, error_ratios, dims, dtypes):
    for splits, keywords in ((1, {"window": (11, 0)}), (3, {})):
        given = (2, 6, 2, 37, dims, dtypes, False, [20, 11, 29], 2, splits)
        answer = lab.call(check_quantized_decode, *given, **keywords)
        error_ratios.note(["codes in tiles"], "decode", max(answer.values()))
        assert max(answer.values()) <= 1, answer


def decode_tiles(lab, error_ratios, busy, *given, **keywords):
    """`check_tiled_decode` with runs of tiles for an adapter that so many workgroups keep busy."""
    answer = lab.call(check_tiled_decode, busy, *given, **keywords)
    error_ratios.note(["codes in tiles"], "decode", max(answer.values()))
    assert max(answer.values()) <= 1, answer


@pytest.mark.thorough
@settings(max_examples=2)
@given(
    dtypes=st.sampled_from((TURBOQUANT, UNIFORM)),
    batch=st.integers(1, 2),
    kv_heads=st.integers(1, 2),
    group=st.sampled_from((1, 3, 4, 6)),
    queries=st.integers(1, 5),
    appended=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    room=st.integers(-300, 100),
    window=st.sampled_from([None, 0, 90, (200, 0)]),
    splits=st.sampled_from(["auto", "auto", 2]),
    busy=st.sampled_from((1, 2, 264)),
)
def test_any_tiles(
    lab, error_ratios, dtypes, batch, kv_heads, group, queries, appended, room, window, splits, busy
):
    # Before and behind the ring's end; runs of one tile, of two, and of four.
    sizes = batch, kv_heads * group, kv_heads, max(1, sum(appended) + room)
    given = (*sizes, (128, 128), dtypes, False, appended, queries, splits)
    decode_tiles(lab, error_ratios, busy, *given, window=window)


@pytest.mark.thorough
@pytest.mark.parametrize("dtypes", [UNIFORM, TURBOQUANT], ids=["uniform", "turboquant"])
@pytest.mark.parametrize(("busy", "keys"), [(1, 1100), (2, 700)], ids=["four", "two"])
def test_long_runs_of_tiles(lab, error_ratios, busy, keys, dtypes):
    for capacity, splits in ((keys, "auto"), (keys - 150, 1)):
        given = (1, 4, 1, capacity, (128, 128), dtypes, False, [keys], 1, splits)
        decode_tiles(lab, error_ratios, busy, *given)


@pytest.mark.quick("both mods")
@pytest.mark.parametrize(
    ("dtypes", "kept", "keywords"),
    [
        (UNIFORM, 4, {"window": (150, 0)}),
        (TURBOQUANT, 2, {"window": (150, 0)}),
        (UNIFORM, 0, {"softcap": 3.0, "splits": 1}),
        (TURBOQUANT, 0, {"score_mod": "distance"}),
        (TURBOQUANT, 3, {"mask_mod": "thirds", "score_mod": "distance"}),
    ],
    ids=["sink tokens, uniform", "sink tokens", "softcap, one split", "score_mod", "both mods"],
)
def test_tiles_with_everything(lab, error_ratios, dtypes, kept, keywords):
    splits = keywords.pop("splits", "auto")
    # Several runs of tiles to a split; a ring that is turned.
    for capacity, appended in ((1400, [1100, 1]), (300, [200, 110, 290])):
        given = (1, 6, 2, capacity, (128, 128), dtypes, False, appended, 2, splits, kept)
        decode_tiles(lab, error_ratios, 264, *given, **keywords)


@pytest.mark.thorough
def test_ragged_tiles(check):
    steps = (
        ("append", 150, [150, 20]), ("decode", 1), ("append", 200, [1, 200]),
        ("decode", 3, {"window": 100}), ("append", 1, [1, 0]), ("decode", 1, {"splits": 2}),
    )  # fmt: skip
    check(
        tiled(*steps, capacity=260, ragged=True, sink_tokens=3),
        tiled(*steps, capacity=130, ragged=True, pairs=64, dtypes=UNIFORM),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1e-20, 30.0, 1e15])
def test_tiles_of_numbers_of_any_size(check, size):
    steps = ("append", 150), ("decode", 1), ("append", 1), ("decode", 2)
    check(*(tiled(*steps, capacity=200, size=size, dtypes=dtypes) for dtypes in (UNIFORM, TURBOQUANT)))


@pytest.mark.thorough
def test_a_step_reads_and_writes_tiles(check):
    dims = {"head_dim": 128, "value_head_dim": 128}
    given = {"cache_dtypes": TURBOQUANT, **dims, "capacity": 200, "tiled": True}
    check(step_case(0, 127, 128, 300, **given, sink_tokens=2), step_case(5, new=3, **given), how=check_step)


def test_what_is_not_finite_in_tiles(lab):
    """A value that is NaN reaches the rows that see it, a key too; where none sees them they are nowhere."""
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.emulated_matrices import emulated
from e2e.page.inputs import normal, poisoned
device = pa.default_device()
random = np.random.default_rng(3)
found = []
with emulated(device), poisoned(device):
    query = normal(random, (1, 2, 2, 128), "float32")
    for spoiled in ("key", "value"):
        given = {name: normal(random, (1, 1, 150, 128), "float32") for name in ("key", "value")}
        given[spoiled][0, 0, [7, 149], 5] = np.nan, np.inf
        cache = pa.KVCache(1, 1, 200, 128, dtype="turboquant4")
        cache.append(*(device.tensor(x) for x in given.values()))
        for window in (None, 100, 0):
            out, lse = pa.decode_attention(query, cache, window=window, return_lse=True)
            found.append(np.isnan(await out.numpy()).all(-1)[0, 0].tolist())
            found.append(np.isnan(await lse.numpy())[0, 0].tolist())
            assert np.isnan(await out.numpy()).any(-1)[0, 0].tolist() == found[-2]
found
""") == [
        [True, True], [True, True], [False, True], [False, True], [False, True], [False, True],
        [True, True], [False, False], [False, True], [False, False], [False, True], [False, False],
    ]  # fmt: skip


def test_a_program_is_the_same_each_time(lab):
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.emulated_matrices import emulated
from e2e.page.inputs import normal
device = pa.default_device()
random = np.random.default_rng(5)
with emulated(device):
    cache = pa.KVCache(1, 2, 300, 128, dtype="turboquant4")
    cache.append(*normal(random, (2, 1, 2, 290, 128), "float32"))
    query = device.tensor(normal(random, (1, 8, 1, 128), "float32"))
    with device.record() as program:
        recorded = pa.decode_attention(query, cache)
    results = []
    for _ in range(2):
        program.submit()
        results.append(await recorded.numpy())
    results.append(await pa.decode_attention(query, cache).numpy())
[bool(np.array_equal(results[0], other)) for other in results[1:]]
""") == [True, True]
