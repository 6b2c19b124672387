"""`pa.turboquant` and quantised caches in the page, against their float64 reference."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.page.quantization import check_quantize, check_quantized_decode, distortion

OPTIMUM = {1: 0.3634, 2: 0.1175, 3: 0.03454, 4: 0.009497}


@pytest.fixture(scope="module", autouse=True)
def poisoned_outputs(lab):
    lab.run("pa.default_device().poison_outputs = True")
    yield
    lab.run("pa.default_device().poison_outputs = False")


def assert_close(answer):
    assert all(ratio <= 1 for name, ratio in answer.items() if name != "different"), answer


def distortions(lab, seed, dim, outliers=()):
    """Of 1, 2, 3 and 4 bits."""
    return [lab.call(distortion, seed, dim, bits, outliers) for bits in OPTIMUM]


@pytest.mark.quick("64")
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_distortion_is_the_optimum(lab, dim):
    for optimum, found in zip(OPTIMUM.values(), distortions(lab, dim, dim), strict=True):
        assert 0.9 * optimum < found < 1.02 * optimum


def test_outlier_channels_do_not_break_it(lab):
    for optimum, found in zip(OPTIMUM.values(), distortions(lab, 0, 128, [3, 40, 77]), strict=True):
        assert found < 1.2 * optimum


@pytest.mark.quick("*-True")
@pytest.mark.parametrize("qjl", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 5, 32, 80, 96, 127, 512])
def test_quantize_follows_the_reference(lab, dim, qjl):
    for bits in (2, 3, 4) if qjl else (1, 2, 3, 4):
        answer = lab.call(check_quantize, (6, 5, dim), bits, qjl, "float32", dim, False)
        assert answer["different"] <= 1
        assert_close(answer)


@settings(max_examples=12)
@given(
    shape=st.lists(st.integers(1, 5), min_size=0, max_size=4),
    dim=st.integers(1, 512),
    bits=st.integers(1, 4),
    qjl=st.booleans(),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    swapped=st.booleans(),
)
def test_any_shape_dtype_and_stride(lab, shape, dim, bits, qjl, dtype, swapped):
    # Copies move four axes at most.
    qjl, swapped = qjl and bits > 1, swapped and len(shape) < 4
    answer = lab.call(check_quantize, (*shape, dim), bits, qjl, dtype, dim, swapped)
    assert answer["different"] <= 1
    assert_close(answer)


def test_what_is_not_finite_stays_in_its_vector(lab):
    answer = lab.run("""
import numpy as np
import py_attn as pa
device = pa.default_device()
x = np.ones((4, 48), np.float32)
x[1, 5], x[2, 47] = np.nan, -np.inf
x[3] *= 1e-30
out = await pa.turboquant.dequantize(pa.turboquant.quantize(device.tensor(x), 4)).numpy()
[np.isnan(out).sum(axis=1).tolist(), float(np.abs(out[3] / 1e-30 - out[0]).max())]
""")
    assert answer[0] == [0, 48, 48, 0]
    assert answer[1] < 1e-5


def test_an_error_leaves_the_device_working(lab):
    assert lab.run("""
import numpy as np
import py_attn as pa
try:
    pa.turboquant.quantize(np.full((2, 16), np.nan, np.float32), 4)
except ValueError as error:
    words = str(error)
out = await pa.turboquant.dequantize(pa.turboquant.quantize(np.zeros((2, 16), np.float32), 4)).numpy()
[words.startswith("x: expected finite"), bool((out == 0).all())]
""") == [True, True]


KINDS = (
    (("turboquant4", "turboquant4"), False),
    (("turboquant4", "turboquant2"), False),
    (("turboquant3", "turboquant3"), False),
    (("turboquant1", "float16"), False),
    (("bfloat16", "turboquant3"), False),
    (("turboquant4", "turboquant3"), True),
)
DIMS = ((64, 64), (80, 36), (13, 96))
CALLS = ((1, {"window": (11, 0)}), (4, {"softcap": 3.0}), (3, {"window": 9, "scale": 0.3}))


@pytest.mark.quick("dtypes5-True")
@pytest.mark.parametrize(("dtypes", "qjl"), KINDS)
def test_decode(lab, dtypes, qjl):
    # Each kind meets two of the dims, and with each of them two of the calls; the next kind meets others.
    number = KINDS.index((dtypes, qjl))
    for at, dims in enumerate(DIMS):
        if at == number % len(DIMS):
            continue
        for n, (splits, keywords) in enumerate(CALLS):
            if n == (number + at) % len(CALLS):
                continue
            given = (2, 6, 2, 37, dims, dtypes, qjl, [20, 11, 29], 2, splits)
            assert_close(lab.call(check_quantized_decode, *given, **keywords))


@settings(max_examples=5)
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
    lab, kv_heads, group, capacity, dims, bits, appended, queries, splits, window, softcap, kept
):
    dtypes = tuple(f"turboquant{n}" for n in bits)
    given = (1, kv_heads * group, kv_heads, capacity, dims, dtypes, False, appended, queries, splits)
    kept = min(kept, capacity - 1)
    assert_close(lab.call(check_quantized_decode, *given, kept, window=window, softcap=softcap))


def test_decoding_again_and_again(lab):
    # A recorded program runs the rotations anew each time.
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.inputs import normal
device = pa.default_device()
random = np.random.default_rng(5)
cache = pa.KVCache(1, 2, 32, 64, dtype="turboquant4")
cache.append(normal(random, (1, 2, 20, 64), 'float32'), normal(random, (1, 2, 20, 64), 'float32'))
query = device.tensor(normal(random, (1, 4, 1, 64), 'float32'))
with device.record() as program:
    recorded = pa.decode_attention(query, cache, splits=2)
program.submit()
first = await recorded.numpy()
program.submit()
again = await recorded.numpy()
plain_call = await pa.decode_attention(query, cache, splits=2).numpy()
[bool(np.array_equal(first, again)), bool(np.array_equal(first, plain_call))]
""") == [True, True]
