"""Puts what `npm run dev` serves into .cache/dev/, except for the page's own scripts and styles.

Vite serves web/ itself. It runs this script once before it starts (see dev-server.js), and again, with
``--again``, after each change of py_attn/ or shaders/. Compiling the archives of the page's Python would
take too long for that, so that only the files of py_attn in them are replaced.
"""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from scripts.build import (
    PACKS,
    SAMPLE,
    build_packs,
    build_wheel,
    files_beside_the_page,
    put_in_place,
    wheels_of_the_page,
    write_manifest,
)
from scripts.common import CACHE, Failure, locked, run_main
from scripts.fetch import read_lock
from scripts.packing import new_tar, put

DEV = CACHE / "dev"
#: Where the archives made for the development server are written, before they are linked into its folder.
DEV_PACKS = CACHE / "dev_packs"
PACKAGE = "py_attn/"


def read_pack(content: bytes) -> dict[str, bytes]:
    """The files in an archive of the page's Python, by their paths."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        members = (member for member in archive if member.isfile())
        return {member.name: archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]


def write_pack(files: Mapping[str, bytes]) -> bytes:
    """Make an archive of these files for the page; it is compressed fast rather than well."""
    target = io.BytesIO()
    with new_tar(target) as archive:
        for path, content in files.items():
            put(archive, path, content)
    return gzip.compress(target.getvalue(), compresslevel=1, mtime=0)


def with_package(files: Mapping[str, bytes], package: Mapping[str, bytes]) -> dict[str, bytes]:
    """Replace the py_attn in an archive's files.

    Bytecode is kept only for modules that have not changed, because Python does not compare it with its
    source. Compiled templates are kept, because Jinja2 does compare them.

    Parameters
    ----------
    files
        An archive's files, by their paths.
    package
        Every current file of py_attn, by its path in the wheel.
    """
    init = f"{PACKAGE}__init__.py"
    folder = next(path for path in files if path.endswith(f"/{init}")).removesuffix(init)

    def stays(path: str) -> bool:
        inside = path.removeprefix(folder)
        if not inside.startswith(PACKAGE) or inside.startswith(f"{PACKAGE}shaders/compiled/"):
            return True
        source = source_of(inside)
        return inside.endswith(".pyc") and package.get(source) == files.get(folder + source)

    kept = {path: content for path, content in files.items() if stays(path)}
    return kept | {folder + path: content for path, content in package.items()}


def source_of(bytecode: str) -> str:
    """The path of the source of ``a/__pycache__/b.cpython-314.pyc``: ``a/b.py``."""
    path = Path(bytecode)
    return (path.parent.parent / f"{path.name.split('.')[0]}.py").as_posix()


def read_wheel(path: Path) -> dict[str, bytes]:
    """The files of py_attn in its wheel; a syntax error in a module raises `Failure`."""
    with zipfile.ZipFile(path) as wheel:
        package = {name: wheel.read(name) for name in wheel.namelist() if name.startswith(PACKAGE)}
    for name, content in package.items():
        if not name.endswith(".py"):
            continue
        try:
            compile(content, name, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise Failure(f"{name}, line {error.lineno}: {error.msg}") from None
    return package


def make_packs(wheel: Path) -> dict[str, Path]:
    """Make the archives with the current py_attn, all of it in the first, so any module can be imported."""
    both: dict[str, bytes] = {}
    for name in ("rest.pack", "start.pack"):
        both |= read_pack((PACKS / name).read_bytes())
    packs = {"start.pack": write_pack(with_package(both, read_wheel(wheel))), "rest.pack": write_pack({})}
    DEV_PACKS.mkdir(exist_ok=True)
    for name, content in packs.items():
        partial = DEV_PACKS / f"{name}.partial"
        partial.write_bytes(content)
        partial.replace(DEV_PACKS / name)
    # Texts of an earlier py_attn are never asked for.
    listed = {"python/pipelines.json": PACKS / "pipelines.json"}
    return {f"python/{name}": DEV_PACKS / name for name in packs} | listed


def main() -> None:
    """Bring .cache/dev/ up to date."""
    with locked("build"):
        assets = read_lock()
        wheel = build_wheel()
        if "--again" not in sys.argv:
            build_packs(wheels_of_the_page(assets, wheel))
        files = files_beside_the_page(assets, wheel) | make_packs(wheel)
        files[f"sample/{SAMPLE.name}"] = SAMPLE
        DEV.mkdir(exist_ok=True)
        put_in_place(files, DEV)
        write_manifest(assets, wheel, files, DEV)


if __name__ == "__main__":
    run_main(main)
