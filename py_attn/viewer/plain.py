"""Results as plain data: what can cross into JavaScript, or JSON, without Python behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from py_attn.gpu.tensor import Tensor


async def plain(value: Any) -> Any:
    """Turn a result into None, bool, int, float, str, bytes, lists and dicts with str keys.

    Tensors are read back; arrays become nested lists (NaN and infinities stay); dataclasses become
    dicts; what nothing else fits becomes its ``repr``.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, Tensor):
        return (await value.numpy()).tolist()
    if isinstance(value, np.ndarray | np.generic):
        return await _numpy(value)
    if isinstance(value, Mapping):
        return {str(key): await plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: await plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [await plain(item) for item in value]
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return repr(value)


async def _numpy(value: np.ndarray[Any, Any] | np.generic) -> Any:
    data = value.tolist()
    if value.dtype.kind in "biufUS":
        return data
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return [await plain(item) for item in data]
    return data if isinstance(data, int | float | str | bytes) else repr(data)
