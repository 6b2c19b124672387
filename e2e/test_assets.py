"""The page's verified downloads: right bytes, clear words for every way to go wrong, cached, stoppable.

The module and what it imports are taken as they stand in web/src, and run in a blank page of their own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from scripts.common import ROOT
from scripts.serve import serving

CONTENT = bytes(range(256)) * 4096
MODULES = ("assets.js", "kept-files.js")
HARNESS = """<!doctype html><link rel="icon" href="data:,"><script type="module">
    import { createAssets } from './assets.js';
    window.assets = createAssets(document.baseURI);
    window.get = async (name) => {
        const seen = [];
        try {
            const onProgress = (loaded, total) => seen.push([loaded, total]);
            const bytes = await assets.fetch(name, { onProgress });
            return { length: bytes.byteLength, last: seen.at(-1), steps: seen.length };
        } catch (error) {
            return { error: error.name, message: error.message };
        }
    };
    window.ready = true;
</script>"""


@pytest.fixture(scope="module")
def harness_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("assets")
    (folder / "index.html").write_text(HARNESS)
    for module in MODULES:
        (folder / module).write_text((ROOT / "web" / "src" / module).read_text())
    (folder / "thing.bin").write_bytes(CONTENT)
    entry = {"path": "thing.bin", "bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
    gone = {**entry, "path": "gone.bin"}
    (folder / "manifest.json").write_text(
        json.dumps({"version": "1", "assets": {"thing": entry, "gone": gone}})
    )
    with serving(folder, "/deep/down/") as url:
        yield url


@pytest.fixture
def site(page: Page, harness_url: str) -> Page:
    page.goto(harness_url)
    page.wait_for_function("window.ready")
    return page


def get(page: Page, name: str = "thing") -> dict:
    return page.evaluate("(name) => window.get(name)", name)


def answer_with(page: Page, body: bytes) -> None:
    page.route("**/thing.bin*", lambda route: route.fulfill(body=body))


def test_gives_the_bytes_with_progress_and_then_from_the_cache(site):
    requests = []
    site.on("request", lambda request: requests.append(request.url))
    first = get(site)
    assert (first["length"], first["last"]) == (len(CONTENT), [len(CONTENT)] * 2)
    # Nobody waits until a file is stored.
    site.wait_for_function("async () => Boolean(await caches.match('thing.bin', { ignoreSearch: true }))")
    site.reload()
    site.wait_for_function("window.ready")
    assert get(site) == {"length": len(CONTENT), "last": [len(CONTENT)] * 2, "steps": 1}
    assert len([url for url in requests if "thing.bin" in url]) == 1


def test_a_wrong_hash_names_both_and_is_not_cached(site):
    answer_with(site, b"x" * len(CONTENT))
    answer = get(site)
    assert answer["error"] == "AssetError"
    assert hashlib.sha256(CONTENT).hexdigest() in answer["message"]
    assert hashlib.sha256(b"x" * len(CONTENT)).hexdigest() in answer["message"]
    site.unroute("**/thing.bin*")
    assert get(site)["length"] == len(CONTENT)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (CONTENT[:1000], "ended after 1000 of 1048576 bytes"),
        (CONTENT + b"x", "more than the expected 1048576 bytes"),
    ],
)
def test_a_wrong_length_is_said(site, body, words):
    answer_with(site, body)
    assert words in get(site)["message"]


@pytest.mark.expects_console_errors("404")
def test_http_errors_are_said(site):
    assert "thing" in site.evaluate("() => assets.manifest().then((m) => Object.keys(m.assets))")
    assert "the server answered 404" in get(site, "gone")["message"]


@pytest.mark.expects_console_errors("ERR_FAILED")
def test_no_connection_is_said_and_asking_again_works(site):
    site.route("**/*", lambda route: route.abort())
    assert "no connection to 127.0.0.1" in get(site)["message"]
    site.unroute("**/*")
    assert get(site)["length"] == len(CONTENT)


def test_an_unknown_name_is_said(site):
    assert get(site, "nothing")["message"] == "manifest.json lists no asset named nothing"


def test_a_download_can_be_stopped(site):
    site.route("**/thing.bin*", lambda route: None)  # never answered
    answer = site.evaluate(
        """async () => {
            const controller = new AbortController();
            const running = assets.fetch('thing', { signal: controller.signal });
            setTimeout(() => controller.abort(), 200);
            return running.then(() => 'finished', (error) => error.name);
        }""",
    )
    assert answer == "AbortError"


def test_works_without_cache_and_without_subtle_crypto(site):
    site.evaluate(
        """() => {
            Object.defineProperty(globalThis, 'caches', { value: undefined });
            Object.defineProperty(crypto, 'subtle', { value: undefined });
        }"""
    )
    assert get(site)["length"] == len(CONTENT)


def test_full_storage_does_not_matter(site):
    site.evaluate(
        "() => { Cache.prototype.put = () => Promise.reject(new DOMException('', 'QuotaExceededError')); }"
    )
    assert get(site)["length"] == len(CONTENT)
