"""What goes to PyPI: the same bytes twice, all of it in there, easy to install; and in a bare Pyodide."""

from __future__ import annotations

import base64
import email
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Page

from scripts.package import package


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return package(tmp_path_factory.mktemp("first"))


def wheel_of(packages: list[Path]) -> Path:
    return next(path for path in packages if path.suffix == ".whl")


def test_the_same_tree_gives_the_same_bytes(packages: list[Path], tmp_path: Path):
    again = package(tmp_path / "second")

    def digests(files: list[Path]) -> dict[str, str]:
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    assert digests(packages) == digests(again)
    assert len(packages) == 2


def test_the_wheel_holds_front_end_shaders_and_types(packages: list[Path]):
    with zipfile.ZipFile(wheel_of(packages)) as archive:
        names = set(archive.namelist())
        metadata = email.message_from_bytes(
            archive.read(next(name for name in names if name.endswith("METADATA")))
        )
    for name in ("widget/static/widget.js", "widget/static/widget.css", "shaders/lib/score.wgsl", "py.typed"):
        assert f"py_attn/{name}" in names
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(line.split(">")[0] for line in needed) == ["jinja2", "numpy"]
    assert sorted(metadata.get_all("Provides-Extra", [])) == ["native", "widget"]


def test_it_installs_without_node(packages: list[Path], tmp_path: Path):
    target = tmp_path / "site"
    # no Node, no npm, no network: only pip and the wheel
    quiet = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PIP_NO_INDEX": "1"}
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", target, wheel_of(packages)]
    subprocess.run(command, check=True, env=quiet, capture_output=True)
    code = (
        "import numpy as np, py_attn; from py_attn.widget import AttentionView as V;"
        "assert 'render' in V._esm and V._css; V(weights=np.eye(3)); print(py_attn.__file__)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
    )
    assert found.stdout.startswith(str(target))


IN_BARE_PYODIDE = """
import json, numpy as np, py_attn as pa
device = await pa.request_device()
q, k, v = (np.random.default_rng(n).standard_normal((1, 2, 32, 16)).astype("float32") for n in range(3))
out = await pa.attention(q, k, v, causal=True).numpy()
error = float(np.abs(out - pa.reference.attention(q, k, v, causal=True)).max())
json.dumps({"adapter": str(device), "error": error})
"""

WORKER = """
import { loadPyodide } from '%(base)spyodide/pyodide.mjs';
onmessage = async ({ data: { base, wheel, code } }) => {
  try {
    const { assets } = await (await fetch(`${base}manifest.json`)).json();
    const python = await loadPyodide({ indexURL: `${base}pyodide/` });
    for (const name of ['numpy', 'markupsafe', 'jinja2']) {
      python.unpackArchive(await (await fetch(base + assets[name].path)).arrayBuffer(), 'wheel');
    }
    python.unpackArchive(Uint8Array.fromBase64(wheel).buffer, 'wheel');
    postMessage({ result: await python.runPythonAsync(code) });
  } catch (error) {
    postMessage({ error: String(error?.message ?? error) });
  }
};
"""


@pytest.mark.expects_console_errors("favicon")
def test_the_wheel_works_in_a_bare_pyodide(packages: list[Path], page: Page, site_url: str):
    """As in JupyterLite's kernel: Python in a worker with navigator.gpu, and nothing of our page."""
    page.goto(f"{site_url}manifest.json")
    answer = page.evaluate(
        """([text, message]) => new Promise((resolve) => {
            const url = URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
            const worker = new Worker(url, { type: 'module' });
            worker.onmessage = ({ data }) => resolve(data);
            worker.onerror = (event) => resolve({ error: event.message });
            worker.postMessage(message);
        })""",
        [
            WORKER % {"base": site_url},
            {
                "base": site_url,
                "code": IN_BARE_PYODIDE,
                "wheel": base64.b64encode(wheel_of(packages).read_bytes()).decode(),
            },
        ],
    )
    assert "error" not in answer, answer["error"]
    result = json.loads(answer["result"])
    assert result["error"] < 1e-5
    assert result["adapter"].startswith("Device(")
