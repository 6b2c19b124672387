"""Compare: the head in focus beside another, and their difference."""

import re

import pytest
from playwright.sync_api import expect

from e2e.lab import until, wait_for_maps, wait_until_ready

MAPS = "#compare .compare-map canvas"


def choose(page, label):
    page.locator("#compare").get_by_role("radio", name=label, exact=True).check(force=True)


def shown_maps(page, what):
    """Wait until the maps of a comparison are painted."""
    expect(page.locator(".compare-body")).to_have_attribute("data-shown", re.compile(re.escape(what)))
    expect(page.locator(".compare-body")).to_have_attribute("aria-busy", "false")


def figures(page):
    return page.locator("#compare .compare-figures dd").all_inner_texts()


def exact(page, body):
    source = f"""
import js
from py_attn.models import load_sample
reply = await js.fetch("{page.url.split("#")[0]}sample/minilm.npz")
layers = load_sample((await reply.arrayBuffer()).to_bytes()).layers
def weights(layer, head):
    q, k = (np.asarray(x, float) for x in (layers[layer].query, layers[layer].key))
    return pa.reference.attention_weights(q, k)[0, head]
{body}"""
    return page.evaluate("(source) => window.pyAttn.run(source)", source)


def test_nothing_is_compared_before_it_is_asked_for(shown):
    expect(shown.locator("#compare .compare-note")).to_contain_text("Choose what the head in focus")
    expect(shown.locator(MAPS)).to_have_count(0)


def test_the_kinds_do_not_scroll_on_a_phone(shown):
    shown.set_viewport_size({"width": 390, "height": 844})
    kinds = shown.locator("#compare .segmented").first
    scrolls = "(box) => box.scrollWidth > box.clientWidth + 1"
    for box in (kinds, kinds.locator(".."), shown.locator("#compare"), shown.locator("html")):
        assert not box.evaluate(scrolls)
    inside = kinds.bounding_box()
    for label in kinds.locator("label:visible").all():
        box = label.bounding_box()
        assert box["x"] >= inside["x"]
        assert box["x"] + box["width"] <= inside["x"] + inside["width"] + 1
    shown.set_viewport_size({"width": 1440, "height": 900})


def test_another_head(shown, artifacts):
    choose(shown, "Another head")
    shown.get_by_label("Layer of B").fill("0")
    shown.get_by_label("Layer of B").press("Tab")
    expect(shown.get_by_label("Head of B")).to_be_focused()
    shown.get_by_label("Head of B").fill("1")
    shown.get_by_label("Head of B").press("Tab")
    shown_maps(shown, '"layer":0,"head":1')
    expect(shown.locator("#compare figcaption")).to_have_text(
        ["A: layer 3, head 1", "B: layer 0, head 1", "A − B"]
    )
    a, b, largest, variation = exact(shown, """
a, b = weights(3, 1), weights(0, 1)
[a[9, 2], b[9, 2], (a - b).flat[np.abs(a - b).argmax()], np.abs(a - b).sum(-1).mean() / 2]""")  # fmt: skip
    cell = shown.locator("#compare .compare-figures dd").first
    expect(cell).to_contain_text(f"A {a:.4f}")
    expect(cell).to_contain_text(f"B {b:.4f}")
    _, most, distance, _ = figures(shown)
    assert float(most.split()[0].replace("−", "-")) == pytest.approx(largest, abs=2e-4)
    assert float(distance) == pytest.approx(variation, abs=2e-3)
    expect(shown.locator("#compare .sr-only[role=status]")).to_contain_text("The maps differ most")
    until(shown, lambda: "compare=head,0,1" in shown.evaluate("location.hash"), "the comparison's address")
    shown.locator("#compare").screenshot(path=artifacts / "page-compare.png")


def test_the_maps_share_zoom_and_the_chosen_cell(shown):
    shown.locator("#compare dd .button").click()
    expect(shown.locator(".links-row")).to_contain_text("at position")
    difference = shown.locator(MAPS).nth(2)
    difference.focus()
    shown.keyboard.press("+")
    canvases = ["#focus canvas.heatmap", MAPS]

    def spans():
        found = shown.locator(", ".join(canvases))
        return {found.nth(i).get_attribute("data-plot").split()[3] for i in range(4)}

    until(shown, lambda: len(spans()) == 1 and float(*spans()) < 20, "one zoom for all maps")
    shown.keyboard.press("0")
    shown.keyboard.press("Home")
    until(shown, lambda: "key=0" in shown.evaluate("location.hash"), "the key in the address")


def test_a_head_that_is_fixed_and_a_focus_that_moves(shown):
    shown.get_by_role("button", name="Take the head in focus as B").click()
    shown_maps(shown, '"layer":3,"head":1')
    assert figures(shown)[2:] == ["0.000", "0.000 bits"]
    shown.locator('.thumb[data-head="2/4"]').click()
    expect(shown.locator("#compare figcaption").first).to_have_text("A: layer 2, head 4")
    shown_maps(shown, ",2,4,")
    assert float(figures(shown)[2]) > 0.1


def test_before_and_after_a_score_mod(shown):
    choose(shown, "Without my score_mod")
    note = shown.locator("#compare .compare-note")
    expect(note).to_contain_text("no score_mod or mask_mod is applied")
    expect(shown.locator(".compare-body")).to_be_hidden()
    shown.locator("#edit").get_by_role("button", name="Prefix-LM", exact=True).click()
    expect(shown.locator(".compare-body")).to_be_visible()
    shown_maps(shown, "unedited")
    wanted = exact(
        shown,
        """
q, k = (np.asarray(x, float) for x in (layers[2].query, layers[2].key))
a = pa.reference.attention_weights(q, k, mask_mod=lambda b, h, i, j: (j < 6) | (j <= i))[0, 4]
np.abs(a - weights(2, 4)).sum(-1).mean() / 2""",
    )
    assert float(figures(shown)[2]) == pytest.approx(wanted, abs=2e-3)
    shown.locator("#edit").get_by_role("button", name="None", exact=True).click()
    expect(note).to_contain_text("no score_mod or mask_mod is applied")


def test_another_cache_and_a_text_without_its_model(shown):
    choose(shown, "Another cache")
    shown_maps(shown, "turboquant3")
    expect(shown.locator("#compare .compare-note")).to_contain_text("both maps are causal")
    before = float(figures(shown)[2])
    shown.get_by_label("Cache that B is read from").select_option("float16")
    shown_maps(shown, "float16")
    assert 0 <= float(figures(shown)[2]) < before
    choose(shown, "Another text")
    expect(shown.locator("#compare .compare-note")).to_contain_text("load MiniLM first")
    shown.get_by_role("button", name="Close", exact=True).click()
    expect(shown.locator(".compare-body")).to_be_hidden()
    until(shown, lambda: "compare" not in shown.evaluate("location.hash"), "an address without a comparison")


def test_a_pasted_address_shows_the_comparison(page, site_url):
    page.goto(f"{site_url}#layer=5&head=11&compare=head,0,1")
    wait_until_ready(page)
    wait_for_maps(page, 1)
    shown_maps(page, '"layer":0,"head":1')
    page.evaluate("location.hash = '#layer=3&head=3&compare=cache,float16'")
    shown_maps(page, "float16")
    expect(page.locator("#compare figcaption").first).to_have_text("A: layer 3, head 3, exact keys")
