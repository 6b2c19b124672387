"""Checks of arguments that several kernels take, and what they are on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from py_attn.gpu.device import Device, as_tensor, default_device, device_of
from py_attn.gpu.tensor import Tensor


def find_device(*values: object) -> Device:
    """The device of the first tensor given, else the default one."""
    return device_of(*values) or default_device()


def float_tensor(name: str, value: object, device: Device) -> Tensor:
    """``value`` on ``device``, refused unless its dtype is a floating one."""
    tensor = as_tensor(name, value, device)
    if not tensor.kind.floating:
        raise TypeError(f"{name}: expected float32, float16 or bfloat16, got {tensor.dtype}")
    return tensor


def integer_tensor(name: str, value: object, device: Device) -> Tensor:
    """``value`` on ``device``, refused unless it holds 32-bit integers."""
    tensor = as_tensor(name, value, device)
    if tensor.dtype not in ("int32", "uint32"):
        raise TypeError(f"{name}: expected integers, got {tensor.dtype}")
    return tensor


def shape_of(name: str, value: Any) -> tuple[int, ...]:
    """The shape of a tensor or array, without uploading it."""
    if isinstance(value, Tensor):
        value.storage(name)
        return value.shape
    try:
        shape: tuple[int, ...] = np.shape(value)
        return shape
    except ValueError as error:
        raise TypeError(f"{name}: expected a Tensor or an array ({error})") from None


def check_mask_dtype(mask: object, name: str = "mask") -> None:
    """Raise unless ``mask`` holds booleans or floats."""
    kind = mask.kind.name if isinstance(mask, Tensor) else np.asarray(mask).dtype.kind
    if kind in ("int32", "uint32") or kind in ("i", "u"):
        raise TypeError(f"{name}: expected booleans (True = may attend) or floats (added), got integers")


def check_lengths(lengths: object, batch: int, keys: int, name: str = "kv_lengths") -> None:
    """Raise unless ``lengths`` holds [batch] integers; an array's are also checked to lie in 0 … keys."""
    if isinstance(lengths, Tensor):
        if lengths.dtype not in ("int32", "uint32"):
            raise TypeError(f"{name}: expected integers, got {lengths.dtype}")
        shape = lengths.shape
    else:
        values = np.asarray(lengths)
        if values.dtype.kind not in "iu":
            raise TypeError(f"{name}: expected integers, got {values.dtype}")
        shape = values.shape
        if shape == (batch,) and ((values < 0) | (values > keys)).any():
            raise ValueError(f"{name}: expected values from 0 to the {keys} keys, got {values.tolist()}")
    if shape != (batch,):
        raise ValueError(f"{name}: expected shape [{batch}], one a batch element, got {list(shape)}")
