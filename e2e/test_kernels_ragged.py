"""Batch elements with lengths of their own, and left padding, in the page against the float64 reference."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.kernel_cases import FLOATS, VIEWS
from e2e.page.ragged import check_ragged


def ragged_case(*steps, **changes):
    """A plain case with some fields changed; see `check_ragged`."""
    case = {
        "seed": 1, "batch": 3, "heads": 4, "kv_heads": 2, "capacity": 48, "head_dim": 24,
        "value_head_dim": 24, "cache_dtype": "float32", "sink_tokens": 0, "ragged": True, "view": "plain",
        "steps": [list(step) for step in steps],
    }  # fmt: skip
    return case | changes


@pytest.fixture(scope="module")
def check(lab, error_ratios):
    """Run cases in the page; every ratio must be at most 1."""

    def run(*cases):
        for case, answer in zip(cases, lab.check(check_ragged, cases), strict=True):
            name = "ragged" if case["ragged"] else "left padding"
            error_ratios.note([name], "decode", max(answer.values()))

    return run


@st.composite
def ragged_cases(draw):
    """Appends and decodes in any order."""
    batch, capacity = draw(st.integers(1, 4)), draw(st.sampled_from((1, 2, 7, 16, 33, 64, 200)))
    ragged = draw(st.booleans())
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 90))
        counts = draw(st.none() | st.lists(st.integers(0, count), min_size=batch, max_size=batch))
        kind = draw(st.sampled_from(("list", "int32", "uint32")))
        steps.append(["append", count, *([counts, kind] if ragged else [])])
        keywords = {
            "window": st.integers(0, 50) | st.lists(st.none() | st.integers(0, 50), min_size=2, max_size=2),
            "softcap": st.sampled_from((0.5, 20.0)),
            "splits": st.sampled_from((1, 2, 3, 7, 40)),
            "mod": st.sampled_from(("document", "both")),
            "left_padding": st.lists(st.integers(0, count), min_size=batch, max_size=batch),
        }
        decode = st.tuples(
            st.just("decode"), st.sampled_from((1, 1, 2, 5)), st.fixed_dictionaries({}, optional=keywords)
        )
        steps += draw(st.lists(decode, max_size=2))
    steps.append(["decode", 1])
    heads, kv_heads = draw(st.sampled_from(((1, 1), (6, 2), (16, 1))))
    return ragged_case(
        *steps,
        seed=draw(st.integers(0, 1 << 20)),
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        capacity=capacity,
        head_dim=draw(st.sampled_from((1, 3, 24, 64, 128))),
        value_head_dim=draw(st.sampled_from((1, 24, 40, 129))),
        cache_dtype=draw(st.sampled_from(FLOATS)),
        sink_tokens=draw(st.integers(0, min(5, capacity - 1))),
        ragged=ragged,
        view=draw(st.sampled_from(VIEWS)),
    )


@settings(max_examples=4)
@given(case=ragged_cases())
def test_anything(check, case):
    check(case)


@pytest.mark.thorough
@pytest.mark.parametrize("sink_tokens", [0, 3])
def test_lengths(check, sink_tokens):
    windows = [None, 0, 6, [3, 0], [2, None]]
    steps = [
        step
        for counts in ([5, 0, 9], [9, 9, 9], [0, 1, 2], [30, 3, 7], None, [1, 1, 0])
        for step in (
            ("append", 30 if counts and max(counts) > 9 else 9, counts),
            *(("decode", n, {"window": w, "splits": s}) for n, s in ((1, 3), (4, 1)) for w in windows),
        )
    ]
    # Capacity 16 becomes a ring, at another step for each element.
    check(
        ragged_case(*steps, sink_tokens=sink_tokens),
        ragged_case(*steps, sink_tokens=sink_tokens, capacity=16),
        ragged_case(*steps, sink_tokens=sink_tokens, capacity=5),
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("ragged", "mod"), [(True, None), (False, None), (True, "both")])
def test_left_padding(check, ragged, mod):
    options = [
        {"left_padding": padding, "splits": s, "window": w} | ({"mod": mod} if mod else {})
        for padding in ([0, 3, 20], [20, 0, 1]) for s, w in ((1, None), (3, 10))
    ]  # fmt: skip
    steps = [
        step
        for count in (20, 1, 40)
        for step in (("append", count), *(("decode", n, each) for n in (1, 3) for each in options))
    ]
    check(
        *(
            ragged_case(*steps, ragged=ragged, capacity=capacity, sink_tokens=kept)
            for capacity, kept in ((64, 0), (32, 0), (32, 4))
        )
    )


def test_a_recorded_step_goes_on_where_the_cache_ends(lab):
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.inputs import normal
device = pa.default_device()
random = np.random.default_rng(3)
prompt = normal(random, (2, 1, 4, 16), "float32")
key = normal(random, (2, 1, 1, 16), "float32")
query = device.tensor(normal(random, (2, 2, 1, 16), "float32"))
cache = pa.KVCache(2, 1, 32, 16, ragged=True)
cache.append(prompt, prompt, lengths=[4, 2])
with device.record() as step:
    cache.append(key, key)
    out = pa.decode_attention(query, cache)
with device.record() as look:
    seen = pa.decode_attention(query, cache)
errors = []
held = [prompt[0, :, :4], prompt[1, :, :2]]
async def compare(got):
    got = await got.numpy()
    for b in range(2):
        exact = pa.reference.attention((await query.numpy())[b : b + 1], held[b][None], held[b][None])
        errors.append(float(np.abs(got[b : b + 1] - exact).max()))
look.submit()
await compare(seen)
for times in (1, 1, 3):
    step.submit(times=times)
    held = [np.concatenate([x, *[key[b]] * times], 1) for b, x in enumerate(held)]
    await compare(out)
# An append outside of it counts as well.
cache.append(prompt, prompt, lengths=[0, 3])
held[1] = np.concatenate([held[1], prompt[1, :, :3]], 1)
look.submit()
await compare(seen)
totals = (await cache.totals.numpy()).tolist()
step.destroy()
look.destroy()
cache.clear()
[totals, (await cache.totals.numpy()).tolist(), max(errors) < 1e-6, len(errors)]
""") == [[9, 10], [0, 0], True, 10]


def test_quantised_caches(lab):
    # The same codes as of a cache of that element alone.
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.inputs import normal
random = np.random.default_rng(4)
rows = normal(random, (2, 2, 9, 16), "float32")
query = normal(random, (2, 4, 1, 16), "float32")
equal = []
for dtype in ("turboquant4", "turboquant2"):
    cache = pa.KVCache(2, 2, 12, 16, dtype=dtype, ragged=True, sink_tokens=1)
    alone = [pa.KVCache(1, 2, 12, 16, dtype=dtype, sink_tokens=1) for _ in range(2)]
    for counts in ([9, 4], [0, 1], [9, 9]):
        cache.append(rows, rows, lengths=counts)
        for b, n in enumerate(counts):
            if n:
                alone[b].append(rows[b : b + 1, :, :n], rows[b : b + 1, :, :n])
    out = await pa.decode_attention(query, cache, splits=1).numpy()
    for b in range(2):
        one = await pa.decode_attention(query[b : b + 1], alone[b], splits=1).numpy()
        equal.append(float(np.abs(out[b] - one[0]).max()))
equal
""") == pytest.approx([0] * 4, abs=1e-6)  # fmt: skip
