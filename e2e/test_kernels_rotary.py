"""`pa.rotary`, and rotary position embeddings in appends and decodes, against the float64 reference."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.kernel_cases import FLOATS, VIEWS
from e2e.page.cached import check_cached, check_rotary


def rotary_case(**changes):
    """A plain case with some fields changed; see `check_rotary`."""
    case = {
        "seed": 1, "shape": [2, 3, 5, 24], "dtype": "float32", "view": "plain", "at": 0, "positions": 40,
        "pairs": 12, "interleaved": False,
    }  # fmt: skip
    return case | changes


def cached_case(*steps, **changes):
    """Likewise; see `check_cached`."""
    case = {
        "seed": 1, "batch": 2, "heads": 4, "kv_heads": 2, "capacity": 48, "head_dim": 24,
        "value_head_dim": 20, "dtypes": ["float32", "float32"], "sink_tokens": 0, "ragged": False,
        "view": "plain", "pairs": 12, "positions": 200, "interleaved": False,
        "steps": [list(step) for step in steps],
    }  # fmt: skip
    return case | changes


@pytest.fixture(scope="module")
def check(lab, error_ratios):
    """Run cases in the page; every ratio must be at most 1."""

    def run(function, *cases):
        for answer in lab.check(function, cases):
            error_ratios.note(["rotary"], "decode", max(answer.values()))

    return run


@st.composite
def rotary_cases(draw):
    batch, heads, count = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(0, 9))
    dim = draw(st.sampled_from((2, 3, 8, 24, 31, 64, 130)))
    kind = draw(st.sampled_from(("first", "batch", "row", "rows")))
    position = st.integers(0, 30)
    at = {
        "first": position,
        "batch": st.lists(position, min_size=batch, max_size=batch),
        "row": st.lists(st.lists(position, min_size=count, max_size=count), min_size=1, max_size=1),
        "rows": st.lists(st.lists(position, min_size=count, max_size=count), min_size=batch, max_size=batch),
    }[kind]
    return rotary_case(
        seed=draw(st.integers(0, 1 << 20)),
        shape=[batch, heads, count, dim],
        dtype=draw(st.sampled_from(FLOATS)),
        view=draw(st.sampled_from(VIEWS)),
        at=draw(at),
        at_dtype=None if kind == "first" or not count else draw(st.sampled_from((None, "int32", "uint32"))),
        pairs=draw(st.integers(1, dim // 2)),
        interleaved=draw(st.booleans()),
        table_dtype=draw(st.sampled_from(FLOATS)),
        turned=draw(st.booleans()),
    )


@settings(max_examples=25)
@given(case=rotary_cases())
def test_anything(check, case):
    if not case["shape"][2] and isinstance(case["at"], list) and isinstance(case["at"][0], list):
        case["at"] = 0
    check(check_rotary, case)


@pytest.mark.quick("True-3-True")
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("sink_tokens", [0, 3])
@pytest.mark.parametrize("ragged", [False, True])
def test_appends_and_decodes(check, interleaved, sink_tokens, ragged):
    # Capacity 11 becomes a ring; the first append is larger than that, and one is split into parts.
    lengths = [[13, 2], [1, 1], [0, 4], [5, 13]] if ragged else [None] * 4
    steps = [
        step
        for count, each in zip((13, 1, 4, 13), lengths, strict=True)
        for step in (
            ("append", count, each),
            *(("decode", n, {"splits": n}) for n in (1, 3)),
            ("decode", 1, {"window": 4}),
        )
    ]  # fmt: skip
    shared = {"interleaved": interleaved, "sink_tokens": sink_tokens, "ragged": ragged}
    check(
        check_cached,
        cached_case(*steps, **shared),
        cached_case(*steps, **shared, capacity=11, pairs=5, view="columns"),
        cached_case(*steps, **shared, capacity=11, dtypes=["float16", "bfloat16"], table_dtype="float16"),
    )


@pytest.mark.parametrize("ragged", [False, True])
def test_quantised_keys_are_turned_before_they_are_quantised(lab, ragged):
    # The same codes as of keys that were turned by the public function.
    assert (
        lab.run(f"""
import numpy as np
import py_attn as pa
from e2e.page.cached import table_tensors
from e2e.page.inputs import normal
random, device = np.random.default_rng(4), pa.default_device()
rows = [device.tensor(normal(random, (2, 2, n, 16), "float32")) for n in (5, 3)]
query = device.tensor(normal(random, (2, 4, 1, 16), "float32"))
tables = table_tensors(device, {{"positions": 9, "pairs": 8}})
equal = []
for dtype in ("turboquant4", "turboquant2"):
    ours, theirs = (pa.KVCache(2, 2, 12, 16, dtype=dtype, ragged={ragged}) for _ in range(2))
    for first, x in zip((0, 5), rows):
        ours.append(x, x, rotary=tables)
        theirs.append(pa.rotary(x, *tables, positions=first), x)
    codes = [(await cache.keys.numpy())[:, :, :8] for cache in (ours, theirs)]
    equal.append(bool(np.array_equal(*codes)))
    one = await pa.decode_attention(query, ours, rotary=tables).numpy()
    other = await pa.decode_attention(pa.rotary(query, *tables, positions=7), ours).numpy()
    equal.append(float(np.abs(one - other).max()) < 1e-6)
equal
""")
        == [True] * 4
    )


def test_positions_that_the_tables_lack(lab):
    # Of a ragged cache only the GPU knows: NaN there, and nothing else of the batch is touched.
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.cached import table_tensors
device = pa.default_device()
tables = table_tensors(device, {"positions": 4, "pairs": 4})
cache = pa.KVCache(2, 1, 8, 8, ragged=True)
rows = np.ones((2, 1, 3, 8))
cache.append(rows, rows, rotary=tables, lengths=[3, 1])
cache.append(rows[:, :, :2], rows[:, :, :2], rotary=tables)
missing = np.isnan(await cache.keys.numpy())
out = await pa.decode_attention(np.ones((2, 1, 1, 8)), cache).numpy()
at = device.tensor(np.array([[0, 4, -1], [3, 2, 9]]), "int32")
lost = np.isnan(await pa.rotary(rows, *tables, positions=at).numpy()).all(-1)[:, 0]
[missing.all(-1)[:, 0].nonzero()[0].tolist(), missing.all(-1)[:, 0].nonzero()[1].tolist(),
 np.isnan(out).any(-1)[:, 0, 0].tolist(), lost.tolist(), int(missing.sum())]
""") == [[0], [4], [True, False], [[False, True, True], [False, False, True]], 8]  # fmt: skip


def test_a_recorded_step_turns_as_the_cache_grows(lab):
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.cached import table_tensors, tables
from e2e.page.inputs import normal
device, random = pa.default_device(), np.random.default_rng(3)
case = {"positions": 9, "pairs": 8}
angles = table_tensors(device, case)
row, query = (normal(random, (1, n, 1, 16), "float32") for n in (1, 2))
key = device.tensor(row)
cache = pa.KVCache(1, 1, 16, 16, ragged=True)
with device.record() as step:
    cache.append(key, key, rotary=angles)
    out = pa.decode_attention(query, cache, rotary=angles)
step.submit(times=5)
keys = np.repeat(row, 5, 2)
turned = pa.reference.rotary(keys, *tables(case))
exact = pa.reference.decode_attention(pa.reference.rotary(query, *tables(case), positions=4), turned, keys)
error = float(np.abs(await out.numpy() - exact).max())
step.destroy()
error
""") == pytest.approx(0, abs=1e-6)
