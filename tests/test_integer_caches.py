"""Caches of integers: the reference, how rows lie in memory, plans, and what is refused. No GPU."""

import numpy as np
import pytest

import py_attn as pa
from py_attn.kernels.decode.formats import DTYPES, Integers
from py_attn.nn_reference import dequantize
from tests.test_arguments import refused
from tests.test_plans import plan


def ones(*shape):
    return np.ones(shape)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# The reference


def test_q8_0_is_what_a_file_holds():
    # The bytes of the blocks as a GGUF file has them, read by the models' reference.
    rows = normal(2, 3, 5, 64)
    blocks = rows.reshape(-1, 32)
    d = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    codes = np.round(blocks / d).astype(np.int8)
    data = np.concatenate([d.astype(np.float16).view(np.uint8), codes.view(np.uint8)], 1)
    expected = dequantize(data, 30, 64, "Q8_0").reshape(rows.shape)
    # Dividing by d and multiplying with 1 / d may differ at a tie.
    same = np.isclose(pa.reference.cached(rows, "q8_0"), expected, rtol=0, atol=1e-12)
    assert same.mean() > 0.999


def test_ties():
    row = np.zeros((1, 1, 1, 32), np.float32)
    row[..., :6] = 127, 0.5, 1.5, -0.5, -2.5, 2.4
    held = pa.reference.cached(row, "q8_0")[0, 0, 0, :6]
    assert held.tolist() == [127, 1, 2, -1, -3, 2]
    row[..., :6] = -8, 0.5, 1.5, -0.5, -1.5, 7.9
    # 7.9 would be 8, which four bits do not have beside -8.
    held = pa.reference.cached(row, "q4_0")[0, 0, 0, :6]
    assert held.tolist() == [-8, 1, 2, 0, -1, 7]
    row[..., :6] = 0.5, 1.5, -0.5, -300, 300, np.nan
    assert pa.reference.cached(row, "int8", scale=1)[0, 0, 0, :6].tolist() == [0, 2, 0, -128, 127, 0]


@pytest.mark.parametrize(("dtype", "step"), [("q8_0", 1 / 254), ("q4_0", 1 / 8), ("int8", 0.05)])
@pytest.mark.parametrize("dim", [1, 31, 32, 33, 80])
def test_errors_are_bounded(dtype, step, dim):
    rows = normal(2, 3, 50, dim, seed=dim)
    error = np.abs(pa.reference.cached(rows, dtype, scale=0.1) - rows)
    # Of int8 half its scale. Else of the block's largest, and what the float16 scale adds to that.
    padded = np.pad(rows, [(0, 0)] * 3 + [(0, -dim % 32)]).reshape(2, 3, 50, -1, 32)
    largest = 1 if dtype == "int8" else np.repeat(np.abs(padded).max(-1), 32, -1)[..., :dim]
    assert (error <= (step + (0 if dtype == "int8" else 2**-11)) * largest * 1.0001).all()


def test_a_scale_for_each_head():
    rows = 3 * normal(2, 3, 5, 8)
    scales = np.float32([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    held = pa.reference.cached(rows, "int8", scale=scales)
    each = [
        [pa.reference.cached(rows[b : b + 1, h : h + 1], "int8", scale=s)[0, 0] for h, s in enumerate(of)]
        for b, of in enumerate(scales)
    ]
    np.testing.assert_array_equal(held, each)


# Memory and plans


@pytest.mark.parametrize(
    ("dtype", "dim", "words"),
    [("q8_0", 64, 17), ("q4_0", 64, 9), ("int8", 64, 16), ("q8_0", 128, 34), ("q4_0", 128, 18),
     ("q8_0", 32, 9), ("q4_0", 33, 9), ("int8", 5, 2), ("q4_0", 1, 5)],
)  # fmt: skip
def test_words_of_a_row(device, dtype, dim, words):
    assert Integers(dtype, dim).words == words
    scales = {"k_scale": 1, "v_scale": 1} if dtype == "int8" else {}
    cache = pa.KVCache(2, 3, 10, dim, dtype=dtype, **scales)
    assert cache.keys.shape == (2, 3, 10, words)
    assert cache.nbytes == 2 * 2 * 3 * 10 * words * 4


def test_scales_go_with_int8_alone(device):
    cache = pa.KVCache(2, 3, 10, 8, dtype=("int8", "float16"), k_scale=[1, 2, 3])
    assert cache.scales.shape == (2, 3, 2)
    rows = device.empty((2, 3, 5, 8))
    key, value = plan(device, cache.append, rows, rows)
    assert [list(each[3]) for each in (key, value)] == [["source", "scales", "cache"], ["source", "cache"]]
    ((shader, _, _, buffers),) = plan(
        device, pa.decode_attention, device.empty((2, 6, 1, 8)), cache, splits=1
    )
    assert list(buffers) == ["query", "key", "value", "scales", "out"]
    assert shader.wgsl.count("scales[") == 1
    for dtype in ("q8_0", "q4_0", "float32"):
        cache = pa.KVCache(2, 3, 10, 8, dtype=dtype)
        assert cache.scales is None
        for shader, *_ in plan(device, cache.append, rows, rows):
            assert "scales[" not in shader.wgsl


def test_one_invocation_takes_two_blocks(device):
    cache = pa.KVCache(2, 3, 10, 80, dtype="q4_0")
    rows = device.empty((2, 3, 5, 80))
    (shader, _, workgroups, _), _ = plan(device, cache.append, rows, rows)
    assert shader.label == "cache_append/float32-q4_0"
    assert workgroups == (1, 1, 1)  # 2 · 3 · 5 rows of three blocks: 60 invocations


def test_what_a_language_model_keeps_its_cache_in(device):
    from py_attn.models.cache_options import check_cache

    with pytest.raises(ValueError, match=r"^dtype: expected one of float32, .* got 'q8_0'"):
        check_cache("q8_0", 10, False, 0, None, 10)


# Errors

BOTH = {"dtype": "int8", "k_scale": 1, "v_scale": 1}
SCALES = [
    (
        {"dtype": "int8"},
        ValueError,
        r"^k_scale: expected a number, \[3\], one a head, or \[2, 3\] .* got None",
    ),
    ({"dtype": ("float32", "int8")}, ValueError, "^v_scale: expected a number, .* for values of dtype int8"),
    ({"k_scale": 1}, ValueError, "^k_scale: expected None for keys of dtype float32; only int8 takes"),
    (BOTH | {"dtype": ("int8", "q8_0")}, ValueError, "^v_scale: expected None for values of dtype q8_0"),
    (BOTH | {"k_scale": 0}, ValueError, "^k_scale: expected finite float32 numbers above 0, got 0"),
    (BOTH | {"v_scale": [1, -1, 1]}, ValueError, "^v_scale: expected finite"),
    (BOTH | {"k_scale": np.nan}, ValueError, "^k_scale: expected finite"),
    (BOTH | {"k_scale": 1e39}, ValueError, "^k_scale: expected finite"),
    (BOTH | {"k_scale": [1, 2]}, ValueError, r"^k_scale: expected .* got the shape \[2\]"),
    (BOTH | {"k_scale": "one"}, TypeError, "^k_scale: expected a number"),
    ({"dtype": "q5_0"}, ValueError, f"^dtype: expected one of {', '.join(DTYPES)}, got 'q5_0'"),
    ({"dtype": "q8_0", "qjl": True}, ValueError, "^qjl: expected quantised keys .* got keys of dtype 'q8_0'"),
]


@pytest.mark.parametrize(("options", "error", "message"), SCALES)
def test_wrong_scales(device, bridge, options, error, message):
    refused(bridge, error, message, pa.KVCache, 2, 3, 10, 8, **options)


def test_a_tensor_is_no_scale(device):
    with pytest.raises(TypeError, match=r"^k_scale: expected numbers or an array"):
        pa.KVCache(2, 3, 10, 8, dtype="int8", k_scale=device.empty((3,)), v_scale=1)


@pytest.mark.parametrize("dtype", ["int8", "q8_0", "q4_0"])
def test_arrays_that_are_not_finite(device, bridge, dtype):
    scales = {"k_scale": 1, "v_scale": 1} if dtype == "int8" else {}
    cache = pa.KVCache(2, 3, 10, 8, dtype=dtype, **scales)
    device.flush()
    bridge.programs.clear()
    rows = ones(2, 3, 5, 8)
    rows[0, 0, 1, 2] = np.inf
    refused(bridge, ValueError, "^key: expected finite float32 numbers", cache.append, rows, ones(2, 3, 5, 8))
    assert cache.length == 0
