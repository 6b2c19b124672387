"""Tensors: bytes to the GPU and back, and views against numpy's own."""

import asyncio

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from py_attn.errors import DeviceLostError
from py_attn.gpu import device as gpu_device
from py_attn.gpu.dtypes import DTYPES, round_to
from tests.recording_bridge import RecordingBridge

shapes = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
one_device = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def back(tensor):
    return asyncio.run(tensor.numpy())


def numbers(shape, dtype):
    """Different numbers that every dtype holds exactly."""
    count = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    return count % 3 == 1 if dtype == "bool" else (count % 250 + 1).astype(DTYPES[dtype].carrier.name)


@pytest.mark.parametrize("dtype", DTYPES)
@one_device
@given(shape=shapes)
def test_round_trip(device, dtype, shape):
    values = numbers(shape, dtype) if dtype != "bfloat16" else numbers(shape, "float32")
    tensor = device.tensor(values, dtype)
    assert tensor.shape == shape
    assert tensor.dtype == dtype
    assert tensor.nbytes == values.size * DTYPES[dtype].itemsize
    got = back(tensor)
    assert got.dtype == (np.float32 if dtype == "bfloat16" else values.dtype)
    np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_special_values_survive(device, dtype):
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4e38, 1 / 3], np.float32)
    got = back(device.tensor(values, dtype)).astype(np.float32)
    expected = round_to(values, dtype)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got[1:]), np.signbit(expected[1:]))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(10)[::-2],
        np.broadcast_to(np.float32(3), (4, 5)),
        [[1, 2], [3, 4]],
        2.5,
        True,
        np.arange(6, dtype=">f4"),
    ],
    ids=["transposed", "reversed", "broadcast", "list", "number", "bool", "other byte order"],
)
def test_any_array_can_be_uploaded(device, array):
    np.testing.assert_array_equal(back(device.tensor(array)), array)


def test_only_whole_words_are_written(device, bridge):
    device.tensor(np.ones(5, bool))
    writes = bridge.of("write_buffer")
    assert [(offset, data) for _, _, offset, data in writes] == [(0, b"\1" * 4), (4, b"\1\0\0\0")]


@pytest.mark.parametrize("array", [[[1, 2], [3]], ["a"], object(), None, 1j])
def test_what_is_no_array_is_refused(device, bridge, array):
    with pytest.raises(TypeError, match=r"^array: expected"):
        device.tensor(array)
    assert bridge.log == []


def test_a_tensor_is_no_array(device):
    with pytest.raises(TypeError, match="key: expected an array, got a Tensor"):
        device.tensor(device.tensor([1.0]), name="key")


# Views


def indices_of(shape):
    """What numpy's basic indexing and ours have in common: ints, positive steps, ``...`` and None."""
    return npst.basic_indices(shape, allow_newaxis=True, max_dims=6).filter(
        lambda index: all(
            not isinstance(part, slice) or part.step is None or part.step > 0
            for part in (index if isinstance(index, tuple) else (index,))
        )
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bool"])
@one_device
@given(data=st.data(), shape=shapes)
def test_indexing_is_numpys(device, dtype, data, shape):
    values = numbers(shape, dtype)
    index = data.draw(indices_of(shape))
    view = device.tensor(values)[index]
    expected = values[index]
    assert view.shape == expected.shape
    np.testing.assert_array_equal(back(view), expected)
    # A view of the view, too.
    again = data.draw(indices_of(expected.shape))
    np.testing.assert_array_equal(back(view[again]), expected[again])


@one_device
@given(data=st.data(), shape=npst.array_shapes(max_dims=4, max_side=4))
def test_transpose_is_numpys(device, data, shape):
    values = numbers(shape, "float32")
    axes = data.draw(st.permutations(range(len(shape))))
    negative = [axis - len(shape) for axis in axes]
    tensor = device.tensor(values)
    np.testing.assert_array_equal(back(tensor.transpose(*axes)), values.transpose(axes))
    np.testing.assert_array_equal(back(tensor.transpose(*negative)), values.transpose(axes))
    np.testing.assert_array_equal(back(tensor.transpose()), values.T)


def cut(data, length):
    """A length as a product of others."""
    parts = []
    while length > 1 and data.draw(st.booleans()):
        divisor = data.draw(st.sampled_from([n for n in range(1, length + 1) if length % n == 0]))
        parts.append(divisor)
        length //= divisor
    return [*parts, length]


@one_device
@given(data=st.data(), shape=npst.array_shapes(max_dims=4, max_side=6))
def test_reshape_is_numpys_or_refused(device, data, shape):
    values = numbers(shape, "float32")
    axes = data.draw(st.permutations(range(len(shape))))
    index = data.draw(indices_of(values.transpose(axes).shape))
    expected = np.asarray(values.transpose(axes)[index])
    view = device.tensor(values).transpose(*axes)[index]
    target = cut(data, expected.size) if expected.size else [0]
    without_copy = expected.view()
    try:
        without_copy.shape = target
    except AttributeError:
        with pytest.raises(ValueError, match=r"does not become .* without a copy"):
            view.reshape(*target)
        return
    np.testing.assert_array_equal(back(view.reshape(*target)), without_copy)
    np.testing.assert_array_equal(back(view.reshape(*target[:-1], -1)), without_copy)


def test_views_copy_nothing(device, bridge):
    tensor = device.tensor(np.zeros((4, 6)))
    before = len(bridge.log), device.memory_allocated()
    tensor[1:3, ::2].transpose().reshape(3, 2)
    assert (len(bridge.log), device.memory_allocated()) == before


def test_a_view_can_be_written_to(device):
    whole = device.tensor(np.zeros((4, 3), np.float32))
    whole[1:3].write(np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(back(whole), [[0, 0, 0], [0, 1, 2], [3, 4, 5], [0, 0, 0]])
    words = device.tensor([1, 2, 3], "uint32")
    words[2].write(9)
    np.testing.assert_array_equal(back(words), [1, 2, 9])


def test_what_cannot_be_written(device):
    whole = device.tensor(np.zeros((4, 3), np.float32))
    with pytest.raises(ValueError, match="contiguous elements of 4 bytes"):
        whole[:, 1].write(np.zeros(4))
    with pytest.raises(ValueError, match="contiguous elements of 4 bytes"):
        device.tensor(np.zeros(4), "float16").write(np.zeros(4))
    with pytest.raises(ValueError, match=r"array: expected shape \[4, 3\], got \[3\]"):
        whole.write(np.zeros(3))
    with pytest.raises(ValueError, match="array: expected values from 0"):
        device.tensor([1], "uint32").write([-1])
    whole.destroy()
    with pytest.raises(ValueError, match="destroyed"):
        whole.write(np.zeros((4, 3)))


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ((0, 0, 0), IndexError, "too many indices: 3"),
        ((..., ...), IndexError, "only one"),
        (4, IndexError, "index 4 is out of range for axis 0 of length 4"),
        ((0, -7), IndexError, "index -7 is out of range for axis 1"),
        (slice(None, None, -1), ValueError, "positive step"),
        (1.0, TypeError, "index: expected an integer"),
        (True, TypeError, "index: expected an integer"),
        ("a", TypeError, "index: expected an integer"),
        ([0, 1], TypeError, "index: expected an integer"),
    ],
)
def test_wrong_indices(device, index, error, message):
    with pytest.raises(error, match=message):
        device.tensor(np.zeros((4, 6)))[index]


@pytest.mark.parametrize("axes", [(0,), (0, 0), (0, 2), (0, -3), (1, 0, 2)])
def test_wrong_axes(device, axes):
    with pytest.raises(ValueError, match="axes: expected a permutation of 2 axes"):
        device.tensor(np.zeros((4, 6))).transpose(*axes)


@pytest.mark.parametrize("shape", [(5, 5), (-1, -1), (-1, 5), (24, 0), (-2, -12), (25,)])
def test_wrong_shapes(device, shape):
    with pytest.raises(ValueError, match="shape: "):
        device.tensor(np.zeros((4, 6))).reshape(*shape)


def test_little_things(device):
    tensor = device.tensor(np.zeros((4, 6)), "float16")
    assert repr(tensor) == "Tensor(shape=[4, 6], dtype=float16)"
    assert len(tensor) == 4
    assert (tensor.ndim, tensor.size, tensor.nbytes) == (2, 24, 48)
    assert tensor.is_contiguous
    assert not tensor.transpose().is_contiguous
    with pytest.raises(TypeError, match="without dimensions"):
        len(tensor[0, 0])
    tensor.destroy()
    assert repr(tensor) == "Tensor(shape=[4, 6], dtype=float16, destroyed)"


# Life


def test_a_destroyed_tensor_and_its_views_are_of_no_use(device):
    with device.tensor(np.zeros((4, 6))) as tensor:
        view = tensor[1:]
    tensor.destroy()
    for attempt in (
        lambda: view[0], view.transpose, lambda: view.reshape(18), lambda: back(tensor), lambda: back(view),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="the tensor was destroyed"):
            attempt()


def test_tensors_of_a_lost_device_say_so(device, bridge):
    tensor = device.tensor(np.zeros(3))
    empty = device.tensor(np.zeros(0))
    bridge.reason = "destroyed: by a test"
    for attempt in (lambda: back(tensor), lambda: back(empty), lambda: tensor[0]):
        with pytest.raises(DeviceLostError, match="by a test"):
            attempt()
    tensor.destroy()
    assert bridge.of("destroy_buffer") == []


def test_reading_needs_no_more_than_the_view(device, bridge):
    tensor = device.tensor(np.arange(1000, dtype=np.float16))
    np.testing.assert_array_equal(back(tensor[101:105]), [101, 102, 103, 104])
    assert bridge.of("read_buffer") == [("read_buffer", tensor._storage.handle, 200, 12)]


def test_a_new_bridge_needs_no_fixture():
    device = asyncio.run(gpu_device.request_device(RecordingBridge(subgroup_size=32)))
    assert device.info.subgroup_max_size == 32
    assert repr(device) == "Device(fake)"
    device.destroy()
    assert repr(device) == "Device(fake, lost)"
    gpu_device._default = None
