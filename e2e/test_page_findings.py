"""What the heads do: the kernel against numpy, and the overview's search, order and labels."""

import re

import pytest
from playwright.sync_api import expect

from e2e.lab import next_frames, wait_for_maps
from e2e.page.maps import check_row_sums

PREVIOUS = '.thumb[data-head="0/2"]'
SHAPES = (
    {"heads": 1, "rows": 1, "keys": 1, "begin": 0, "step": 1},
    {"heads": 3, "rows": 20, "keys": 20, "begin": 0, "step": 1},
    {"heads": 2, "rows": 7, "keys": 65, "begin": 3, "step": 9},
    {"heads": 2, "rows": 5, "keys": 3000, "begin": 299, "step": 599},
)


def test_sums_of_rows_are_as_exact_as_float32(lab, error_ratios):
    cases = [
        {"seed": seed, **shape, "sharpness": sharpness, "causal": causal}
        for seed, shape in enumerate(SHAPES)
        for sharpness in (0.0, 1.0, 8.0)
        for causal in (False, True)
    ]
    for answer in lab.check(check_row_sums, cases):
        for name, ratio in answer.items():
            error_ratios.note([name], "row sums", ratio)


@pytest.mark.needs_page("the sample is a file of the site")
@pytest.mark.parametrize(
    "mods",
    [
        "",
        "def mask_mod(b, h, i, j): return j <= i + h",
        "def score_mod(s, b, h, i, j): return s - 0.1 * (i - j)",
    ],
    ids=("plain", "mask_mod", "score_mod"),
)
def test_the_gpu_finds_what_numpy_finds(lab, mods):
    sample = f"""
import io, js
reply = await js.fetch("{lab.page.url.split("#")[0]}sample/minilm.npz")
sample = (await reply.arrayBuffer()).to_bytes()
from e2e.page.maps import compare_viewers
await compare_viewers(sample, {mods!r})
"""
    answer = lab.run(sample)
    print(f"heads: {answer['ms'][0]:.0f} ms by WGSL, {answer['ms'][1]:.0f} ms by numpy")
    assert answer["same"]
    assert answer["difference"] < 1e-4


STRONGER = """
def score_mod(score, b, h, q_idx, kv_idx):
    return pa.where(kv_idx == q_idx - 1, score + 50.0, score)
"""


def find(page, text):
    page.get_by_label("Find heads").fill(text)


def order_by(page, name):
    page.get_by_label("Order of the heads").select_option(name)


def matches(page):
    return page.eval_on_selector_all(".thumb.match", "all => all.map((one) => one.dataset.head)")


@pytest.fixture
def labelled(shown):
    """The page on its sample, with labels; by layer, and nothing searched for."""
    shown.wait_for_selector('#overview[data-findings="1"]')
    order_by(shown, "layer")
    find(shown, "")
    return shown


def test_heads_are_found_by_what_they_do(labelled, artifacts):
    note = labelled.locator(".find-note")
    find(labelled, "attends to previous token")
    expect(note).to_contain_text("Enter goes to the best, L0 H2 (1.00)")
    assert "0/2" in matches(labelled)
    assert len(matches(labelled)) < 12
    labelled.locator("#overview").screenshot(path=artifacts / "page-findings-search.png")
    labelled.get_by_label("Find heads").press("Enter")
    expect(labelled.locator("#focus h2")).to_have_text("Layer 0, head 2")
    expect(labelled.locator(PREVIOUS)).to_be_focused()
    find(labelled, "L5 H11")
    assert matches(labelled) == ["5/11"]
    find(labelled, "zebra")
    expect(note).to_have_text("No head has that place, and no label has that name.")
    assert matches(labelled) == []
    labelled.get_by_label("Find heads").press("Escape")
    expect(note).to_contain_text("move with the arrow keys")


def test_labels_of_the_head_in_focus_lead_to_the_others(labelled):
    labelled.locator(PREVIOUS).click()
    chip = labelled.locator(".head-label")
    expect(chip).to_have_count(1)
    expect(chip).to_have_text("previous token 1.00")
    expect(chip).to_have_attribute("title", re.compile("Attends to the token before the query"))
    expect(labelled.locator(PREVIOUS)).to_have_attribute("aria-label", "Layer 0, head 2: previous token 1.00")
    chip.click()
    expect(labelled.locator(".find-note")).to_contain_text("Attends to the token before the query.")
    assert "0/2" in matches(labelled)


def test_other_orders_keep_every_head_and_the_arrow_keys(labelled, artifacts):
    for name in ("label", "entropy", "sparsity", "similarity"):
        order_by(labelled, name)
        shown = labelled.eval_on_selector_all(".thumb", "all => all.map((one) => one.dataset.head)")
        assert len(shown) == len(set(shown)) == 72
        expect(labelled.locator(".thumb-caption").first).to_be_visible()
        labelled.locator("#overview").screenshot(path=artifacts / f"page-findings-{name}.png")
    order_by(labelled, "label")
    headings = labelled.locator(".thumb-heading").all_inner_texts()
    assert headings[0].startswith("previous token")
    rows = labelled.eval_on_selector_all(
        ".thumb-row", "all => all.map((row) => [...row.children].map((one) => one.dataset.head))"
    )
    long = next(row for row in rows if len(row) > 4)
    labelled.locator(f'.thumb[data-head="{long[0]}"]').click()
    labelled.keyboard.press("ArrowRight")
    expect(labelled.locator(f'.thumb[data-head="{long[1]}"]')).to_be_focused()
    labelled.keyboard.press("ArrowDown")
    below = rows[rows.index(long) + 1]
    expect(labelled.locator(f'.thumb[data-head="{below[min(1, len(below) - 1)]}"]')).to_be_focused()
    labelled.keyboard.press("Home")
    expect(labelled.locator(f'.thumb[data-head="{below[0]}"]')).to_be_focused()


def test_labels_follow_the_score_mod(labelled):
    head = labelled.locator('.thumb[data-head="5/11"]')
    before = head.get_attribute("aria-label")
    assert "previous" not in before
    labelled.locator("#edit").get_by_role("button", name="Sliding window", exact=True).click()
    labelled.locator("#edit .cm-content").click()
    labelled.keyboard.press("ControlOrMeta+A")
    labelled.keyboard.insert_text(STRONGER)
    expect(head).to_have_attribute("aria-label", "Layer 5, head 11: previous token 1.00")
    labelled.locator("#edit").get_by_role("button", name="None", exact=True).click()
    expect(head).to_have_attribute("aria-label", before)


def test_many_heads_stay_within_a_phone(labelled, artifacts):
    labelled.set_viewport_size({"width": 390, "height": 844})
    order_by(labelled, "label")
    next_frames(labelled)
    assert labelled.evaluate("document.documentElement.scrollWidth") <= 390
    sizes = labelled.eval_on_selector_all(
        ".thumb", "all => all.map((one) => one.getBoundingClientRect().width)"
    )
    assert min(sizes) >= 38
    top = "document.querySelector('.thumbs').offsetTop - document.querySelector('#overview').offsetTop"
    before = labelled.evaluate(top)
    find(labelled, "first token")
    assert labelled.evaluate(top) == before
    labelled.locator("#overview").screenshot(path=artifacts / "page-findings-390.png")
    labelled.set_viewport_size({"width": 1440, "height": 900})
    wait_for_maps(labelled, 1)
