"""The panels of the page, on the sample sentence and on made-up input, with real WebGPU."""

import re

import pytest
from playwright.sync_api import expect

from e2e.lab import next_frames, wait_for_maps
from e2e.main_thread import longest_task
from e2e.page_view import HEATMAP, expect_weight, point_at, settled_map

TOKENS = 20  # of the sample


def open_synthetic(page, **fields):
    painted = int(page.get_attribute("#overview", "data-painted"))
    if not page.get_by_role("button", name="Make").is_visible():
        page.get_by_role("radio", name="Synthetic").check(force=True)
        painted += 1
        wait_for_maps(page, painted)
    for label, value in fields.items():
        field = page.locator(".synthetic-form").get_by_label(label, exact=True)
        if label == "Mask":
            field.select_option(value)
        else:
            field.fill(value)
    page.get_by_role("button", name="Make").click()
    wait_for_maps(page, painted + 1)


def open_sample(page):
    if page.get_by_role("radio", name="Sentence").is_checked():
        return
    painted = int(page.get_attribute("#overview", "data-painted"))
    page.get_by_role("radio", name="Sentence").check(force=True)
    wait_for_maps(page, painted + 1)


def exact(page, layer, head, query, key):
    """The sample's weight in float64, by way of the console's door."""
    return page.evaluate(
        "(source) => window.pyAttn.run(source)",
        f"""
import io, js
from py_attn.models import load_sample
if "sample" not in globals():
    reply = await js.fetch("{page.url.split("#")[0]}sample/minilm.npz")
    sample = load_sample((await reply.arrayBuffer()).to_bytes())
layer = sample.layers[{layer}]
float(pa.reference.attention_weights(layer.query, layer.key)[0, {head}, {query}, {key}])
""",
    )


def test_the_first_thing_to_see_is_whom_it_means(shown, artifacts):
    expect(shown.locator("#focus h2")).to_have_text("Layer 3, head 1")
    expect(shown.locator(".inspector")).to_contain_text("it")
    expect(shown.locator(".links-table tbody tr").first).to_contain_text("animal")
    expect_weight(shown, exact(shown, 3, 1, 9, 2))
    shown.screenshot(path=artifacts / "page-light-1440.png", full_page=True)


def test_the_adapter_is_named_and_called_what_it_is(shown):
    info = shown.evaluate("window.pyAttn.ready")
    chip = shown.locator(".masthead .chip")
    expect(chip).to_have_attribute("data-state", "software" if info["software"] else "gpu")
    if info["software"]:
        expect(chip).to_contain_text("software adapter")
        expect(shown.locator(".adapter-line")).to_contain_text("the times say nothing about a GPU")


def test_thumbnails_are_a_grid_for_mouse_and_keyboard(shown):
    thumbs = shown.locator(".thumb")
    expect(thumbs).to_have_count(72)
    shown.locator('.thumb[data-head="2/4"]').click()
    expect(shown.locator("#focus h2")).to_have_text("Layer 2, head 4")
    for key, title in (
        ("ArrowRight", "Layer 2, head 5"),
        ("ArrowDown", "Layer 3, head 5"),
        ("ArrowLeft", "Layer 3, head 4"),
        ("ArrowUp", "Layer 2, head 4"),
        ("End", "Layer 2, head 11"),
        ("Home", "Layer 2, head 0"),
    ):
        shown.keyboard.press(key)
        expect(shown.locator("#focus h2")).to_have_text(title)
    expect(shown.locator('.thumb[aria-selected="true"]')).to_have_count(1)
    expect(shown.locator('.thumb[tabindex="0"]')).to_have_count(1)


def test_thumbnails_show_different_maps(shown):
    pictures = shown.eval_on_selector_all(".thumb canvas", "all => all.map(one => one.toDataURL())")
    assert len(set(pictures)) == 72


def test_the_cursor_walks_the_map_and_reads_exact_weights(shown):
    shown.locator('.thumb[data-head="1/8"]').click()
    canvas = shown.locator("canvas.heatmap")
    canvas.focus()
    shown.keyboard.press("Home")
    for _ in range(TOKENS):
        shown.keyboard.press("ArrowUp")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        shown.keyboard.press(key)
    expect(canvas).to_have_attribute("aria-label", re.compile(r"layer 1, head 8\. Row 2, column 1\."))
    expect_weight(shown, exact(shown, 1, 8, 2, 1))


def test_pointing_at_a_cell_reads_its_weight_and_chooses_nothing(shown):
    point_at(shown, TOKENS - 1, TOKENS - 1)
    expect_weight(shown, exact(shown, 1, 8, TOKENS - 1, TOKENS - 1))
    expect(shown.locator(HEATMAP)).to_have_attribute("aria-label", re.compile("Row 2, column 1"))
    expect(shown.locator(".links-row")).to_contain_text("animal at position 2")
    shown.mouse.move(2, 2)
    expect_weight(shown, exact(shown, 1, 8, 2, 1))


def test_a_click_pins_a_cell_and_lets_it_go(shown):
    pins = shown.locator(".pin-cell")
    point_at(shown, 4, 5)
    shown.mouse.down()
    shown.mouse.up()
    expect(pins).to_have_count(1)
    expect(shown.locator(HEATMAP)).to_have_attribute("aria-label", re.compile("Row 4, column 5"))
    point_at(shown, TOKENS - 1, 0)
    shown.keyboard.down("Shift")
    shown.mouse.down()
    shown.mouse.up()
    shown.keyboard.up("Shift")
    expect(pins).to_have_count(2)
    expect(pins.nth(0)).to_contain_text(f"{exact(shown, 1, 8, 4, 5):.4f}")
    expect(shown.locator(".links-row")).to_contain_text(f"[SEP] at position {TOKENS - 1}")
    pins.nth(0).click()
    expect(shown.locator(HEATMAP)).to_have_attribute("aria-label", re.compile("Row 4, column 5"))
    point_at(shown, 4, 5)
    shown.mouse.down()
    shown.mouse.up()
    expect(pins).to_have_count(1)
    shown.locator(HEATMAP).press("Escape")
    expect(pins).to_have_count(0)
    shown.locator(HEATMAP).press("Enter")
    expect(pins).to_have_count(1)
    point_at(shown, TOKENS - 1, 3)
    shown.mouse.down()
    shown.mouse.up()
    expect(pins).to_have_count(1)
    shown.get_by_role("button", name="Let the pin").click()
    expect(pins).to_have_count(0)


def test_the_table_names_the_strongest_links_of_the_row(shown):
    expect(shown.locator(".links-row")).to_contain_text("[SEP]")
    rows = shown.locator(".links-table tbody tr").all_inner_texts()
    weights = [float(row.split()[-1]) for row in rows]
    assert weights == sorted(weights, reverse=True)
    assert len(weights) == 8
    expect(shown.locator("#links .sr-only[role=status]")).to_contain_text("[SEP] attends to")
    link = shown.locator(".links-table .link").nth(1)
    link.click()
    expect_weight(shown, weights[1], 1e-6)


def test_zoom_pan_and_fit_change_what_is_drawn(shown):
    canvas = shown.locator(HEATMAP)
    whole = settled_map(shown)
    shown.get_by_role("button", name="Zoom in").click()
    shown.get_by_role("button", name="Zoom in").click()
    near = settled_map(shown, whole)
    canvas.focus()
    shown.keyboard.press("Shift+ArrowLeft")
    shown.keyboard.press("Shift+ArrowUp")
    moved = settled_map(shown, near)
    box = canvas.bounding_box()
    shown.mouse.move(box["x"] + 300, box["y"] + 300)
    pointed = settled_map(shown)
    shown.mouse.wheel(0, -300)
    wheeled = settled_map(shown, pointed)
    shown.mouse.down()
    shown.mouse.move(box["x"] + 200, box["y"] + 260, steps=4)
    shown.mouse.up()
    dragged = settled_map(shown, wheeled)
    assert len({whole, near, moved, wheeled, dragged}) == 5
    shown.get_by_role("button", name="Show the whole map").click()


def test_scale_and_colours_follow_the_choice(shown):
    strip = shown.locator(".legend-strip")
    before = strip.evaluate("one => one.toDataURL()")
    shown.get_by_label("Colour map").select_option("viridis")
    shown.wait_for_function(
        "(before) => document.querySelector('.legend-strip').toDataURL() !== before", arg=before
    )
    shown.get_by_role("radio", name="log").check(force=True)
    expect(shown.locator(".legend-ticks")).to_contain_text("0.001")
    shown.get_by_role("radio", name="√").check(force=True)
    shown.get_by_label("Colour map").select_option("rocket")


def test_the_kernel_panel_times_and_checks_every_variant(shown, artifacts):
    shown.get_by_label("Runs").select_option("3")
    shown.locator("#kernel").get_by_role("button", name="Run").click()
    note = shown.locator(".kernel-note")
    expect(note).to_contain_text("Medians of 3 runs")
    rows = shown.locator(".timings tbody:not(.operations) tr")
    variants = shown.evaluate("window.pyAttn.ready.then((info) => info.variants)")
    expect(rows.locator(".ok")).to_have_count(len(variants))
    assert [row.split()[0] for row in rows.all_inner_texts()] == variants
    # Takes float16 inputs only; these are float32.
    assert "matrix" not in variants
    assert shown.locator("#kernel option[value=matrix]").count() == 0
    for row in rows.all():
        assert (
            len(re.findall(r"[\d.]+ (?:µs|ms|s)\b", row.inner_text())) >= 8
        )  # four parts, each with a range
        expect(row.locator(".ok")).to_be_visible()
    expect(note).to_contain_text("float64")
    expect(shown.locator("#kernel .shader")).to_contain_text("@compute")
    expect(shown.locator(".constants")).to_contain_text(["D", "32"][0])
    assert shown.locator(".wgsl-keyword").count() > 20
    shown.get_by_role("button", name="naive", exact=True).click()
    expect(shown.locator("#kernel h3")).to_contain_text("naive")
    shown.locator("#kernel").screenshot(path=artifacts / "page-kernel.png")


def test_decoding_steps_forwards_and_backwards(shown):
    decode = shown.locator("#decode")
    decode.get_by_role("button", name="First position").click()
    expect(decode).to_have_attribute("data-position", "0")
    expect(decode.locator(".slot:not(.empty)")).to_have_count(1)
    decode.get_by_role("button", name="Step").click()
    decode.get_by_role("button", name="Step").click()
    expect(decode).to_have_attribute("data-position", "2")
    decode.get_by_role("button", name="Back").click()
    expect(decode).to_have_attribute("data-position", "1")
    expect(decode.locator(".slot:not(.empty)")).to_have_count(2)
    decode.get_by_role("button", name="Last position").click()
    expect(decode).to_have_attribute("data-position", str(TOKENS - 1))
    factors = [float(text) for text in decode.locator(".splits .factor").all_inner_texts()]
    assert len(factors) == 4
    assert sum(factors) == pytest.approx(1, abs=2e-3)
    weights = [float(text) for text in decode.locator(".slot-weight").all_inner_texts()]
    assert sum(weights) == pytest.approx(1, abs=2e-2)
    expect(decode.locator(".combine")).to_contain_text("away from float64")


def test_decoding_plays_and_pauses(shown, artifacts):
    decode = shown.locator("#decode")
    decode.get_by_label("Speed").select_option("fast")
    decode.get_by_role("button", name="First position").click()
    expect(decode).to_have_attribute("data-position", "0")
    decode.get_by_role("button", name="Play").click()
    expect(decode).to_have_attribute("data-position", str(TOKENS - 1))
    expect(decode.get_by_role("button", name="Play")).to_be_visible()
    expect(decode.locator(".decode-map figcaption")).to_contain_text(f"{TOKENS} of {TOKENS}")
    decode.screenshot(path=artifacts / "page-decode.png")


def test_a_small_cache_is_a_ring(shown):
    decode = shown.locator("#decode")
    decode.get_by_label("Cache capacity").select_option("8")
    decode.get_by_label("Splits").select_option("2")
    expect(decode.locator(".slot")).to_have_count(8)
    expect(decode.locator(".decode-now")).to_contain_text("cache 8 of 8")
    expect(decode.locator(".splits tbody tr")).to_have_count(2)
    # The newest position lies where the oldest was.
    newest = decode.locator(".slot").nth((TOKENS - 1) % 8)
    expect(newest).to_have_class(re.compile("new"))


@pytest.mark.quick("documents")
@pytest.mark.parametrize("mask", ["causal", "none", "padding", "documents", "alibi"])
def test_made_up_input_of_every_mask(shown, mask):
    open_synthetic(shown, Length="50", Heads="4", **{"KV heads": "2", "Head dim": "24"}, Mask=mask)
    expect(shown.locator(".thumb")).to_have_count(4)
    expect(shown.locator("#overview header p")).to_contain_text("1 layer × 4 heads, each 50 × 50")
    shown.locator("#kernel").get_by_role("button", name="Run").click()
    expect(shown.locator(".kernel-note")).to_contain_text("Medians")
    expect(shown.locator(".not-ok")).to_have_count(0)


def test_window_and_softcap_reach_the_map(shown):
    open_synthetic(shown, Length="40", Mask="none", Window="3", Softcap="5")
    canvas = shown.locator("canvas.heatmap")
    canvas.focus()
    shown.keyboard.press("Home")
    expect(shown.locator("canvas.heatmap")).to_have_attribute("aria-label", re.compile("column 0"))
    for _ in range(40):
        shown.keyboard.press("ArrowDown")
    expect(shown.locator(".inspector .weight")).to_have_text("0")  # far outside the window
    rows = [row for row in shown.locator(".links-table tbody tr").all_inner_texts() if row.strip()]
    assert len(rows) == 4  # itself and three before it: it is the last row


def test_long_input_is_drawn_from_pooled_windows(shown, artifacts):
    open_synthetic(
        shown,
        Length="2000",
        Heads="2",
        **{"KV heads": "1", "Head dim": "16"},
        Mask="causal",
        Window="",
        Softcap="",
    )
    source = shown.get_attribute("#overview", "data-painted")
    expect(shown.locator(".heatmap-box")).to_have_attribute("data-shown", re.compile(f"^{source}/"))
    settled_map(shown)
    shown.screenshot(path=artifacts / "page-synthetic.png")
    for _ in range(8):
        shown.get_by_role("button", name="Zoom in").click()
    expect(shown.locator(".heatmap-box")).to_have_attribute("aria-busy", "false")
    expect(shown.locator(".segmented.inactive")).to_have_count(1)  # every cell is one weight now


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"Heads": "6", "KV heads": "4"}, "KV heads must divide Heads (6)"),
        (
            {"Length": "5000", "Heads": "2", "KV heads": "1", "Mask": "documents"},
            "mask: documents needs a boolean matrix; expected a length up to",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused_in_words(shown, fields, message):
    open_synthetic(shown, Length="16", Heads="2", **{"KV heads": "1"}, Mask="causal")
    form = shown.locator(".synthetic-form")
    for label, value in fields.items():
        field = form.get_by_label(label, exact=True)
        field.select_option(value) if label == "Mask" else field.fill(value)
    form.get_by_role("button", name="Make").click()
    expect(shown.locator(".input-panel")).to_contain_text(message)
    form.get_by_label("Mask", exact=True).select_option("causal")


def test_nothing_scrolls_sideways_at_any_width(shown, artifacts):
    open_sample(shown)
    for width in (390, 700, 1000, 1440, 2560):
        shown.set_viewport_size({"width": width, "height": 900})
        next_frames(shown)
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        shown.screenshot(path=artifacts / f"page-{width}.png", full_page=True)
    shown.set_viewport_size({"width": 1440, "height": 900})


#: Width of each text in the heading of "Edit the score", and on how many lines it is.
HEADING = """() => [...document.querySelectorAll('#edit > header :is(h2, p)')].map((one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    const lines = new Set([...range.getClientRects()].map(({ top }) => Math.round(top)));
    return [one.getBoundingClientRect().width, lines.size];
})"""


@pytest.mark.parametrize(
    ("width", "media"), [(720, "screen"), (800, "screen"), (900, "screen"), (794, "print")]
)
def test_the_heading_beside_many_buttons_can_be_read(shown, width, media):
    shown.set_viewport_size({"width": width, "height": 1123})  # 794 × 1123 is A4
    shown.emulate_media(media=media)
    (title_width, title_lines), (about_width, about_lines) = shown.evaluate(HEADING)
    shown.emulate_media(media="screen")
    shown.set_viewport_size({"width": 1440, "height": 900})
    assert min(title_width, about_width) >= 300
    assert title_lines == 1
    assert about_lines <= 2


def test_dark_and_light(shown, artifacts):
    def background():
        return shown.evaluate("getComputedStyle(document.documentElement).backgroundColor")

    light = background()
    shown.emulate_media(color_scheme="dark")
    assert background() != light
    settled_map(shown)
    shown.screenshot(path=artifacts / "page-dark-1440.png", full_page=True)
    shown.get_by_role("button", name="Light or dark").click()
    assert background() == light
    shown.emulate_media(color_scheme="light")
    shown.get_by_role("button", name="Light or dark").click()
    assert background() != light
    shown.get_by_role("button", name="Light or dark").click()
    assert background() == light


def test_everything_that_can_be_pressed_has_a_name(shown):
    nameless = shown.evaluate(
        """() => [...document.querySelectorAll('button, input, select, textarea, canvas[tabindex]')]
            .filter((one) => one.checkVisibility())
            .filter((one) => !one.textContent.trim() && !one.ariaLabel && !one.labels?.length)
            .map((one) => one.outerHTML.slice(0, 100))"""
    )
    assert nameless == []


def test_drawing_never_holds_the_page_up(shown):
    open_sample(shown)
    with longest_task(shown) as busiest:
        for head in (1, 5, 9):
            shown.locator(f'.thumb[data-head="3/{head - 1}"]').click()
            expect(shown.locator(".heatmap-box")).to_have_attribute(
                "data-shown", re.compile(f"/3/{head - 1}$")
            )
        shown.mouse.move(700, 500)
        shown.mouse.move(900, 700, steps=20)
    assert 0 < busiest.cpu_ms < 100
