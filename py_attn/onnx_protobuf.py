"""A reader of ONNX's GraphProto, so that graphs can be read without the onnx package.

https://protobuf.dev/programming-guides/encoding/ says how messages are written,
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto what the fields' numbers are.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

# onnx.TensorProto's numbers of the types that can be read, and the fields that hold their values.
_DTYPES = {1: "<f4", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8"}


@dataclass(slots=True)
class Node:
    """One operator of a graph."""

    op: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Graph:
    """A graph's operators in order, its constants by name, and the names of what goes in and out."""

    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def read_graph(name: str, graph: Any) -> Graph:
    """A ``GraphProto``, as bytes or as the onnx package's object.

    Raises
    ------
    TypeError, ValueError
        When it is neither, or cannot be read.
    """
    data = graph.SerializeToString() if hasattr(graph, "SerializeToString") else graph
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"{name}: expected a function, a GraphProto or its bytes, got {type(graph).__name__}")
    found = Graph()
    try:
        for number, value in _fields(bytes(data)):
            if number == 1:
                found.nodes.append(_node(value))
            elif number == 5:
                key, array = _tensor(value)
                if key in found.constants:
                    raise ValueError(f"two constants are named {_shorten(key)}")
                found.constants[key] = array
            elif number in (11, 12):
                names = found.inputs if number == 11 else found.outputs
                names.append(_text(value, 1))
    # A number where a text is expected, and the like.
    except (IndexError, struct.error, ValueError, OverflowError, AttributeError, TypeError) as error:
        raise ValueError(f"{name}: not the bytes of a GraphProto ({error})") from None
    if len(found.inputs) != 1 or len(found.outputs) != 1:
        raise ValueError(
            f"{name}: expected a graph with one input and one output, got {len(found.inputs)} and "
            f"{len(found.outputs)}"
        )
    return found


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and values of a message: ints, or bytes of what has a length."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            if kind != 2:
                raise IndexError(f"wire type {kind} at byte {at}")
            size, at = _varint(data, at)
        if at + size > len(data):
            raise IndexError("unexpected end")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift == 70:
            raise IndexError(f"a number of more than 64 bits at byte {at - 10}")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _text(data: bytes, wanted: int) -> str:
    return next((value.decode() for number, value in _fields(data) if number == wanted), "")


def _ints(value: int | bytes) -> list[int]:
    """A repeated integer field, packed or not."""
    if isinstance(value, int):
        return [_signed(value)]
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(_signed(number))
    return found


def _node(data: bytes) -> Node:
    node = Node()
    for number, value in _fields(data):
        if number in (1, 2):
            (node.inputs if number == 1 else node.outputs).append(value.decode())
        elif number == 4:
            node.op = value.decode()
        elif number == 5:
            key, content = _attribute(value)
            node.attributes[key] = content
    return node


def _attribute(data: bytes) -> tuple[str, Any]:
    name, content, ints = "", None, []
    for number, value in _fields(data):
        if number == 1:
            name = value.decode()
        elif number == 2:
            content = struct.unpack("<f", value)[0]
        elif number == 3:
            content = _signed(value)
        elif number == 4:
            content = value.decode()
        elif number == 5:
            content = _tensor(value)[1]
        elif number == 8:
            ints += _ints(value)
    return name, ints if content is None and ints else content


def _tensor(data: bytes) -> tuple[str, npt.NDArray[Any]]:
    name, dims, kind, raw = "", [], 0, b""
    values: list[Any] = []
    for number, value in _fields(data):
        if number == 1:
            dims += _ints(value)
        elif number == 2:
            kind = value
        elif number == 8:
            name = value.decode()
        elif number == 9:
            raw = value
        elif number in (4, 10):
            values += np.frombuffer(value, "<f4" if number == 4 else "<f8").tolist()
        elif number in (5, 7):
            values += _ints(value)
    what = f"tensor {_shorten(name)}"
    if kind not in _DTYPES:
        raise TypeError(f"{what} has data type {_shorten(kind)}, expected one of {sorted(_DTYPES)}")
    dtype = np.dtype(_DTYPES[kind])
    try:
        if raw:
            array = np.frombuffer(raw, dtype)
        elif kind == 10:
            array = np.array(values, np.uint16).view(np.float16)
        else:
            array = np.array(values, dtype)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{what}: {error}") from None
    if min(dims, default=1) < 0 or math.prod(dims) != array.size or len(dims) > 64:
        raise ValueError(f"{what} has {array.size} numbers for the shape {_shorten(dims)}")
    return name, array.reshape(dims)


def _shorten(value: Any, limit: int = 80) -> str:
    """The value's repr, cut so that a hostile file cannot fill the message."""
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "…"
