"""Caches of integers, "int8", "q8_0" and "q4_0", against the float64 reference over what they store."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.kernel_cases import VIEWS
from e2e.page.cached import check_cached
from e2e.test_kernels_rotary import cached_case

INTEGERS = ("int8", "q8_0", "q4_0")


def integer_case(*steps, **changes):
    """A plain case with some fields changed; see `check_cached`."""
    case = cached_case(*steps, pairs=0) | changes
    for name, dtype in zip(("k_scale", "v_scale"), case["dtypes"], strict=True):
        if dtype == "int8":
            case.setdefault(name, 0.03)
    return case


@pytest.fixture(scope="module")
def check(lab, error_ratios):
    """Run cases in the page; every ratio must be at most 1."""

    def run(*cases):
        for answer in lab.check(check_cached, cases):
            error_ratios.note(["integers"], "decode", max(answer.values()))

    return run


@st.composite
def cases(draw):
    batch, capacity = draw(st.integers(1, 3)), draw(st.sampled_from((2, 7, 33, 64)))
    heads, kv_heads = draw(st.sampled_from(((1, 1), (6, 2), (16, 1))))
    ragged, dim = draw(st.booleans()), draw(st.sampled_from((1, 3, 20, 32, 40, 64, 100, 128, 130)))
    steps = []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 70))
        lengths = draw(st.lists(st.integers(0, count), min_size=batch, max_size=batch))
        steps.append(("append", count, *([lengths] if ragged else [])))
        keywords = st.fixed_dictionaries(
            {},
            optional={
                "window": st.integers(0, 50),
                "softcap": st.sampled_from((0.5, 20.0)),
                "splits": st.sampled_from((1, 2, 7, 40)),
            },
        )
        steps.append(("decode", draw(st.sampled_from((1, 1, 2, 5))), draw(keywords)))
    of_heads = st.lists(st.sampled_from((0.01, 0.03, 0.5)), min_size=kv_heads, max_size=kv_heads)
    dtypes = [draw(st.sampled_from((*INTEGERS, "float16"))) for _ in range(2)]
    scales = {
        name: draw(st.just(0.03) | of_heads | st.lists(of_heads, min_size=batch, max_size=batch))
        for name, dtype in zip(("k_scale", "v_scale"), dtypes, strict=True)
        if dtype == "int8"
    }
    return integer_case(
        *steps,
        seed=draw(st.integers(0, 1 << 20)),
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        capacity=capacity,
        head_dim=dim,
        value_head_dim=draw(st.sampled_from((dim, 1, 40, 129))),
        dtypes=dtypes,
        sink_tokens=draw(st.integers(0, min(5, capacity - 1))),
        ragged=ragged,
        view=draw(st.sampled_from(VIEWS)),
        pairs=draw(st.sampled_from((0, dim // 2))),
        positions=300,
        size=draw(st.sampled_from((1.0, 1e-3, 30.0))),
        **scales,
    )


@settings(max_examples=7)
@given(case=cases())
def test_anything(check, case):
    check(case)


@pytest.mark.quick("int8-1", "q8_0-0", "q4_0-1")
@pytest.mark.parametrize("other", [0, 1])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_dtypes(check, dtype, other):
    # Keys and values are read by texts of their own, so that not every pair has to meet.
    n = INTEGERS.index(dtype)
    dtypes = [dtype, INTEGERS[(n + other) % 3]]
    steps = [
        step
        for count in (20, 1, 40)
        for step in (("append", count), ("decode", 1, {"splits": 4}), ("decode", 3, {"splits": 1}))
    ]
    dims = [(20, 64, 96)[(n + other) % 3], (20, 64, 96)[(n + 2 * other + 1) % 3]]
    check(
        *(
            integer_case(*steps, dtypes=dtypes, head_dim=dim, value_head_dim=dim, sink_tokens=2)
            for dim in dims
        )
    )


@pytest.mark.parametrize("adapter", [{"software": False}, {"subgroup_min_size": 0}])
@pytest.mark.parametrize("dtypes", [["int8", "q4_0"], ["q8_0", "int8"], ["q4_0", "q8_0"]])
def test_other_adapters(check, adapter, dtypes):
    # Unrolled loops and large workgroups, as on hardware, which this adapter compiles slowly; no subgroups.
    steps = [("append", 40, [40, 9]), ("decode", 1), ("decode", 1, {"splits": 3})]
    check(
        *(
            integer_case(*steps, dtypes=dtypes, heads=6, kv_heads=2, head_dim=dim, value_head_dim=dim,
                         ragged=True, adapter=adapter, **pages)
            for dim, pages in ((16, {"block_size": 8}), (20, {}))
        )
    )  # fmt: skip


def test_numbers_that_are_not_finite(lab):
    # A block becomes NaN, and no other; int8 has no NaN, and saturates.
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.cached import numbers_of
device = pa.default_device()
rows = np.ones((1, 1, 3, 64), np.float32)
rows[0, 0, 0, 5], rows[0, 0, 1, 40], rows[0, 0, 2, 63] = np.nan, np.inf, -np.inf
found = []
for dtype in ("q8_0", "q4_0", "int8"):
    scales = {"k_scale": 0.5, "v_scale": 0.5} if dtype == "int8" else {}
    cache = pa.KVCache(1, 1, 3, 64, dtype=dtype, **scales)
    cache.append(device.tensor(rows), device.tensor(rows))
    held = numbers_of(await cache.keys.numpy(), dtype, 64, np.float32(0.5))
    expected = pa.reference.cached(rows, dtype, scale=0.5 if scales else None)
    found.append(bool(np.array_equal(held, expected, equal_nan=True)))
    found.append(np.isnan(held[0, 0]).sum(-1).tolist())
found
""") == [True, [32, 32, 32], True, [32, 32, 32], True, [0, 0, 0]]


def test_zeros_and_extremes(lab):
    # Zeros stay zeros, also where d is too small for a float16.
    assert (
        lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.cached import numbers_of
rows = np.zeros((1, 1, 4, 32), np.float32)
rows[0, 0, 1, 3], rows[0, 0, 2, :2], rows[0, 0, 3, 0] = 1e-30, [7.0, -7.0], -60000.0
found = []
for dtype in ("q8_0", "q4_0"):
    cache = pa.KVCache(1, 1, 4, 32, dtype=dtype)
    cache.append(rows, rows)
    held = numbers_of(await cache.values.numpy(), dtype, 32, None)
    found.append(bool(np.array_equal(held, pa.reference.cached(rows, dtype))))
    found.append(int(np.count_nonzero(held[0, 0, :2])))
found
""")
        == [True, 0] * 2
    )


def test_steps_at_a_position_on_the_gpu(lab):
    # The same words and the same results as of ordinary appends and decodes, in a ring too.
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.inputs import normal
from e2e.page.step import state_at
from py_attn.kernels.decode.step import append_step, decode_attention_step, decode_partials_step
device, random = pa.default_device(), np.random.default_rng(7)
rows = [device.tensor(normal(random, (1, 2, 14, dim), "float32")) for dim in (40, 24)]
log = device.tensor(normal(random, (1, 4, 14, 40), "float32"))
found = []
for dtype in ("int8", "q8_0", "q4_0"):
    scales = {"k_scale": 0.03, "v_scale": [0.03, 0.05]} if dtype == "int8" else {}
    ours, theirs = (
        pa.KVCache(1, 2, 10, 40, value_head_dim=24, dtype=dtype, sink_tokens=2, **scales) for _ in range(2)
    )
    for first, end in ((0, 6), (6, 7), (7, 14)):
        new = [x[:, :, first:end] for x in rows]
        append_step(*new, ours, state_at(device, first))
        theirs.append(*new)
        length, last = theirs.length, state_at(device, end - 1)
        for name in ("keys", "values"):
            words = [(await getattr(cache, name).numpy())[:, :, :length] for cache in (ours, theirs)]
            found.append(bool(np.array_equal(*words)))
        got = await decode_attention_step(log, ours, last, splits=2).numpy()
        exact = await pa.decode_attention(log[:, :, end - 1 : end], theirs).numpy()
        found.append(float(np.abs(got - exact).max()) < 1e-6)
        found.append(decode_partials_step(log, ours, last, splits=2)[0].shape == (1, 4, 1, 2, 24))
[len(found), all(found)]
""") == [36, True]
