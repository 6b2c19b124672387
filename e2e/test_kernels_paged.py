"""`pa.PagedKVCache` against the float64 reference over what its blocks hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.kernel_cases import FLOATS, VIEWS
from e2e.page.cached import check_cached
from e2e.test_kernels_integer_caches import integer_case


def paged_case(*steps, **changes):
    """A plain case with some fields changed; see `check_cached`."""
    return integer_case(*steps, **({"ragged": True, "capacity": 24, "block_size": 4} | changes))


@pytest.fixture(scope="module")
def check(lab, error_ratios):
    """Run cases in the page; every ratio must be at most 1."""

    def run(*cases):
        for answer in lab.check(check_cached, cases):
            error_ratios.note(["pages"], "decode", max(answer.values()))

    return run


@st.composite
def cases(draw):
    batch, block_size = draw(st.integers(1, 3)), draw(st.sampled_from((1, 3, 8, 16)))
    capacity = block_size * draw(st.integers(1, 6))
    heads, kv_heads = draw(st.sampled_from(((1, 1), (6, 2), (16, 1))))
    dim = draw(st.sampled_from((1, 20, 64, 130)))
    steps = []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 60))
        lengths = st.lists(st.integers(0, count), min_size=batch, max_size=batch)
        steps.append(("append", count, draw(st.none() | lengths)))
        keywords = {
            "window": st.integers(0, 50),
            "splits": st.sampled_from((1, 2, 7)),
            "left_padding": st.lists(st.integers(0, 9), min_size=batch, max_size=batch),
        }
        decode = st.fixed_dictionaries({}, optional=keywords)
        steps.append(("decode", draw(st.sampled_from((1, 1, 3))), draw(decode)))
    return paged_case(
        *steps,
        seed=draw(st.integers(0, 1 << 20)),
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        capacity=capacity,
        block_size=block_size,
        head_dim=dim,
        value_head_dim=draw(st.sampled_from((dim, 40))),
        dtypes=[draw(st.sampled_from((*FLOATS, "q8_0", "q4_0", "int8"))) for _ in range(2)],
        sink_tokens=draw(st.integers(0, min(5, capacity - 1))),
        view=draw(st.sampled_from(VIEWS)),
        table_as=draw(st.sampled_from((None, "int32", "uint32", "columns"))),
        pairs=draw(st.sampled_from((0, dim // 2))),
        positions=300,
    )


@settings(max_examples=10)
@given(case=cases())
def test_anything(check, case):
    # Eight buffers are all that a decode may have.
    decodes = [step[2] for step in case["steps"] if step[0] == "decode"]
    if "int8" in case["dtypes"]:
        for keywords in decodes:
            keywords.pop("left_padding", None)
    check(case)


@pytest.mark.thorough
@pytest.mark.parametrize("sink_tokens", [0, 3])
def test_lengths(check, sink_tokens):
    steps = [
        step
        for counts in ([5, 0, 9], [9, 9, 9], [0, 1, 2], [9, 3, 7], None, [1, 1, 0])
        for step in (
            ("append", 9, counts),
            *(("decode", n, {"window": w, "splits": s}) for n in (1, 4) for w in (None, 6) for s in (1, 3)),
        )
    ]
    check(*(paged_case(*steps, batch=3, sink_tokens=sink_tokens, capacity=n) for n in (12, 64)))


@pytest.mark.quick("float16")
@pytest.mark.parametrize("dtype", ["float32", "float16", "q8_0"])
def test_head_dims_of_latent_attention(check, dtype):
    """DeepSeek's MLA: a key/value head of 576 numbers, of which values have 512."""
    steps = [("append", 20, None), ("decode", 1, {}), ("decode", 1, {"splits": 3})]
    check(
        paged_case(
            *steps,
            heads=16,
            kv_heads=1,
            head_dim=576,
            value_head_dim=512,
            dtypes=[dtype, dtype],
            block_size=8,
        )
    )


def test_turboquant_codes_are_those_of_a_cache_without_pages(lab):
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.inputs import normal
random = np.random.default_rng(4)
rows = normal(random, (2, 2, 9, 16), "float32")
query = normal(random, (2, 4, 1, 16), "float32")
table = np.array([[5, 1, 0], [2, 6, 3]])
errors = []
for dtype in ("turboquant4", "turboquant2", ("float32", "turboquant3")):
    paged = pa.PagedKVCache(2, 7, 16, block_size=4, block_table=table, dtype=dtype)
    plain = pa.KVCache(2, 2, 12, 16, dtype=dtype, ragged=True)
    for counts in ([9, 4], [0, 1], [9, 9]):
        outs = []
        for cache in (paged, plain):
            cache.append(rows, rows, lengths=counts)
            outs.append(await pa.decode_attention(query, cache, splits=2).numpy())
        errors.append(float(np.abs(outs[0] - outs[1]).max()))
errors
""") == pytest.approx([0] * 9, abs=1e-6)


def test_a_shared_prefix(lab):
    # Two elements begin with the same two blocks, which were filled once, and go on in blocks of their own.
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.inputs import normal
random = np.random.default_rng(5)
prefix, new = (normal(random, shape, "float32") for shape in ((1, 1, 8, 16), (2, 1, 3, 16)))
query = normal(random, (2, 2, 1, 16), "float32")
first = pa.PagedKVCache(1, 6, 16, block_size=4, block_table=[[4, 2, -1]])
first.append(prefix, prefix)
both = first.with_block_table([[4, 2, 0], [4, 2, 5]], totals=[8, 8])
both.append(new, new, lengths=[3, 1])
out = await pa.decode_attention(query, both).numpy()
errors = []
for b, n in enumerate((3, 1)):
    keys = np.concatenate([prefix, new[b : b + 1, :, :n]], 2)
    exact = pa.reference.decode_attention(query[b : b + 1], keys, keys)
    errors.append(float(np.abs(out[b : b + 1] - exact).max()))
both.destroy()
exact = pa.reference.decode_attention(query[:1], prefix, prefix)
errors.append(float(np.abs(await pa.decode_attention(query[:1], first).numpy() - exact).max()))
[max(errors) < 1e-6, (await first.totals.numpy()).tolist()]
""") == [True, [8]]


def test_a_table_that_grows_under_a_recorded_step(lab):
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.inputs import normal
device, random = pa.default_device(), np.random.default_rng(6)
row, query = (normal(random, (2, n, 1, 16), "float32") for n in (1, 2))
cache = pa.PagedKVCache(1, 5, 16, block_size=2, block_table=[[3, -1], [0, -1]])
key, asked = device.tensor(row), device.tensor(query)
with device.record() as step:
    cache.append(key, key)
    out = pa.decode_attention(asked, cache)
step.submit(times=2)
cache.set_block_table([[3, 1], [0, 4]])
step.submit()
keys = np.repeat(row, 3, 2)
error = float(np.abs(await out.numpy() - pa.reference.decode_attention(query, keys, keys)).max())
step.destroy()
[error < 1e-6, (await cache.totals.numpy()).tolist()]
""") == [True, [3, 3]]


def test_blocks_that_the_pool_does_not_have(lab):
    # Nothing is written there, nor over what is, and decodes stay within the pool.
    assert (
        lab.run("""
import numpy as np
import py_attn as pa
device = pa.default_device()
found = []
for dtype in ("float32", "q8_0", "turboquant4", "int8"):
    scales = {"k_scale": 1, "v_scale": 1} if dtype == "int8" else {}
    table = device.tensor(np.array([[1, -1, 2, 99]]), "int32")
    cache = pa.PagedKVCache(1, 3, 32, block_size=2, block_table=table, dtype=dtype, **scales)
    cache.keys.write(np.full(cache.keys.shape, 7))
    rows = np.ones((1, 1, 8, 32))
    cache.append(rows, rows)
    same = ((await cache.keys.numpy()) == 7).all((1, 3))
    found.append(same.tolist())
    found.append((await pa.decode_attention(rows[:, :, :1], cache).numpy()).shape)
found
""")
        == [[[True, True], [False, False], [False, False]], [1, 1, 1, 32]] * 4
    )
