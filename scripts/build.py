"""Builds the static site into dist/: the page, Pyodide, the wheels, the weights and a manifest of them.

All addresses in it are relative, so it works under any path of any static server, and nothing in it sends
requests to another host. Steps whose inputs have not changed are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from scripts.common import (
    CACHE,
    DIST,
    ROOT,
    VENV_PYTHON,
    Failure,
    Stamp,
    call,
    locked,
    run_main,
    say,
    sha256_file,
    sha256_tree,
)
from scripts.compressed import compressed_copies
from scripts.fetch import Asset, Fetcher, read_lock

WEB_OUT = CACHE / "web"
WIDGET_OUT = ROOT / "py_attn" / "widget" / "static"
VITE = ROOT / "node_modules" / "vite" / "bin" / "vite.js"
WHEEL_OUT = CACHE / "py_attn_wheel"
PYODIDE = ROOT / "node_modules" / "pyodide"
PYODIDE_FILES = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
#: Files of the site that have a name of their own in the manifest, besides the locked assets.
NAMED = {
    "pyodide.asm.wasm": "pyodide/pyodide.asm.wasm",
    "python_stdlib": "pyodide/python_stdlib.zip",
    "python-start": "python/start.pack",
    "python-rest": "python/rest.pack",
    "pipelines": "python/pipelines.json",
}
#: The development server has none, as py_attn changes there.
IMAGE = "python/image.pack"
#: What only workers load is not among the licences that Vite writes.
WLLAMA_LICENCE = ROOT / "node_modules" / "@wllama" / "wllama" / "LICENCE"
WHEELS = ("numpy", "markupsafe", "jinja2")
PACKS = CACHE / "packs"
SAMPLE = ROOT / "web" / "public" / "sample" / "minilm.npz"


def build_page() -> None:
    """Bundle web/ with Vite into the cache, unless it and its packages are unchanged."""
    names = ["web/src", "web/public", "vite.config.js", "package-lock.json", "bench/shaders"]
    names.append("tests/fixtures/smollm2.json")
    inputs = [ROOT / name for name in names]
    inputs += [*sorted((ROOT / "web").glob("*.html")), *sorted((ROOT / "bench").glob("*.py"))]
    stamp = Stamp(WEB_OUT / ".stamp", sha256_tree(inputs))
    if stamp.is_current():
        return
    if not (ROOT / "web" / "index.html").is_file():
        raise Failure("web/index.html is missing: there is no page to build.")
    say("building the page with Vite")
    call(["node", VITE, "build", "--logLevel", "warn"], "Vite could not build the page")
    stamp.write()


def build_widget() -> None:
    """Bundle the notebook widget's front end into the package, unless nothing in it changed."""
    inputs = [ROOT / "web" / "src", ROOT / "vite.config.js", ROOT / "package-lock.json"]
    stamp = Stamp(CACHE / "widget.stamp", sha256_tree(inputs))
    if stamp.is_current() and (WIDGET_OUT / "bridge.js").is_file():
        return
    say("building the widget with Vite")
    # The widget is built first, because its build empties the folder.
    for mode in ("widget", "bridge"):
        failure = f"Vite could not build the {mode}"
        call(["node", VITE, "build", "--mode", mode, "--logLevel", "warn"], failure)
    stamp.write()


def build_wheel() -> Path:
    """Build py_attn's wheel for the page, shaders included, unless nothing in it changed; return it.

    It does not contain the notebook widget's front end, which the page does not need.
    """
    names = ("py_attn", "shaders", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
    inputs = [ROOT / name for name in names]
    stamp = Stamp(WHEEL_OUT / ".stamp", sha256_tree(inputs))
    if not stamp.is_current():
        say("building the py_attn wheel")
        shutil.rmtree(WHEEL_OUT, ignore_errors=True)
        built = subprocess.run(
            [VENV_PYTHON, "-m", "hatchling", "build", "--target", "wheel", "--directory", WHEEL_OUT],
            cwd=ROOT,
            env={**os.environ, "PY_ATTN_WHEEL": "page"},
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode:
            raise Failure(f"the py_attn wheel could not be built:\n{built.stdout}{built.stderr}")
        stamp.write()
    return next(WHEEL_OUT.glob("*.whl"))


def build_packs(wheels: list[Path]) -> dict[str, Path]:
    """Archives and a list for the page's Python, as paths of the site; see scripts/packing.py."""
    targets = [PACKS / name for name in ("start.pack", "rest.pack", "image.pack", "pipelines.json")]
    scripts = [ROOT / "scripts" / name for name in ("pack.js", "packing.py", "image.js")]
    scripts += [ROOT / "web" / "src" / "runtime" / name for name in ("archive.js", "image.js")]
    scripts.append(ROOT / "tests" / "recording_bridge.py")
    stamp = Stamp(PACKS / ".stamp", sha256_tree([*wheels, *scripts, SAMPLE, PYODIDE / "package.json"]))
    if not stamp.is_current():
        say("compiling the page's Python modules")
        PACKS.mkdir(parents=True, exist_ok=True)
        call(["node", scripts[0], *targets, SAMPLE, *wheels], "Python's modules could not be compiled")
        stamp.write()
    return {f"python/{target.name}": target for target in targets}


def collect(assets: list[Asset], wheel: Path) -> dict[str, Path]:
    """Map every path of the site to its file."""
    page = {
        path.relative_to(WEB_OUT).as_posix(): path
        for path in sorted(WEB_OUT.rglob("*"))
        if path.is_file() and path.name != ".stamp"
    }
    files = page | files_beside_the_page(assets, wheel)
    files |= build_packs(wheels_of_the_page(assets, wheel))
    return files | compressed_copies(files)


def files_beside_the_page(assets: list[Asset], wheel: Path) -> dict[str, Path]:
    """Map the site's paths of Pyodide, wheels, weights and licences to their files."""
    fetcher = Fetcher()
    files = {f"pyodide/{name}": PYODIDE / name for name in PYODIDE_FILES}
    files[f"wheels/{wheel.name}"] = wheel
    files |= {asset.path: fetcher.fetch(asset) for asset in assets}
    files["assets/wllama-licence.txt"] = WLLAMA_LICENCE
    return files | {name: ROOT / name for name in ("LICENSE", "THIRD_PARTY_NOTICES.md")}


def wheels_of_the_page(assets: list[Asset], wheel: Path) -> list[Path]:
    """The wheels of the packages that the page's Python imports, ours last."""
    fetcher = Fetcher()
    locked = {asset.name: asset for asset in assets}
    return [*(fetcher.fetch(locked[name]) for name in WHEELS), wheel]


def put_in_place(files: dict[str, Path], folder: Path) -> None:
    """Make a folder hold exactly these files and a manifest; files that are the same are not touched."""
    for path in sorted(folder.rglob("*"), reverse=True):
        relative = path.relative_to(folder).as_posix()
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif relative not in files and relative != "manifest.json":
            path.unlink()
    for relative, source in files.items():
        target = folder / relative
        if target.is_file() and _looks_same(source, target):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        _link_or_copy(source, target)


def _looks_same(source: Path, target: Path) -> bool:
    ours, theirs = source.stat(), target.stat()
    return (ours.st_size, ours.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns)


def _link_or_copy(source: Path, target: Path) -> None:
    """Link or copy a file: where source and target share a file system, hard links save copying 190 MB."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def write_manifest(assets: list[Asset], wheel: Path, files: dict[str, Path], folder: Path) -> None:
    """Write into a folder what the page downloads by name: path, size and SHA-256 of each."""
    named = {asset.name: asset.path for asset in assets} | NAMED
    if IMAGE in files:
        named["python-image"] = IMAGE
    named["py_attn"] = f"wheels/{wheel.name}"
    named |= {path: path for path in files if path.startswith("sample/")}
    entries = {
        name: {"path": path, "bytes": files[path].stat().st_size, "sha256": sha256_file(files[path])}
        for name, path in sorted(named.items())
    }
    version = wheel.name.split("-")[1]
    text = json.dumps({"version": version, "assets": entries}, indent=2) + "\n"
    partial = CACHE / "manifest.json"
    partial.write_text(text, encoding="utf-8")
    partial.replace(folder / "manifest.json")


def build() -> Path:
    """Bring dist/ up to date and return it."""
    with locked("build"):
        assets = read_lock()
        build_page()
        build_widget()
        wheel = build_wheel()
        files = collect(assets, wheel)
        DIST.mkdir(exist_ok=True)
        put_in_place(files, DIST)
        write_manifest(assets, wheel, files, DIST)
    return DIST


def main() -> None:
    """Build the site and print its size."""
    build()
    size = sum(path.stat().st_size for path in DIST.rglob("*") if path.is_file())
    say(f"dist/ is ready ({size / 1e6:.0f} MB): a static site for any server and any path")


if __name__ == "__main__":
    run_main(main)
