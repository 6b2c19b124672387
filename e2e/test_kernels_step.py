"""Decoding and appending at a position on the GPU, in the page, against ordinary calls and float64."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.kernel_cases import FLOATS
from e2e.page.step import check_program, check_step

QUANTIZED = ("turboquant4", "turboquant3", "turboquant2")
NO_SUBGROUPS = {"subgroup_min_size": 0, "subgroup_max_size": 0}


def step_case(*positions, **changes):
    """A plain case with some fields changed; see `check_step`."""
    case = {
        "seed": 1,
        "batch": 1,
        "heads": 6,
        "kv_heads": 2,
        "capacity": 32,
        "head_dim": 24,
        "value_head_dim": 24,
        "sink_tokens": 0,
        "cache_dtypes": ["float32", "float32"],
        "source_dtype": "float32",
        "query_dtype": "float32",
        "splits": 3,
        "positions": list(positions),
    }
    return case | changes


@pytest.fixture(scope="module")
def check(lab):
    """Run cases in the page; every ratio must be at most 1."""

    def run(*cases, how=check_step):
        for answer in lab.check(how, cases):
            assert max(answer.values()) <= 1, answer

    return run


@st.composite
def step_cases(draw):
    capacity = draw(st.sampled_from((1, 2, 7, 16, 33, 64, 200)))
    heads, kv_heads = draw(st.sampled_from(((1, 1), (6, 2), (9, 3), (16, 1))))
    head_dim = draw(st.sampled_from((16, 20, 32, 64, 100, 128)))
    sink_tokens = draw(st.integers(0, min(5, capacity - 1)))
    dtype = st.sampled_from((*FLOATS, *QUANTIZED))
    positions = st.integers(0, capacity) | st.integers(0, 4 * capacity + 20)
    return step_case(
        *draw(st.lists(positions, min_size=1, max_size=3)),
        seed=draw(st.integers(0, 1 << 20)),
        batch=draw(st.integers(1, 2)),
        heads=heads,
        kv_heads=kv_heads,
        capacity=capacity,
        sink_tokens=sink_tokens,
        head_dim=head_dim,
        value_head_dim=draw(st.sampled_from((head_dim, head_dim, 40))),
        cache_dtypes=draw(
            st.lists(dtype, min_size=2, max_size=2) | st.builds(lambda kind: [kind] * 2, dtype)
        ),
        query_dtype=draw(st.sampled_from(("float32", *FLOATS))),
        splits=draw(st.integers(1, 16)),
        new=draw(st.integers(1, min(5, capacity - sink_tokens))),
        adapter=draw(st.sampled_from(({}, NO_SUBGROUPS))),
    )


@settings(max_examples=7)
@given(case=step_cases())
def test_anything(check, case):
    check(case)


@pytest.mark.quick("float32-*", "turboquant4-no subgroups")
@pytest.mark.parametrize("adapter", [{}, NO_SUBGROUPS], ids=["subgroups", "no subgroups"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", *QUANTIZED])
def test_rings_at_every_turn(check, dtype, adapter):
    # The first position, one of the kept, just full, one more, around once and far beyond.
    positions = [0, 2, 31, 32, 61, 500]
    changes = {"cache_dtypes": [dtype] * 2, "adapter": adapter, "head_dim": 32, "value_head_dim": 32}
    check(step_case(*positions, **changes), step_case(*positions, **changes, sink_tokens=3))


@pytest.mark.parametrize("splits", [1, 2, 16])
def test_splits_without_keys(check, splits):
    check(
        *(
            step_case(0, 5, 63, 64, 200, splits=splits, capacity=capacity, heads=9, kv_heads=3, head_dim=64,
                      value_head_dim=64, sink_tokens=4)
            for capacity in (64, 1024)
        )
    )  # fmt: skip


def test_unrolled_loops_and_large_workgroups(check):
    # As on hardware; this adapter compiles such shaders slowly.
    check(step_case(2, 40, capacity=24, heads=3, kv_heads=1, head_dim=16, value_head_dim=16,
                    adapter={"software": False}))  # fmt: skip


def test_residuals_of_keys(check):
    dtypes = ["turboquant3", "float32"]
    check(step_case(4, 50, cache_dtypes=dtypes, qjl=True, head_dim=64), step_case(0, 31, cache_dtypes=dtypes))


@pytest.mark.parametrize("dtype", ["float32", "float16", "turboquant4"])
@pytest.mark.parametrize("sink_tokens", [0, 2])
def test_a_recorded_step_submitted_many_times(check, dtype, sink_tokens):
    case = step_case(runs=[1, 7, 1, 30], capacity=16, sink_tokens=sink_tokens, cache_dtypes=[dtype] * 2)
    check(case, how=check_program)
