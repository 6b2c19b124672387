"""The Write panel's download, cancelled, broken, wrong or missing, with a tiny model in its place."""

import hashlib
import json
import re
import threading
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import expect

from e2e.lab import until, wait_until_ready
from e2e.test_page_loss import NO_ROOM, ROOM
from scripts.serve import HOST
from tests.tiny_gguf import tiny_gguf

NAME = "smollm2/model.gguf"
FILE = "**/models/smollm2/*"
MODEL = tiny_gguf(layers=2, head_dim=32, heads=4, kv_heads=2, inner=96, context=2048, seed=1)
CHANGED = MODEL[:-1] + bytes([MODEL[-1] ^ 1])


@pytest.fixture
def writer(page, site_url):
    """The Write panel of a site whose language model is tiny."""

    def changed(route):
        reply = route.fetch()
        manifest = json.loads(reply.text())
        manifest["assets"][NAME] |= {"bytes": len(MODEL), "sha256": hashlib.sha256(MODEL).hexdigest()}
        route.fulfill(response=reply, body=json.dumps(manifest))

    page.context.route("**/manifest.json*", changed)
    page.goto(site_url)
    wait_until_ready(page)
    page.wait_for_selector('#overview[data-findings="1"]')
    page.get_by_role("radio", name="Write").check(force=True)
    page.locator("#write").get_by_label("New tokens").fill("4")
    return page


@contextmanager
def served(page, answer: Callable):
    page.context.route(FILE, answer)
    yield
    page.context.unroute(FILE)


def load(page):
    page.locator("#write").get_by_role("button", name=re.compile("Load SmolLM2")).click()


def message(page):
    return page.locator("#write .write-foot .input-message")


def allocated(page):
    source = "import gc\ngc.collect()\npa.default_device().memory_allocated()"
    return page.evaluate("(source) => window.pyAttn.run(source)", source)


def the_rest_goes_on(page, before):
    """Maps, console and device work, and nothing of the model is left."""
    # Maps that were asked for before may still be computed.
    until(page, lambda: allocated(page) <= before + 4096, "the model's memory to be given back")
    source = "(await pa.default_device().tensor([1.0, 2.0]).numpy()).tolist()"
    assert page.evaluate("(source) => window.pyAttn.run(source)", source) == [1, 2]
    expect(page.locator(".banner")).to_be_hidden()
    title = page.locator("#focus h2")
    page.locator("#overview .thumb").nth(30).click()
    expect(title).to_have_text("Layer 2, head 6")
    page.locator("#overview .thumb").nth(0).click()
    expect(title).to_have_text("Layer 0, head 0")


def ask_for_little(page):
    """A prompt of one token needs none of the kernels for several tokens, which take seconds to compile."""
    page.locator("#write").get_by_role("textbox", name="Prompt").fill("a")


def writes_at_last(page):
    ask_for_little(page)
    with served(page, lambda route: route.fulfill(body=MODEL)):
        load(page)
        expect(page.locator(".write-numbers")).to_contain_text("4 written")
    expect(page.locator("#overview header p")).to_contain_text("2 layers × 4 heads")
    expect(message(page)).not_to_contain_text("could not")


@pytest.fixture
def halfway():
    """A server that sends half of the file, and no more until it is told to hang up."""
    hang_up = threading.Event()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(MODEL)))
            self.end_headers()
            self.wfile.write(MODEL[: len(MODEL) // 2])
            self.wfile.flush()
            hang_up.wait()
            self.close_connection = True

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer((HOST, 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.hang_up = hang_up.set
    yield server
    hang_up.set()
    server.shutdown()
    server.server_close()


def half_from(server):
    return lambda route: route.continue_(url=f"http://{HOST}:{server.server_address[1]}/half")


def wait_for_half(page):
    expect(page.locator("#write .model-loading")).to_contain_text(re.compile(r"Loading SmolLM2 · (?!0 B)"))
    assert 0.4 < page.locator("#write progress").evaluate("(bar) => bar.value") < 0.6


def test_a_download_is_cancelled_in_the_middle_and_begun_again(writer, halfway):
    page = writer
    before = allocated(page)
    box = page.locator(".write-text").bounding_box()
    with served(page, half_from(halfway)):
        load(page)
        wait_for_half(page)
        assert page.locator(".write-text").bounding_box() == box  # nothing moves
        page.locator("#write").get_by_role("button", name="Cancel").click()
        expect(message(page)).to_have_text("Loading was cancelled; press the button to load again.")
    expect(page.locator("#write .model-loading")).to_be_hidden()
    the_rest_goes_on(page, before)
    writes_at_last(page)


@pytest.mark.thorough
@pytest.mark.expects_console_errors("Failed to load resource")
def test_a_connection_that_breaks_in_the_middle_is_said(writer, halfway):
    page = writer
    before = allocated(page)
    with served(page, half_from(halfway)):
        load(page)
        wait_for_half(page)
        halfway.hang_up()
        half, whole = (f"{size / 1000:.0f} kB" for size in (len(MODEL) // 2, len(MODEL)))
        expect(message(page)).to_contain_text(f"the download ended early, after {half} of {whole}")
        expect(message(page)).to_contain_text("Check the connection, then press the button to try again.")
    the_rest_goes_on(page, before)
    writes_at_last(page)


def answering(answer):
    return lambda route: route.fulfill(**answer) if answer else route.abort()


#: What a server may answer, and what is said of it; no two in a row are told alike.
ANSWERS = (
    ({"body": CHANGED}, "what arrived is not the file that this page expects", "Reload the page"),
    ({"status": 404}, "this site does not have the model’s file", "Reload the page"),
    ({"body": MODEL + b"x"}, "what arrived is not the file that this page expects", "Reload the page"),
    ({"status": 503}, "the site’s server answered 503", "Wait a moment"),
    (None, "there is no connection to this site", "Check the connection"),
)


@pytest.mark.expects_console_errors("Failed to load resource")
def test_a_wrong_or_missing_file_is_said_and_can_be_tried_again(writer):
    page = writer
    before = allocated(page)
    for answer, what, advice in ANSWERS:
        with served(page, answering(answer)):
            load(page)
            expect(message(page)).to_contain_text(f"SmolLM2 could not be loaded: {what}")
            expect(message(page)).to_contain_text(advice)
            expect(message(page)).to_have_attribute("data-tone", "bad")
        the_rest_goes_on(page, before)
    writes_at_last(page)


@pytest.mark.thorough
def test_a_file_that_is_no_model_is_said(writer):
    page = writer
    before = allocated(page)
    foreign = b"GGML" + MODEL[4:]

    def changed(route):
        reply = route.fetch()
        manifest = json.loads(reply.text())
        manifest["assets"][NAME] |= {"bytes": len(foreign), "sha256": hashlib.sha256(foreign).hexdigest()}
        route.fulfill(response=reply, body=json.dumps(manifest))

    page.context.route("**/manifest.json*", changed)
    page.reload()
    wait_until_ready(page)
    page.wait_for_selector('#overview[data-findings="1"]')
    page.get_by_role("radio", name="Write").check(force=True)
    with served(page, lambda route: route.fulfill(body=foreign)):
        load(page)
        expect(message(page)).to_contain_text("SmolLM2 could not be loaded: ")
        expect(message(page)).to_contain_text("GGUF")
        expect(message(page)).to_contain_text("Press the button to try again.")
    the_rest_goes_on(page, before)


@pytest.mark.thorough
def test_another_input_is_chosen_while_the_model_is_loaded(writer, halfway):
    page = writer
    with served(page, half_from(halfway)):
        load(page)
        wait_for_half(page)
        page.get_by_role("radio", name="Sentence").check(force=True)
        expect(page.locator("#write")).to_be_hidden()
        halfway.hang_up()
        page.get_by_role("radio", name="Write").check(force=True)
        expect(page.locator("#write .model-loading")).to_be_hidden()
    writes_at_last(page)


@pytest.mark.thorough
def test_a_model_that_arrives_while_another_input_is_shown_writes_nothing(writer):
    page = writer
    ask_for_little(page)
    held = []
    with served(page, lambda route: held.append(route)):
        load(page)
        page.wait_for_function("() => !document.querySelector('#write .model-loading').hidden")
        while not held:
            page.wait_for_timeout(50)
        page.get_by_role("radio", name="Sentence").check(force=True)
        held[0].fulfill(body=MODEL)
        page.wait_for_function("() => document.querySelector('#write .model-loading').hidden")
    page.get_by_role("radio", name="Write").check(force=True)
    expect(page.locator(".write-token")).to_have_count(0)
    page.locator("#write").get_by_role("button", name="Generate").click()
    expect(page.locator(".write-numbers")).to_contain_text("4 written")


#: There is room for the weights, and for the cache of a short text, but not for that of a long one.
LITTLE_ROOM = NO_ROOM.replace("create(1 << 41, label)", "create(1 << 41 if size > 500_000 else size, label)")
NO_ROOM_FOR = re.compile(r"[Tt]he GPU has no room for another [\d.]+ [kM]?B\. Choose a smaller cache")


def python(page, source):
    page.evaluate("(source) => window.pyAttn.run(source)", source)


@pytest.mark.thorough
def test_no_room_for_the_weights_is_said(writer):
    page = writer
    before = allocated(page)
    with served(page, lambda route: route.fulfill(body=MODEL)):
        python(page, NO_ROOM)
        load(page)
        expect(message(page)).to_contain_text(NO_ROOM_FOR)
        expect(message(page)).to_contain_text("SmolLM2 could not be loaded: ")
        expect(page.locator("#write .model-loading")).to_be_hidden()
        python(page, ROOM)
    the_rest_goes_on(page, before)
    writes_at_last(page)


@pytest.mark.thorough
def test_a_smaller_cache_has_room(writer):
    page = writer
    panel, before = page.locator("#write"), allocated(page)
    size = panel.get_by_label("Cache size")
    with served(page, lambda route: route.fulfill(body=MODEL)):
        python(page, LITTLE_ROOM)
        load(page)
        expect(message(page)).to_contain_text(NO_ROOM_FOR)
        the_rest_goes_on(page, before)
        size.select_option(label="up to 512")
        load(page)
        expect(page.locator(".write-numbers")).to_contain_text("4 written")
    expect(message(page)).to_have_attribute("data-tone", "")
    text = page.locator(".write-text").inner_text()
    size.select_option(label="all 2,048")
    expect(message(page)).to_contain_text(NO_ROOM_FOR)
    expect(message(page)).to_contain_text("the text is kept")
    expect(size.locator("option:checked")).to_have_text("up to 512")
    assert page.locator(".write-text").inner_text() == text
    panel.get_by_role("button", name="Go on").click()
    expect(page.locator(".write-numbers")).to_contain_text("8 written")
    assert page.locator(".write-text").inner_text().startswith(text)
    # Nothing at all can be made while it writes.
    python(page, f"{ROOM}\n{NO_ROOM}")
    panel.get_by_label("Temperature").fill("0.5")  # another step is recorded
    panel.get_by_role("button", name="Go on").click()
    expect(message(page)).to_contain_text(NO_ROOM_FOR)
    python(page, ROOM)
    panel.get_by_role("button", name="Go on").click()
    expect(page.locator(".write-numbers")).to_contain_text("12 written")
    size.select_option(label="all 2,048")
    expect(page.locator(".write-figures").first).to_contain_text("of 2,048")
    expect(page.locator("#overview header p")).to_contain_text("2 layers × 4 heads")
