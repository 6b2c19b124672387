"""The language model's file in the page: from the site to the GPU, without a copy on Python's heap."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route

from e2e.conftest import watched_context
from e2e.lab import Lab, wait_until_ready
from scripts.common import CACHE
from scripts.fetch import read_lock

HELPERS = """
import asyncio
import gc
import pyodide_js
import py_attn as pa
from py_attn.models.files import open_asset

NAME = "smollm2/model.gguf"
device = pa.default_device()

def heap():
    return pyodide_js._module.HEAPU8.length

async def load():
    file = await open_asset(NAME, device=device)
    try:
        return await device.upload_file(file)
    finally:
        file.close()

async def error_of(awaitable):
    gc.collect()
    before = device.memory_allocated()
    try:
        await awaitable
    except BaseException as error:
        gc.collect()
        return [type(error).__name__, str(error), device.memory_allocated() - before]
"""

ASSET = next(asset for asset in read_lock() if asset.name == "smollm2/model.gguf")


def ready(page: Page, site_url: str) -> Lab:
    page.goto(site_url)
    lab = Lab(page, wait_until_ready(page))
    # The page's own first maps and labels share the device, whose memory the tests look at.
    page.wait_for_selector('#overview[data-findings="1"]')
    lab.run(HELPERS)
    return lab


@pytest.fixture(scope="module")
def loaded(browser: Browser, site_url: str) -> Iterator[Lab]:
    """A page of its own, whose heap no other test has enlarged; with the whole file on the GPU."""
    with watched_context(browser) as context:
        page = context.new_page()
        asked: list[str] = []
        context.on("request", lambda request: asked.append(request.url))
        lab = ready(page, site_url)
        assert not [url for url in asked if ".gguf" in url], (
            "the file was loaded before somebody asked for it"
        )
        lab.run("""
steps, uploads = [], []
before, allocated = heap(), device.memory_allocated()
file = await open_asset(NAME, device=device, progress=lambda *step: steps.append(step))
opened = [file.size, file.read(0, 4) == b"GGUF"]
tensor = await device.upload_file(file, progress=lambda *step: uploads.append(step))
file.close()
after = heap()
""")
        yield lab


def test_the_heap_grows_by_less_than_40_mb(loaded):
    before, after = loaded.run("[before, after]")
    assert after - before < 40e6
    assert loaded.run("opened") == [ASSET.bytes, True]
    assert loaded.run("device.memory_allocated() - allocated") < ASSET.bytes + 1e6


def test_download_and_upload_report_every_byte(loaded):
    for steps in loaded.run("[steps, uploads]"):
        assert steps == sorted(steps)
        assert steps[-1] == [ASSET.bytes, ASSET.bytes]
        assert len(steps) > 5


@pytest.mark.parametrize("begin", [0, 4, 4_194_300, 50_000_000, ASSET.bytes - 4096])
def test_the_uploaded_bytes_are_the_files(loaded, begin):
    path = CACHE / "assets" / ASSET.path
    expected = np.fromfile(path, np.uint32, 1024, offset=begin)
    got = loaded.run(f"(await tensor[{begin // 4}:{begin // 4} + 1024].numpy()).tolist()")
    assert got == expected.tolist()


def test_a_closed_file_holds_and_gives_nothing(loaded):
    assert loaded.run("file.size") == 0
    kind, words, _ = loaded.run("await error_of(device.upload_file(file, 0, 4))")
    assert (kind, "within its 0 bytes" in words) == ("ValueError", True)


# A small file in its place, and what can go wrong with it.

SMALL = bytes(range(256)) * 4096


@pytest.fixture(scope="module")
def small(browser: Browser, site_url: str) -> Iterator[Lab]:
    """A page of a site whose file has 1 MiB."""

    def changed(route: Route) -> None:
        reply = route.fetch()
        manifest = json.loads(reply.text())
        entry = manifest["assets"][ASSET.name]
        entry |= {"bytes": len(SMALL), "sha256": hashlib.sha256(SMALL).hexdigest()}
        route.fulfill(response=reply, body=json.dumps(manifest))

    with watched_context(browser, "Failed to load resource") as context:
        context.route("**/manifest.json*", changed)
        yield ready(context.new_page(), site_url)


FILE = "**/models/smollm2/*"


@pytest.fixture
def served(small: Lab) -> Iterator[Lab]:
    yield small
    small.page.context.unroute(FILE)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"body": SMALL[:1000]}, "the download ended after 1000 of 1048576 bytes"),
        ({"body": SMALL + b"x"}, "more than the expected 1048576 bytes"),
        ({"body": SMALL[::-1]}, "the file's SHA-256 is"),
        ({"status": 404}, "the server answered 404"),
    ],
)
def test_a_wrong_file_is_refused_and_leaves_nothing(served, answer, words):
    served.page.context.route(FILE, lambda route: route.fulfill(**answer))
    kind, message, left = served.run("await error_of(load())")
    assert kind == "OSError"
    assert message.startswith(ASSET.name)
    assert words in message
    assert left == 0


def test_a_broken_connection_is_said_and_leaves_nothing(served):
    served.page.context.route(FILE, lambda route: route.abort())
    kind, message, left = served.run("await error_of(load())")
    assert (kind, "no connection to" in message, left) == ("OSError", True, 0)


def test_a_cancelled_download_leaves_nothing_and_the_next_succeeds(served):
    served.page.context.route(FILE, lambda route: route.fulfill(body=SMALL))
    said = served.run("""
async def cancelled():
    task = asyncio.ensure_future(open_asset(NAME, device=device, progress=lambda *_: task.cancel()))
    await task
await error_of(cancelled())
""")
    assert (said[0], said[2]) == ("CancelledError", 0)
    digest = served.run("""
import hashlib
tensor = await load()
digest = hashlib.sha256((await tensor.numpy()).tobytes()).hexdigest()
tensor.destroy()
digest
""")
    assert digest == hashlib.sha256(SMALL).hexdigest()
