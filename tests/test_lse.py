"""An LSE and what lies behind it: each row's maximum and sum, and who finds them there."""

import asyncio
import math

import numpy as np
import pytest

import py_attn as pa
from py_attn.gpu import device as gpu_device
from py_attn.kernels.lse import new_lse
from tests.recording_bridge import RecordingBridge
from tests.test_plans import plan


@pytest.fixture
def device():
    return asyncio.run(gpu_device.request_device(RecordingBridge()))


@pytest.fixture
def inputs(device):
    """query [2, 4, 5, 8], key [2, 2, 7, 8] and value [2, 2, 7, 6]."""
    return [device.empty(shape) for shape in ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6))]


def read_params(device, inputs, lse, **options):
    ((_, params, *_),) = plan(device, pa.attention_weights, *inputs[:2], lse, **options)
    return params["lse_first"], params["lse_plane"], params["lse_unit"]


def test_the_public_lse_is_what_it_was(device, inputs):
    _, lse = pa.attention(*inputs, return_lse=True)
    assert (lse.shape, lse.dtype, lse.nbytes, lse.is_contiguous) == ((2, 4, 5), "float32", 160, True)


def test_kernels_find_what_lies_behind_an_lse_and_its_views(device, inputs):
    _, lse = pa.attention(*inputs, return_lse=True)
    assert read_params(device, inputs, lse) == (0, 40, 1.0)
    query, key, _ = inputs
    part = plan(device, pa.attention_weights, query[1:, 2:], key[1:, 1:], lse[1:, 2:])[0][1]
    assert (part["lse_first"], part["lse_plane"]) == (30, 40)


def test_of_a_copy_there_is_the_lse_alone(device, inputs):
    first, plane, unit = read_params(device, inputs, np.zeros((2, 4, 5), np.float32))
    assert (first, plane, unit) == (0, 0, pytest.approx(math.log2(math.e)))
    mask = device.empty((5, 7))
    assert read_params(device, inputs, np.zeros((2, 4, 5), np.float32), mask=mask) == (0, 0, 1.0)


def test_units_of_the_maximum_are_turned_into_those_of_the_reader(device, inputs):
    mask = device.empty((5, 7))
    _, natural = pa.attention(*inputs, mask=mask, return_lse=True)
    _, binary = pa.attention(*inputs, mask=device.empty((5, 7), "bool"), return_lse=True)
    assert read_params(device, inputs, natural, mask=mask)[2] == 1.0
    assert read_params(device, inputs, natural)[2] == pytest.approx(math.log2(math.e))
    assert read_params(device, inputs, binary)[2] == 1.0
    assert read_params(device, inputs, binary, mask=mask)[2] == pytest.approx(math.log(2))


def test_an_lse_too_large_for_three_planes_comes_alone():
    bridge = RecordingBridge(maxStorageBufferBindingSize=4096)
    device = asyncio.run(gpu_device.request_device(bridge))
    assert new_lse("lse", (300,), device.info.limits, natural=True).row_parts.distance == 300
    assert new_lse("lse", (400,), device.info.limits, natural=True).row_parts is None
