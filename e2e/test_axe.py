"""Accessibility: axe-core finds nothing on any panel, in light and dark, on wide and narrow windows."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from e2e.conftest import watched_context
from e2e.lab import Lab, wait_for_maps, wait_until_ready
from e2e.test_page_kernel_author import fork, text_of, time_one, write
from e2e.test_page_own_data import MAPS, TOKENS, drop, npz
from e2e.test_page_write import generate, tokens

AXE = Path("node_modules/axe-core/axe.min.js")
#: No colour is on its way to that of the other theme.
SETTLED = "() => document.getAnimations().every(({ playState }) => playState !== 'running')"
COLOURED = "() => document.querySelector('.sentence-token[aria-label*=\"L2 H4\"]')"
DRAWN = "() => document.querySelector('.lines-scroll')?.dataset.lines > 0"
RUN = """async () => {
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    return violations.flatMap(({ id, nodes }) =>
        nodes.map(({ target, failureSummary }) => `${id}: ${target.join(" ")}: ${failureSummary}`));
}"""


@pytest.fixture(scope="module", params=[(1440, 900), (390, 844)], ids=["wide", "narrow"])
def open_page(browser: Browser, site_url: str, request: pytest.FixtureRequest):
    """The page with its sample, and axe-core in it."""
    width, height = request.param
    with watched_context(
        browser, viewport={"width": width, "height": height}, reduced_motion="reduce"
    ) as context:
        page = context.new_page()
        page.goto(site_url)
        wait_until_ready(page)
        wait_for_maps(page, 1)
        page.evaluate(AXE.read_text(encoding="utf-8"))
        yield page


def violations(page: Page) -> list[str]:
    """What axe-core finds, in both themes."""
    found = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(SETTLED)
        found += [f"{scheme}: {each}" for each in page.evaluate(RUN)]
    return found


def mode(page: Page, name: str) -> None:
    page.get_by_role("radio", name=name, exact=True).check(force=True)


def test_the_sample(open_page):
    assert violations(open_page) == []


def test_pinned_cells_and_open_menus(open_page):
    open_page.locator("canvas.heatmap").press("Enter")
    for details in open_page.locator("details").all():
        details.evaluate("one => (one.open = true)")
    assert violations(open_page) == []
    for details in open_page.locator("details").all():
        details.evaluate("one => (one.open = false)")


@pytest.mark.quick("wide-Text", "narrow-Lines")
@pytest.mark.parametrize("name", ["Text", "Lines"])
def test_several_heads_as_text_and_as_lines(open_page, name):
    open_page.locator('.thumb[data-head="2/4"]').click(modifiers=["ControlOrMeta"])
    mode(open_page, name)
    open_page.wait_for_function(COLOURED if name == "Text" else DRAWN)
    assert violations(open_page) == []
    mode(open_page, "Map")
    open_page.get_by_role("button", name="Only this head").click()


@pytest.mark.quick("wide")
def test_two_heads_compared(open_page):
    open_page.locator("#compare").get_by_role("radio", name="Another head").check(force=True)
    expect(open_page.locator(".compare-body")).to_have_attribute("data-shown", re.compile("head"))
    assert violations(open_page) == []


@pytest.mark.quick("wide")
def test_two_texts_compared(open_page):
    open_page.locator("#compare").get_by_role("radio", name="Another text").check(force=True)
    # The model is not loaded here, so the panel says why there is nothing to compare.
    expect(open_page.locator(".compare-note")).to_contain_text("cannot be compared")
    assert violations(open_page) == []
    open_page.locator("#compare").get_by_role("button", name="Close").click()


@pytest.mark.quick("wide")
def test_a_kernel_with_an_error_in_the_editor(open_page):
    time_one(open_page)
    fork(open_page)
    write(open_page, text_of(open_page) + "\nlet broken = nothing;")
    expect(open_page.locator(".wgsl-messages li")).not_to_have_count(0)
    assert violations(open_page) == []
    open_page.locator("#kernel").get_by_role("button", name="Remove").click()


@pytest.mark.thorough
def test_the_menus_of_figures_and_tables(open_page):
    for name in (
        "Save all heads",
        "All heads as a table",
        "Strongest links as a table",
        "Timings as a table",
    ):
        button = open_page.get_by_label(name, exact=True)
        button.click()
        assert violations(open_page) == [], name
        button.press("Escape")


@pytest.mark.quick("wide")
def test_synthetic_input(open_page):
    mode(open_page, "Synthetic")
    wait_for_maps(open_page, 2)
    assert violations(open_page) == []


@pytest.mark.quick("wide")
def test_a_file_of_ones_own(open_page):
    mode(open_page, "Your data")
    drop(open_page, "maps.npz", npz(attentions=MAPS, tokens=np.array(TOKENS)))
    wait_for_maps(open_page, 3)
    assert violations(open_page) == []


def test_the_write_panel(open_page):
    mode(open_page, "Write")
    open_page.locator("#write .write-load, #write button").first.wait_for()
    assert violations(open_page) == []


@pytest.mark.quick("narrow")
def test_a_text_in_the_write_panel(open_page):
    lab = Lab(open_page, {})
    lab.install()
    lab.run("from e2e.page.fake_writer import install\ninstall()")
    mode(open_page, "Sentence")
    mode(open_page, "Write")
    open_page.locator("#write").get_by_role("textbox", name="Prompt").wait_for()
    generate(open_page, 6)
    tokens(open_page).nth(3).click()
    assert violations(open_page) == []


def test_the_bench(browser: Browser, site_url: str):
    with watched_context(
        browser, viewport={"width": 1440, "height": 900}, reduced_motion="reduce"
    ) as context:
        page = context.new_page()
        page.goto(f"{site_url}bench.html")
        page.get_by_role("button").first.wait_for()
        page.evaluate(AXE.read_text(encoding="utf-8"))
        assert violations(page) == []
