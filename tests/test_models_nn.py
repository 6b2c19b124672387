"""The encoder's kernels without a GPU: what would be dispatched, and what is refused."""

import asyncio

import numpy as np
import pytest

from py_attn.gpu.device import request_device
from py_attn.kernels import nn
from tests.recording_bridge import RecordingBridge


def zeros(device, *shape, dtype="float32"):
    return device.tensor(np.zeros(shape, np.float32), dtype)


def only_launch(bridge, device):
    device.flush()
    (launch,) = bridge.programs[-1]
    return launch


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "variant", "workgroups"),
    [
        (1, 4, 4, "16x128", 1),
        (16, 384, 1152, "16x128", 9),
        (17, 384, 1152, "16x128", 18),
        (64, 384, 1152, "32x128", 18),
        (65, 384, 132, "32x128", 6),
        (3, 5, 8, "16x128 unaligned", 1),
        (3, 8, 5, "16x128 unaligned", 1),
    ],
)
def test_linear_plan(bridge, device, rows, inner, columns, variant, workgroups):
    out = nn.linear(zeros(device, rows, inner), zeros(device, inner, columns), zeros(device, columns))
    launch = only_launch(bridge, device)
    assert out.shape == (rows, columns)
    assert launch.label == f"linear/{variant}"
    assert launch.workgroups == (workgroups, 1, 1)
    assert len(launch.buffers) == 4


def test_linear_keeps_leading_axes(device):
    assert nn.linear(zeros(device, 2, 3, 4), zeros(device, 4, 8)).shape == (2, 3, 8)


def test_linear_reads_a_misaligned_view_element_by_element(bridge, device):
    nn.linear(zeros(device, 3, 4), zeros(device, 36).reshape(9, 4)[1:5], zeros(device, 5)[1:])
    assert only_launch(bridge, device).label == "linear/16x128 unaligned"


def test_nothing_to_compute_dispatches_nothing(bridge, device):
    assert nn.linear(zeros(device, 0, 4), zeros(device, 4, 8)).shape == (0, 8)
    assert nn.layer_norm(zeros(device, 0, 4), zeros(device, 4), zeros(device, 4)).shape == (0, 4)
    device.flush()
    assert bridge.programs == []


def test_more_rows_than_a_dimension_has_workgroups(bridge, device):
    nn.layer_norm(zeros(device, 70_000, 1), zeros(device, 1), zeros(device, 1))
    x, y, z = only_launch(bridge, device).workgroups
    assert x * y * z >= 70_000
    assert max(x, y, z) <= 65_535


def test_shaders_stay_within_the_smallest_limits(bridge, device):
    x, vector = zeros(device, 5, 8), zeros(device, 8)
    for activation in ("gelu", None):
        nn.linear(x, zeros(device, 8, 8), activation=activation)
    for residual in (x, None):
        nn.layer_norm(x, vector, vector, residual=residual)
    nn.embedding([1, 2], x, x, x)
    nn.mean_pool(x)
    device.flush()
    launches = bridge.launches
    assert len(launches) == 6
    for launch in launches:
        assert len(launch.buffers) <= 8
        assert "subgroup" not in launch.wgsl
        assert "//#" not in launch.wgsl
        assert "{{" not in launch.wgsl


def other_device_tensor():
    return zeros(asyncio.run(request_device(RecordingBridge())), 4)


def destroyed(tensor):
    tensor.destroy()
    return tensor


CASES = {
    "activation": (
        lambda d: nn.linear(zeros(d, 2, 4), zeros(d, 4, 4), activation="relu"),
        "activation: expected \"gelu\" or None, got 'relu'",
    ),
    "weight shape": (
        lambda d: nn.linear(zeros(d, 2, 4), zeros(d, 5, 3)),
        r"weight: expected shape \[4, 3\], got \[5, 3\]",
    ),
    "weight axes": (
        lambda d: nn.linear(zeros(d, 2, 4), zeros(d, 4)),
        r"weight: expected at least 2 dimensions, got shape \[4\]",
    ),
    "bias shape": (
        lambda d: nn.linear(zeros(d, 2, 4), zeros(d, 4, 3), zeros(d, 4)),
        r"bias: expected shape \[3\], got \[4\]",
    ),
    "no axes": (
        lambda d: nn.linear(zeros(d, 1)[0], zeros(d, 1, 1)),
        r"x: expected at least 1 dimensions, got shape \[\]",
    ),
    "dtype": (
        lambda d: nn.linear(zeros(d, 2, 4, dtype="float16"), zeros(d, 4, 4)),
        "x: expected dtype float32, got float16",
    ),
    "strided": (lambda d: nn.mean_pool(zeros(d, 4, 2).transpose()), "x: expected packed rows, got a view"),
    "other device": (
        lambda d: nn.layer_norm(zeros(d, 4), zeros(d, 4), other_device_tensor()),
        "bias: the tensor is on another device",
    ),
    "destroyed": (
        lambda d: nn.layer_norm(zeros(d, 4), destroyed(zeros(d, 4)), zeros(d, 4)),
        "weight: the tensor was destroyed",
    ),
    "residual": (
        lambda d: nn.layer_norm(zeros(d, 2, 4), zeros(d, 4), zeros(d, 4), residual=zeros(d, 4)),
        r"residual: expected shape \[2, 4\], got \[4\]",
    ),
    "epsilon": (
        lambda d: nn.layer_norm(zeros(d, 4), zeros(d, 4), zeros(d, 4), epsilon=-1.0),
        "epsilon: expected a number >= 0, got -1.0",
    ),
    "id too large": (
        lambda d: nn.embedding([0, 9], *(zeros(d, 9, 4) for _ in range(3))),
        "ids: expected ids from 0 to 8, got 9",
    ),
    "id negative": (
        lambda d: nn.embedding([-1], *(zeros(d, 9, 4) for _ in range(3))),
        "ids: expected ids from 0 to 8, got -1",
    ),
    "too many ids": (
        lambda d: nn.embedding([0] * 4, zeros(d, 9, 4), zeros(d, 3, 4), zeros(d, 2, 4)),
        r"ids: expected at most 3 \(the positions\), got 4",
    ),
    "table width": (
        lambda d: nn.embedding([0], zeros(d, 9, 4), zeros(d, 3, 5), zeros(d, 2, 4)),
        r"position: expected shape \[3, 4\], got \[3, 5\]",
    ),
    "no rows": (lambda d: nn.mean_pool(zeros(d, 0, 4)), "x: expected at least one row"),
    "one axis": (lambda d: nn.mean_pool(zeros(d, 4)), "x: expected at least 2 dimensions"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "words"), CASES.values(), ids=CASES.keys())
def test_bad_arguments_are_named(bridge, device, call, words):
    with pytest.raises(ValueError, match=words):
        call(device)
    device.flush()
    assert bridge.programs == []


def test_arrays_are_no_tensors(device):
    with pytest.raises(TypeError, match="x: expected a Tensor, got ndarray"):
        nn.linear(np.zeros((2, 4), np.float32), zeros(device, 4, 4))
    with pytest.raises(TypeError, match="bias: expected a Tensor, got list"):
        nn.linear(zeros(device, 2, 4), zeros(device, 4, 4), [0.0] * 4)
    with pytest.raises(TypeError, match="ids: expected an integer"):
        nn.embedding([1.5], *(zeros(device, 9, 4) for _ in range(3)))
