"""The built site as such: complete, self-contained, and alive under a sub-path."""

from __future__ import annotations

import hashlib
import json
import re
import urllib.request
from urllib.parse import urlsplit

import pytest

from e2e.conftest import watched_context
from e2e.lab import PythonError, until, wait_until_ready


def read(url: str) -> bytes:
    with urllib.request.urlopen(url) as response:
        return response.read()


def test_the_manifest_says_what_is_there(whole_site_url):
    manifest = json.loads(read(f"{whole_site_url}manifest.json"))
    names = {"numpy", "markupsafe", "jinja2", "py_attn", "pyodide.asm.wasm", "python_stdlib"}
    names |= {"python-start", "python-rest", "python-image"}
    assert names | {"minilm/model.safetensors", "minilm/vocab.txt"} <= manifest["assets"].keys()
    for entry in manifest["assets"].values():
        content = read(whole_site_url + entry["path"])
        assert (len(content), hashlib.sha256(content).hexdigest()) == (entry["bytes"], entry["sha256"])


@pytest.mark.parametrize("file", ["LICENSE", "THIRD_PARTY_NOTICES.md", "assets/licenses.md"])
def test_licences_travel_with_the_site(site_url, file):
    assert read(site_url + file)


def test_boots_under_a_sub_path_and_says_on_what(page, site_url):
    assert urlsplit(site_url).path.count("/") > 1
    page.goto(site_url)
    info = wait_until_ready(page)
    assert info["adapter"]
    assert isinstance(info["software"], bool)
    assert all(isinstance(feature, str) for feature in info["features"])
    assert info["versions"]


def test_python_answers_with_plain_data(lab):
    lab.run("import numpy as np")
    source = "{'sum': float(np.arange(5).sum()), 'list': [1, None, 'x'], 'nested': {'a': (1, 2)}}"
    assert lab.run(source) == {"sum": 10.0, "list": [1, None, "x"], "nested": {"a": [1, 2]}}


def test_python_s_names_live_on_and_await_works_at_the_top(lab):
    lab.run("import asyncio\nkept = 41")
    assert lab.run("await asyncio.sleep(0)\nkept + 1") == 42


def test_a_python_exception_comes_with_its_traceback(lab):
    with pytest.raises(PythonError, match=r"(?s)Traceback.*ZeroDivisionError"):
        lab.run("1 / 0")


#: How many of the pipelines were compiled before Python asked for them, and how many it asked for.
EARLY = """
import py_attn as pa
raw = pa.default_device()._bridge._raw
[raw.takenEarly, len(raw.asked)]
"""
#: What the browser keeps of the last visit's pipelines.
KEPT = """async (changes) => {
    const cache = await caches.open('py-attn notes');
    const isIt = ({ url }) => new URL(url).searchParams.get('key') === 'pipelines';
    const address = (await cache.keys()).find(isIt);
    if (!address) return null;
    const kept = await (await cache.match(address)).json();
    if (changes) await cache.put(address, new Response(JSON.stringify({ ...kept, ...changes })));
    return kept;
}"""

INTERPRETER_IS_KEPT = """async () => {
    const kept = await (await caches.open('py-attn-assets')).keys();
    return kept.some(({ url }) => url.includes('asm.wasm'));
}"""


def taken_early(page, url):
    """Visit the page; how many of its pipelines had been compiled early."""
    page.goto(url)
    page.wait_for_function("performance.getEntriesByName('py-attn:first-map').length")
    taken, asked = page.evaluate("(source) => pyAttn.run(source)", EARLY)
    assert taken <= asked
    return taken


def test_a_visit_compiles_the_first_map_s_pipelines_while_python_starts(page, site_url):
    first = taken_early(page, site_url)
    assert first >= 2, "the build lists the pipelines of this kind of adapter"
    until(page, lambda: page.evaluate(KEPT) is not None, "the pipelines to be kept")
    kept = page.evaluate(KEPT)
    assert len(kept["sources"]) == first
    assert taken_early(page, site_url) == first

    # What was kept is what is compiled: one of them, and one that nobody asks for.
    of_another = {**kept["sources"][0], "wgsl": "this is not WGSL"}
    page.evaluate(KEPT, {"sources": [kept["sources"][0], of_another]})
    assert taken_early(page, site_url) == 1
    # Of another build or another adapter nothing is compiled but what this build lists.
    for change in ({"build": "another"}, {"adapter": "another"}):
        page.evaluate(KEPT, {"build": kept["build"], "adapter": kept["adapter"], "sources": []} | change)
        assert taken_early(page, site_url) == first


def test_a_repeated_visit_takes_the_interpreter_from_the_http_cache(
    browser_type, browser_type_launch_args, site_url, tmp_path
):
    """With what comes from there the browser keeps machine code, in a profile on disk."""
    with browser_type.launch_persistent_context(str(tmp_path), **browser_type_launch_args) as context:
        page = context.new_page()
        answers = []
        page.on("response", lambda answer: "asm.wasm?" in answer.url and answers.append(answer))
        page.goto(site_url)
        wait_until_ready(page)
        until(page, lambda: page.evaluate(INTERPRETER_IS_KEPT), "the interpreter to be kept")
        assert [answer.status for answer in answers] == [200]
        page.goto(site_url)
        wait_until_ready(page)
        assert [answer.status for answer in answers] == [200, 200]
        assert page.evaluate("pyAttn.run('6 * 7')") == 42


def test_a_repeated_visit_needs_no_http_cache(page, site_url):
    """Without a profile on disk Chromium's has no room for the interpreter; the page has kept it too."""
    answers = []
    page.on("response", lambda answer: "asm.wasm?" in answer.url and answers.append(answer))
    page.goto(site_url)
    wait_until_ready(page)
    until(page, lambda: page.evaluate(INTERPRETER_IS_KEPT), "the interpreter to be kept")
    page.goto(site_url)
    wait_until_ready(page)
    assert len(answers) == 1


def test_a_visit_needs_no_list_of_pipelines(page, site_url):
    page.route("**/python/pipelines.json*", lambda route: route.fulfill(body="[]"))
    assert taken_early(page, site_url) == 0


TEMPLATES = """
from py_attn.gpu import shader

environment = shader.environment()
compile_source, compiled = environment.compile, []

def count(source, name=None, *more, **options):
    compiled.append(name)
    return compile_source(source, name, *more, **options)

environment.compile = count
environment.cache.clear()
try:
    names = environment.list_templates(["wgsl"])
    for name in names:
        environment.get_template(name)
finally:
    del environment.compile
len(names), compiled
"""


def test_the_templates_of_all_kernels_come_compiled(page, site_url):
    page.goto(site_url)
    page.wait_for_function("performance.getEntriesByName('py-attn:first-map').length")
    names, compiled = page.evaluate("(source) => pyAttn.run(source)", TEMPLATES)
    assert names > 50
    assert compiled == []


def test_the_browser_is_without_all_that_playwright_turns_off(browser):
    """Of several lists of features the browser heeds the last one, which is ours."""
    line = browser.new_browser_cdp_session().send("SystemInfo.getInfo")["commandLine"]
    lists = [set(found.split(",")) for found in re.findall(r"--disable-features=(\S+)", line)]
    assert len(lists) > 1
    # Those of other browsers do not matter here.
    assert {name for found in lists for name in found if not name.startswith("ms")} <= lists[-1]


#: Whether what the first words of the one file that a site keeps say of its length is true.
IMAGE_IS_KEPT = """async () => {
    const root = await navigator.storage.getDirectory();
    const folder = await root.getDirectoryHandle('py-attn', { create: true });
    for await (const handle of folder.values()) {
        const file = await handle.getFile();
        const said = await file.slice(0, 4).arrayBuffer().catch(() => null); // it is being written
        return said?.byteLength === 4 && new Uint32Array(said)[0] === file.size - 4;
    }
    return false;
}"""
#: What should differ from one start of Python to the next, and what should not.
STARTED = """
import random, sys, time
random.random(), sys.path.count(""), time.timezone, time.daylight, time.tzname, time.localtime().tm_zone
"""
#: Pyodide puts a function into WebAssembly's table before its libraries come; with two of them no image fits.
TRAMPOLINE = "addOnPreRun(function setEmscriptenTrampoline"
ANOTHER_FUNCTION = f"addOnPreRun(() => addFunction(() => {{}}, 'v'));{TRAMPOLINE}"


def archives_of(page, url):
    """Open the page; which archives of Python it starts from, in the order of being asked for."""
    page.goto(url)
    wait_until_ready(page)
    spans = page.evaluate("async () => (await pyAttn.profile()).spans")
    archives = {"fetch python-start": "start", "read image": "image"}
    names = [span["name"] for span in sorted(spans, key=lambda span: span["at"])]
    return [archives[name] for name in names if name in archives]


def visit_until_the_image_is_kept(page, url):
    """Open the page and wait for what it keeps for the next visit."""
    assert archives_of(page, url) == ["start"]
    until(page, lambda: page.evaluate(IMAGE_IS_KEPT), "the image of Python to be kept")


def test_a_later_visit_has_its_imports_and_a_randomness_of_its_own(browser, whole_site_url):
    started = []
    for zone in ("Asia/Tokyo", "America/New_York"):
        with watched_context(browser, timezone_id=zone) as context:
            page = context.new_page()
            visit_until_the_image_is_kept(page, whole_site_url)
            assert archives_of(page, whole_site_url) == ["image"]
            started.append(page.evaluate("(source) => pyAttn.run(source)", STARTED))
    tokyo, new_york = started
    assert tokyo[0] != new_york[0], "the same numbers would come in every visit"
    assert tokyo[1] == 1
    assert tokyo[2:] == [-9 * 3600, 0, ["UTC+0900", "UTC+0900"], "UTC+0900"]
    assert new_york[2:5] == [5 * 3600, 1, ["UTC-0500", "UTC-0400"]]


@pytest.mark.thorough
def test_python_starts_without_its_image_where_that_does_not_fit(page, whole_site_url):
    def change(route):
        answer = route.fetch()
        assert TRAMPOLINE in answer.text()
        route.fulfill(response=answer, body=answer.text().replace(TRAMPOLINE, ANOTHER_FUNCTION))

    visit_until_the_image_is_kept(page, whole_site_url)
    page.context.route("**/pyodide/pyodide.asm.mjs*", change)
    messages = []
    page.on("console", lambda message: messages.append(message.text))
    assert archives_of(page, whole_site_url) == ["image", "start"]
    assert page.evaluate("pyAttn.run('import numpy; float(numpy.linalg.det(numpy.eye(3)))')") == 1
    assert any("without its image" in text for text in messages)


#: Puts other bytes in place of the image that the browser keeps.
SPOIL = """async (bytes) => {
    const root = await navigator.storage.getDirectory();
    const { value: handle } = await (await root.getDirectoryHandle('py-attn')).values().next();
    const file = await handle.createWritable();
    await file.write(Uint8Array.from(bytes));
    await file.close();
}"""


@pytest.mark.thorough
@pytest.mark.parametrize("spoiled", [[0] * 5000, [4, 0, 0, 0, 0, 0, 0, 0]], ids=["cut off", "another"])
def test_python_starts_without_an_image_that_was_damaged(page, whole_site_url, spoiled):
    visit_until_the_image_is_kept(page, whole_site_url)
    page.evaluate(SPOIL, spoiled)
    assert archives_of(page, whole_site_url) == ["image", "start"]
    assert page.evaluate("pyAttn.run('1 + 1')") == 2
