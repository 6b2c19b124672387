"""The page's address: what it keeps and brings back, and what becomes of what it does not understand."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from e2e.lab import until, wait_for_maps, wait_until_ready
from e2e.page_view import HEATMAP, point_at

SCORE_MOD = "def score_mod(score, b, h, q_idx, kv_idx):\n    return score - 0.5 * pa.abs(q_idx - kv_idx)\n"


def opened(page, url):
    page.goto(url)
    wait_until_ready(page)
    wait_for_maps(page, 1)


def head_shown(page, layer, head):
    expect(page.locator("#focus h2")).to_have_text(f"Layer {layer}, head {head}")


def fragment(page):
    return page.evaluate("location.hash")


def test_what_is_looked_at_is_kept_and_comes_back(page, site_url):
    opened(page, site_url)
    assert fragment(page) == ""
    page.locator('.thumb[data-head="2/4"]').click()
    page.wait_for_selector(".heatmap-box[data-shown$='/2/4']")
    point_at(page, 7, 3)
    page.mouse.down()
    page.mouse.up()
    page.get_by_label("Colour map").select_option("viridis")
    page.get_by_role("button", name="Zoom in").click()
    until(page, lambda: "view=" in fragment(page), "the zoom in the address")
    for part in ("layer=2", "head=4", "query=7", "key=3", "pins=7.3", "style=viridis"):
        assert part in fragment(page), fragment(page)

    page.reload()
    wait_until_ready(page)
    wait_for_maps(page, 1)
    head_shown(page, 2, 4)
    expect(page.locator(".pin-cell")).to_have_count(1)
    expect(page.locator(".links-row")).to_contain_text("at position 7")
    expect(page.get_by_label("Colour map")).to_have_value("viridis")
    _, _, _, cells = page.locator(HEATMAP).get_attribute("data-plot").split()
    assert float(cells) < 20


@pytest.mark.thorough
def test_a_reload_right_after_a_change_shows_it(page, site_url):
    opened(page, site_url)
    page.locator('.thumb[data-head="0/1"]').click()
    page.reload()
    wait_until_ready(page)
    wait_for_maps(page, 1)
    head_shown(page, 0, 1)
    page.locator('.thumb[data-head="4/3"]').click()
    page.get_by_label("Colour map").select_option("viridis")
    page.reload()
    wait_until_ready(page)
    head_shown(page, 4, 3)
    expect(page.get_by_label("Colour map")).to_have_value("viridis")


def test_back_forward_and_a_pasted_address(page, site_url):
    opened(page, site_url)
    page.locator('.thumb[data-head="0/1"]').click()
    until(page, lambda: "layer=0" in fragment(page), "the head in the address")
    page.wait_for_timeout(1100)  # a later step is one of its own
    page.locator('.thumb[data-head="4/3"]').click()
    until(page, lambda: "layer=4" in fragment(page), "the head in the address")
    page.go_back()
    head_shown(page, 0, 1)
    page.go_back()
    head_shown(page, 3, 1)
    page.go_forward()
    head_shown(page, 0, 1)
    page.evaluate("location.hash = '#synthetic=40,4,2,16,causal,,,7&layer=0&head=3&query=30&key=4'")
    wait_for_maps(page, 2)
    expect(page.locator(".thumb")).to_have_count(4)
    head_shown(page, 0, 3)
    expect(page.locator(".synthetic-form").get_by_label("Length")).to_have_value("40")
    expect(page.locator(".links-row")).to_contain_text("at position 30")
    page.go_back()
    wait_for_maps(page, 3)
    expect(page.locator(".thumb")).to_have_count(72)


def test_an_address_before_the_model_is_there_says_whose_maps_are_shown(page, site_url):
    opened(page, f"{site_url}#text=A%20dog%20barked.&layer=1&head=2")
    expect(page.get_by_role("textbox", name="Sentence")).to_have_value("A dog barked.")
    expect(page.locator(".input-message")).to_contain_text("The maps below still show")
    expect(page.get_by_role("button", name=re.compile("Load MiniLM"))).to_be_enabled()
    page.get_by_role("textbox", name="Sentence").fill("")
    expect(page.locator(".input-message")).to_contain_text("Type a few words")


@pytest.mark.quick("#layer=99*", "#__proto__*")
@pytest.mark.parametrize(
    "address",
    [
        "#layer=99&head=-3&query=1e9",
        "#nonsense=<b>",
        "#view=NaN,0,1&pins=x&style=jet",
        "#__proto__=1&text=%E0%A4",
    ],
)
def test_an_address_that_means_nothing_gets_a_note_and_a_page(page, site_url, address):
    opened(page, site_url + address)
    expect(page.locator(".banner")).to_contain_text("not understood")
    expect(page.locator(".thumb.painted")).to_have_count(72)


def test_a_score_mod_of_a_link_waits_for_the_visitor(page, site_url):
    opened(page, f"{site_url}#mod={quote(SCORE_MOD)}")
    expect(page.locator(".edit-status")).to_contain_text("came with the address")
    expect(page.locator("#focus header p")).not_to_contain_text("score_mod")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#focus header p")).to_contain_text("Your score_mod is applied")
    # What the visitor has applied in this tab is applied again after a reload.
    page.reload()
    wait_until_ready(page)
    expect(page.locator("#focus header p")).to_contain_text("Your score_mod is applied")


SHOWN = """import numpy as np
page.show(np.eye(7), title="seven ones")"""


def test_what_python_showed_is_said_to_be_gone_and_comes_back_with_its_cell(page, site_url):
    opened(page, site_url)

    def show_array():
        page.evaluate("(source) => window.pyAttn.run(source)", SHOWN)
        expect(page.locator("#overview .thumb")).to_have_count(1)

    show_array()
    until(page, lambda: "python=seven" in fragment(page), "what is shown in the address")
    point_at(page, 5, 2)
    page.mouse.down()
    page.mouse.up()
    until(page, lambda: "pins=5.2" in fragment(page), "the pin in the address")
    page.reload()
    wait_until_ready(page)
    expect(page.locator(".input-message")).to_contain_text("“seven ones” was shown here")
    expect(page.locator(".input-message")).to_contain_text("run the cell again")
    expect(page.locator("#overview .thumb")).to_have_count(72)
    assert "pins=5.2" in fragment(page)
    show_array()
    expect(page.locator(".pin-cell")).to_have_count(1)
    expect(page.locator(".links-row")).to_contain_text("at position 5")
    page.get_by_role("button", name="Show attention").click()
    expect(page.locator("#overview .thumb")).to_have_count(72)
    until(page, lambda: "python=" not in fragment(page), "the sample in the address")


def test_share_copies_the_address(page, site_url):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened(page, site_url)
    page.locator('.thumb[data-head="0/2"]').click()
    page.get_by_role("button", name="Share").click()
    expect(page.locator(".share-said")).to_have_text("Link copied.")
    assert page.evaluate("navigator.clipboard.readText()") == page.evaluate("location.href")
    assert "layer=0&head=2" in fragment(page)
