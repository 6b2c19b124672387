"""`pa.turboquant` and quantised caches in the page, against their float64 reference."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

OPTIMUM = {1: 0.3634, 2: 0.1175, 3: 0.03454, 4: 0.009497}

# Codes may differ from float64's where a number lies on a threshold to a rounding; such rows are counted and
# left out, and everything after the codes is compared given the codes that the GPU chose. Bounds are twice
# the error of the same steps in numpy's float32, and a few roundings of the largest number.
CHECKS = """
import numpy as np
import py_attn as pa
from py_attn import turboquant_reference as plain
from py_attn.gpu.dtypes import round_to

device = pa.default_device()
device.poison_outputs = True

def normal(random, shape, dtype="float32"):
    return round_to(random.standard_normal(shape), dtype)

def over_bound(result, exact, single, step=4e-7):
    error = np.abs(single - exact).max(initial=0)
    bound = 2 * error + step * max(np.abs(exact).max(initial=0), 1e-30)
    return float(np.abs(result - exact).max(initial=0) / bound)

async def check_quantize(shape, bits, qjl, dtype, seed, swapped):
    random = np.random.default_rng(seed)
    x = normal(random, shape, dtype)
    x.reshape(-1, shape[-1])[::5] = 0
    if swapped:
        tensor = device.tensor(np.ascontiguousarray(x.T), dtype).transpose()
    else:
        tensor = device.tensor(x, dtype)
    packed = pa.turboquant.quantize(tensor, bits, qjl=qjl)
    out = await pa.turboquant.dequantize(packed).numpy()
    words = await packed.words.numpy()
    assert packed.nbytes == words.nbytes and out.shape == x.shape and out.dtype == np.float32
    found = plain.unpack(words, bits, shape[-1], qjl=qjl)
    expected = plain.quantize(x, bits, qjl=qjl)
    single = plain.quantize(x, bits, np.float32, qjl=qjl)
    flat = x.reshape(-1, shape[-1])
    same = np.ones(len(flat), bool)
    pairs = [(found, expected), (single, expected)]
    # What is left of few numbers is at right angles to few directions, and rotated it is often zero.
    if qjl and shape[-1] >= 16:
        pairs.append((found.residual, expected.residual))
    for one, other in pairs:
        same &= (one.codes == other.codes).all(-1).reshape(-1)
    zero = ~flat.any(-1)
    assert (out.reshape(flat.shape)[zero] == 0).all(), "zeros do not stay zeros"
    compared = same & ~zero
    exact = plain.dequantize(found)
    return {
        "different": int((~same & ~zero).sum()),
        "rows": len(flat),
        "scales": over_bound(
            *(c.scales.reshape(-1)[compared] for c in (found, expected, single))
        ),
        "numbers": over_bound(out, exact, plain.dequantize(found, np.float32)),
    }

async def check_decode(
    batch, heads, kv_heads, capacity, dims, dtypes, qjl, appended, queries, splits, sink_tokens=0, **keywords
):
    random = np.random.default_rng(3)
    cache = pa.KVCache(
        batch, kv_heads, capacity, dims[0], value_head_dim=dims[1], dtype=tuple(dtypes), qjl=qjl,
        sink_tokens=sink_tokens,
    )
    ring = {"capacity": capacity, "sink_tokens": sink_tokens}
    held = [[], []]
    for count in appended:
        new = [normal(random, (batch, kv_heads, count, dim)) for dim in dims]
        cache.append(*new)
        for i, x in enumerate(new):
            if dtypes[i].startswith("turboquant"):
                # A quantised vector is the same wherever it goes, so that this is what the cache holds.
                packed = pa.turboquant.quantize(x, int(dtypes[i][-1]), qjl=qjl and i == 0)
                words = await packed.words.numpy()
                held[i].append(plain.unpack(words, packed.bits, dims[i], qjl=packed.qjl))
            else:
                held[i].append(round_to(x, dtypes[i]))
    def rows(i, precision):
        parts = [x if isinstance(x, np.ndarray) else plain.dequantize(x, precision) for x in held[i]]
        return np.concatenate(parts, axis=2).astype(precision)
    query = normal(random, (batch, heads, queries, dims[0]))
    out, lse = pa.decode_attention(query, cache, splits=splits, return_lse=True, **keywords)
    part_out, part_lse = pa.decode_partials(query, cache, splits=splits, **keywords)
    def reference(precision):
        # In the rotated domain, as the kernels do it; a rotation of both changes nothing but the roundings.
        q, k, v = (plain.rotate(x, precision) for x in (query, rows(0, precision), rows(1, precision)))
        o, l = pa.reference.decode_attention(
            q, k, v, return_lse=True, compute_dtype=precision, **ring, **keywords
        )
        return plain.rotate_back(o, precision), l
    exact, single = reference(np.float64), reference(np.float32)
    out, lse, part_out, part_lse = [await t.numpy() for t in (out, lse, part_out, part_lse)]
    assert np.array_equal(np.isneginf(lse), np.isneginf(exact[1]))
    seen = np.isfinite(lse)
    share = np.exp(part_lse - np.where(seen, lse, 0)[..., None])
    cache.destroy()
    return {
        "out": over_bound(out, exact[0], single[0]),
        "lse": over_bound(lse[seen], exact[1][seen], single[1][seen]),
        "partials": over_bound((share[..., None] * part_out).sum(3), exact[0], single[0]),
    }
"""

MANY = settings(max_examples=12, deadline=None, database=None, derandomize=True)


@pytest.fixture(scope="module")
def run(lab):
    lab.run(CHECKS)
    yield lambda source: lab.run(source, timeout=120)
    lab.run("device.poison_outputs = False")


def assert_close(answer):
    assert all(ratio <= 1 for name, ratio in answer.items() if name not in ("different", "rows")), answer


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_distortion_is_the_optimum(run, dim):
    found = run(f"""
x = normal(np.random.default_rng({dim}), (1000, {dim}))
found = []
for bits in (1, 2, 3, 4):
    x_hat = await pa.turboquant.dequantize(pa.turboquant.quantize(x, bits)).numpy()
    found.append(float(((x_hat - x) ** 2).sum() / (x ** 2).sum()))
found
""")
    for optimum, distortion in zip(OPTIMUM.values(), found, strict=True):
        assert 0.9 * optimum < distortion < 1.02 * optimum


def test_outlier_channels_do_not_break_it(run):
    found = run("""
x = normal(np.random.default_rng(0), (1000, 128))
x[:, [3, 40, 77]] *= 50
found = []
for bits in (1, 2, 3, 4):
    x_hat = await pa.turboquant.dequantize(pa.turboquant.quantize(x, bits)).numpy()
    found.append(float(((x_hat - x) ** 2).sum() / (x ** 2).sum()))
found
""")
    for optimum, distortion in zip(OPTIMUM.values(), found, strict=True):
        assert distortion < 1.2 * optimum


@pytest.mark.parametrize("qjl", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 5, 32, 80, 96, 127, 512])
def test_quantize_follows_the_reference(run, dim, qjl):
    for bits in (2, 3, 4) if qjl else (1, 2, 3, 4):
        answer = run(f"await check_quantize((6, 5, {dim}), {bits}, {qjl}, 'float32', {dim}, False)")
        assert answer["different"] <= 1
        assert_close(answer)


@MANY
@given(
    shape=st.lists(st.integers(1, 5), min_size=0, max_size=4),
    dim=st.integers(1, 512),
    bits=st.integers(1, 4),
    qjl=st.booleans(),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    swapped=st.booleans(),
)
def test_any_shape_dtype_and_stride(run, shape, dim, bits, qjl, dtype, swapped):
    # Copies move four axes at most.
    qjl, swapped = qjl and bits > 1, swapped and len(shape) < 4
    answer = run(f"await check_quantize({(*shape, dim)}, {bits}, {qjl}, {dtype!r}, {dim}, {swapped})")
    assert answer["different"] <= 1
    assert_close(answer)


def test_what_is_not_finite_stays_in_its_vector(run):
    answer = run("""
x = np.ones((4, 48), np.float32)
x[1, 5], x[2, 47] = np.nan, -np.inf
x[3] *= 1e-30
out = await pa.turboquant.dequantize(pa.turboquant.quantize(device.tensor(x), 4)).numpy()
[np.isnan(out).sum(axis=1).tolist(), float(np.abs(out[3] / 1e-30 - out[0]).max())]
""")
    assert answer[0] == [0, 48, 48, 0]
    assert answer[1] < 1e-5


def test_an_error_leaves_the_device_working(run):
    assert run("""
try:
    pa.turboquant.quantize(np.full((2, 16), np.nan, np.float32), 4)
except ValueError as error:
    words = str(error)
out = await pa.turboquant.dequantize(pa.turboquant.quantize(np.zeros((2, 16), np.float32), 4)).numpy()
[words.startswith("x: expected finite"), bool((out == 0).all())]
""") == [True, True]


@pytest.mark.parametrize(
    ("dtypes", "qjl"),
    [
        (("turboquant4", "turboquant4"), False),
        (("turboquant4", "turboquant2"), False),
        (("turboquant3", "turboquant3"), False),
        (("turboquant1", "float16"), False),
        (("bfloat16", "turboquant3"), False),
        (("turboquant4", "turboquant3"), True),
    ],
)
@pytest.mark.parametrize("dims", [(64, 64), (80, 36), (13, 96)])
def test_decode(run, dtypes, qjl, dims):
    for splits, keywords in ((1, "window=(11, 0)"), (4, "softcap=3.0"), (3, "window=9, scale=0.3")):
        answer = run(
            f"await check_decode(2, 6, 2, 37, {dims}, {dtypes}, {qjl}, [20, 11, 29], 2, {splits}, {keywords})"
        )
        assert_close(answer)


@MANY
@given(
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 4),
    capacity=st.integers(1, 150),
    dims=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    bits=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    appended=st.lists(st.integers(1, 90), min_size=1, max_size=3),
    queries=st.integers(1, 4),
    splits=st.sampled_from(["auto", 1, 2, 7]),
    window=st.sampled_from([None, 0, 5, (40, 0)]),
    softcap=st.sampled_from([None, 8.0]),
    kept=st.sampled_from([0, 0, 1, 5]),
)
def test_any_decode(
    run, kv_heads, group, capacity, dims, bits, appended, queries, splits, window, softcap, kept
):
    dtypes = tuple(f"turboquant{n}" for n in bits)
    answer = run(
        f"await check_decode(1, {kv_heads * group}, {kv_heads}, {capacity}, {dims}, {dtypes}, False, "
        f"{appended}, {queries}, {splits!r}, {min(kept, capacity - 1)}, window={window!r}, "
        f"softcap={softcap!r})"
    )
    assert_close(answer)


def test_decoding_again_and_again(run):
    # A recorded program runs the rotations anew each time.
    assert run("""
random = np.random.default_rng(5)
cache = pa.KVCache(1, 2, 32, 64, dtype="turboquant4")
cache.append(normal(random, (1, 2, 20, 64)), normal(random, (1, 2, 20, 64)))
query = device.tensor(normal(random, (1, 4, 1, 64)))
with device.record() as program:
    recorded = pa.decode_attention(query, cache, splits=2)
program.submit()
first = await recorded.numpy()
program.submit()
again = await recorded.numpy()
plain_call = await pa.decode_attention(query, cache, splits=2).numpy()
[bool(np.array_equal(first, again)), bool(np.array_equal(first, plain_call))]
""") == [True, True]
