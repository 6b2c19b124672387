"""What files hold: named arrays of ``.npz``, ``.npy``, ``.safetensors`` and JSON, by their content.

A file comes from outside. So a format is told by the first bytes and not by the file's name, nothing in it is
executed (pickled Python objects are refused), and sizes are read and checked before arrays are made.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from py_attn.models.safetensors import (
    MAX_HEADER_BYTES,
    BytesLike,
    DuplicateKeyError,
    SafeTensors,
    json_depth,
    unique_pairs,
)
from py_attn.viewer.sources.source import Array

#: The largest file. WebAssembly has 4 GiB of memory, and must hold the file and the arrays read from it.
MAX_FILE_BYTES = 1 << 30
#: The most that the arrays that are shown may take together, counted as float32.
MAX_ARRAY_BYTES = 1 << 30
#: The largest JSON text: each of its numbers takes about 32 bytes while it is read.
MAX_JSON_BYTES = 1 << 27
#: How deeply the lists and objects of a JSON text may be nested; attention of many layers needs six levels.
MAX_JSON_DEPTH = 32
MAX_ARRAYS = 10_000
#: The largest list of an archive's members, with 400 bytes for each.
MAX_MEMBERS_BYTES = 400 * MAX_ARRAYS
#: The largest header of an .npy array; numpy itself reads no longer one, but would first unpack it.
MAX_NPY_HEADER = 10_000

FORMATS = ".npz, .npy, .safetensors or .json"
_PICKLED = (
    "pickled Python objects, which are never read because reading them can run code; save arrays of numbers "
    "with np.savez or safetensors, and tokens as np.array(tokens, dtype=str)"
)


class _Bytes(io.RawIOBase):
    """A file's bytes as a stream that does not copy them, as ``io.BytesIO`` would."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0
        #: The most that is read at once.
        self.most: int | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.most is not None and len(buffer) > self.most:
            raise ValueError(f"file: the list of its members takes {len(buffer):,} bytes, too many")
        part = self._view[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        self._at = max(0, begin + offset)
        return self._at

    def tell(self) -> int:
        return self._at


class Entry(NamedTuple):
    """An array as its file describes it."""

    dtype: str
    shape: tuple[int, ...]
    #: Bytes of an element as float32, or of a text as it is stored.
    itemsize: int = 4

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


@dataclass(frozen=True)
class Contents:
    """What a file holds; its arrays are read when they are asked for.

    Attributes
    ----------
    kind : str
        "npz", "npy", "safetensors" or "json".
    entries : dict of str to Entry
        The arrays by their names; that of an ``.npy`` file is "".
    load : callable
        Reads the array of a name.
    values : dict
        What is no array: texts, numbers, and lists of texts.
    """

    kind: str
    entries: dict[str, Entry]
    load: Callable[[str], Array]
    values: dict[str, Any] = field(default_factory=dict)

    def check(self, name: str) -> None:
        """Refuse an array that holds Python objects or raw bytes.

        Raises
        ------
        ValueError
            With what it holds, and how to save it instead.
        """
        entry, what = self.entries[name], shorten(name) or "the array"
        if entry.dtype == "object":
            raise ValueError(f"{what}: holds {_PICKLED}")
        if entry.dtype.startswith("void"):
            raise ValueError(
                f"{what}: holds raw bytes ({entry}), as numpy writes bfloat16 and records; "
                "save it as float32, or use safetensors"
            )

    def array(self, name: str) -> Array:
        """One array.

        Raises
        ------
        ValueError
            When its bytes are broken, or are no numbers or texts.
        """
        self.check(name)
        try:
            return self.load(name)
        # For broken files zipfile, zlib and numpy raise a dozen unrelated types, and document none of them.
        except Exception as error:
            raise ValueError(
                f"{shorten(name) or 'the array'}: cannot be read ({type(error).__name__}: {error})"
            ) from None

    def listed(self, limit: int = 12) -> str:
        """The names, dtypes and shapes in one line."""
        parts = [f"{name or 'one array'} {entry}" for name, entry in self.entries.items()]
        parts += [f"{name} ({_shape_in_words(value)})" for name, value in self.values.items()]
        more = [f"and {len(parts) - limit:,} more"] if len(parts) > limit else []
        return ", ".join([shorten(part) for part in parts[:limit]] + more) or "nothing"


def read_contents(data: BytesLike, name: str = "") -> Contents:
    """What a file holds, told from its bytes.

    Parameters
    ----------
    data
        The whole file.
    name
        The file's name, for messages.

    Raises
    ------
    ValueError
        When the file is empty, too large, broken, or of another kind.
    """
    view = memoryview(data).cast("B")
    if not view:
        raise ValueError("file: it is empty (0 bytes)")
    if len(view) > MAX_FILE_BYTES:
        raise ValueError(
            f"file: expected at most {MAX_FILE_BYTES >> 20:,} MiB, as the browser's Python has 4 GiB of "
            f"memory, got {len(view) >> 20:,} MiB"
        )
    reader = _reader_of(view)
    if reader is None:
        raise ValueError(
            f"file: expected {FORMATS} with queries and keys or with attentions, got {len(view):,} bytes "
            f"that begin with {bytes(view[:8])!r}{' in ' + shorten(name) if name else ''}"
        )
    contents = reader(view)
    if len(contents.entries) > MAX_ARRAYS:
        raise ValueError(f"file: expected at most {MAX_ARRAYS:,} arrays, got {len(contents.entries):,}")
    return contents


def _reader_of(view: memoryview) -> Callable[[memoryview], Contents] | None:
    start = bytes(view[:64])
    if start.startswith(b"PK"):
        return _read_npz
    if start.startswith(b"\x93NUMPY"):
        return _read_npy
    # A header's length, far below that of any text, and the header's first character.
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= MAX_HEADER_BYTES:
        return _read_safetensors
    if start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
        return _read_json
    # The pickle protocols from 2 on begin so: torch.save of old, np.save of objects by hand.
    if start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05":
        raise ValueError(f"file: it holds {_PICKLED}")
    return None


# .npz and .npy: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html


def _read_npz(view: memoryview) -> Contents:
    try:
        stream = _Bytes(view)
        stream.most = MAX_MEMBERS_BYTES
        archive = zipfile.ZipFile(stream)
        stream.most = None
        members = archive.namelist()
        if any(member.endswith("data.pkl") for member in members):
            raise ValueError(f"file: it was written by torch.save and holds {_PICKLED}")
        arrays = {member.removesuffix(".npy"): member for member in members if member.endswith(".npy")}
        if len(arrays) > MAX_ARRAYS:
            raise ValueError(f"file: expected at most {MAX_ARRAYS:,} arrays, got {len(arrays):,}")
        if twice := next((name for name, count in Counter(members).items() if count > 1), None):
            raise ValueError(f"file: it has {shorten(twice)!r} twice")
        if members and not arrays:
            raise ValueError(
                f"file: a ZIP archive without arrays; an .npz file has members that end with .npy, this one "
                f"has {shorten(', '.join(members[:4]))}"
            )
        entries = {}
        for name, member in arrays.items():
            with archive.open(member) as data:
                entries[name] = _npy_header(data)
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"file: not a readable .npz file ({type(error).__name__}: {error})") from None

    def load(name: str) -> Array:
        with archive.open(arrays[name]) as stream:
            return _npy_array(stream)

    return Contents("npz", entries, load)


def _read_npy(view: memoryview) -> Contents:
    return Contents("npy", {"": _npy_header(_Bytes(view))}, lambda _: _npy_array(_Bytes(view)))


def _npy_header(stream: Any) -> Entry:
    try:
        version = np.lib.format.read_magic(stream)
        field = stream.read(2 if version[0] == 1 else 4)
        length = int.from_bytes(field, "little")
        if length > MAX_NPY_HEADER:
            raise ValueError(f"its header takes {length:,} bytes, expected at most {MAX_NPY_HEADER:,}")
        header = io.BytesIO(field + stream.read(length))
        read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(header)
    except Exception as error:
        raise ValueError(f"file: not a readable .npy array ({type(error).__name__}: {error})") from None
    name = "object" if dtype.hasobject else dtype.name
    itemsize = dtype.itemsize if dtype.kind in "USV" else 4
    return Entry(name, tuple(int(size) for size in shape), itemsize)


def _npy_array(stream: Any) -> Array:
    # It reads as many bytes as the header's shape needs, and no more, however much a member unpacks to.
    array: Array = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _read_safetensors(view: memoryview) -> Contents:
    file = SafeTensors(view)
    entries = {name: Entry(_STORED[each.dtype], each.shape) for name, each in file.entries.items()}

    def load(name: str) -> Array:
        return file.float32(name) if file.entries[name].dtype == "BF16" else file[name]

    values = {name: _from_text(text) for name, text in file.metadata.items() if name != "format"}
    return Contents("safetensors", entries, load, values)


_STORED = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}


def _from_text(text: str) -> Any:
    """A value of a safetensors header, which has only texts: as JSON, or the text itself."""
    if len(text) > MAX_JSON_BYTES or json_depth(text.encode("utf-8", "replace")) > MAX_JSON_DEPTH:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def _read_json(view: memoryview) -> Contents:
    if len(view) > MAX_JSON_BYTES:
        raise ValueError(
            f"file: expected at most {MAX_JSON_BYTES >> 20} MiB of JSON, got {len(view) >> 20:,} MiB; "
            ".npz and .safetensors hold the same numbers in far fewer bytes"
        )
    text = bytes(view)
    if (depth := json_depth(text)) > MAX_JSON_DEPTH:
        raise ValueError(f"file: expected JSON nested at most {MAX_JSON_DEPTH} levels deep, got {depth:,}")
    try:
        found = json.loads(text.removeprefix(b"\xef\xbb\xbf"), object_pairs_hook=unique_pairs)
    except DuplicateKeyError as error:
        raise ValueError(f"file: it has {shorten(error.key)!r} twice") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"file: not readable as JSON ({error})") from None
    named = found if isinstance(found, dict) else {"": found}
    arrays = {name: value for name, value in named.items() if _is_array(value)}
    return Contents(
        "json",
        {name: Entry("numbers", _json_shape(value)) for name, value in arrays.items()},
        lambda name: _json_array(arrays[name]),
        {name: value for name, value in named.items() if name not in arrays and value is not None},
    )


def _first_leaf(value: Any) -> Any:
    while isinstance(value, list) and value:
        value = value[0]
    return value


def _is_array(value: Any) -> bool:
    """Whether a value is a list of lists of numbers: a list alone is tokens, or a window."""
    if not (isinstance(value, list) and value and isinstance(value[0], list)):
        return False
    leaf = _first_leaf(value)
    return leaf is None or leaf == [] or isinstance(leaf, bool | int | float)


def _json_shape(value: Any) -> tuple[int, ...]:
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return tuple(shape)


def _json_array(value: Any) -> Array:
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError("its lists differ in length or depth; an array needs lists of one length") from None
    if array.dtype.kind not in "biuf":
        raise ValueError("expected numbers only, and it also holds texts, objects or null")
    return array


def _shape_in_words(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    return {"str": "text", "bool": "true or false", "dict": "an object"}.get(type(value).__name__, "number")


def shorten(text: str, limit: int = 80) -> str:
    """A text cut so that a hostile file cannot fill a message."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def float32_bytes(entry: Entry) -> int:
    """What an array takes as float32; of texts, as they are stored."""
    return entry.itemsize * math.prod(entry.shape)
