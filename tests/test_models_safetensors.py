"""The safetensors reader on well-formed, broken and hostile files."""

import json
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from py_attn.models.safetensors import DTYPES, SafeTensors

NUMPY_NAMES = {dtype: name for name, dtype in DTYPES.items() if name != "BF16"}


def pack(header, data=b"", padding=0):
    text = header if isinstance(header, bytes) else json.dumps(header).encode() + b" " * padding
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def write(arrays, padding=0):
    header, data = {"__metadata__": {"format": "test"}}, b""
    for name, array in arrays.items():
        span = (len(data), len(data) + array.nbytes)
        header[name] = entry(NUMPY_NAMES[array.dtype], array.shape, span)
        data += array.tobytes()
    return pack(header, data, padding)


any_array = st.sampled_from(list(NUMPY_NAMES)).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)


@given(
    arrays=st.dictionaries(st.text(st.characters(codec="utf-8")), any_array, max_size=4),
    padding=st.integers(0, 8),
)
def test_gives_back_what_was_written(arrays, padding):
    arrays.pop("__metadata__", None)
    file = SafeTensors(write(arrays, padding))
    assert file.metadata == {"format": "test"}
    assert sorted(file) == sorted(arrays)
    assert len(file) == len(arrays)
    for name, array in arrays.items():
        assert file[name].dtype == array.dtype
        assert file[name].shape == array.shape
        assert file[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_arrays_are_read_only_views(wrap):
    data = wrap(write({"a": np.arange(6, dtype=np.float32).reshape(2, 3)}))
    array = SafeTensors(data)["a"]
    assert np.shares_memory(array, np.frombuffer(data, np.uint8))
    assert not array.flags.writeable


def test_float32_of_every_floating_dtype():
    values = np.array([1.5, -2.0, 0.0, np.inf], np.float32)
    bfloat16 = (values.view(np.uint32) >> 16).astype(np.uint16)
    arrays = {"f16": values.astype(np.float16), "f32": values, "f64": values.astype(np.float64)}
    header, data = {}, b""
    for name, array in [*arrays.items(), ("bf16", bfloat16)]:
        header[name] = entry(name.upper(), (4,), (len(data), len(data) + array.nbytes))
        data += array.tobytes()
    file = SafeTensors(pack(header, data))
    for name in file:
        np.testing.assert_array_equal(file.float32(name), values)
        assert file.float32(name).dtype == np.float32
    np.testing.assert_array_equal(file["bf16"], bfloat16)
    assert np.shares_memory(file.float32("f32"), file["f32"])


def test_float32_refuses_integers():
    with pytest.raises(ValueError, match="'a' has dtype I64, expected a floating-point one"):
        SafeTensors(write({"a": np.arange(3)})).float32("a")


def test_unknown_name():
    with pytest.raises(KeyError, match="missing"):
        SafeTensors(write({}))["missing"]


OK = b"\0" * 8
BROKEN = {
    "empty": (b"", "has 0 bytes, expected at least the 8"),
    "seven bytes": (b"\0" * 7, "has 7 bytes"),
    "header past the end": (struct.pack("<Q", 100) + b"{}", "claims 100 bytes, but only 2 follow"),
    "header too large": (struct.pack("<Q", 2**63) + b"{}", "9223372036854775808 bytes, more than"),
    "no header": (pack(b""), "not valid JSON"),
    "bad JSON": (pack(b"{nope}"), "not valid JSON"),
    "bad UTF-8": (pack(b'{"\xff": 1}'), "not valid JSON"),
    "endless nesting": (pack(b"[" * 100_000), "not valid JSON"),
    "endless number": (pack(b'{"a": ' + b"9" * 5000 + b"}"), "not valid JSON"),
    "no object": (pack([1]), "must be a JSON object, got list"),
    "name twice": (pack(b'{"a": 1, "a": 2}'), "names 'a' twice"),
    "field twice": (pack(b'{"a": {"dtype": "F32", "dtype": "I8"}}'), "names 'dtype' twice"),
    "metadata no object": (pack({"__metadata__": "x"}), "__metadata__ must be an object of strings"),
    "metadata no strings": (pack({"__metadata__": {"a": 1}}), "__metadata__ must be an object of strings"),
    "entry no object": (pack({"a": 3}), "tensor 'a' must be described by an object, got 3"),
    "field missing": (pack({"a": {"dtype": "F32", "shape": []}}), "fields ['dtype', 'shape'], expected"),
    "field unknown": (pack({"a": entry() | {"extra": 1}}), "expected dtype, shape and data_offsets"),
    "dtype unknown": (pack({"a": entry("F8_E4M3")}, OK), "dtype 'F8_E4M3', expected one of BOOL"),
    "dtype no string": (pack({"a": entry(["F32"])}, OK), "dtype ['F32']"),
    "shape no list": (pack({"a": entry() | {"shape": 2}}, OK), "shape 2, expected a list"),
    "shape negative": (pack({"a": entry(shape=(-2,))}, OK), "shape [-2], expected a list of non-negative"),
    "shape boolean": (pack({"a": entry(shape=(True, 2))}, OK), "shape [True, 2], expected a list"),
    "shape fraction": (pack({"a": entry(shape=(2.0,))}, OK), "shape [2.0], expected a list"),
    "too many axes": (pack({"a": entry(shape=(1,) * 65, offsets=(0, 4))}, b"\0" * 4), "65 axes, expected"),
    "too many elements": (pack({"a": entry(shape=(2**62, 2**62))}, OK), "more elements than can be"),
    "zero times too many": (pack({"a": entry(shape=(0, 2**63), offsets=(0, 0))}), "more elements than"),
    "offsets no pair": (pack({"a": entry(offsets=(0, 4, 8))}, OK), "data_offsets [0, 4, 8], expected [begin"),
    "offsets backwards": (pack({"a": entry(offsets=(8, 0))}, OK), "data_offsets [8, 0], expected"),
    "offsets negative": (pack({"a": entry(offsets=(-8, 0))}, OK), "data_offsets [-8, 0], expected"),
    "bytes against shape": (
        pack({"a": entry(shape=(3,))}, OK),
        "has 8 bytes (data_offsets [0, 8]), but F32 of shape [3] takes 12",
    ),
    "bytes against dtype": (pack({"a": entry("I64")}, OK), "but I64 of shape [2] takes 16"),
    "past the end": (pack({"a": entry()}, b"\0" * 7), "ends at data offset 8, but the file has only 7 bytes"),
    "hole before": (pack({"a": entry(offsets=(4, 12))}, b"\0" * 12), "'a' leaves a hole after the header"),
    "hole between": (
        pack({"a": entry(), "b": entry(offsets=(12, 20))}, b"\0" * 20),
        "tensor 'b' leaves a hole after tensor 'a': it begins at data offset 12, expected 8",
    ),
    "overlap": (
        pack({"a": entry(), "b": entry(offsets=(4, 12))}, b"\0" * 12),
        "tensor 'b' overlaps tensor 'a': it begins at data offset 4, expected 8",
    ),
    "the same bytes": (pack({"a": entry(), "b": entry()}, OK), "tensor 'b' overlaps tensor 'a'"),
    "bytes left over": (pack({"a": entry()}, OK + b"\0"), "1 bytes follow tensor 'a'"),
    "bytes without tensors": (pack({}, b"\0"), "1 bytes follow the header"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_file_says_what_is_wrong(data, words):
    with pytest.raises(ValueError, match=r"^safetensors: ") as caught:
        SafeTensors(data)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("cut", range(8, 60, 7))
def test_truncated_anywhere(cut):
    whole = write({"a": np.arange(4, dtype=np.float32), "b": np.zeros((2, 2), np.int8)})
    with pytest.raises(ValueError, match=r"^safetensors: "):
        SafeTensors(whole[:-cut])


def read_or_refuse(data):
    """The file, or None where it was refused with one of the reader's own messages."""
    try:
        return SafeTensors(data)
    except ValueError as error:
        if not str(error).startswith("safetensors: "):
            raise
        return None


@given(st.binary(max_size=80))
@example(struct.pack("<Q", 2) + b"{}")
def test_random_bytes_never_raise_anything_else(data):
    read_or_refuse(data)


json_value = st.recursive(
    st.none() | st.booleans() | st.integers(-4, 2**70) | st.floats() | st.sampled_from(["F32", "I8", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
)
headers = st.dictionaries(
    st.sampled_from(["a", "b", "__metadata__"]),
    json_value
    | st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["F32", "I8"]) | json_value,
            "shape": st.lists(st.integers(0, 3), max_size=3) | json_value,
            "data_offsets": st.lists(st.integers(0, 16), min_size=2, max_size=2) | json_value,
        }
    ),
)


@given(headers, st.binary(max_size=16))
def test_random_headers_give_arrays_or_a_value_error(header, data):
    file = read_or_refuse(pack(header, data))
    if file is not None:
        assert sum(file[name].nbytes for name in file) == len(data)


def test_no_buffer():
    with pytest.raises(TypeError, match="expected a bytes-like object, got str"):
        SafeTensors("model.safetensors")


def test_strided_buffer():
    with pytest.raises(ValueError, match="contiguous"):
        SafeTensors(memoryview(write({}) * 2)[::2])
