"""Reproducible numbers of mean 0 and variance 1, a function of seed and index.

The same function is in ``bench/shaders/fill.wgsl``, which makes our inputs on the GPU, and in
``web/src/bench/numbers.js``, which makes those of the peers. So all compute with the same inputs, and the
float64 reference of a few rows can be computed without reading anything back.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from bench.shaders import bench_shader, bound
from py_attn.gpu.device import Device
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, Shader
from py_attn.gpu.tensor import Tensor

#: The sum of two uniform 16-bit numbers has variance (65536² - 1) / 6.
STEP = np.float32(math.sqrt(6) / 65536)
_PARAMS = ParamsLayout(count="u32", seed="u32", step="f32")
_WORKGROUP = 256


def numbers(seed: int, index: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """The numbers at ``index`` (integers of any shape)."""
    x = np.asarray(index).astype(np.uint32)
    with np.errstate(over="ignore"):
        x = x * np.uint32(0x9E3779B1) + np.uint32(seed)
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
        x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    total = (x & np.uint32(0xFFFF)).astype(np.int32) + (x >> np.uint32(16)).astype(np.int32) - 65535
    return total.astype(np.float32) * STEP


def block(seed: int, shape: tuple[int, ...], *which: int | slice) -> npt.NDArray[np.float32]:
    """``x[which]`` of the array of ``shape``, without computing the rest of it."""
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    index = np.zeros((), np.int64)
    for axis, (length, stride) in enumerate(zip(shape, strides, strict=True)):
        pick = which[axis] if axis < len(which) else slice(None)
        along = np.arange(length)[pick] * stride
        index = index[..., None] + along if np.ndim(along) else index + along
    return numbers(seed, index)


def filled(device: Device, seed: int, shape: tuple[int, ...]) -> Tensor:
    """A float32 tensor of these numbers, made on the GPU."""
    tensor = device.empty(shape)
    params = _PARAMS.pack(count=tensor.size, seed=seed, step=float(STEP))
    groups = device.grid(-(-tensor.size // _WORKGROUP), "values")
    device.dispatch(_fill_shader(), params, bound(device, tensor), groups)
    return tensor


@functools.cache
def _fill_shader() -> Shader:
    return bench_shader("fill", _PARAMS, (Binding("values", "f32", writes=True),))
