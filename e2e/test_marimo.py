"""The widget in a real marimo: numbers read back in the kernel, maps in the cell, cells that follow it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from e2e.notebook_hosts import HOST, ONE_OF_EACH, free_port, server

NOTEBOOK = """
import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo

    again = mo.ui.number(start=0, stop=100, label="again")
    again
    return again, mo


@app.cell
def _(again, mo):
    again.value  # a new number makes a new view

    import time

    import numpy as np

    import py_attn as pa
    from py_attn.widget import AttentionView

    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 1, 4, 48, 32)).astype("float32") for _ in range(3))
    view = mo.ui.anywidget(AttentionView(q, k, v, causal=True, title="Live"))
    view
    return k, np, pa, q, time, v, view


@app.cell
async def _(k, mo, np, pa, q, time, v):
    device = await pa.request_device()
    exact = pa.reference.attention(q[1], k[1], v[1], causal=True)
    _times = []
    for _ in range(20):
        _begun = time.perf_counter()
        out = await pa.attention(q[1], k[1], v[1], causal=True).numpy()
        _times.append(time.perf_counter() - _begun)
    _error = float(np.abs(out - exact).max())
    mo.md(f"error {_error:.1e} after {1e3 * float(np.median(_times)):.1f} ms")
    return


@app.cell
def _(mo, view):
    mo.md(f"looking at layer {view.value['layer']}, head {view.value['head']}")
    return


if __name__ == "__main__":
    app.run()
"""


@pytest.fixture(params=["run", "edit"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """marimo showing the notebook as an app, or editing it: there its kernel is another process."""
    file = tmp_path / "live.py"
    file.write_text(NOTEBOOK)
    port = free_port()
    options = ["--headless", "--no-token", "--host", HOST, "--port", str(port)]
    options += ["--skip-update-check"] if request.param == "edit" else []
    config = tmp_path / "config" / "marimo" / "marimo.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[runtime]\nauto_instantiate = true\n")  # run what is opened
    command = ["marimo", request.param, str(file), *options]
    url = f"http://{HOST}:{port}"
    with server(command, tmp_path, f"{url}/health", XDG_CONFIG_HOME=str(tmp_path / "config")):
        yield request.param, url


@pytest.mark.quick("run*")
def test_a_kernel_without_a_gpu_computes_on_the_viewers(
    page: Page, address: tuple[str, str], artifacts: Path
):
    mode, url = address
    page.goto(url)
    page.locator("[data-shown$='/0/0']").first.wait_for()
    result = page.get_by_text(re.compile(r"error \S+ after \S+ ms")).first
    expect(result).to_be_visible()
    text = result.inner_text()
    print(text)
    assert float(text.split()[1]) < 1e-5
    expect(page.get_by_text("looking at layer 0, head 0").first).to_be_visible()
    page.locator('.thumb[data-head="1/2"]').first.click()
    page.locator("[data-shown$='/1/2']").first.wait_for()
    expect(page.get_by_text("looking at layer 1, head 2").first).to_be_visible()
    page.screenshot(path=artifacts / f"marimo-{mode}.png")

    # cells that run again leave nothing behind
    for number in range(1, 11):
        field = page.get_by_role("textbox", name="again")
        field.fill(str(number))
        field.press("Enter")
        expect(page.get_by_text("looking at layer 0, head 0").first).to_be_visible()
        page.locator('.thumb[data-head="0/1"]').first.click()
        expect(page.get_by_text("looking at layer 0, head 1").first).to_be_visible()
    page.wait_for_function(ONE_OF_EACH)
