"""All heads as one figure, tables as text, weights in cells, paper, and the visitor's own colours."""

import csv
import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from playwright.sync_api import expect

from e2e.lab import next_frames, until
from e2e.page_view import HEATMAP, settled_map
from e2e.test_page import open_sample, open_synthetic
from e2e.test_page_compare import exact
from e2e.test_page_figures import corners

SVG = "{http://www.w3.org/2000/svg}"
COPIED = "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"
#: The large map's pixels along the middle of a row.
ROW = """(row) => {
    const canvas = document.querySelector("#focus canvas.heatmap");
    const [left, top, side, span] = canvas.dataset.plot.split(" ").map(Number);
    const ratio = canvas.width / canvas.clientWidth;
    const y = Math.floor((top + (row + 0.5) * side / span) * ratio);
    const { data } = canvas.getContext("2d").getImageData(left * ratio, y, side * ratio, 1);
    return Array.from({ length: data.length / 4 }, (_, i) => [...data.subarray(4 * i, 4 * i + 4)].join());
}"""


def saved(page, label, menu="Save all heads"):
    page.locator("#overview").get_by_label(menu).click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name=label).click()
    return waiting.value


def copied(page, panel, menu, label):
    page.evaluate(COPIED)
    page.locator(panel).get_by_label(menu).click()
    page.locator(panel).get_by_role("button", name=label).click()
    page.wait_for_function("window.copied !== undefined")
    return page.evaluate("() => { const text = window.copied; delete window.copied; return text; }")


def labels(root):
    return [text.text for text in root.iter(f"{SVG}text")]


@pytest.mark.quick("light")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_heads_are_one_figure_on_white(shown, artifacts, theme):
    shown.emulate_media(color_scheme=theme)
    download = saved(shown, "All heads, SVG")
    assert download.suggested_filename == "attention-all-heads.svg"
    source = Path(download.path()).read_text()
    (artifacts / f"sheet-{theme}.svg").write_text(source)
    root = ElementTree.fromstring(source)
    words = labels(root)
    assert [words.count(f"L{layer}") for layer in range(7)] == [1] * 6 + [0]
    assert [words.count(f"H{head}") for head in range(13)] == [1] * 12 + [0]
    assert len(list(root.iter(f"{SVG}image"))) == 72 + 1  # and the colour bar
    assert next(root.iter(f"{SVG}rect")).get("fill") == "#fff"
    assert any("all-MiniLM-L6-v2" in (text or "") for text in words)
    picture = Path(saved(shown, "All heads, PNG").path()).read_bytes()
    (artifacts / f"sheet-{theme}.png").write_bytes(picture)
    assert int.from_bytes(picture[16:20], "big") == round(3 * float(root.get("width")))
    assert corners(shown, picture) == [[255, 255, 255, 255]] * 4
    shown.emulate_media(color_scheme=None)


def test_one_layer_fills_several_rows(shown, artifacts):
    download = saved(shown, "Layer in focus, SVG")
    assert download.suggested_filename == "attention-layer3-heads.svg"
    source = Path(download.path()).read_text()
    (artifacts / "sheet-layer.svg").write_text(source)
    root = ElementTree.fromstring(source)
    assert any("Layer 3, 12 heads" in (text or "") for text in labels(root))
    assert len(list(root.iter(f"{SVG}image"))) == 12 + 1


def test_with_the_range_of_the_maps_one_bar_holds_for_all(shown):
    focus = shown.locator("#focus")
    focus.get_by_role("radio", name="map", exact=True).check(force=True)
    root = ElementTree.fromstring(Path(saved(shown, "Layer in focus, SVG").path()).read_text())
    focus.get_by_role("radio", name="0–1", exact=True).check(force=True)
    largest = exact(shown, "max(float(weights(3, head).max()) for head in range(12))")
    assert 0 < largest < 1
    assert f"{largest:.2g}" in labels(root)


def test_tables_are_markdown_and_csv(shown):
    text = copied(shown, "#links", "Strongest links as a table", "Copy as Markdown")
    lines = text.splitlines()
    assert lines[0] == "| Query position | Query | Key position | Key | Weight |"
    assert len(lines) == 2 + 8
    rows = list(
        csv.DictReader(io.StringIO(copied(shown, "#links", "Strongest links as a table", "Copy as CSV")))
    )
    on_page = shown.locator("#links .links-table td.number").all_inner_texts()
    assert [f"{float(row['Weight']):.4f}" for row in rows] == on_page
    assert len(rows[0]["Weight"]) > len(on_page[0])  # all its digits

    until(shown, lambda: shown.locator("#overview[data-findings]").count() == 1, "the labels")
    shown.locator("#overview").get_by_label("All heads as a table").click()
    with shown.expect_download() as waiting:
        shown.locator("#overview").get_by_role("button", name="Save as CSV").click()
    assert waiting.value.suggested_filename == "heads.csv"
    content = Path(waiting.value.path()).read_bytes()
    assert content.startswith(b"\xef\xbb\xbf")
    heads = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))
    assert [(row["Layer"], row["Head"]) for row in heads[:13]] == [("0", str(i)) for i in range(12)] + [
        ("1", "0")
    ]
    assert len(heads) == 72
    expect(shown.locator("#overview .menu-said").first).to_have_text("Saved as heads.csv.")


def test_an_empty_table_says_so(shown):
    shown.locator("#kernel").get_by_label("Timings as a table").click()
    shown.locator("#kernel").get_by_role("button", name="Copy as CSV").click()
    expect(shown.locator("#kernel .menu-said")).to_have_text("There is nothing in this table yet.")


def test_zoomed_cells_have_their_weights(shown, artifacts):
    focus = shown.locator("#focus")
    before = settled_map(shown)
    for _ in range(3):
        focus.get_by_role("button", name="Zoom in").click()
    settled_map(shown, before)
    focus.screenshot(path=artifacts / "page-written.png")
    focus.get_by_label("Save what is shown").click()
    with shown.expect_download() as waiting:
        shown.get_by_role("button", name="SVG drawing").click()
    root = ElementTree.fromstring(Path(waiting.value.path()).read_text())
    span = float(shown.get_attribute(HEATMAP, "data-plot").split()[3])
    figures = [text for text in labels(root) if text and text[:2] in ("0.", "1.") and len(text) >= 4]
    assert len(figures) >= (int(span) - 1) ** 2
    focus.get_by_role("button", name="Show the whole map").click()


@pytest.mark.thorough
def test_at_300_tokens_the_marks_do_not_hide_the_row(shown, artifacts):
    open_synthetic(shown, Length="300")
    settled_map(shown)
    move(shown, "ArrowDown", 30)
    shown.locator("#focus").screenshot(path=artifacts / "page-300.png")
    row = chosen_row(shown)
    marked = shown.evaluate(ROW, row)
    move(shown, "ArrowUp", 20)
    assert chosen_row(shown) == row - 20
    plain = shown.evaluate(ROW, row)
    # The lines of the column and the outline of the chosen cell cross the row; all else of it is seen.
    assert sum(one != other for one, other in zip(marked, plain, strict=True)) <= 16
    open_sample(shown)


def chosen_row(page):
    return int(re.search(r"Row (\d+)", page.get_attribute(HEATMAP, "aria-label")).group(1))


def move(page, key, times):
    for _ in range(times):
        page.locator(HEATMAP).press(key)
    next_frames(page)


def test_paper_has_what_was_found_and_no_controls(shown, artifacts):
    shown.emulate_media(media="print", color_scheme="dark")
    next_frames(shown)
    for selector in ("nav", ".button", "select", "input", "textarea", ".editor", ".menu-box", ".segmented"):
        assert shown.locator(selector).locator("visible=true").count() == 0, selector
    for selector in (".printed-source", "#overview .thumb", HEATMAP, "#links table", "#edit h2"):
        expect(shown.locator(selector).first).to_be_visible()
    assert (
        shown.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    )
    assert shown.locator("#edit h2").bounding_box()["width"] > 100
    (artifacts / "page-print.pdf").write_bytes(shown.pdf(format="A4", print_background=True))
    shown.emulate_media(media="screen", color_scheme=None)
    next_frames(shown)


THUMBS = "[...document.querySelectorAll('#overview .thumb canvas')].map((one) => one.toDataURL())"


def pictures(page):
    """The pixels of all small maps and of the legend, and one of each cell of a row of the large map."""
    page.mouse.move(0, 0)
    legend = page.locator("#focus .legend-strip").first.evaluate("(strip) => strip.toDataURL()")
    row, cells = (
        page.evaluate(ROW, 5),
        int(float(page.locator(HEATMAP).get_attribute("data-plot").split()[3])),
    )
    return page.evaluate(THUMBS), legend, [row[int((cell + 0.5) * len(row) / cells)] for cell in range(cells)]


def settled_pictures(page):
    """The same once the maps have followed what was chosen last: a theme counts from the next frame on."""
    next_frames(page)
    expect(page.locator("#overview .thumbs")).to_have_attribute("aria-busy", "false")
    settled_map(page)
    return pictures(page)


@pytest.mark.parametrize("show", ["Weights", "Weight × gradient"])
def test_paper_has_the_maps_of_the_light_theme_also_from_the_dark_one(shown, show, artifacts):
    shown.get_by_role("radio", name=show, exact=True).check(force=True)
    shown.emulate_media(color_scheme="light")
    light = settled_pictures(shown)
    shown.emulate_media(color_scheme="dark")

    def is_dark():
        return all(one != other for one, other in zip(pictures(shown), light, strict=True))

    until(shown, is_dark, "the maps of the dark theme")
    dark = settled_pictures(shown)
    shown.emulate_media(media="print", color_scheme="dark")
    next_frames(shown)
    paper = pictures(shown)
    (artifacts / f"page-print-dark-{show[:7]}.pdf").write_bytes(shown.pdf(format="A4", print_background=True))
    if show == "Weights":
        assert paper[:2] == light[:2]
    assert max(far(one, other) for one, other in zip(paper[2], light[2], strict=True)) <= 6
    shown.emulate_media(media="screen", color_scheme="dark")
    next_frames(shown)
    assert pictures(shown) == dark
    shown.get_by_role("radio", name="Weights", exact=True).check(force=True)
    shown.emulate_media(media="screen", color_scheme=None)
    settled_pictures(shown)


def far(one, other):
    """How far two pixels are apart in the channel where that is most."""
    return max(abs(int(a) - int(b)) for a, b in zip(one.split(","), other.split(","), strict=True))


@pytest.mark.parametrize("width", [720, 810, 900])
def test_the_heading_of_the_score_editor_keeps_its_width(shown, width):
    shown.set_viewport_size({"width": width, "height": 900})
    box = shown.locator("#edit h2").bounding_box()
    shown.set_viewport_size({"width": 1440, "height": 900})
    assert box["width"] > 100
    assert box["height"] < 30


def test_with_the_visitors_own_colours_the_choice_is_seen(shown, artifacts):
    shown.emulate_media(forced_colors="active")
    shown.locator(HEATMAP).press("Enter")
    shown.screenshot(path=artifacts / "page-forced.png", full_page=True)
    differs = """([chosen, other, name]) => {
        const style = (selector) => getComputedStyle(document.querySelector(selector))[name];
        return style(chosen) !== style(other);
    }"""
    for chosen, other, name in [
        (".thumb[aria-selected='true']", ".thumb[aria-selected='false']", "outlineStyle"),
        (".segmented input:checked + span", ".segmented input:not(:checked) + span", "backgroundColor"),
        (".button[aria-pressed='true']", ".button[aria-pressed='false']", "backgroundColor"),
        (".pin[aria-current]", ".pins", "outlineStyle"),
        (".slot.new", ".slot:not(.new)", "outlineStyle"),
    ]:
        assert shown.evaluate(differs, [chosen, other, name]), chosen
    shown.locator(HEATMAP).press("Escape")
    shown.emulate_media(forced_colors="none")
