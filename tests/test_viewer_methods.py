"""The table of methods: what JavaScript calls is what Python offers, and what a start calls works."""

import asyncio
import re
from pathlib import Path

import pytest

from py_attn.gpu.device import request_device
from py_attn.viewer import Viewer
from py_attn.viewer.methods import METHODS, early_methods

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "web" / "public" / "sample" / "minilm.npz"
#: What a front end that writes calls: only the page's has a language model.
WRITE = {name for name in METHODS if name.startswith("write_")}


def test_the_front_end_calls_what_there_is():
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "web" / "src").rglob("*.js"))
    called = {name for text in sources for name in re.findall(r"\b(?:call|open)\(\s*'(\w+)'", text)}
    assert called == set(METHODS)


def test_a_notebook_s_front_end_runs_no_source_text():
    assert {name for name, method in METHODS.items() if not method.notebook} == {
        "check_wgsl", "complete", "decode_cache", "edit", "load_model", "make_example", "open_file",
        "open_again", "open_sample", "open_synthetic", "open_text", "run_wgsl", "save_source", "wgsl_cell",
        *WRITE,
    }  # fmt: skip


@pytest.mark.parametrize("gpu", [False, True])
def test_the_calls_of_a_start_can_be_made_in_the_table_s_order(gpu, bridge):
    viewer = Viewer(lambda: request_device(bridge)) if gpu else Viewer()

    async def start():
        await viewer.call("connect", {})
        await viewer.call("open_sample", {"data": SAMPLE.read_bytes()})
        return [name for name, method in METHODS.items() if method.start is not None
                and await viewer.call(name, method.start)]  # fmt: skip

    called = asyncio.run(start())
    assert {"overview", "window", "row", "legend", "decode_open", "decode_step"} == set(called)
    assert bool(bridge.programs) == gpu


def test_methods_of_a_start_wait_for_methods_of_a_start():
    early = early_methods()
    assert {"connect", "open_sample", "load_model"} < set(early)
    assert all(after in early for after in early.values() if after)
    assert Viewer().early_methods == early


def test_progress_goes_to_the_methods_that_report_it():
    assert {name for name, method in METHODS.items() if method.reports_progress} == {
        "load_model", "measure", "run_wgsl", "write_load",
    }  # fmt: skip
    viewer, news = Viewer(), []
    asyncio.run(viewer.call("open_sample", {"data": SAMPLE.read_bytes()}, lambda *new: news.append(new)))
    assert not news
