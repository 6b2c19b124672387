"""Packed sequences with gaps: what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import py_attn as pa


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"seqused_q": [3, 5]}, ValueError, "^seqused_q: expected 0 to 4 for sequence 1, got 5"),
        ({"seqused_k": [-1, 0]}, ValueError, "^seqused_k: expected 0 to 3 for sequence 0, got -1"),
        ({"seqused_k": [1]}, ValueError, r"^seqused_k: expected shape \[2\], got \[1\]"),
        ({"seqused_q": [1.0, 2.0]}, TypeError, "^seqused_q: expected integers, got float64"),
        (
            {"seqused_q": [3, 4], "cu_seqlens_k": [0, 3]},
            ValueError,
            "^cu_seqlens_k: expected to begin with 0",
        ),
    ],
)
def test_gaps_that_do_not_fit(device, changes, error, message):
    x, ends = device.empty((7, 2, 8)), {"cu_seqlens_q": [0, 3, 7], "cu_seqlens_k": [0, 3, 7]}
    with pytest.raises(error, match=message):
        pa.varlen_attention(x, x, x, **ends | changes)


@pytest.mark.parametrize("name", ["seqused_q", "seqused_k", "cu_seqlens_q", "cu_seqlens_k"])
def test_gaps_are_not_read_back(device, name):
    x, numbers = (
        device.empty((7, 2, 8)),
        {"cu_seqlens_q": [0, 7], "cu_seqlens_k": [0, 7], "seqused_q": [3], "seqused_k": [3]},
    )
    numbers[name] = device.tensor(np.int32(numbers[name]))
    message = (
        f"^{name}: expected an array or a list where seqused is given, got a Tensor: "
        "read it first, with `await tensor.numpy\\(\\)`$"
    )
    with pytest.raises(TypeError, match=message):
        pa.varlen_attention(x, x, x, **numbers)
