"""What the layers expect of their tensors."""

from __future__ import annotations

from typing import Any

from py_attn.gpu.device import Device
from py_attn.gpu.tensor import Tensor, contiguous_strides


def check_rank(name: str, tensor: Tensor, axes: int) -> None:
    """Raise unless ``tensor`` is one with at least ``axes`` axes."""
    _check_tensor(name, tensor)
    if tensor.ndim < axes:
        raise ValueError(f"{name}: expected at least {axes} dimensions, got shape {list(tensor.shape)}")


def _check_tensor(name: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a Tensor, got {type(value).__name__}")
    return value


def check_tensors(inputs: dict[str, Tensor], shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise unless every input is a live, packed float32 tensor of its shape on the first one's device."""
    device = next(iter(inputs.values())).device
    for name, tensor in inputs.items():
        check_packed(name, tensor, shapes[name], "float32", device)


def check_packed(name: str, value: object, shape: tuple[int, ...], dtype: str, device: object) -> None:
    """Raise unless ``value`` is a live, packed tensor of this shape and dtype on ``device``."""
    tensor = _check_tensor(name, value)
    tensor.storage(name)
    if tensor.device is not device:
        raise ValueError(f"{name}: the tensor is on another device ({tensor.device}) than {device}")
    if tensor.dtype != dtype:
        raise ValueError(f"{name}: expected dtype {dtype}, got {tensor.dtype}")
    if tensor.shape != shape:
        raise ValueError(f"{name}: expected shape {list(shape)}, got {list(tensor.shape)}")
    if not _is_packed(tensor):
        raise ValueError(
            f"{name}: expected packed rows, got a view with strides {list(tensor.strides)}"
            f" of shape {list(tensor.shape)}"
        )


def _is_packed(tensor: Tensor) -> bool:
    # The stride of an axis of length 1 means nothing; a view may have any.
    packed = contiguous_strides(tensor.shape)
    return all(n == 1 or a == b for n, a, b in zip(tensor.shape, tensor.strides, packed, strict=True))


def check_devices(tensors: dict[str, Tensor], device: Device) -> None:
    """Raise unless all tensors are alive and on ``device``."""
    for name, tensor in tensors.items():
        _check_tensor(name, tensor)
        tensor.storage(name)
        if tensor.device is not device:
            raise ValueError(f"{name}: the tensor is on another device ({tensor.device}) than {device}")


def check_floats(
    name: str, tensor: Any, shape: tuple[int, ...], device: Device, *, aligned: bool = True
) -> None:
    """Raise unless ``tensor`` is packed float32 of this shape on ``device``; ``aligned``: read by vec4s."""
    check_tensors({name: tensor}, {name: shape})
    check_devices({name: tensor}, device)
    if aligned and tensor.offset % 4:
        raise ValueError(
            f"{name}: expected a view from a multiple of 4 elements on, got one from element {tensor.offset}"
        )


def check_log(name: str, tensor: Any, width: int) -> Device:
    """Raise unless ``tensor`` is packed float32 [history, width], read by vec4s; give its device."""
    check_rank(name, tensor, 1)
    device: Device = tensor.device
    check_floats(name, tensor, (tensor.shape[0], width), device)
    return device
