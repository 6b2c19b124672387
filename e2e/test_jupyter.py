"""The widget in a real JupyterLab: numbers read back in the kernel, maps in the cell."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from e2e.notebook_hosts import Lab, gallery, jupyterlab, notebook, open_notebook

VIEW = """
import asyncio, gc, json, time
import numpy as np
import py_attn as pa
from py_attn.widget import AttentionView
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((2, 1, 4, 48, 32)).astype("float32") for _ in range(3))
view = AttentionView(q, k, v, causal=True, title="Live", tokens=[f"t{i}" for i in range(48)])
view
"""

COMPUTE = """
device = await pa.request_device()
exact = pa.reference.attention(q[1], k[1], v[1], causal=True)
times = []
for _ in range(20):
    begun = time.perf_counter()
    out = await pa.attention(q[1], k[1], v[1], causal=True).numpy()
    times.append(time.perf_counter() - begun)
print(json.dumps({
    "adapter": str(device), "error": float(np.abs(out - exact).max()),
    "shared": view._viewer.device is device, "ms": 1e3 * float(np.median(times)),
}))
"""

ASK = """
print(json.dumps({
    "layer": view.layer, "head": view.head, "selection": view.selection, "state": view.state,
    "message": view.message, "bytes": device.memory_allocated(), "views": len(AttentionView.widgets),
}))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("jupyter")
    with jupyterlab(folder) as url:
        yield url, folder / "work"


def open_cells(page: Page, server: tuple[str, Path], name: str, *cells: str) -> Lab:
    url, folder = server
    file = folder / f"{name}.ipynb"
    file.write_text(json.dumps(notebook(*cells)))
    return open_notebook(page, url, file)


def test_a_kernel_without_a_gpu_computes_on_the_viewers(
    page: Page, server: tuple[str, Path], artifacts: Path
):
    lab = open_cells(page, server, "live", VIEW, COMPUTE, "await asyncio.sleep(2)\n" + ASK, ASK)
    begun = time.monotonic()
    lab.command("notebook:run-all-cells")
    lab.wait_painted(0, 0)
    first_map = time.monotonic() - begun
    lab.wait()
    numbers = json.loads(lab.text(1))
    assert numbers["error"] < 1e-5
    assert numbers["shared"]
    assert "Device(" in numbers["adapter"]
    print(
        f"first map {first_map:.2f} s after running all cells; pa.attention and back {numbers['ms']:.1f} ms"
    )

    # from the page to the kernel, also while an asynchronous cell runs
    page.evaluate("() => { jupyterapp.shell.currentWidget.content.activeCellIndex = 2 }")
    lab.command("notebook:run-cell")
    time.sleep(0.5)
    maps = page.locator(".overview [role=gridcell], .overview button, .overview canvas")
    assert maps.count() >= 8
    maps.nth(5).click()
    lab.wait_painted(1, 1)
    lab.wait()
    state = json.loads(lab.run_cell(3))
    assert (state["layer"], state["head"], state["state"]) == (1, 1, "live")
    page.screenshot(path=artifacts / "jupyterlab.png")
