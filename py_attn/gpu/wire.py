"""Messages that carry arrays: plain data for JSON, and binary buffers beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

BUFFER = "$buffer"


def pack(value: Any, buffers: list[Any]) -> Any:
    """``value`` as JSON can hold it; arrays and bytes go into ``buffers``.

    An array becomes ``{"$buffer": n, "dtype": …, "shape": […]}`` with n its place among the buffers.
    """
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value)
        buffers.append(array.reshape(-1).view(np.uint8).data)
        return {BUFFER: len(buffers) - 1, "dtype": array.dtype.name, "shape": list(value.shape)}
    if isinstance(value, bytes | bytearray | memoryview):
        view = memoryview(value).cast("B")
        buffers.append(view)
        return {BUFFER: len(buffers) - 1, "dtype": "uint8", "shape": [view.nbytes]}
    if isinstance(value, Mapping):
        return {str(key): pack(item, buffers) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [pack(item, buffers) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def unpack(value: Any, buffers: Sequence[Any]) -> Any:
    """The opposite of :func:`pack`; arrays are read-only views of the buffers."""
    if isinstance(value, Mapping):
        if BUFFER in value:
            array = np.frombuffer(buffers[value[BUFFER]], np.dtype(value["dtype"]))
            return array.reshape(value["shape"])
        return {key: unpack(item, buffers) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [unpack(item, buffers) for item in value]
    return value
