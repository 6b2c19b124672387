"""What `pa.turboquant` and quantised caches would dispatch, and what they refuse. On a recording bridge."""

import numpy as np
import pytest

import py_attn as pa
from py_attn import turboquant_reference as reference
from tests.recording_bridge import RecordingBridge
from tests.test_device import device_on
from tests.test_plans import plan


def zeros(*shape):
    return np.zeros(shape, np.float32)


def names(dispatches):
    return [shader.label for shader, *_ in dispatches]


def test_quantize_is_one_dispatch(device):
    x = device.empty((2, 3, 5, 80))
    (found,) = plan(device, pa.turboquant.quantize, x, 3)
    shader, params, workgroups, _ = found
    assert shader.label == "turboquant_quantize/3-bit"
    assert (params["batch"], params["heads"], params["count"], params["capacity"]) == (2, 3, 5, 5)
    # 80 numbers are 20 groups of four: 32 invocations, so that two rows share a workgroup of 64.
    assert workgroups == (15, 1, 1)
    packed = pa.turboquant.quantize(x, 3)
    assert packed.shape == (2, 3, 5, 80)
    assert packed.bits == 3
    assert packed.words.shape == (2, 3, 5, 1 + 8)
    assert packed.nbytes == 30 * 36
    assert repr(packed) == "Packed(shape=[2, 3, 5, 80], bits=3, nbytes=1,080)"
    assert names(plan(device, pa.turboquant.dequantize, packed)) == ["turboquant_rotate/dequantize"]
    assert pa.turboquant.dequantize(packed).shape == x.shape


@pytest.mark.parametrize("shape", [(16,), (3, 16), (2, 3, 16), (2, 3, 4, 5, 6, 16), (0, 16), (2, 0, 3, 16)])
@pytest.mark.parametrize("qjl", [False, True])
def test_any_number_of_axes(device, shape, qjl):
    packed = pa.turboquant.quantize(zeros(*shape), 4, qjl=qjl)
    assert packed.shape == shape
    assert packed.words.shape == reference.pack(reference.quantize(zeros(*shape), 4, qjl=qjl)).shape
    out = pa.turboquant.dequantize(packed)
    assert (out.shape, out.dtype) == (shape, "float32")
    device.flush()


def test_views_are_read_in_place(device):
    x = device.empty((4, 6, 2, 32)).transpose(2, 1, 0, 3)[:, 1:5, ::2]
    (found,) = plan(device, pa.turboquant.quantize, x, 2)
    assert found[1]["source_strides"] == [32, 64, 768, 1]
    assert found[1]["source_first"] == 64


NOT_FINITE = np.where(np.arange(8) == 5, np.inf, 1.0)[None]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda d: pa.turboquant.quantize(zeros(2, 8), 0), ValueError, "bits: expected 1 to 4, got 0"),
        (lambda d: pa.turboquant.quantize(zeros(2, 8), 5), ValueError, "bits: expected 1 to 4, got 5"),
        (lambda d: pa.turboquant.quantize(zeros(2, 8), 2.0), TypeError, "bits: expected an integer, got 2.0"),
        (lambda d: pa.turboquant.quantize(zeros(2, 8), True), TypeError, "bits: expected an integer"),
        (
            lambda d: pa.turboquant.quantize(zeros(2, 8), 1, qjl=True),
            ValueError,
            "bits: expected 2 to 4 with qjl, which takes one of them, got 1",
        ),
        (lambda d: pa.turboquant.quantize(1.0, 2), ValueError, "x: expected at least one axis"),
        (
            lambda d: pa.turboquant.quantize(zeros(2, 0), 2),
            ValueError,
            "x: expected a head dim from 1 to 512",
        ),
        (lambda d: pa.turboquant.quantize(zeros(513), 2), ValueError, "x: expected a head dim from 1 to 512"),
        (
            lambda d: pa.turboquant.quantize(np.zeros((2, 8), np.int32), 2),
            TypeError,
            "x: expected float32, float16 or bfloat16, got int32",
        ),
        (
            lambda d: pa.turboquant.quantize(NOT_FINITE, 2),
            ValueError,
            r"x: expected finite float32 numbers to quantise, got inf at \[0, 5\] \(1 in all\)",
        ),
        (lambda d: pa.turboquant.quantize(["a", "b"], 2), TypeError, "x: expected numbers or booleans"),
        (lambda d: pa.turboquant.quantize([1e300], 2), ValueError, r"got 1e\+300 at \[0\]"),
        (
            lambda d: pa.turboquant.dequantize(zeros(2, 8)),
            TypeError,
            "packed: expected what quantize returns, got ndarray",
        ),
        (
            lambda d: pa.KVCache(1, 1, 4, 8, dtype="turboquant5"),
            ValueError,
            "dtype: expected one of float32, .*turboquant1, uniform4, int8, q8_0, q4_0, got 'turboquant5'",
        ),
        (lambda d: pa.KVCache(1, 1, 4, 8, dtype="turboquant0"), ValueError, "got 'turboquant0'"),
        (
            lambda d: pa.KVCache(1, 1, 4, 8, qjl=True),
            ValueError,
            "qjl: expected quantised keys to spend a bit of, got keys of dtype 'float32'",
        ),
        (
            lambda d: pa.KVCache(1, 1, 4, 8, dtype="turboquant1", qjl=True),
            ValueError,
            "bits: expected 2 to 4 with qjl",
        ),
    ],
)
def test_bad_arguments_are_named(bridge, device, call, error, words):
    with pytest.raises(error, match=words):
        call(device)
    device.flush()
    assert bridge.programs == []


def test_a_destroyed_tensor_is_named(device):
    packed = pa.turboquant.quantize(zeros(2, 8), 2)
    packed.words.destroy()
    with pytest.raises(ValueError, match="packed: the tensor was destroyed"):
        pa.turboquant.dequantize(packed)


# caches


@pytest.mark.parametrize(
    ("dtype", "qjl", "nbytes"),
    [
        ("float32", False, 2 * 3 * 100 * 4 * (64 + 32)),
        ("turboquant4", False, 2 * 3 * 100 * (4 + 32 + 4 + 16)),
        ("turboquant3", False, 2 * 3 * 100 * (4 + 24 + 4 + 12)),
        ("turboquant1", False, 2 * 3 * 100 * (4 + 8 + 4 + 4)),
        (("turboquant4", "turboquant2"), False, 2 * 3 * 100 * (4 + 32 + 4 + 8)),
        (("turboquant4", "float16"), False, 2 * 3 * 100 * (4 + 32 + 64)),
        (("turboquant4", "turboquant4"), True, 2 * 3 * 100 * (4 + 24 + 4 + 8 + 4 + 16)),
    ],
)
def test_nbytes_are_what_is_kept(device, dtype, qjl, nbytes):
    before = device.memory_allocated()
    cache = pa.KVCache(2, 3, 100, 64, value_head_dim=32, dtype=dtype, qjl=qjl)
    assert cache.nbytes == nbytes
    assert device.memory_allocated() - before == nbytes


def test_append_is_one_dispatch_a_tensor(device):
    cache = pa.KVCache(2, 3, 8, 64, dtype=("turboquant4", "turboquant2"))
    rows = [device.empty((2, 3, 6, 64)) for _ in range(2)]
    found = plan(device, cache.append, *rows)
    assert names(found) == ["turboquant_quantize/4-bit", "turboquant_quantize/2-bit"]
    again = plan(device, cache.append, *rows)
    assert [params["first_slot"] for _, params, *_ in again] == [6, 6]
    assert (cache.length, cache.start) == (8, 4)
    mixed = pa.KVCache(2, 3, 8, 64, dtype=("float16", "turboquant3"))
    assert names(plan(device, mixed.append, *rows)) == [
        "cache_append/float32-float16",
        "turboquant_quantize/3-bit",
    ]


@pytest.mark.parametrize(
    ("dtype", "splits", "expected"),
    [
        ("turboquant4", 1, ["turboquant_rotate/forth", "decode_split", "turboquant_rotate/back"]),
        (
            "turboquant4",
            3,
            ["turboquant_rotate/forth", "decode_split", "decode_reduce", "turboquant_rotate/back"],
        ),
        (("turboquant4", "float32"), 1, ["turboquant_rotate/forth", "decode_split"]),
        (("float16", "turboquant2"), 1, ["decode_split", "turboquant_rotate/back"]),
        ("float32", 3, ["decode_split", "decode_reduce"]),
    ],
)
def test_query_and_output_are_rotated_once(device, dtype, splits, expected):
    cache = pa.KVCache(1, 2, 16, 64, dtype=dtype)
    cache.append(zeros(1, 2, 9, 64), zeros(1, 2, 9, 64))
    query = device.empty((1, 4, 1, 64), "float16")
    found = plan(device, pa.decode_attention, query, cache, splits=splits, return_lse=True)
    assert [shader.label if "rotate" in shader.name else shader.name for shader, *_ in found] == expected
    out, lse = pa.decode_attention(query, cache, splits=splits, return_lse=True)
    assert (out.shape, out.dtype, lse.dtype) == ((1, 4, 1, 64), "float16", "float32")
    partial_out, partial_lse = pa.decode_partials(query, cache, splits=splits)
    assert (partial_out.shape, partial_lse.shape) == ((1, 4, 1, splits, 64), (1, 4, 1, splits))


@pytest.mark.parametrize(
    ("dtype", "dim", "splits", "rotations"),
    [
        ("turboquant4", 128, 3, []),
        ("turboquant4", 16, 3, []),
        # One split writes the result at once; 256 numbers are more than a subgroup's, 80 no power of two.
        ("turboquant4", 128, 1, ["back"]),
        ("turboquant4", 256, 3, ["forth", "back"]),
        ("turboquant4", 80, 3, ["forth", "back"]),
        (("turboquant4", "float16"), 128, 3, []),
    ],
)
def test_with_subgroups_decode_rotates_on_the_way(dtype, dim, splits, rotations):
    device = device_on(RecordingBridge(software=False, subgroup_size=32))
    cache = pa.KVCache(1, 2, 16, dim, dtype=dtype)
    cache.append(zeros(1, 2, 9, dim), zeros(1, 2, 9, dim))
    query = device.empty((1, 4, 1, dim), "float16")
    for _ in range(2):
        found = plan(device, pa.decode_attention, query, cache, splits=splits)
        assert [shader.variant for shader, *_ in found if "rotate" in shader.name] == rotations
        # The query is scaled and rotated in float32, whatever it is stored as.
        (split,) = [shader for shader, *_ in found if shader.name == "decode_split"]
        assert split.constants["query_dtype"] == ("float32" if "forth" in rotations else "float16")


def test_residuals_are_rotated_beforehand():
    device = device_on(RecordingBridge(software=False, subgroup_size=32))
    cache = pa.KVCache(1, 2, 16, 128, dtype="turboquant4", qjl=True)
    cache.append(zeros(1, 2, 9, 128), zeros(1, 2, 9, 128))
    found = plan(device, pa.decode_attention, device.empty((1, 4, 1, 128)), cache, splits=3)
    assert names(found)[0] == "turboquant_rotate/forth"


def test_another_shape_or_nan_is_refused_and_the_cache_goes_on(bridge, device):
    cache = pa.KVCache(1, 2, 8, 16, dtype=("turboquant4", "turboquant2"))
    bad = zeros(1, 2, 3, 16)
    bad[0, 1, 2, 0] = np.nan
    for key, value, words in (
        (zeros(1, 3, 3, 16), zeros(1, 3, 3, 16), r"key: expected \[1, 2, S >= 1, 16\] for this cache"),
        (zeros(1, 2, 3, 16), zeros(1, 2, 3, 8), r"value: expected \[1, 2, S >= 1, 16\] for this cache"),
        (
            zeros(1, 2, 3, 16),
            bad,
            r"value: expected finite float32 numbers to quantise, got nan at \[0, 1, 2, 0\]",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            cache.append(key, value)
        device.flush()
        assert bridge.programs == []
        assert cache.length == 0
    cache.append(zeros(1, 2, 3, 16), zeros(1, 2, 3, 16))
    assert cache.length == 3
