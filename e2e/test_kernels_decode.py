"""`pa.KVCache`, `pa.decode_attention` and `pa.decode_partials` in the page against the float64 reference."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.kernel_cases import FLOATS, VIEWS
from e2e.page.cached import check_cached
from e2e.page.decode import check_decode
from e2e.test_kernels_rotary import cached_case


def decode_case(*steps, **changes):
    """A plain case with some fields changed; see `check_decode`."""
    case = {
        "seed": 1,
        "batch": 2,
        "heads": 4,
        "kv_heads": 2,
        "capacity": 48,
        "head_dim": 24,
        "value_head_dim": 24,
        "cache_dtypes": ["float32", "float32"],
        "source_dtype": "float32",
        "query_dtype": "float32",
        "steps": [list(step) for step in steps],
    }
    return case | changes


def features(case):
    keywords = [key for step in case["steps"] if len(step) > 2 for key in step[2]]
    found = {
        "float16 or bfloat16": set(case["cache_dtypes"]) | {case["query_dtype"]} != {"float32"},
        "window": "window" in keywords,
        "softcap": "softcap" in keywords,
        "splits": "splits" in keywords,
        "grouped heads": case["heads"] != case["kv_heads"],
        "sinks": case.get("sinks"),
        "sink tokens": case.get("sink_tokens"),
        "score_mod": case.get("mod"),
        "ring": sum(step[1] for step in case["steps"] if step[0] == "append") > case["capacity"],
        "head dim over 128": max(case["head_dim"], case["value_head_dim"]) > 128,
    }
    return [name for name, present in found.items() if present]


@pytest.fixture(scope="module")
def check(lab, error_ratios):
    """Run decode cases in the page; every ratio must be at most 1."""

    def run(*cases):
        for case, answer in zip(cases, lab.check(check_decode, cases), strict=True):
            error_ratios.note(features(case), "decode", max(answer.values()))

    return run


@st.composite
def decode_cases(draw):
    """Appends and decodes in any order; the first step is an append."""
    capacity = draw(st.sampled_from((1, 2, 7, 16, 33, 64, 200)))
    heads, kv_heads = draw(st.sampled_from(((1, 1), (2, 1), (6, 2), (8, 1), (16, 1), (20, 1))))
    keywords = st.fixed_dictionaries(
        {},
        optional={
            "window": st.integers(0, 50) | st.lists(st.none() | st.integers(0, 50), min_size=2, max_size=2),
            "softcap": st.sampled_from((0.5, 20.0)),
            "scale": st.sampled_from((-0.2, 0.05)),
            "splits": st.sampled_from((1, 2, 3, 7, 40, 1000)),
        },
    )
    append = st.tuples(st.just("append"), st.integers(1, 90))
    decode = st.tuples(st.just("decode"), st.sampled_from((1, 1, 2, 5)), keywords)
    head_dim = draw(st.sampled_from((1, 3, 16, 24, 32, 64, 100, 128, 256, 512)))
    return decode_case(
        draw(append),
        *draw(st.lists(append | decode, max_size=4)),
        draw(decode),
        seed=draw(st.integers(0, 1 << 20)),
        batch=draw(st.integers(1, 2)),
        heads=heads,
        kv_heads=kv_heads,
        capacity=capacity,
        head_dim=head_dim,
        value_head_dim=draw(st.sampled_from((head_dim, head_dim, 1, 40, 129))),
        cache_dtypes=[draw(st.sampled_from(FLOATS)) for _ in range(2)],
        source_dtype=draw(st.sampled_from(FLOATS)),
        query_dtype=draw(st.sampled_from(FLOATS)),
        source_view=draw(st.sampled_from(VIEWS)),
        query_view=draw(st.sampled_from(VIEWS)),
        sink_tokens=draw(st.integers(0, min(5, capacity - 1))),
        sinks=draw(st.none() | st.sampled_from(FLOATS)),
    )


@settings(max_examples=5)
@given(case=decode_cases())
def test_anything(check, case):
    check(case)


def test_append_patterns(check):
    # Capacity 48: within, exactly full, around the end, more than once around, all at once and more.
    patterns = [
        [10], [48], [47, 1], [47, 2], [30, 30], [48, 1, 1, 1], [48, 48], [49], [100], [10, 100], [100, 7],
        [1] * 60, [40, 8, 20, 5], [5, 43, 48, 3],
    ]  # fmt: skip
    check(*(decode_case(*(("append", n) for n in pattern), ("decode", 1)) for pattern in patterns))


def test_a_decode_sees_the_cache_as_it_was(check):
    # Nothing is read back before all of it is recorded: appends must not overtake decodes.
    loop = [step for _ in range(30) for step in (("append", 1), ("decode", 1))]
    check(decode_case(*loop, capacity=11), decode_case(*loop, capacity=64))


def test_splits(check):
    splits = [1, 2, 3, 7, 16, 45, 46, 100, 1024, "auto"]
    steps = [("decode", count, {"splits": n}) for n in splits for count in (1, 4)]
    check(decode_case(("append", 45), *steps))


def test_long_caches_are_split_by_themselves(check):
    check(decode_case(("append", 700), ("append", 500), ("decode", 1), ("decode", 3), capacity=1000, batch=1))


@pytest.mark.parametrize("splits", [1, 5])
def test_windows(check, splits):
    windows = [None, 0, 1, 10, 1000, [0, None], [None, 0], [12, 7], [44, 0], [45, 0]]
    steps = [("decode", n, {"window": w, "splits": splits}) for w in windows for n in (1, 6)]
    check(
        decode_case(("append", 45), *steps),
        decode_case(("append", 45), ("append", 45), *steps),
        # More queries than keys: the first ones see nothing.
        decode_case(("append", 3), *steps),
    )


def test_sinks(check):
    steps = [("decode", n, {"splits": s, "softcap": 2.0}) for n in (1, 3) for s in (1, 4)]
    # With three keys some queries see nothing but their sink.
    check(
        decode_case(("append", 40), *steps, sinks="float16"),
        decode_case(("append", 3), ("decode", 6), ("decode", 6, {"splits": 3}), sinks="float32"),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("sink_tokens", [1, 6])
def test_sink_tokens_stay(check, sink_tokens):
    # A ring of one to seven behind them, turned by one, by a few and more than once at a time.
    windows = [None, 0, 2, 6, [3, 0]]
    steps = [
        step
        for count in (3, 4, 1, 1, 2, 30, 1)
        for step in (
            ("append", count),
            *(("decode", n, {"window": w, "splits": s}) for n, s in ((1, 3), (4, 1)) for w in windows),
        )
    ]
    check(
        decode_case(*steps, capacity=8, sink_tokens=sink_tokens, heads=2, batch=1),
        decode_case(*steps[::3], capacity=8, sink_tokens=sink_tokens, sinks="float32"),
    )


@pytest.mark.quick("both")
@pytest.mark.parametrize("mod", ["document", "both"])
def test_mods_see_positions(check, mod):
    # Through a ring that has turned, with and without sink tokens.
    steps = [
        step
        for count in (20, 50, 1)
        for step in (("append", count), ("decode", 1, {"splits": 3}), ("decode", 3, {"splits": 1}))
    ]
    halves = ["float16", "float16"]
    check(
        decode_case(*steps, capacity=32, mod=mod),
        decode_case(*steps, capacity=32, mod=mod, sink_tokens=3, sinks="float32", cache_dtypes=halves),
    )


def test_softcap_and_scale(check):
    shapes = [{"softcap": c, "scale": s} for c in (0, 0.01, 3.0, 50.0) for s in (0.0, -1.0, 0.1)]
    check(decode_case(("append", 40), *(("decode", 1, keywords) for keywords in shapes)))


@pytest.mark.parametrize(
    ("heads", "kv_heads"), [(1, 1), (3, 1), (8, 2), (16, 1), (17, 1), (40, 1), (9, 3), (5, 5)]
)
def test_grouped_heads(check, heads, kv_heads):
    steps = [("append", 40), ("decode", 1), ("decode", 3), ("decode", 1, {"splits": 4})]
    check(decode_case(*steps, heads=heads, kv_heads=kv_heads))


@pytest.mark.quick("float32-float16", "float16-bfloat16", "bfloat16-float32")
@pytest.mark.parametrize("key", FLOATS)
@pytest.mark.parametrize("value", FLOATS)
def test_storage_types(check, key, value):
    steps = [("append", 40), ("decode", 1), ("decode", 1, {"splits": 3})]
    check(
        *(decode_case(*steps, cache_dtypes=[key, value], query_dtype=q, source_dtype=q) for q in (key, value))
    )


@pytest.mark.quick("32-32", "576-512")
@pytest.mark.parametrize(
    ("head_dim", "value_head_dim"),
    [(32, 32), (1, 512), (512, 1), (511, 511), (512, 512), (576, 512), (127, 5)],
)
def test_head_dims(check, head_dim, value_head_dim):
    steps = [("append", 60), ("decode", 1), ("decode", 1, {"splits": 3})]
    check(decode_case(*steps, head_dim=head_dim, value_head_dim=value_head_dim, heads=6))


@pytest.mark.quick("dtypes1")
@pytest.mark.parametrize("dtypes", [["float16", "bfloat16"], ["bfloat16", "float32"]])
def test_halves_with_the_workgroups_of_hardware(lab, error_ratios, dtypes):
    keywords = [{}, {"splits": 3}, {"window": 9, "softcap": 2.0}]
    steps = [("append", 40, [40, 9]), *(("decode", 1, each) for each in keywords), ("decode", 5)]
    adapter = {"software": False}
    cases = [
        cached_case(
            *steps, pairs=0, dtypes=dtypes, ragged=True, head_dim=dim, value_head_dim=dim, adapter=adapter
        )
        for dim in (8, 16, 64, 104)
    ]
    for answer in lab.check(check_cached, cases):
        error_ratios.note(["float16 or bfloat16"], "decode", max(answer.values()))


def test_steps_in_pairs(lab, error_ratios):
    # Two splits for each of 132 heads, 16 keys at a step (see `test_float32_takes_steps_in_pairs`):
    # 1, 2, 5 and 6 steps, where the odd number has one more that sees nothing. In the end the ring is turned.
    decodes = [("decode", 1, each) for each in ({}, {"window": 45}, {"window": 100, "softcap": 2.0})]
    steps = [step for count in (20, 20, 110, 20, 9) for step in (("append", count), *decodes)]
    cases = [
        cached_case(*steps, pairs=0, batch=4, heads=heads, kv_heads=33, capacity=170, head_dim=dim,
                    value_head_dim=value_dim, sink_tokens=sink_tokens, adapter={"software": False})
        for heads, dim, value_dim, sink_tokens in ((33, 32, 32, 0), (66, 24, 20, 3))
    ]  # fmt: skip
    for answer in lab.check(check_cached, cases):
        error_ratios.note(["steps in pairs"], "decode", max(answer.values()))


def test_splits_that_the_reduction_reads_in_one_turn(check):
    # 64 of them with 32 neighbours of eight columns; one less, and one more, take turns.
    steps = [("append", 150), *(("decode", 1, {"splits": n}) for n in (63, 64, 65))]
    check(*(decode_case(*steps, capacity=150, head_dim=dim, value_head_dim=dim) for dim in (24, 64)))


@pytest.mark.quick("float16")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_where_a_dimension_of_the_grid_is_too_short(lab, error_ratios, dtype):
    # Workgroups then find by divisions what else their place in the grid says.
    steps = [("append", 60), ("decode", 1, {"splits": 14}), ("decode", 5, {"splits": 9}), ("decode", 5)]
    case = cached_case(
        *steps, pairs=0, dtypes=[dtype] * 2, heads=6, kv_heads=3, ragged=True, capacity=60,
        adapter={"limits": {"maxComputeWorkgroupsPerDimension": 13}},
    )  # fmt: skip
    (answer,) = lab.check(check_cached, [case])
    error_ratios.note(["splits"], "decode", max(answer.values()))


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_value_groups_that_share_a_subgroup(check, dtype):
    # Two of them add up their sums by shuffles where a segment has eight numbers.
    steps = [("append", 60), ("decode", 1), ("decode", 1, {"splits": 3}), ("decode", 2, {"window": 20})]
    check(
        *(
            decode_case(*steps, cache_dtypes=[keys, dtype], heads=heads, kv_heads=3, head_dim=key_dim,
                        value_head_dim=value_dim)
            for keys in (dtype, "float32")
            for heads, key_dim, value_dim in ((3, 8, 8), (6, 8, 16), (3, 16, 16), (3, 24, 8))
        )
    )  # fmt: skip


def test_large_scores(check):
    steps = [("append", 40), *(("decode", 1, {"splits": n}) for n in (1, 4))]
    check(*(decode_case(*steps, size=size, seed=seed) for size in (10.0, 50.0) for seed in range(3)))


def test_recorded_once_and_submitted_for_every_step(lab):
    # A decode loop in one crossing: appends and decodes of several positions recorded as one program.
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.inputs import normal
device = pa.default_device()
random = np.random.default_rng(3)
steps = [tuple(normal(random, (1, n, 1, 16), "float32") for n in (2, 4)) for _ in range(6)]
cache = pa.KVCache(1, 2, 4, 16)
with device.record() as program:
    outs = []
    for key, query in steps:
        cache.append(key, key)
        outs.append(pa.decode_attention(query, cache))
results = []
for _ in range(2):
    program.submit()
    results.append([await out.numpy() for out in outs])
keys = np.concatenate([key for key, _ in steps], 2)
held = [keys[:, :, max(0, n - 3) : n + 1] for n in range(6)]
exact = [pa.reference.decode_attention(query, k, k) for k, (_, query) in zip(held, steps)]
program.destroy()
[len(program), *(float(np.abs(a - b).max()) for result in results for a, b in zip(result, exact))]
""") == pytest.approx([0] * 13, abs=1e-6)  # fmt: skip


def test_cache_attributes_and_errors(lab):
    assert lab.run("""
import numpy as np
import py_attn as pa
cache = pa.KVCache(2, 3, 10, 5, value_head_dim=7, dtype=("float16", "float32"))
seen = [cache.length, cache.capacity, cache.nbytes]
try:
    pa.decode_attention(np.ones((2, 3, 1, 5)), cache)
except ValueError as error:
    seen.append(str(error))
cache.append(np.ones((2, 3, 4, 5)), np.ones((2, 3, 4, 7)))
seen.append(cache.length)
cache.append(np.ones((2, 3, 40, 5)), np.ones((2, 3, 40, 7)))
seen.append(cache.length)
cache.clear()
seen.append(cache.length)
cache.destroy()
try:
    cache.append(np.ones((2, 3, 4, 5)), np.ones((2, 3, 4, 7)))
except ValueError as error:
    seen.append(str(error))
seen
""") == [0, 10, 2 * 3 * 10 * (8 * 2 + 8 * 4), "cache: it is empty; append keys and values first", 4, 10, 0,
        "cache: the tensor was destroyed"]  # fmt: skip
