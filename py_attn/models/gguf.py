"""Reader for GGUF files: metadata and named tensors, of which most are quantised in blocks.

Layout (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), all of it little-endian: the magic number
``GGUF``, the version, the counts of tensors and of metadata values; the values, each with its key and type;
each tensor's name, shape, type and offset; then the tensors' bytes, from a multiple of the alignment on.

Only what stands before the tensors' bytes is read, piece by piece. A file comes from outside, so nothing in
it is believed: each claim is checked against the bytes that are there, and every fault is a ``ValueError``
that names what is wrong, what the file says and what was expected.
"""

from __future__ import annotations

import contextlib
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn.gpu.bridge import File

#: Longest header that is read. That of a vocabulary of 260,000 tokens takes about 15 MB.
MAX_HEADER_BYTES = 64_000_000

#: Bytes of the header that are read first. Each further piece doubles what has been read.
FIRST_PIECE = 1 << 18

#: The most tensors, values, and texts in all arrays, as each takes up to 500 bytes in Python, however
#: few the file has for it. The largest vocabularies have 260,000 tokens and 580,000 merges.
MAX_TENSORS = 100_000
MAX_VALUES = 100_000
MAX_STRINGS = 1_000_000

#: Longest text of a value, such as a chat template. Python takes up to four bytes a character.
MAX_STRING_BYTES = 1 << 22
MAX_KEY_BYTES = 65535
MAX_NAME_BYTES = 64
MAX_AXES = 4
DEFAULT_ALIGNMENT = 32

#: Number of a metadata value's type -> the numpy dtype of a scalar or of an array's items.
_DTYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("<u1"),  # a boolean
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_BOOL, _STRING, _ARRAY = 7, 8, 9

_LENGTH = struct.Struct("<Q")

#: Number of a tensor's type -> its name, the elements of a block, and the bytes of a block.
TENSOR_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}


@dataclass(frozen=True)
class TensorInfo:
    """One tensor as the header describes it.

    Attributes
    ----------
    name : str
    shape : tuple[int, ...]
        Rows first, as in numpy. (The file has the sizes in the opposite order.)
    type : str
        "F32", "Q4_1" and so on, as in `TENSOR_TYPES`.
    start, stop : int
        Positions of its bytes in the file.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    start: int
    stop: int


class GGUF:
    """The header of a GGUF file of version 3.

    Parameters
    ----------
    file : File
        It is read as far as the header goes, and a little further. None of the tensors is read.

    Attributes
    ----------
    metadata : dict[str, Any]
        The values in the file's order: str, bool, int, float, lists of str, and read-only numpy arrays of
        bools and numbers.
    tensors : dict[str, TensorInfo]
        In the file's order.

    Raises
    ------
    ValueError
        The file is truncated or breaks the format; the message says where and how.
    """

    def __init__(self, file: File) -> None:
        header = _Header(file)
        tensors, values = _read_counts(header)
        self.metadata: dict[str, Any] = {}
        for number in range(values):
            key = header.string(f"key {number} of the metadata", MAX_KEY_BYTES)
            if key in self.metadata:
                raise ValueError(f"gguf: the metadata has the key {shorten(key)} twice, expected it once")
            self.metadata[key] = _read_value(header, f"metadata {shorten(key)}")
        alignment = _alignment(self.metadata)
        infos = [_read_tensor(header, number, alignment) for number in range(tensors)]
        base = -(-header.position // alignment) * alignment
        self.tensors: dict[str, TensorInfo] = {}
        for info in infos:
            if info.name in self.tensors:
                raise ValueError(f"gguf: two tensors have the name {shorten(info.name)}, expected one")
            self.tensors[info.name] = TensorInfo(
                info.name, info.shape, info.type, base + info.start, base + info.stop
            )
        _check_places(list(self.tensors.values()), file.size)


class _Header:
    """Reads a file from its front, in pieces that grow."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._data = b""
        self._strings = 0
        self.position = 0

    def take(self, count: int, what: str) -> bytes:
        """The next bytes, which hold `what`."""
        start, stop = self.position, self.position + count
        if stop > len(self._data):
            self._read_up_to(stop, what)
        self.position = stop
        return self._data[start:stop]

    def integer(self, size: int, what: str) -> int:
        return int.from_bytes(self.take(size, what), "little")

    def string(self, what: str, limit: int | None = None) -> str:
        """A string of at most `limit` bytes behind its length."""
        length = int.from_bytes(self.take(8, what), "little")
        if limit is None and length <= self._file.size:
            limit = MAX_STRING_BYTES
        if limit is not None and length > limit:
            raise ValueError(f"gguf: {what} takes {length} bytes, expected at most {limit}")
        data = self.take(length, what)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"gguf: {what} is not UTF-8 ({error})") from None

    def strings(self, count: int, what: str) -> list[str]:
        """As many strings. A vocabulary has 100,000 of them, so most take a shorter way than `string`."""
        self.check_room(count, 8, f"strings in {what}")
        self._strings += count
        if self._strings > MAX_STRINGS:
            raise ValueError(
                f"gguf: {what} has {count} strings, which makes {self._strings} in arrays, expected at most"
                f" {MAX_STRINGS}"
            )
        found: list[str] = []
        while len(found) < count:
            data, position = self._data, self.position
            with contextlib.suppress(struct.error, UnicodeDecodeError):
                for _ in range(count - len(found)):
                    start = position + 8
                    stop = start + _LENGTH.unpack_from(data, position)[0]
                    if stop > len(data) or stop - start > MAX_STRING_BYTES:
                        break
                    found.append(data[start:stop].decode())
                    position = stop
            self.position = position
            if len(found) < count:  # the next one goes beyond what has been read, or is not UTF-8
                found.append(self.string(what))
        return found

    def check_room(self, count: int, size: int, what: str) -> None:
        """Refuse a count of items, of at least `size` bytes each, for which the file is too short."""
        left = min(self._file.size, MAX_HEADER_BYTES) - self.position
        if count * size > left:
            raise ValueError(
                f"gguf: the file claims {count} {what}, at least {count * size} bytes, but only {left} can"
                f" follow in its {self._file.size} bytes and the {MAX_HEADER_BYTES} that a header may take"
            )

    def _read_up_to(self, stop: int, what: str) -> None:
        if stop > self._file.size:
            raise ValueError(
                f"gguf: {what} ends at byte {stop}, but the file has only {self._file.size} bytes"
                " (truncated file?)"
            )
        if stop > MAX_HEADER_BYTES:
            raise ValueError(
                f"gguf: {what} ends at byte {stop}, expected a header of at most {MAX_HEADER_BYTES} bytes"
            )
        begin = len(self._data)
        end = min(self._file.size, max(stop, 2 * begin, FIRST_PIECE))
        piece = self._file.read(begin, end)
        if len(piece) != end - begin:
            raise ValueError(f"gguf: expected {end - begin} bytes from byte {begin} on, got {len(piece)}")
        self._data += piece


def _read_counts(header: _Header) -> tuple[int, int]:
    """The counts of tensors and of metadata values, after the magic number and the version."""
    magic = header.take(4, "the magic number")
    if magic != b"GGUF":
        raise ValueError(f"gguf: the file begins with {magic!r}, expected b'GGUF' (another format?)")
    version = header.integer(4, "the version")
    if version != 3:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        hint = " (a file for big-endian machines?)" if swapped == 3 else ""
        raise ValueError(f"gguf: the file has version {version}, expected 3{hint}")
    tensors = header.integer(8, "the count of tensors")
    values = header.integer(8, "the count of metadata values")
    header.check_room(tensors, 8 + 4 + 4 + 8, "tensors")
    header.check_room(values, 8 + 4 + 1, "metadata values")
    for count, most, what in ((tensors, MAX_TENSORS, "tensors"), (values, MAX_VALUES, "metadata values")):
        if count > most:
            raise ValueError(f"gguf: the file claims {count} {what}, expected at most {most}")
    return tensors, values


def _read_value(header: _Header, what: str) -> Any:
    kind = header.integer(4, what)
    if kind == _STRING:
        return header.string(what)
    if kind != _ARRAY:
        return _read_numbers(header, kind, 1, what)[0].item()
    kind = header.integer(4, what)
    count = header.integer(8, what)
    if kind == _ARRAY:
        raise ValueError(f"gguf: {what} is an array of arrays, expected one of strings, numbers or booleans")
    if kind == _STRING:
        return header.strings(count, what)
    return _read_numbers(header, kind, count, what)


def _read_numbers(header: _Header, kind: int, count: int, what: str) -> npt.NDArray[Any]:
    dtype = _DTYPES.get(kind)
    if dtype is None:
        raise ValueError(f"gguf: {what} has a value of type {kind}, expected a type from 0 to 12")
    header.check_room(count, dtype.itemsize, f"numbers in {what}")
    numbers = np.frombuffer(header.take(count * dtype.itemsize, what), dtype)
    if kind != _BOOL:
        return numbers
    if (numbers > 1).any():
        raise ValueError(f"gguf: {what} has the boolean {numbers.max()}, expected 0 or 1")
    return numbers.view(np.bool_)


def _alignment(metadata: dict[str, Any]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    # bool is an int to isinstance.
    if type(value) is not int or value < 8 or value & (value - 1) or value >= 2**32:
        raise ValueError(
            f"gguf: general.alignment is {shorten(value)}, expected a power of two from 8 to 2**31"
        )
    return value


def _read_tensor(header: _Header, number: int, alignment: int) -> TensorInfo:
    """One tensor's description. Its positions count from the first tensor's bytes."""
    name = header.string(f"the name of tensor {number}", MAX_NAME_BYTES)
    what = f"tensor {shorten(name)}"
    axes = header.integer(4, what)
    if axes > MAX_AXES:
        raise ValueError(f"gguf: {what} has {axes} axes, expected at most {MAX_AXES}")
    shape = tuple(header.integer(8, what) for _ in range(axes))[::-1]
    kind = header.integer(4, what)
    if kind not in TENSOR_TYPES:
        known = ", ".join(f"{number} ({name})" for number, (name, _, _) in TENSOR_TYPES.items())
        raise ValueError(f"gguf: {what} has type {kind}, expected one of {known}")
    if 0 in shape or math.prod(shape) >= 2**63:
        raise ValueError(f"gguf: {what} has shape {list(shape)}, expected 1 to 2**63 - 1 elements")
    type_name, block, size = TENSOR_TYPES[kind]
    row = shape[-1] if shape else 1
    if row % block:
        raise ValueError(
            f"gguf: {what} has rows of {row} elements, expected a multiple of {type_name}'s {block}"
        )
    offset = header.integer(8, what)
    if offset % alignment:
        raise ValueError(f"gguf: {what} begins at data offset {offset}, expected a multiple of {alignment}")
    return TensorInfo(name, shape, type_name, offset, offset + math.prod(shape) // block * size)


def _check_places(tensors: list[TensorInfo], size: int) -> None:
    """Tensors must not share bytes, and must end where the file does or before."""
    previous: TensorInfo | None = None
    for tensor in sorted(tensors, key=lambda tensor: tensor.start):
        if tensor.stop > size:
            raise ValueError(
                f"gguf: tensor {shorten(tensor.name)} ends at byte {tensor.stop}, but the file has only"
                f" {size} bytes (truncated file?)"
            )
        if previous and tensor.start < previous.stop:
            raise ValueError(
                f"gguf: tensor {shorten(tensor.name)} begins at byte {tensor.start}, within tensor"
                f" {shorten(previous.name)}, which ends at byte {previous.stop}"
            )
        previous = tensor


def shorten(value: Any, limit: int = 80) -> str:
    """The value's repr, cut so that a hostile header cannot fill the message."""
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "…"
