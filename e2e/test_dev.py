"""The development server (`npm run dev`), on a copy of the checkout: a page runs what was saved last."""

from __future__ import annotations

import os
import queue
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from e2e.lab import Lab, wait_until_ready
from scripts.build import build
from scripts.common import CACHE, ROOT
from scripts.serve import HOST

COPIED = ("py_attn", "shaders", "web", "scripts", "bench", "tests/recording_bridge.py")
COPIED_FILES = ("vite.config.js", "package.json", "package-lock.json", "pyproject.toml", "hatch_build.py")
DOCUMENTS = ("README.md", "LICENSE", "THIRD_PARTY_NOTICES.md", "assets.lock.json")
START_S = 60


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy whose files a test may change; what is downloaded and what is built stays where it is."""
    build()  # so that the copy has little to compile
    copy: Path = tmp_path_factory.mktemp("checkout")
    for name in (*COPIED, *COPIED_FILES, *DOCUMENTS):
        source, target = ROOT / name, copy / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "results"))
        else:
            shutil.copy2(source, target)
    for name in ("node_modules", ".venv", ".cache/assets"):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).symlink_to(ROOT / name, target_is_directory=True)
    for name in ("packs", "py_attn_wheel"):
        shutil.copytree(CACHE / name, copy / ".cache" / name)
    return copy


@pytest.fixture(scope="module")
def address(checkout) -> Iterator[str]:
    """The address that the server prints."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    command = ["node", "node_modules/vite/bin/vite.js", "--mode", "dev"]
    environment = {**os.environ, "PORT": str(port), "NO_COLOR": "1"}
    server = subprocess.Popen(
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in server.stdout:
            lines.put(line)

    reader = threading.Thread(target=read)
    reader.start()
    printed = []
    try:
        while not (found := re.search(r"http://\S+", printed[-1] if printed else "")):
            try:
                printed.append(lines.get(timeout=START_S))
            except queue.Empty:
                pytest.fail(f"no address within {START_S} s: {printed}")
        yield found[0]
    finally:
        server.terminate()
        server.wait()
        reader.join()
        server.stdout.close()


def change(path: Path, old: str, new: str) -> None:
    """Save a file as many editors do: whole, in the place of the old one."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    whole = path.with_name(f"{path.name}.tmp")
    whole.write_text(text.replace(old, new, 1), encoding="utf-8")
    whole.replace(path)


def after_reload(page: Page) -> Lab:
    """Wait until the page was loaded again and Python is ready in it."""
    page.wait_for_function("() => !window.beforeTheChange && window.pyAttn !== undefined")
    lab = Lab(page, wait_until_ready(page))
    page.evaluate("() => { window.beforeTheChange = true; }")
    return lab


@pytest.mark.thorough
def test_what_is_saved_is_what_the_page_runs(page, checkout, address):
    page.goto(address)
    assert "marker" not in after_reload(page).run("import py_attn as pa; dir(pa)")

    change(checkout / "py_attn" / "__init__.py", "__all__ = [", 'marker = "one"\n__all__ = [')
    assert after_reload(page).run("import py_attn as pa; pa.marker") == "one"

    template = next((checkout / "shaders").rglob("score.wgsl"))
    first = template.read_text(encoding="utf-8").splitlines()[0]
    change(template, first, f"//## a new line\n{first}")
    source = """
from py_attn.gpu import shader
next(shader.shader_folder().rglob("score.wgsl")).read_text().splitlines()[0]
"""
    assert after_reload(page).run(source) == "//## a new line"

    change(checkout / "web" / "src" / "main.js", "const door = {", "const door = {\n  marker: 'two',")
    after_reload(page)
    assert page.evaluate("() => window.pyAttn.marker") == "two"

    change(checkout / "web" / "src" / "worker.js", "pyodide: python.version", "pyodide: 'three'")
    assert after_reload(page).info["versions"]["pyodide"] == "three"

    change(checkout / "py_attn" / "__init__.py", 'marker = "one"', "marker = ")
    overlay = page.locator("vite-error-overlay")
    expect(overlay).to_contain_text("py_attn/__init__.py, line ", timeout=30_000)
    change(checkout / "py_attn" / "__init__.py", "marker = \n", 'marker = "four"\n')
    assert after_reload(page).run("import py_attn as pa; pa.marker") == "four"
