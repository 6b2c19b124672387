"""Real notebook servers on loopback, with py_attn from its wheel, and what a visitor does in them."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, TimeoutError

from e2e.lab import PATIENCE_S
from scripts.common import CACHE, ROOT
from scripts.package import package

HOST = "127.0.0.1"
#: Whether all views of a document share what they should, in web/src/embed/link.js.
ONE_OF_EACH = """() => {
    const { links, devices } = globalThis[Symbol.for('py-attn.page')];
    return links.size === 1 && devices.size === 1;
}"""
SITE = CACHE / "notebook-site"


@functools.cache
def install_wheel() -> Path:
    """A folder with what the wheel holds, for PYTHONPATH: the wheel as it is, not the checkout."""
    wheel = next(path for path in package(CACHE / "package") if path.suffix == ".whl")
    shutil.rmtree(SITE, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(SITE)
    return SITE


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def server(command: list[str], folder: Path, url: str, **environment: str) -> Iterator[None]:
    """Run a notebook server in ``folder`` until ``url`` answers; what it logs is told when it does not."""
    log = folder / "server.log"
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "MARIMO"))},
        "PYTHONPATH": str(install_wheel()),
        "PY_ATTN_MODELS": str(CACHE / "assets" / "models"),
        "HOME": str(folder),
        **environment,
    }
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=folder, env=env, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(url, timeout=2).close()
                    break
                assert process.poll() is None, f"the server ended:\n{log.read_text()}"
                assert time.monotonic() < deadline, f"the server did not answer:\n{log.read_text()}"
                time.sleep(0.1)
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """A JupyterLab whose root is ``folder / "work"``; its address."""
    (folder / "work").mkdir()
    (folder / "settings").mkdir()
    quiet = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}
    overrides = {"@jupyterlab/apputils-extension:notification": quiet}
    (folder / "settings" / "overrides.json").write_text(json.dumps(overrides))
    port = free_port()
    command = [
        *("jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser", f"--port={port}"),
        *(f"--ServerApp.ip={HOST}", "--ServerApp.port_retries=0", "--IdentityProvider.token="),
        *(f"--ServerApp.root_dir={folder / 'work'}", f"--LabApp.app_settings_dir={folder / 'settings'}"),
    ]
    names = ("CONFIG", "DATA", "RUNTIME")
    places = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in names}
    places |= {f"JUPYTERLAB_{name}_DIR": str(folder / name.lower()) for name in ("SETTINGS", "WORKSPACES")}
    with server(command, folder, f"http://{HOST}:{port}/api", IPYTHONDIR=str(folder / "ipython"), **places):
        yield f"http://{HOST}:{port}"


def notebook(*cells: str) -> dict[str, Any]:
    """A notebook of code cells."""
    return {
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell-{n}",
                "source": source.strip("\n"),
                "metadata": {},
                "outputs": [],
                "execution_count": None,
            }
            for n, source in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


# JavaScript: the shown notebook's kernel, and the models of its cells of code.
_KERNEL_AND_CELLS = """
const { content, sessionContext } = jupyterapp.shell.currentWidget;
const kernel = sessionContext.session?.kernel;
const cells = content.widgets.map(({ model }) => model).filter(({ type }) => type === 'code');
"""


@dataclass
class Lab:
    """A notebook that is open in JupyterLab."""

    page: Page
    file: Path

    def command(self, name: str, **options: Any) -> None:
        self.page.evaluate(
            "([name, options]) => void jupyterapp.commands.execute(name, options)", [name, options]
        )

    @property
    def sources(self) -> list[str]:
        """What is in the cells."""
        return ["".join(cell["source"]) for cell in json.loads(self.file.read_text())["cells"]]

    def wait(self) -> None:
        """Until every cell has run and the kernel rests; a cell's error fails the test."""
        try:
            problem = self.page.wait_for_function(
                f"""() => {{
                    {_KERNEL_AND_CELLS}
                    const outputs = cells.flatMap((model) => model.outputs.toJSON());
                    const error = outputs.find(({{ output_type: type }}) => type === 'error');
                    if (error) return error.traceback.join('\\n');
                    const ran = (model) => model.executionCount && model.executionState === 'idle';
                    return kernel?.status === 'idle' && cells.every(ran) && 'fine';
                }}""",
            ).json_value()
        except TimeoutError as error:
            raise AssertionError(f"the notebook does not come to rest: {self.state()}") from error
        assert problem == "fine", problem

    def state(self) -> dict[str, Any]:
        """What the kernel does, and of each cell its state, how often it ran, and what it put out."""
        found: dict[str, Any] = self.page.evaluate(
            f"""() => {{
                {_KERNEL_AND_CELLS}
                return {{
                    kernel: kernel?.status,
                    connection: kernel?.connectionStatus,
                    dialogs: [...document.querySelectorAll('.jp-Dialog')].map((dialog) => dialog.textContent),
                    cells: cells.map((model) => [
                        model.executionState,
                        model.executionCount,
                        JSON.stringify(model.outputs.toJSON()).slice(0, 300),
                    ]),
                }};
            }}"""
        )
        return found

    def run_all(self) -> None:
        self.command("notebook:run-all-cells")
        self.wait()

    def start_cell(self, index: int, *, wait: bool = True) -> None:
        """Run one cell again, and wait no longer than until it runs."""
        self.page.evaluate(
            """(index) => {
                jupyterapp.shell.currentWidget.content.activeCellIndex = index;
                void jupyterapp.commands.execute('notebook:run-cell');
            }""",
            index,
        )
        if wait:
            self.page.wait_for_function(
                """(index) => {
                    const { model } = jupyterapp.shell.currentWidget.content.widgets[index];
                    return model.executionState === 'running';
                }""",
                arg=index,
            )

    def run_cell(self, index: int) -> str:
        """Run one cell again; what it printed."""
        self.page.evaluate(
            """async (index) => {
                jupyterapp.shell.currentWidget.content.activeCellIndex = index;
                await jupyterapp.commands.execute('notebook:run-cell');
            }""",
            index,
        )
        return self.text(index)

    def outputs(self, index: int) -> list[dict[str, Any]]:
        """A cell's outputs as the notebook would be saved."""
        found: list[dict[str, Any]] = self.page.evaluate(
            "(index) => jupyterapp.shell.currentWidget.content.widgets[index].model.outputs.toJSON()", index
        )
        return found

    def text(self, index: int) -> str:
        """What a cell printed; an error fails the test."""
        outputs = self.outputs(index)
        errors = ["\n".join(output["traceback"]) for output in outputs if output["output_type"] == "error"]
        assert not errors, errors[0]
        return "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")

    def wait_output(self, index: int, text: str) -> None:
        """Until the outputs of a cell, as the notebook would be saved, contain a text."""
        self.page.wait_for_function(
            """([index, text]) => JSON.stringify(
                jupyterapp.shell.currentWidget.content.widgets[index].model.outputs.toJSON()).includes(text)""",
            arg=[index, text],
        )

    def save(self) -> dict[str, Any]:
        """Save the notebook; what the file holds."""
        self.page.evaluate("async () => { await jupyterapp.commands.execute('docmanager:save') }")
        saved: dict[str, Any] = json.loads(self.file.read_text())
        return saved

    def wait_painted(self, layer: int, head: int) -> None:
        """Until some view shows the map of a layer and head."""
        self.page.locator(f"[data-shown$='/{layer}/{head}']").first.wait_for()


def open_notebook(page: Page, url: str, file: Path) -> Lab:
    """Open a notebook of JupyterLab's root, and wait for its kernel."""
    page.goto(f"{url}/lab/tree/{file.name}?reset")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_function(
        "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'",
    )
    return Lab(page, file)


def gallery() -> list[Path]:
    """The notebooks of the documents, but for those that need more packages than are installed here.

    These name them in their metadata; `tests_transformers/` runs them.
    """
    files = sorted((ROOT / "docs" / "gallery").glob("*.ipynb"))
    return [file for file in files if "py_attn" not in json.loads(file.read_text("utf-8"))["metadata"]]
