"""Reader for safetensors files: named arrays behind a JSON header, nothing executable.

Layout (https://huggingface.co/docs/safetensors, "Format"): 8 bytes little-endian header length N, N bytes of
JSON ``{"name": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {str: str}}``, then the
bytes of the tensors, whose offsets count from the end of the header. The tensors must cover that byte
buffer exactly, without holes and without sharing bytes.

A file comes from outside, so nothing in it is believed: each claim is checked against the bytes that are
there before an array is made, and every fault is a ``ValueError`` that names what is wrong, what the file
says and what was expected.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

BytesLike: TypeAlias = bytes | bytearray | memoryview

#: Largest header the reference implementation accepts; it keeps a hostile length from costing memory.
MAX_HEADER_BYTES = 100_000_000

#: Most values in a header, which take up to a hundred bytes each while it is parsed: of 100,000 tensors.
MAX_HEADER_VALUES = 1_000_000

#: How deeply a header may be nested; a tensor's sizes are on the third level.
MAX_HEADER_DEPTH = 32

#: numpy's own limit on the number of axes.
MAX_AXES = 64

#: File dtype -> the numpy dtype of its view. numpy has no bfloat16: BF16 comes as its raw 16 bits.
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype("<u1"),
    "I8": np.dtype("<i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
}


@dataclass(frozen=True)
class Entry:
    """One tensor as the header describes it; ``start`` and ``stop`` are byte positions in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafeTensors(Mapping[str, npt.NDArray[Any]]):
    """The tensors of one file, by name, as read-only numpy views of the given bytes (no copies).

    Parameters
    ----------
    data
        The whole file: ``bytes`` or any contiguous buffer, such as ``mmap`` or a Pyodide buffer's memoryview.
        It stays alive as long as one of the views does.

    Attributes
    ----------
    entries : dict[str, Entry]
        What the header says of each tensor, in the order of their bytes.
    metadata : dict[str, str]
        The header's ``__metadata__``; empty where there is none.

    Raises
    ------
    ValueError
        The file is truncated or breaks the format; the message says where and how.
    TypeError
        `data` is no bytes-like object.
    """

    def __init__(self, data: BytesLike) -> None:
        try:
            view = memoryview(data)
        except TypeError:
            raise TypeError(f"safetensors: expected a bytes-like object, got {type(data).__name__}") from None
        if not view.c_contiguous:
            raise ValueError("safetensors: expected a contiguous buffer, got a strided one")
        self._data = view.toreadonly().cast("B")
        header, base = _read_header(self._data)
        self.metadata = _read_metadata(header.pop("__metadata__", None))
        entries = [_read_entry(name, fields, base) for name, fields in header.items()]
        entries.sort(key=lambda entry: (entry.start, entry.stop))
        _check_coverage(entries, base, len(self._data))
        self.entries = {entry.name: entry for entry in entries}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Read-only view of one tensor; BF16 as its raw uint16 bits (see `float32`)."""
        entry = self.entries[name]
        flat = np.frombuffer(self._data[entry.start : entry.stop], dtype=DTYPES[entry.dtype])
        return flat.reshape(entry.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        """One floating-point tensor as float32: a view where the file has F32, a converted copy otherwise.

        Raises
        ------
        ValueError
            The tensor holds integers or booleans.
        """
        dtype = self.entries[name].dtype
        array = self[name]
        if dtype == "BF16":  # bfloat16 is the upper half of a float32
            return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
        if dtype not in ("F16", "F32", "F64"):
            raise ValueError(f"safetensors: tensor {name!r} has dtype {dtype}, expected a floating-point one")
        return array.astype(np.float32, copy=False)


def _read_header(data: memoryview) -> tuple[dict[str, Any], int]:
    """The parsed header and the position at which the tensors' bytes begin."""
    if len(data) < 8:
        raise ValueError(
            f"safetensors: the file has {len(data)} bytes, expected at least the 8 of the header length"
        )
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER_BYTES:
        raise ValueError(
            f"safetensors: the header claims {length} bytes, more than the {MAX_HEADER_BYTES} allowed"
            " (not a safetensors file?)"
        )
    if length > len(data) - 8:
        raise ValueError(
            f"safetensors: the header claims {length} bytes, but only {len(data) - 8} follow its length"
            " (truncated file?)"
        )
    text = bytes(data[8 : 8 + length])
    _check_extent(text)
    try:
        header = json.loads(str(text, "utf-8"), object_pairs_hook=unique_pairs)
    except DuplicateKeyError as error:
        raise ValueError(f"safetensors: the header names {_shorten(error.key)} twice") from None
    except (ValueError, RecursionError) as error:  # also bad UTF-8 and integers of thousands of digits
        raise ValueError(f"safetensors: the header is not valid JSON: {error}") from None
    if not isinstance(header, dict):
        raise ValueError(f"safetensors: the header must be a JSON object, got {type(header).__name__}")
    return header, 8 + length


def _check_extent(text: bytes) -> None:
    """Refuse a header that would cost much memory to parse, or the whole stack."""
    values = sum(text.count(mark) for mark in (b",", b"[", b"{"))
    if values > MAX_HEADER_VALUES:
        raise ValueError(
            f"safetensors: the header has {values:,} values, expected at most {MAX_HEADER_VALUES:,}"
        )
    if (depth := json_depth(text)) > MAX_HEADER_DEPTH:
        raise ValueError(
            f"safetensors: the header is not valid JSON: nested {depth:,} levels deep, expected at most"
            f" {MAX_HEADER_DEPTH}"
        )


# A text that does not end goes on to the end of the file; each character is looked at once.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)


def json_depth(text: bytes) -> int:
    """How deeply the lists and objects of a JSON text are nested.

    A parser that meets a million brackets would use up the browser's stack, and Python would end with it.
    """
    marks = np.frombuffer(_STRINGS.sub(b"", text), np.uint8) | np.uint8(0x20)  # [ and {, ] and } become one
    deeper = (marks == ord("{")).astype(np.int8) - (marks == ord("}"))
    return int(np.cumsum(deeper[deeper != 0], dtype=np.int64).max(initial=0))


class DuplicateKeyError(Exception):
    """An object of a JSON text has a key twice."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON object hook: json keeps the last of two equal keys, which would hide a tensor."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise DuplicateKeyError(key)
        result[key] = value
    return result


def _read_metadata(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError(f"safetensors: __metadata__ must be an object of strings, got {_shorten(value)}")
    return cast("dict[str, str]", value)


def _read_entry(name: str, fields: Any, base: int) -> Entry:
    """One tensor's description, checked as far as it can be without looking at the others."""
    what = f"safetensors: tensor {_shorten(name)}"
    if not isinstance(fields, dict):
        raise ValueError(f"{what} must be described by an object, got {_shorten(fields)}")
    if fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(
            f"{what} has the fields {_shorten(sorted(fields))}, expected dtype, shape and data_offsets"
        )
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{what} has dtype {_shorten(dtype)}, expected one of {', '.join(DTYPES)}")
    if not _is_count_list(shape):
        raise ValueError(f"{what} has shape {_shorten(shape)}, expected a list of non-negative integers")
    if len(shape) > MAX_AXES:
        raise ValueError(f"{what} has {len(shape):,} axes, expected at most {MAX_AXES}")
    itemsize = DTYPES[dtype].itemsize
    # A zero among the sizes makes the byte count 0 whatever the others claim, and numpy refuses it late.
    if math.prod(size for size in shape if size) * itemsize >= 2**63:
        raise ValueError(f"{what} has shape {_shorten(shape)}, more elements than can be addressed")
    if not _is_count_list(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(
            f"{what} has data_offsets {_shorten(offsets)}, expected [begin, end] with 0 <= begin <= end"
        )
    begin, end = offsets
    expected = math.prod(shape) * itemsize
    if end - begin != expected:
        raise ValueError(
            f"{what} has {end - begin} bytes (data_offsets {_shorten(offsets)}), but {dtype} of shape"
            f" {_shorten(shape)} takes {expected}"
        )
    return Entry(name, dtype, tuple(shape), base + begin, base + end)


def _check_coverage(entries: list[Entry], base: int, size: int) -> None:
    """The tensors, in order of their bytes, must follow each other from the header to the file's end."""
    position, previous = base, "the header"
    for entry in entries:
        if entry.start != position:
            relation = "overlaps" if entry.start < position else "leaves a hole after"
            raise ValueError(
                f"safetensors: tensor {_shorten(entry.name)} {relation} {previous}: it begins at data offset"
                f" {entry.start - base}, expected {position - base}"
            )
        position, previous = entry.stop, f"tensor {_shorten(entry.name)}"
        if position > size:
            raise ValueError(
                f"safetensors: tensor {_shorten(entry.name)} ends at data offset {position - base}, but the"
                f" file has only {size - base} bytes of data (truncated file?)"
            )
    if position != size:
        raise ValueError(
            f"safetensors: {size - position} bytes follow {previous}, expected the file to end there"
        )


def _is_count_list(value: Any) -> bool:
    # bool is an int to isinstance, and JSON's true must not pass for 1.
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _shorten(value: Any, limit: int = 80) -> str:
    """The value's repr, cut so that a hostile header cannot fill the message."""
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "…"
