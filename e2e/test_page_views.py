"""A head as running text and as lines, alone and with other heads, on the page and in an element."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from e2e.conftest import watched_context
from e2e.lab import next_frames, until, wait_for_maps, wait_until_ready
from e2e.page_view import expect_weight, settled_map
from e2e.test_element import npz
from e2e.test_page import open_sample, open_synthetic

#: The sample's maps in float64 [layers, heads, S, S], by way of the console's door.
SAMPLE = """
import js
from py_attn.models import load_sample
if "maps" not in globals():
    reply = await js.fetch("{url}sample/minilm.npz")
    trace = load_sample((await reply.arrayBuffer()).to_bytes())
    pairs = [[np.asarray(x, float) for x in (layer.query, layer.key)] for layer in trace.layers]
    maps = np.array([pa.reference.attention_weights(*pair)[0] for pair in pairs])
{body}
"""
LINES = "canvas.lines"
BRIGHTNESS = """all => all.map((one) => {
    const channels = getComputedStyle(one).backgroundColor.match(/[0-9]+/g);
    return channels.reduce((sum, channel) => sum + Number(channel), 0);
})"""
WIDE = {"width": 1440, "height": 900}
START = "#layer=3&head=1&query=9&key=2"

ELEMENT = b"""<!doctype html><html lang="en"><title>Views</title>
<script type="module" src="../py-attn.js"></script><py-attn src="two.npz" parts="focus"></py-attn></html>"""


def exact(page, body):
    source = SAMPLE.format(url=page.url.split("#")[0], body=body)
    return page.evaluate("(source) => window.pyAttn.run(source)", source)


def go(page, more=""):
    """Show what an address asks for; the sample's landing head unless it says otherwise."""
    page.evaluate("(hash) => (location.hash = hash)", START + more)


def draw_as(focus, name):
    focus.get_by_role("radiogroup", name="How the head is drawn").get_by_text(name).click()


def direction(focus, name):
    focus.get_by_role("radiogroup", name="Direction").get_by_text(name).click()


def tokens(focus):
    return focus.locator(".sentence-token")


def label_has(focus, index, weight):
    """Wait until a token's label says a weight."""
    found = tokens(focus).nth(index)
    expect(found).to_have_attribute("aria-label", f"{found.inner_text()} (position {index}): {weight:.4f}")


def lines_drawn(page):
    """How many lines there are, once they are drawn."""
    expect(page.locator(".lines-scroll")).to_have_attribute("aria-busy", "false")
    next_frames(page)
    return int(page.locator(".lines-scroll").get_attribute("data-lines"))


def token_at(page, side, index):
    """Where a token of the lines is on screen."""
    canvas = page.locator(LINES)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    _, row, scrolled = map(float, canvas.get_attribute("data-place").split())
    x = box["x"] + (30 if side == "query" else box["width"] - 30)
    return x, box["y"] + (index + 0.5) * row - scrolled


def test_an_address_opens_them_before_python_is_there(page, site_url):
    page.goto(f"{site_url}{START}&as=sentence")
    # The picture that came with the page has this head's weights.
    expect(tokens(page).nth(2)).to_have_attribute("aria-label", re.compile(r"^animal \(position 2\): 0\.6"))
    expect(page.locator("#focus .heatmap-box")).to_be_hidden()
    assert page.locator("#overview[data-painted]").count() == 0
    wait_until_ready(page)
    wait_for_maps(page, 1)
    label_has(page.locator("#focus"), 2, exact(page, "float(maps[3, 1, 9, 2])"))


@pytest.fixture
def focus(shown):
    """The card, at the page's beginning."""
    shown.set_viewport_size(WIDE)
    open_sample(shown)
    go(shown)
    expect(shown.locator("#focus h2")).to_have_text("Layer 3, head 1")
    expect(shown.locator("#focus .heatmap-box")).to_be_visible()
    return shown.locator("#focus")


def test_the_text_is_coloured_by_what_a_token_attends_to(shown, focus, artifacts):
    draw_as(focus, "Text")
    expect(tokens(focus)).to_have_count(20)
    expect(focus.locator(".heatmap-box")).to_be_hidden()
    label_has(focus, 2, exact(shown, "float(maps[3, 1, 9, 2])"))
    # The one it attends to most stands out; the page is light.
    light = tokens(focus).locator("bdi").evaluate_all(BRIGHTNESS)
    assert int(np.argmin(light)) == 2
    shown.screenshot(path=artifacts / "page-text-1440.png", full_page=True)
    # Keys and clicks choose, pointing does not.
    tokens(focus).nth(9).focus()
    shown.keyboard.press("ArrowRight")
    label_has(focus, 2, exact(shown, "float(maps[3, 1, 10, 2])"))
    expect(tokens(focus).nth(10)).to_be_focused()
    expect(focus.locator("[role=option][aria-selected=true]")).to_have_count(1)
    tokens(focus).nth(4).click()
    label_has(focus, 2, exact(shown, "float(maps[3, 1, 4, 2])"))
    expect(shown.locator(".links-row")).to_contain_text("at position 4")
    tokens(focus).nth(7).hover()
    expect_weight(shown, exact(shown, "float(maps[3, 1, 4, 7])"))
    expect(shown.locator(".links-row")).to_contain_text("at position 4")
    for key, chosen in (("End", 19), ("Home", 0), ("ArrowLeft", 0)):
        shown.keyboard.press(key)
        expect(tokens(focus).nth(chosen)).to_have_attribute("aria-selected", "true")


def test_the_other_direction_and_pins(shown, focus):
    draw_as(focus, "Text")
    direction(focus, "Attended by")
    expect(focus.get_by_role("listbox")).to_have_attribute(
        "aria-label", "Tokens by how much they attend to “animal”"
    )
    label_has(focus, 9, exact(shown, "float(maps[3, 1, 9, 2])"))
    label_has(focus, 5, exact(shown, "float(maps[3, 1, 5, 2])"))
    tokens(focus).nth(5).click(modifiers=["Shift"])
    expect(shown.locator("#focus .pin-cell")).to_have_count(1)
    expect(tokens(focus).nth(5)).to_have_class("sentence-token pinned")
    tokens(focus).nth(2).press("Escape")
    expect(shown.locator("#focus .pin-cell")).to_have_count(0)


def test_several_heads_are_chosen_named_and_shared(shown, focus, artifacts):
    draw_as(focus, "Text")
    shown.locator('.thumb[data-head="2/4"]').click(modifiers=["ControlOrMeta"])
    expect(shown.locator("#focus h2")).to_have_text("Layer 3, head 1")
    expect(shown.locator('.thumb[aria-selected="true"]')).to_have_count(2)
    expect(focus.locator(".head-chip")).to_have_count(2)
    one, other = exact(shown, "[float(maps[3, 1, 9, 2]), float(maps[2, 4, 9, 2])]")
    label = f"animal (position 2): L3 H1 {one:.4f}, L2 H4 {other:.4f}"
    expect(tokens(focus).nth(2)).to_have_attribute("aria-label", label)
    expect(focus.locator(".head-switch").nth(1)).to_have_text(f"L2 H4{other:.4f}")
    # A switch hides a head, and it is let go without the others.
    focus.locator(".head-switch").nth(0).click()
    expect(tokens(focus).nth(2)).to_have_attribute("aria-label", f"animal (position 2): {other:.4f}")
    focus.locator(".head-switch").nth(0).click()
    focus.get_by_label("Add a head").select_option("0/7")
    expect(focus.locator(".head-chip")).to_have_count(3)
    shown.screenshot(path=artifacts / "page-text-heads-1440.png", full_page=True)
    until(shown, lambda: "heads=3.1,2.4,0.7" in shown.evaluate("location.hash"), "the heads in the address")
    assert "as=sentence" in shown.evaluate("location.hash")
    focus.get_by_label("Let L2 H4 go").click()
    expect(focus.locator(".head-chip")).to_have_count(2)
    # With the keyboard: the head in focus is kept, and another one is shown beside it.
    focus.get_by_role("button", name="Only this head").click()
    expect(focus.locator(".head-chip")).to_have_count(1)
    shown.locator('.thumb[data-head="3/1"]').focus()
    shown.keyboard.press("Control+Enter")
    shown.keyboard.press("ArrowRight")
    expect(focus.locator(".head-chip")).to_have_count(2)
    expect(shown.locator('.thumb[aria-selected="true"]')).to_have_count(2)
    # An address has them all.
    go(shown, "&heads=5.0,3.1&as=lines&direction=to")
    expect(focus.locator(".head-chip")).to_have_count(2)
    expect(focus.get_by_role("radio", name="Attended by")).to_be_checked()
    assert lines_drawn(shown) == 800


def test_lines_between_tokens(shown, focus, artifacts):
    draw_as(focus, "Lines")
    assert lines_drawn(shown) == 400
    expect(focus.locator(".lines-note")).to_have_text("All 400 links that are not zero are drawn.")
    all_lines = shown.locator(LINES).evaluate("one => one.toDataURL()")
    shown.screenshot(path=artifacts / "page-lines-1440.png", full_page=True)
    # Pointing shows a token's lines alone, and chooses nothing.
    shown.mouse.move(*token_at(shown, "query", 4))
    expect_weight(shown, exact(shown, "float(maps[3, 1, 4, 2])"))
    shown.wait_for_function(
        "before => document.querySelector('canvas.lines').toDataURL() !== before", arg=all_lines
    )
    expect(shown.locator(".links-row")).to_contain_text("at position 9")
    # A click and the arrow keys choose.
    shown.mouse.click(*token_at(shown, "query", 4))
    expect(shown.locator(".links-row")).to_contain_text("at position 4")
    shown.keyboard.press("ArrowDown")
    expect(shown.locator(".links-row")).to_contain_text("at position 5")
    shown.keyboard.press("ArrowRight")
    expect(focus.get_by_role("radio", name="Attended by")).to_be_checked()
    shown.keyboard.press("ArrowDown")
    shown.mouse.move(0, 0)
    expect_weight(shown, exact(shown, "float(maps[3, 1, 5, 3])"))
    shown.keyboard.press("Enter")
    expect(shown.locator("#focus .pin-cell")).to_have_count(1)
    shown.keyboard.press("Escape")
    expect(shown.locator("#focus .pin-cell")).to_have_count(0)


def test_means_and_readings_have_one_map(shown, focus):
    go(shown, "&heads=5.0&as=sentence&over=layer&special=hide")
    expect(tokens(focus)).to_have_count(18)
    weight = exact(shown, "float(maps[3].mean(axis=0)[10, 3])")  # positions of the tokens that are left
    label_has(focus, 2, weight)
    expect(focus.locator(".head-chip")).to_have_count(0)
    draw_as(focus, "Lines")
    assert lines_drawn(shown) == 18 * 18
    go(shown)
    settled_map(shown)


def test_both_are_saved_as_figures(shown, focus, artifacts):
    go(shown, "&heads=3.1,2.4")
    for name, expected in (("Text", "what “it” attends to"), ("Lines", "queries left, keys right")):
        draw_as(focus, name)
        if name == "Text":
            expect(tokens(focus).nth(2)).to_have_attribute("aria-label", re.compile("L3 H1 .*, L2 H4"))
        else:
            lines_drawn(shown)
        with shown.expect_download() as download:
            focus.get_by_label("Save what is shown").click()
            focus.get_by_role("button", name="SVG drawing").click()
        drawing = download.value.path().read_text("utf-8")
        for text in ("The animal", expected, "L2 H4", ">animal</text>"):
            assert text in drawing
        assert drawing.count("<title>") == 1
        (artifacts / f"figure-{name.lower()}.svg").write_text(drawing, "utf-8")


@pytest.mark.thorough
def test_long_texts_say_what_is_drawn_and_stay_smooth(shown, focus, artifacts):
    open_synthetic(shown, Length="300", Mask="none")
    draw_as(focus, "Lines")
    assert lines_drawn(shown) == 1500
    expect(focus.locator(".lines-note")).to_contain_text("The 1,500 strongest of ")
    expect(focus.locator(".lines-note")).to_contain_text("links from queries on screen are drawn")
    shown.screenshot(path=artifacts / "page-lines-300-1440.png", full_page=True)
    # The chosen token is brought on screen.
    shown.locator(LINES).focus()
    shown.keyboard.press("End")
    shown.wait_for_function("document.querySelector('.lines-scroll').scrollTop > 1000")
    draw_as(focus, "Text")
    expect(tokens(focus)).to_have_count(300)
    open_synthetic(shown, Length="1200", Mask="causal")
    expect(focus.locator(".sentence-pages")).to_contain_text("of 1,200 are shown")
    expect(tokens(focus)).to_have_count(1000)
    tokens(focus).first.press("End")
    expect(tokens(focus)).to_have_count(200)
    expect(tokens(focus).last).to_be_focused()
    focus.get_by_role("button", name="Earlier tokens").click()
    expect(tokens(focus)).to_have_count(1000)
    draw_as(focus, "Map")


@pytest.mark.parametrize("name", ["Text", "Lines"])
def test_narrow_windows_scroll_down_only(shown, focus, artifacts, name):
    go(shown, "&heads=3.1,2.4")
    draw_as(focus, name)
    shown.set_viewport_size({"width": 390, "height": 844})
    next_frames(shown)
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    shown.locator("#focus").screenshot(path=artifacts / f"page-{name.lower()}-390.png")


def test_an_element_shows_them_without_an_overview(browser, site_url, artifacts):
    rng = np.random.default_rng(7)
    weights = rng.dirichlet(np.ones(5), (2, 3, 5)).astype(np.float32)
    names = np.array(["so", "it", "goes", "on", "."])
    files = {"two.npz": npz(weights=weights[:, None], tokens=names), "page.html": ELEMENT}
    with watched_context(browser, viewport={"width": 700, "height": 900}) as context:
        context.route(
            f"{site_url}there/**",
            lambda route: route.fulfill(
                body=files[route.request.url.rsplit("/", 1)[1]],
                content_type="text/html" if route.request.url.endswith("html") else "application/zip",
            ),
        )
        page = context.new_page()
        page.goto(f"{site_url}there/page.html")
        focus = page.locator("py-attn .focus")
        focus.locator("[data-shown]").wait_for()
        draw_as(focus, "Text")
        label_has(focus, 3, weights[0, 0, 0, 3])
        focus.get_by_label("Add a head").select_option("1/2")
        first, second = weights[0, 0, 0, 3], weights[1, 2, 0, 3]
        expect(tokens(focus).nth(3)).to_have_attribute(
            "aria-label", f"on (position 3): L0 H0 {first:.4f}, L1 H2 {second:.4f}"
        )
        draw_as(focus, "Lines")
        expect(focus.locator(".lines-note")).to_have_text("All 50 links that are not zero are drawn.")
        page.screenshot(path=artifacts / "element-lines-700.png", full_page=True)
