"""<py-attn> on a plain page: several elements, one worker, events, properties, errors, light and dark."""

import io
import json
import re

import numpy as np
import pytest
from playwright.sync_api import expect

from e2e.conftest import watched_context
from e2e.lab import next_frames, until
from py_attn import reference

RNG = np.random.default_rng(5)
PLAIN = {name: RNG.standard_normal((2, 1, 3, 9, 8)).astype(np.float32) for name in ("query", "key")}
TOKENS = [*"abcdefgh", "<b>"]

#: A page with its own idea of how everything should look, and with elements further down than anybody sees.
HTML = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Somebody's page</title>
<style>
  html { font-size: 10px } body { margin: 20px; font: 2rem serif; color: blue; background: %s }
  * { letter-spacing: 3px } h2 { color: lime; text-transform: uppercase } section { display: flex }
</style>
<script>
  window.told = [];
  for (const name of ["ready", "selection", "timings", "error"])
    addEventListener(`py-attn-${name}`, ({ target, detail }) => told.push([name, target.id, detail]));
</script>
<script type="module" src="../py-attn.js"></script>
<p>Text before.</p>
<py-attn id="sample" src="../sample/minilm.npz" layer="5" head="11" query="9" key="2"></py-attn>
<div style="max-width: 380px">
  <py-attn id="plain" src="plain.npz" layer="1" head="99" scale="log"></py-attn>
</div>
<py-attn id="missing" src="missing.npz"></py-attn>
<div style="height: 3000px"></div>
<py-attn id="below" src="weights.npz" theme="dark"></py-attn>
</html>"""


#: In front of the worker's script, so that a test can lose the device.
EXPOSE_DEVICE = """
const request = GPUAdapter.prototype.requestDevice;
GPUAdapter.prototype.requestDevice = async function (...given) {
  return (globalThis.device = await request.apply(this, given));
};
"""


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def serve(context, site_url, background="white"):
    """Answer for a folder beside the site's files."""
    weights = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]
    files = {
        "plain.npz": npz(
            **PLAIN, tokens=np.array(TOKENS), causal=np.array(True), title=np.array("Nine letters")
        ),
        "weights.npz": npz(weights=weights, tokens=np.array(list("uvwxyz"))),
        "nan.npz": npz(query=np.full((3, 2), np.nan), key=np.ones((3, 2))),
        "long.npz": npz(query=np.zeros((100_000, 1)), key=np.zeros((100_000, 1))),
        "other.npz": npz(a=np.ones(1)),
        "plain.html": (HTML % background).encode(),
    }

    def answer(route):
        name = route.request.url.split("?")[0].rsplit("/", 1)[1]
        if name in files:
            route.fulfill(
                body=files[name], content_type="text/html" if name.endswith("html") else "application/zip"
            )
        else:
            route.fulfill(status=404, body="no")

    def expose_device(route):
        reply = route.fetch()
        route.fulfill(response=reply, body=EXPOSE_DEVICE + reply.text())

    context.route(f"{site_url}there/**", answer)
    context.route(re.compile(r"/assets/worker-[^/]*\.js$"), expose_device)
    return f"{site_url}there/plain.html"


def told(page, name, element):
    return [detail for kind, who, detail in page.evaluate("window.told") if (kind, who) == (name, element)]


@pytest.fixture(scope="module")
def shown(browser, whole_site_url):
    """One page for most tests, in the light."""
    size = {"width": 1200, "height": 900}
    with watched_context(browser, "Failed to load resource", viewport=size, color_scheme="light") as context:
        page = context.new_page()
        requests = []
        page.context.on("request", lambda request: requests.append(request.url))
        page.goto(serve(context, whole_site_url))
        page.locator("#sample .painted").nth(71).wait_for()
        page.locator("#plain .painted").nth(5).wait_for()
        yield page
    assert not any("image.pack" in url for url in requests), "an element downloads nothing for later visits"


def test_several_elements_share_one_worker(shown, artifacts):
    assert [worker.url.split("/")[-1][:6] for worker in shown.workers] == ["worker"]
    expect(shown.locator("#sample h2").nth(1)).to_have_text("Layer 5, head 11")
    expect(shown.locator("#sample .inspector .weight")).to_have_text("0.6419")
    expect(shown.locator("#plain h2").nth(1)).to_have_text("Layer 1, head 2")  # of 99 the last there is
    expect(shown.locator("#plain .shell-title")).to_have_text("Nine letters")
    expect(shown.locator("#plain .heatmap-box")).to_have_attribute("data-shown", "1/1/2")
    # Its file was missed while Python was still starting for the others.
    expect(shown.locator("#missing .shell-words")).to_contain_text("The server answered 404")
    shown.screenshot(path=artifacts / "element-light.png", full_page=True)


def test_the_page_s_own_style_stays_outside(shown):
    look = (
        "one => ['color', 'textTransform', 'letterSpacing', 'fontSize'].map((n) => getComputedStyle(one)[n])"
    )
    assert shown.locator("#sample h2 + p").first.evaluate(look) == [
        "rgb(98, 94, 108)",
        "none",
        "normal",
        "13px",
    ]


def test_what_nobody_sees_loads_nothing(shown, artifacts):
    requests = []
    shown.on("request", lambda request: requests.append(request.url.rsplit("/", 1)[1]))
    below = shown.locator("#below")
    assert below.evaluate("one => one.shadowRoot.querySelector('.py-attn')") is None
    below.scroll_into_view_if_needed()
    below.locator(".painted").wait_for()
    assert requests == ["weights.npz"]
    expect(below.locator(".card.kernel")).to_be_hidden()
    expect(below.locator(".inspector .weight")).to_have_text("1.0000")
    assert (
        below.locator(".card").first.evaluate("one => getComputedStyle(one).backgroundColor")
        == "rgb(23, 21, 29)"
    )
    assert len(shown.workers) == 1
    below.screenshot(path=artifacts / "element-dark.png")
    shown.locator("#plain").scroll_into_view_if_needed()


def test_attributes_and_properties_lead_and_events_tell(shown):
    plain = shown.locator("#plain")
    assert told(shown, "ready", "plain") == [{"layers": 2, "heads": 3, "tokens": TOKENS}]
    plain.evaluate("one => { one.setAttribute('layer', 0); one.head = 1; one.selection = [4, 3]; }")
    expect(plain.locator("h2").nth(1)).to_have_text("Layer 0, head 1")
    expect(plain.locator(".inspector")).to_contain_text("e")
    exact = reference.attention_weights(PLAIN["query"][0], PLAIN["key"][0], causal=True)[0, 1, 4, 3]
    expect(plain.locator(".inspector .weight")).to_have_text(f"{exact:.4f}")
    plain.locator('.thumb[data-head="1/0"]').click()
    shown.wait_for_function("document.querySelector('#plain').layer === 1")
    assert plain.evaluate("one => [one.head, one.selection, one.tokens.at(-1)]") == [0, [4, 3], "<b>"]
    selection = {"layer": 1, "head": 0, "query": 4, "key": 3, "tokens": ["e", "d"]}
    until(shown, lambda: told(shown, "selection", "plain")[-1:] == [selection], "the selection to be told")
    assert told(shown, "selection", "below") == []


def test_timings_are_told(shown):
    plain = shown.locator("#plain")
    plain.get_by_label("Variant").select_option("naive")
    plain.get_by_label("Runs").select_option("3")
    plain.get_by_role("button", name="Run").click()
    expect(plain.locator(".kernel-note")).to_contain_text("Medians of 3 runs")
    until(shown, lambda: bool(told(shown, "timings", "plain")), "the timings to be told")
    (timings,) = told(shown, "timings", "plain")
    assert [(one["variant"], one["ok"]) for one in timings["timings"]] == [("naive", True)]
    assert plain.evaluate("one => one.timings.length") == 1


def test_a_map_is_saved_as_picture_drawing_and_figures(shown):
    plain = shown.locator("#plain")
    plain.evaluate("one => { one.layer = 1; one.head = 2; }")
    expect(plain.locator(".heatmap-box")).to_have_attribute("data-shown", "1/1/2")
    files = {}
    for name in ("PNG", "SVG", "JSON"):
        plain.get_by_label("Save what is shown").click()
        with shown.expect_download() as download:
            plain.get_by_role("button", name=name).click()
        assert download.value.suggested_filename == f"attention-layer1-head2.{name.lower()}"
        files[name] = download.value.path().read_bytes()
    assert files["PNG"].startswith(b"\x89PNG")
    # Every token on both axes, and every weight, as the cells are wide enough for it; title, layer and head,
    # the five ticks of the colours and what they mean.
    assert files["SVG"].count(b"<text") == 2 * len(TOKENS) + len(TOKENS) ** 2 + 8
    assert files["SVG"].count(b">Layer 1, head 2</text>") == 1
    assert b"&#60;b&#62;" in files["SVG"]
    saved = json.loads(files["JSON"])
    exact = reference.attention_weights(PLAIN["query"][1], PLAIN["key"][1], causal=True)[0, 2]
    np.testing.assert_allclose(saved["weights"], exact, atol=1e-6)
    assert (saved["layer"], saved["head"], saved["tokens"]) == (1, 2, TOKENS)
    assert plain.evaluate("one => one.export('png').then((blob) => blob.type)") == "image/png"


def test_wrong_files_are_refused_and_the_next_one_is_shown(shown):
    plain = shown.locator("#plain")
    words = plain.locator(".shell-words")
    for name, message in (
        ("nan.npz", "query: expected finite numbers, got NaN at"),
        ("long.npz", "expected 1 to 32,768 tokens, got 100,000"),
        ("other.npz", "array 'query' is missing"),
        ("plain.html", "expected .npz, .npy, .safetensors or .json"),
        ("missing.npz", "The server answered 404"),
    ):
        plain.evaluate("(one, src) => { one.src = src; }", name)
        expect(words).to_contain_text(message)
        expect(plain.locator(".card")).to_have_count(0)
    until(shown, lambda: len(told(shown, "error", "plain")) == 5, "five errors to be told")
    plain.evaluate("one => { one.src = 'plain.npz'; }")
    plain.locator(".painted").nth(5).wait_for()
    expect(words).to_be_hidden()


def test_only_the_parts_that_are_asked_for_are_shown(shown, artifacts):
    """And only their maps are computed: the others are not even in the document."""
    plain = shown.locator("#plain")
    cards = "one => [...one.shadowRoot.querySelectorAll('.card')].map((card) => card.classList[1])"
    everything = ["overview", "focus", "links", "compare", "kernel"]
    warnings = []
    shown.on("console", lambda message: message.type == "warning" and warnings.append(message.text))
    for asked, found in (
        ("focus", ["focus"]),
        ("links,overview", ["overview", "links"]),
        ("kernel", ["kernel"]),
        ("overview", ["overview"]),
        ("", everything),
    ):
        plain.evaluate("(one, parts) => { one.parts = parts; }", asked)
        assert plain.evaluate(cards) == found
        if "focus" in found:
            expect(plain.locator(".heatmap-box")).to_have_attribute("data-shown", re.compile("."))
        expect(plain.locator(".shell-words")).to_be_hidden()
        for width in (1200, 390):
            shown.set_viewport_size({"width": width, "height": 900})
            next_frames(shown)
            sizes = plain.locator(".card").evaluate_all(
                "cards => cards.map((card) => [card.clientWidth, card.parentElement.clientWidth])"
            )
            if len(found) == 1:
                (card, around) = sizes[0]
                assert around - 4 <= card <= around
            plain.screenshot(path=artifacts / f"element-parts-{asked or 'all'}-{width}.png")
    assert not warnings
    plain.evaluate("one => { one.setAttribute('parts', 'focus colours'); }")
    expect(plain.locator(".shell-words")).to_contain_text(
        "“colours” is not known; the parts are overview, focus, links, compare, kernel."
    )
    assert plain.evaluate(cards) == ["focus"]
    assert len(warnings) == 1
    assert "colours" in warnings[0]
    plain.evaluate("one => { one.removeAttribute('parts'); }")
    expect(plain.locator(".shell-words")).to_be_hidden()
    plain.locator(".painted").nth(5).wait_for()
    shown.set_viewport_size({"width": 1200, "height": 900})


def test_a_part_that_is_not_shown_cannot_be_saved(shown):
    plain = shown.locator("#plain")
    plain.evaluate("one => { one.parts = 'overview'; }")
    words = plain.evaluate("one => one.export('png').then(() => '', (error) => error.message)")
    assert "“focus” is not shown" in words
    plain.evaluate("one => { one.parts = ''; }")
    plain.locator(".painted").nth(5).wait_for()


def test_nothing_scrolls_sideways_in_a_narrow_column(shown):
    for width in (1200, 390):
        shown.set_viewport_size({"width": width, "height": 900})
        next_frames(shown)
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
    shown.set_viewport_size({"width": 1200, "height": 900})


def test_elements_come_and_go_and_the_worker_stays_while_one_is_there(shown):
    plain = shown.locator("#plain")
    shown.evaluate("scrollTo(0, 0)")
    for i in range(10):
        shown.evaluate(
            """(id) => {
                document.querySelector('.extra')?.remove();
                const one = Object.assign(document.createElement('py-attn'), { src: 'plain.npz', id });
                one.className = 'extra';
                document.body.prepend(one);
            }""",
            f"extra{i}",
        )
        shown.wait_for_function(
            "(id) => told.some(([kind, who]) => kind === 'ready' && who === id)", arg=f"extra{i}"
        )
    shown.evaluate("document.querySelector('.extra').remove()")
    shown.evaluate("document.body.prepend(document.querySelector('#plain'))")  # moved, not taken away
    assert len(shown.workers) == 1
    expect(plain.locator(".painted")).to_have_count(6)
    until(shown, lambda: len(told(shown, "ready", "plain")) == 2, "the element to be ready again")


def test_the_dark_of_a_page_is_followed(shown):
    card = shown.locator("#sample .card").first
    color = "one => getComputedStyle(one).backgroundColor"
    light = card.evaluate(color)
    shown.evaluate("document.body.classList.add('dark')")
    shown.wait_for_function(
        "(light) => getComputedStyle(document.querySelector('#sample').shadowRoot"
        ".querySelector('.card')).backgroundColor !== light",
        arg=light,
    )
    shown.evaluate("document.body.classList.remove('dark')")
    expect(card).to_have_css("background-color", light)


def test_a_lost_device_is_replaced_for_all(shown):
    before = {name: len(told(shown, "ready", name)) for name in ("sample", "plain")}
    shown.workers[0].evaluate("device.destroy()")
    for name, count in before.items():
        shown.wait_for_function(
            "([id, count]) => told.filter(([kind, who]) => kind === 'ready' && who === id).length > count",
            arg=[name, count],
        )
    expect(shown.locator("#sample .inspector .weight")).to_have_text("0.6419")
    expect(shown.locator("#sample .shell-words")).to_be_hidden()
    assert len(shown.workers) == 1
