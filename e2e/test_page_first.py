"""The first ten seconds: maps before Python, examples, terms, the tour, and links that stay in reach."""

import re

import pytest
from playwright.sync_api import expect

from e2e.conftest import watched_context
from e2e.lab import next_frames, until, wait_for_maps, wait_until_ready
from e2e.page_view import HEATMAP, settled_map

PYTHON = "**/python/start.pack*"
#: How far anything has moved by itself since the page was opened.
SHIFTS = """
window.moved = [];
new PerformanceObserver((list) => {
    for (const { value, sources } of list.getEntries())
        window.moved.push([value, sources.map(({ node }) => node?.className ?? String(node))]);
}).observe({ type: 'layout-shift', buffered: true });
"""
#: Thumbnails and legend as numbers, and the place of everything that could move.
LOOK = """() => ({
    pictures: [...document.querySelectorAll('.thumb canvas, .legend-strip')].map((one) =>
        [...one.getContext('2d').getImageData(0, 0, one.width, one.height).data]),
    places: ['.hero', '.sentence', '.example-row', '.finding', '#overview', '.thumbs', '#focus', '.heatmap',
        '.inspector', '#links', '#edit', '.masthead .chip'].map((one) => {
        const { x, y, width, height } = document.querySelector(one).getBoundingClientRect();
        return [one, x, y, width, height];
    }),
    weight: document.querySelector('.inspector .weight').textContent,
    links: document.querySelector('.links-table tbody').innerText,
})"""
MARKS = """() => Object.fromEntries(
    performance.getEntriesByType('mark').map(({ name, startTime }) => [name, startTime]))"""


def held_back(page, url):
    """Open the page while its Python does not arrive; the result lets it arrive."""
    page.route(PYTHON, lambda route: None)
    page.goto(url)
    page.wait_for_function("performance.getEntriesByName('py-attn:first-picture').length")
    return lambda: page.unroute(PYTHON)


def chosen_cell(page):
    """Layer, head, row and column as the map's label says."""
    label = page.locator(HEATMAP).get_attribute("aria-label")
    return [int(n) for n in re.search(r"layer (\d+), head (\d+)\. Row (\d+), column (\d+)", label).groups()]


@pytest.mark.quick("390-dark")
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_the_maps_are_there_before_python_and_nothing_moves_or_flickers(
    browser, site_url, artifacts, width, scheme
):
    size = {"width": width, "height": 900}
    with watched_context(browser, viewport=size, color_scheme=scheme) as context:
        page = context.new_page()
        page.add_init_script(SHIFTS)
        let_python_come = held_back(page, site_url)
        next_frames(page)
        assert page.get_attribute("#overview", "data-painted") is None
        expect(page.locator("#focus h2")).to_have_text("Layer 3, head 1")
        expect(page.locator(".links-table tbody tr").first).to_contain_text("animal")
        expect(page.locator(".inspector .weight")).to_have_text("0.6258")
        expect(page.locator(".thumb.painted")).to_have_count(72)
        page.screenshot(path=artifacts / f"page-first-{width}-{scheme}.png")
        before = page.evaluate(LOOK)
        let_python_come()
        wait_until_ready(page)
        wait_for_maps(page, 1)
        page.wait_for_selector("[data-shown]")
        next_frames(page)
        after = page.evaluate(LOOK)
        assert after["places"] == before["places"]
        assert (after["weight"], after["links"]) == (before["weight"], before["links"])
        for made, live in zip(before["pictures"], after["pictures"], strict=True):
            # Where a weight lies between two colours, numpy and the GPU may choose different ones.
            assert len(made) == len(live)
            assert max(abs(a - b) for a, b in zip(made, live, strict=True)) <= 8
        assert page.evaluate("window.moved") == []
        marks = page.evaluate(MARKS)
        assert marks["py-attn:first-picture"] < marks["py-attn:ready"] < marks["py-attn:first-map"]


def test_before_python_heads_and_cells_can_be_chosen(page, site_url):
    let_python_come = held_back(page, site_url)
    expect(page.locator(".masthead .chip")).to_contain_text("starting")
    whole = page.locator(HEATMAP).evaluate("one => one.toDataURL()")
    canvas = page.locator(HEATMAP)
    canvas.focus()
    page.keyboard.press("ArrowUp")
    expect(page.locator(".links-row")).to_contain_text("because")
    expect(page.locator(".inspector .weight")).not_to_have_text("…")
    page.locator('.thumb[data-head="0/2"]').click()
    expect(page.locator("#focus h2")).to_have_text("Layer 0, head 2")
    page.wait_for_function(f"before => document.querySelector('{HEATMAP}').toDataURL() !== before", arg=whole)
    let_python_come()
    wait_until_ready(page)
    wait_for_maps(page, 1)
    expect(page.locator("#focus h2")).to_have_text("Layer 0, head 2")
    expect(page.locator(".links-row")).to_contain_text("because")
    expect(page.locator(".links-table tbody tr").first).to_contain_text("street")


def test_a_sentence_typed_before_python_follows_when_it_is_there(page, site_url):
    let_python_come = held_back(page, site_url)
    box = page.get_by_role("textbox", name="Sentence")
    box.fill("My sister lost her keys, so she called her brother.")
    box.press("Enter")
    waiting = page.get_by_role("button", name="Follows when Python is ready")
    expect(waiting).to_be_visible()
    let_python_come()
    wait_for_maps(page, 2)
    expect(page.locator("#overview header p")).to_contain_text("14 × 14")
    expect(box).to_have_value("My sister lost her keys, so she called her brother.")
    expect(page.get_by_role("button", name="Show attention")).to_be_enabled()
    assert "text=My%20sister" in page.url


@pytest.fixture(scope="module")
def start(shown):
    """The page as it begins, whatever the tests before have done."""
    shown.get_by_role("button", name="it → animal").click()
    return shown


EXAMPLES = [
    ("she → sister", 3, 1, 8, 2, "14 × 14"),
    ("previous token", 0, 2, 7, 6, "20 × 20"),
    ("next token", 1, 8, 15, 16, "21 × 21"),
    ("same word", 2, 9, 12, 4, "17 × 17"),
    ("word pieces", 1, 9, 10, 9, "22 × 22"),
    ("full stop", 3, 11, 5, 19, "21 × 21"),
    ("resting at [CLS]", 2, 7, 8, 0, "14 × 14"),
    ("it → animal", 3, 1, 9, 2, "20 × 20"),
]


@pytest.mark.parametrize(
    ("name", "layer", "head", "query", "key", "size"), EXAMPLES, ids=[e[0] for e in EXAMPLES]
)
def test_an_example_opens_where_its_finding_is_seen(start, name, layer, head, query, key, size):
    button = start.get_by_role("button", name=name, exact=True)
    button.click()
    expect(start.locator("#overview header p")).to_contain_text(size)
    expect(start.locator("#focus h2")).to_have_text(f"Layer {layer}, head {head}")
    expect(start.locator(HEATMAP)).to_have_attribute(
        "aria-label", re.compile(rf"layer {layer}, head {head}\. Row {query}, column {key}\. ")
    )
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(start.locator(".finding")).to_contain_text(f"Layer {layer}, head {head}: ")
    # The cell is the strongest link of its row, and no model was loaded for it.
    strongest = start.locator(".links-table tbody tr").first.locator(".number")
    until(
        start,
        lambda: strongest.inner_text() == start.locator(".inspector .weight").inner_text(),
        "the strongest link to be the chosen cell",
    )
    expect(start.get_by_role("button", name="Show attention")).to_be_enabled()
    expect(start.locator(".model-loading")).to_be_hidden()


def test_a_finding_goes_when_another_head_is_chosen(start):
    start.locator('.thumb[data-head="4/4"]').click()
    expect(start.locator(".finding")).to_contain_text("Choose an example")
    expect(start.locator(".example[aria-pressed=true]")).to_have_count(0)
    start.get_by_role("button", name="it → animal").click()
    expect(start.locator(".finding")).to_contain_text("whom “it” means")


def test_an_example_in_an_address_needs_no_model(page, site_url):
    page.goto(
        f"{site_url}#text=Paris%20is%20the%20capital%20of%20France,%20and%20Rome%20is%20the%20capital%20of%20Italy.&layer=2&head=9&query=12&key=4"
    )
    wait_for_maps(page, 2)
    expect(page.locator(".finding")).to_contain_text("The second “capital”")
    assert chosen_cell(page) == [2, 9, 12, 4]


# Terms


def tip(page):
    return page.locator(".term-tip")


def test_a_term_explains_itself_to_mouse_and_keyboard(start):
    word = start.locator("#focus header .term", has_text="softmax")
    word.hover()
    expect(tip(start)).to_contain_text("exp(score)")
    described = word.get_attribute("aria-describedby")
    assert start.locator(f"#{described}").get_attribute("role") == "tooltip"
    tip(start).hover()  # stays while it is read
    expect(tip(start)).to_be_visible()
    start.mouse.move(2, 2)
    expect(tip(start)).to_have_count(0)
    assert word.get_attribute("aria-describedby") is None
    word.focus()
    expect(tip(start)).to_be_visible()
    start.keyboard.press("Escape")
    expect(tip(start)).to_have_count(0)
    start.keyboard.press("Enter")
    expect(tip(start)).to_be_visible()
    start.keyboard.press("Tab")
    expect(start.locator(".term-tip", has_text="exp(score)")).to_have_count(0)
    start.evaluate("document.activeElement.blur()")


@pytest.mark.parametrize("width", [390, 1440])
def test_an_explanation_never_leaves_the_window(start, width):
    start.set_viewport_size({"width": width, "height": 700})
    terms = start.locator(".term:visible")
    assert terms.count() > 8
    for i in range(terms.count()):
        terms.nth(i).focus()
        expect(tip(start)).to_have_count(1)
        next_frames(start)
        left, top, right, bottom = tip(start).evaluate(
            "one => { const b = one.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; }"
        )
        assert left >= 0
        assert right <= width
        assert top >= 0
        assert bottom <= 700
    start.evaluate("document.activeElement.blur()")
    start.set_viewport_size({"width": 1440, "height": 900})


def test_a_tap_opens_a_term_and_hints_speak_of_tapping(browser, site_url, artifacts):
    size = {"width": 390, "height": 844}
    with watched_context(browser, viewport=size, has_touch=True, is_mobile=True) as context:
        page = context.new_page()
        held_back(page, site_url)
        expect(page.locator("#overview")).to_contain_text("Tap a map")
        page.locator(".hero .term", has_text="head").tap()
        expect(tip(page)).to_contain_text("Each head has learned")
        page.screenshot(path=artifacts / "page-term-390.png")
        page.locator(".hero h1").tap()
        expect(tip(page)).to_have_count(0)
        page.unroute(PYTHON)
        wait_until_ready(page)


# The tour


def test_the_tour_goes_through_its_steps_and_gives_the_focus_back(start, artifacts):
    opener = start.get_by_role("button", name="Take the tour")
    opener.click()
    tour = start.get_by_role("dialog")
    titles = []
    for step in range(6):
        expect(tour).to_contain_text(f"{step + 1} of 6")
        titles.append(tour.locator("h2").inner_text())
        start.wait_for_timeout(600)  # the page scrolls smoothly
        box = tour.bounding_box()
        assert box["x"] >= 0
        assert box["y"] >= 0
        assert box["x"] + box["width"] <= 1440
        assert box["y"] + box["height"] <= 900
        start.screenshot(path=artifacts / f"page-tour-{step}.png")
        start.keyboard.press("ArrowRight")
    assert len(set(titles)) == 6
    expect(tour).to_have_count(0)
    expect(opener).to_be_focused()
    start.keyboard.press("Enter")
    expect(tour).to_contain_text("1 of 6")
    tour.get_by_role("button", name="Next").click()
    expect(tour).to_contain_text("2 of 6")
    start.keyboard.press("Escape")
    expect(tour).to_have_count(0)
    assert start.evaluate("JSON.stringify(Object.keys(localStorage))").find("tour") < 0


# Links and messages that stay in reach


def test_the_links_stay_and_say_which_section_is_on_screen(start):
    nav = start.get_by_role("navigation", name="Sections")
    for name in ("Kernel", "Python", "Edit"):
        nav.get_by_role("link", name=name).click()
        expect(nav.locator("[aria-current=location]")).to_have_text(name)
        header = start.locator(".masthead").bounding_box()
        assert header["y"] == 0
        target = "console" if name == "Python" else name.lower()
        start.wait_for_function(
            f"() => document.querySelector('#{target}').getBoundingClientRect().top < innerHeight / 2"
        )
    start.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
    expect(nav.locator("[aria-current]")).to_have_count(0)


def test_the_links_do_not_cover_what_has_the_focus(start):
    start.evaluate("scrollTo({ top: document.body.scrollHeight, behavior: 'instant' })")
    start.get_by_role("button", name="Sliding window").focus()
    start.wait_for_function(
        "document.activeElement.getBoundingClientRect().top"
        " >= document.querySelector('.masthead').getBoundingClientRect().bottom"
    )
    start.evaluate("scrollTo({ top: 0, behavior: 'instant' })")


def test_on_a_phone_only_the_links_stay(start, artifacts):
    start.set_viewport_size({"width": 390, "height": 844})
    start.evaluate("scrollTo({ top: 1500, behavior: 'instant' })")
    next_frames(start)
    box = start.locator(".masthead").bounding_box()
    assert 30 <= box["y"] + box["height"] <= 60
    assert start.get_by_role("link", name="Overview").bounding_box()["y"] >= 0
    assert start.evaluate("document.documentElement.scrollWidth") <= 390
    start.screenshot(path=artifacts / "page-sticky-390.png")
    start.set_viewport_size({"width": 1440, "height": 900})
    start.evaluate("scrollTo({ top: 0, behavior: 'instant' })")


def test_that_python_was_stopped_is_seen_from_the_end_of_the_page(start):
    settled_map(start)
    console = start.locator("#console")
    console.locator(".cm-content").click()
    start.keyboard.press("ControlOrMeta+A")
    start.keyboard.insert_text("while True: pass")
    console.get_by_role("button", name="Run").click()
    console.get_by_role("button", name="Stop").click()
    banner = start.locator(".banner")
    expect(banner).to_be_in_viewport(ratio=1)
    header = start.locator(".masthead").bounding_box()
    assert banner.bounding_box()["y"] >= header["y"] + header["height"]
    expect(banner).to_contain_text("Python is back")
    expect(banner).to_be_in_viewport(ratio=1)
    banner.get_by_role("button", name="Close this message").click()
    expect(banner).to_be_hidden()


@pytest.mark.thorough
@pytest.mark.expects_console_errors("Failed to load resource")
def test_a_missing_model_is_said_plainly_and_retried(page, site_url):
    page.goto(site_url)
    wait_until_ready(page)
    wait_for_maps(page, 1)
    model = "**/models/minilm/model.safetensors*"
    page.context.route(model, lambda route: route.fulfill(status=404))
    page.get_by_role("textbox", name="Sentence").fill("A dog barked.")
    page.get_by_role("button", name=re.compile("Load MiniLM")).click()
    expect(page.locator(".input-message")).to_have_text("The model file is missing (404). Retry")
    page.context.unroute(model)
    page.get_by_role("button", name="Retry").click()
    wait_for_maps(page, 2)
    expect(page.locator("#overview header p")).to_contain_text("6 × 6")
