"""Packs the page's Python, compiled, into two archives; run by the same Python that loads them (see pack.js).

Compiling the standard library, numpy and the rest from source would take longer than anything else when the
page starts. The first archive holds the modules that a start imports, as bytecode, and the data files of
packages. The second holds all other modules as source. All of py_attn is in the first, with its sources,
because tracebacks show them.
"""

from __future__ import annotations

import io
import json
import marshal
import sys
import tarfile
import zipfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from importlib import util
from pathlib import PurePosixPath
from typing import Any

#: web/src/runtime/boot.js tells Python that its library is here.
LIBRARY = "lib/python/"
PACKAGES = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/"
#: Files that no program in a browser reads: type stubs, and sources for a compiler.
LEFT_OUT = (".pyi", ".h", ".pxd", ".pyx", ".c", ".f", ".f90", "py.typed")
CODE = (".py", ".so")
OURS = "py_attn/"
#: Packages that are included whole, as they are small; which of their modules are imported depends on errors.
WHOLE = (OURS, "jinja2/", "markupsafe/")

#: Kinds of adapters for which the first map's kernels differ, those with the most abilities first: the
#: first that is like a page's adapter is the one to take.
ADAPTERS: list[dict[str, Any]] = [
    {"software": True, "subgroup_size": 0, "features": []},
    {"software": False, "subgroup_size": 8, "features": ["subgroups", "subgroup_id"]},
    {"software": False, "subgroup_size": 8, "features": ["subgroups"]},
    {"software": False, "subgroup_size": 0, "features": []},
]


async def write_pipelines(new_bridge: Callable[..., Any], draw: Callable[[Any], Awaitable[None]]) -> str:
    """Write down the pipelines of the first map, so that a page can compile them before Python asks for them.

    Parameters
    ----------
    new_bridge
        Makes a recording bridge for an adapter, given the keywords of :data:`ADAPTERS`.
    draw
        Draws the first map by means of a bridge.

    Returns
    -------
    str
        JSON, read by web/src/runtime/early-pipelines.js: each of :data:`ADAPTERS` with its ``sources``.
    """
    found = []
    for adapter in ADAPTERS:
        bridge = new_bridge(**adapter)
        await draw(bridge)
        sources = [
            {"label": label, "wgsl": wgsl, "access": access}
            for label, wgsl, access in bridge.pipelines.values()
        ]
        found.append({**adapter, "sources": sources})
    return json.dumps(found)


def write_packs(
    stdlib: bytes, wheels: Iterable[bytes], imported: Iterable[str], more: Mapping[str, bytes]
) -> tuple[bytes, bytes]:
    """Make the archives, to be unpacked at the root.

    Parameters
    ----------
    stdlib
        Pyodide's ``python_stdlib.zip``.
    wheels
        The packages in addition to it.
    imported
        Full names of the modules that a start imports.
    more
        Other files for the first archive, by their paths.

    Returns
    -------
    start, rest : bytes
        Two tar files, deterministic.
    """
    names = set(imported)
    start, rest = io.BytesIO(), io.BytesIO()
    with new_tar(start) as first, new_tar(rest) as second:
        for folder, source in [(LIBRARY, stdlib), *((PACKAGES, wheel) for wheel in wheels)]:
            for path, content in _members(source):
                if path.endswith(CODE) and not path.startswith(WHOLE) and module_name(path) not in names:
                    put(second, folder + path, content)
                    continue
                for name, compiled in _compiled(path, content, folder):
                    put(first, folder + name, compiled)
        for path, content in more.items():
            put(first, path.removeprefix("/"), content)
    return start.getvalue(), rest.getvalue()


def write_image(start: bytes, memory: Mapping[str, bytes], imported: Iterable[str]) -> bytes:
    """Make the archive of an image: Python's memory, and what of the first archive is read after it.

    Parameters
    ----------
    start
        The first archive, as :func:`write_packs` makes it.
    memory
        The files that hold it, as ``filesOfImage`` of web/src/runtime/image.js makes them.
    imported
        Full names of the modules that are imported in it, whose bytecode is left out.

    Returns
    -------
    bytes
        A tar file, read by web/src/runtime/image.js.
    """
    names = set(imported)
    image = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(start)) as first, new_tar(image) as target:
        for name, content in memory.items():
            put(target, name, content)
        for member in first:
            if not (member.name.endswith(".pyc") and _name_in_archive(member.name) in names):
                put(target, member.name, first.extractfile(member).read())  # type: ignore[union-attr]
    return image.getvalue()


def _name_in_archive(path: str) -> str:
    """The name to import bytecode by that lies in the first archive."""
    inside = path.removeprefix(LIBRARY).removeprefix(PACKAGES)
    return module_name(inside.replace("__pycache__/", ""))


def module_name(path: str) -> str:
    """The name to import a file by: ``json/__init__.py`` is ``json``, ``a/b.cpython-314.so`` is ``a.b``."""
    file = PurePosixPath(path)
    parts = [*file.parts[:-1], file.name.split(".")[0]]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def new_tar(target: io.BytesIO) -> tarfile.TarFile:
    """Open an archive for writing, in the format that web/src/runtime/archive.js reads."""
    return tarfile.open(fileobj=target, mode="w", format=tarfile.USTAR_FORMAT)


def put(archive: tarfile.TarFile, path: str, content: bytes) -> None:
    """Add a file to an archive."""
    entry = tarfile.TarInfo(path)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        for path in sorted(opened.namelist()):
            if not path.endswith(("/", *LEFT_OUT)):
                yield path, opened.read(path)


def _compiled(path: str, content: bytes, folder: str) -> Iterator[tuple[str, bytes]]:
    if not path.endswith(".py"):
        yield path, content
    elif path.startswith(OURS):
        yield path, content
        yield util.cache_from_source(path, optimization=""), _bytecode(content, folder + path)
    else:
        yield f"{path}c", _bytecode(content, folder + path)


def _bytecode(source: bytes, path: str) -> bytes:
    code = compile(source, f"/{path}", "exec", dont_inherit=True)
    # PEP 552: bytecode that is never checked against its source.
    unchecked = (0b01).to_bytes(4, "little")
    return util.MAGIC_NUMBER + unchecked + util.source_hash(source) + marshal.dumps(code)
