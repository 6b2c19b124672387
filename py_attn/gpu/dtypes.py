"""Element types and how they lie in GPU memory.

WGSL's storage types here are 32 bits wide. Half types lie two to a u32 and booleans four to a u32,
low bits first, which is numpy's own byte order on every platform that has WebGPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type: its name, bytes per element and the numpy type that carries its bits."""

    name: str
    itemsize: int
    carrier: np.dtype[Any]
    floating: bool


DTYPES = {
    d.name: d
    for d in (
        DType("float32", 4, np.dtype(np.float32), True),
        DType("float16", 2, np.dtype(np.float16), True),
        DType("bfloat16", 2, np.dtype(np.uint16), True),
        DType("int32", 4, np.dtype(np.int32), False),
        DType("uint32", 4, np.dtype(np.uint32), False),
        DType("bool", 1, np.dtype(np.bool_), False),
    )
}

_DEFAULTS = {
    "float64": "float32",
    "float32": "float32",
    "float16": "float16",
    "int32": "int32",
    "uint32": "uint32",
    "bool": "bool",
}


def check_dtype(dtype: object, name: str = "dtype") -> DType:
    """Look a dtype up by its name or by the numpy type of that name."""
    key = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", getattr(dtype, "name", None))
    if key not in DTYPES:
        raise ValueError(f"{name}: expected one of {', '.join(DTYPES)}, got {dtype!r}")
    return DTYPES[key]


def default_dtype(array: Array, name: str) -> DType:
    """The dtype an array is stored in when none is asked for: its own, float64 as float32, int64 as int32."""
    if array.dtype.name == "bfloat16":
        return DTYPES["bfloat16"]
    if array.dtype.kind in "iu" and array.dtype.name not in _DEFAULTS:
        return DTYPES["int32" if array.dtype.kind == "i" else "uint32"]
    if array.dtype.name not in _DEFAULTS:
        raise TypeError(f"{name}: expected numbers or booleans, got an array of dtype {array.dtype}")
    return DTYPES[_DEFAULTS[array.dtype.name]]


def encode(array: Array, dtype: DType, name: str) -> Array:
    """Return the C-contiguous array whose bytes are ``array`` stored as ``dtype``; no copy if it is one."""
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise TypeError(f"{name}: expected numbers or booleans, got an array of dtype {array.dtype}")
    if dtype.name == "bfloat16":
        if array.dtype.name == "bfloat16":
            return np.asarray(array.view(np.uint16), order="C")
        return to_bfloat16_bits(array)
    if not dtype.floating:
        _check_integers(array, dtype, name)
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype=dtype.carrier, order="C")


def _check_integers(array: Array, dtype: DType, name: str) -> None:
    if array.dtype.kind == "f" or (dtype.name == "bool" and array.dtype.kind != "b"):
        raise TypeError(f"{name}: an array of dtype {array.dtype} does not convert to {dtype.name}")
    if dtype.name == "bool" or array.dtype == dtype.carrier or array.size == 0:
        return
    low, high = np.iinfo(dtype.carrier).min, np.iinfo(dtype.carrier).max
    if array.min() < low or array.max() > high:
        raise ValueError(f"{name}: expected values from {low} to {high} for {dtype.name}")


def decode(carried: Array, dtype: DType) -> Array:
    """Turn carrier elements into what the user gets: bfloat16 becomes float32, the rest stays."""
    if dtype.name != "bfloat16":
        return carried
    return (carried.astype(np.uint32) << 16).view(np.float32)


def to_bfloat16_bits(array: Array) -> npt.NDArray[np.uint16]:
    """Round to bfloat16, to nearest even, and return its bits; NaN stays NaN."""
    with np.errstate(over="ignore"):
        single = np.asarray(array, dtype=np.float32, order="C")
    bits = single.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(single), quiet, rounded).astype(np.uint16)


def round_to(array: npt.ArrayLike, dtype: str) -> Array:
    """``array`` after one trip through ``dtype``, as float32: what a kernel sees of it."""
    kind = check_dtype(dtype)
    return decode(encode(np.asarray(array), kind, "array"), kind).astype(np.float32)
