"""The widget in a real JupyterLab: numbers read back in the kernel, maps in the cell."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Page, expect

from e2e.lab import until
from e2e.notebook_hosts import ONE_OF_EACH, Lab, gallery, jupyterlab, notebook, open_notebook

VIEW = """
import asyncio, json, time
from pathlib import Path
import numpy as np
import py_attn as pa
from py_attn.remote import session
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
    "layer": view.layer, "head": view.head, "state": view.state, "message": view.message,
    "bytes": device.memory_allocated(), "views": len(session.current.links),
}))
"""

UNTIL_RELEASED = """
while not Path("released.txt").exists():
    await asyncio.sleep(0.05)
"""

FROM_PYTHON = "view.layer, view.head = 0, 2"

#: Reads back again and again until that fails, and writes down how.
UNTIL_GONE = """
gone = Path("gone.txt")
gone.unlink(missing_ok=True)
try:
    while True:
        await pa.attention(q[1], k[1], v[1]).numpy()
        gone.with_suffix(".begun").write_text("")
except Exception as error:
    gone.write_text(f"{type(error).__name__}: {error}")
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


def choose(page: Page, layer: int, head: int) -> None:
    page.locator(f'.thumb[data-head="{layer}/{head}"]').first.click()


def test_a_kernel_without_a_gpu_computes_on_the_viewers(
    page: Page, server: tuple[str, Path], artifacts: Path
):
    lab = open_cells(page, server, "live", VIEW, COMPUTE, UNTIL_RELEASED, ASK, FROM_PYTHON)
    released = lab.file.with_name("released.txt")
    released.touch()
    begun = time.monotonic()
    lab.command("notebook:run-all-cells")
    lab.wait_painted(0, 2)
    lab.wait()
    print(f"last map {time.monotonic() - begun:.2f} s after running all cells")
    numbers = json.loads(lab.text(1))
    assert numbers["error"] < 1e-5
    assert numbers["shared"]
    assert "Device(" in numbers["adapter"]
    begun = time.monotonic()
    lab.run_cell(0)
    lab.wait_painted(0, 0)
    first_map = time.monotonic() - begun
    print(f"map {first_map:.2f} s after running the cell; pa.attention and back {numbers['ms']:.1f} ms")

    # from the page to the kernel, also while an asynchronous cell runs, and after it
    released.unlink()
    lab.start_cell(2)
    choose(page, 1, 1)
    lab.wait_painted(1, 1)
    released.touch()
    lab.wait()
    # The front end gathers changes for a moment before it tells the kernel.
    until(page, lambda: json.loads(lab.run_cell(3))["head"] == 1, "head 1 in the kernel")
    state = json.loads(lab.run_cell(3))
    assert (state["layer"], state["head"], state["state"]) == (1, 1, "live")
    choose(page, 1, 3)
    lab.wait_painted(1, 3)
    until(page, lambda: json.loads(lab.run_cell(3))["head"] == 3, "head 3 in the kernel")
    lab.wait_output(0, "Layer 1, head 3 (of 2 layers with 4 heads)")
    page.screenshot(path=artifacts / "jupyterlab.png")
    saved = lab.save()
    assert "Layer 1, head 3 (of 2 layers with 4 heads)" in json.dumps(saved["cells"][0]["outputs"])


@pytest.mark.thorough
@pytest.mark.expects_console_errors("WebSocket", "Kernel connection")
def test_nothing_is_left_behind_and_nothing_hangs(page: Page, server: tuple[str, Path]):
    lab = open_cells(page, server, "again", VIEW, COMPUTE, ASK, UNTIL_GONE)
    lab.run_cell(0)
    for _ in range(50):
        lab.run_cell(0)
    lab.wait_painted(0, 0)
    lab.run_cell(1)
    page.wait_for_function(ONE_OF_EACH)
    expect(page.locator(".py-attn-widget")).to_have_count(1)
    state = json.loads(lab.run_cell(2))
    assert state["views"] == 1
    assert state["bytes"] < 1 << 20

    # a restart: the notebook goes on, the view says what to do, and comes back when its cell runs
    page.evaluate(
        "async () => { await jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart() }"
    )
    expect(page.get_by_text("run the cell again", exact=False).first).to_be_visible()
    lab.run_cell(0)
    lab.wait_painted(0, 0)
    assert json.loads(lab.run_cell(1))["error"] < 1e-5

    # a second tab on the same kernel, and then the first one goes while a cell waits for it
    lab.save()
    second = page.context.new_page()
    other = open_notebook(second, server[0], lab.file)
    other.wait_painted(0, 0)
    gone = lab.file.with_name("gone.txt")
    lab.start_cell(3)
    until(second, gone.with_suffix(".begun").is_file, "the kernel to read back")
    page.close()
    until(second, lambda: gone.is_file() and "Error" in gone.read_text(), "the kernel to give up")
    assert "DeviceLostError" in gone.read_text()
    choose(second, 1, 2)
    other.wait_painted(1, 2)
    second.close()


def test_without_webgpu_the_kernel_computes_and_says_so(page: Page, server: tuple[str, Path]):
    page.add_init_script("Object.defineProperty(navigator, 'gpu', { value: undefined })")
    lab = open_cells(page, server, "without", VIEW, "await pa.request_device()")
    lab.run_cell(0)
    lab.wait_painted(0, 0)
    expect(page.get_by_text("computed by numpy in the kernel", exact=False).first).to_be_visible()
    lab.start_cell(1, wait=False)
    expect(
        page.get_by_text("WebGPUUnavailableError: This browser offers no WebGPU", exact=False)
    ).to_be_visible()


@pytest.mark.quick("write_a_variant")
@pytest.mark.parametrize("notebook_file", gallery(), ids=lambda path: path.stem)
def test_the_gallery_runs_from_top_to_bottom(
    page: Page, server: tuple[str, Path], notebook_file: Path, artifacts: Path
):
    url, folder = server
    file = Path(shutil.copy(notebook_file, folder))
    lab = open_notebook(page, url, file)
    lab.run_all()
    # a notebook draws only what is in sight
    view = next(n for n in range(len(lab.sources)) if lab.sources[n].endswith("\nview"))
    page.evaluate(
        "(n) => jupyterapp.shell.currentWidget.content.widgets[n].node.scrollIntoView({ block: 'start' })",
        view,
    )
    page.locator("[data-shown]").first.wait_for()
    lab.wait_output(view, "data:image/png;base64,")
    page.screenshot(path=artifacts / f"gallery-{file.stem}.png")
    saved = lab.save()
    html = exported(saved)
    assert "A snapshot; run the cell to explore it." in html
    assert 'src="data:image/png;base64,' in html


def exported(saved: dict[str, Any]) -> str:
    """What nbconvert makes of a saved notebook."""
    body, _ = HTMLExporter().from_notebook_node(nbformat.reads(json.dumps(saved), as_version=4))
    return str(body)


def test_a_notebook_opened_without_its_kernel_shows_the_snapshot(page: Page, server: tuple[str, Path]):
    url, folder = server
    snapshot = {"text/html": '<figure id="py-attn-snapshot-x"><figcaption>A snapshot</figcaption></figure>'}
    file = folder / "snapshot.ipynb"
    saved = notebook("view")
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "gone", "version_major": 2}}
    for data in (view, snapshot):
        output = {"output_type": "display_data", "data": data, "metadata": {}}
        saved["cells"][0]["outputs"].append(output)
    file.write_text(json.dumps(saved))
    open_notebook(page, url, file)
    expect(page.get_by_text("A snapshot").first).to_be_visible()
