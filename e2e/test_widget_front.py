"""The notebook widget's front end by itself: the built file, a model and a kernel made up in the page."""

import base64
from pathlib import Path

import pytest
from playwright.sync_api import expect

from scripts.build import WIDGET_OUT, build

#: Two pixels, a PNG.
STILL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAADUlEQVR4nGP4z8AARAAJ/gH/9zTe0AAAAABJRU5ErkJggg=="
)

#: What anywidget gives, made up, and 50 runs of a cell with it.
MODEL = Path(__file__).with_name("fake_kernel.js")


@pytest.fixture
def front(page, site_url):
    """A page that has loaded the widget's bundle as a notebook does: as text."""
    build()
    page.route(
        f"{site_url}blank.html", lambda route: route.fulfill(body="<!doctype html>", content_type="text/html")
    )
    page.goto(f"{site_url}blank.html")
    page.add_script_tag(content=MODEL.read_text(encoding="utf-8"))
    page.evaluate(
        """async (source) => {
            const url = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
            window.widget = (await import(url)).default;
        }""",
        (WIDGET_OUT / "widget.js").read_text(encoding="utf-8"),
    )
    return page


def test_without_a_kernel_there_is_a_still_that_says_so(front):
    words = front.evaluate(
        """async (still) => {
            const model = makeModel({ ...traits(), still_text: "Layer 0, head 0",
                still: new DataView(Uint8Array.from(atob(still), (c) => c.charCodeAt(0)).buffer) });
            const one = widget();
            await one.initialize({ model });
            await one.render({ model, el: document.body });
            const { shadowRoot } = document.querySelector('.py-attn-widget');
            return shadowRoot.querySelector('.shell-words').textContent;
        }""",
        base64.b64encode(STILL).decode(),
    )
    assert words == "Waiting for the kernel …"
    front.wait_for_function(
        "document.querySelector('.py-attn-widget').shadowRoot.textContent.includes('no kernel is behind it')"
    )
    picture = front.get_by_role("img", name="Layer 0, head 0")
    assert picture.evaluate("one => [one.naturalWidth, one.naturalHeight]") == [2, 1]


def test_it_runs_what_a_kernel_sends_and_leaves_nothing_behind(front):
    answers = front.evaluate("fiftyRuns()")
    runs = [one for one in answers if isinstance(one, dict)]
    assert len(runs) == 5
    for run in runs:
        assert run["webgpu"]
        assert run["features"]
        assert run["devices"] == 1
        assert run["read"] == [1, 0, 0, 0, 2, 0, 0, 0]
        assert [(error["kind"], error["label"]) for error in run["errors"]] == [("internal", "write_buffer")]
        assert "knows no operation guess" in run["unknown"]
    assert [one for one in answers if not isinstance(one, dict)] == [[0, 0, 0, 0]] * 50


def test_errors_of_the_kernel_are_words_in_the_cell(front):
    front.evaluate(
        """async () => {
            const wrong = { state: "error", message: "tokens: expected 3, got 2" };
            const model = window.model = makeModel({ ...traits(), ...wrong });
            const one = widget();
            await one.initialize({ model });
            await one.render({ model, el: document.body });
            model.emit("msg:custom", { kind: "welcome", page: page().id, kernel: "k" }, []);
        }"""
    )
    words = front.locator(".shell-words")
    expect(words).to_contain_text("tokens: expected 3, got 2")
    front.evaluate("model.emit('msg:custom', { kind: 'closed' }, [])")
    front.evaluate("model.set('state', 'live')")
    expect(words).to_contain_text("closed in Python")
    front.wait_for_function("page().links.size === 0 && page().devices.size === 0")
