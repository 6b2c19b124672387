"""What the visitor changes: a score_mod while it is typed, gradients, smaller caches, other operations."""

import re

import pytest
from playwright.sync_api import expect

from e2e.lab import wait_for_maps, wait_until_ready
from e2e.page_view import HEATMAP, expect_weight, pixels, settled_map, wait_for_change, weight_shown
from e2e.test_page import open_synthetic

WEIGHT = """
import io, js
from py_attn.models import load_sample
reply = await js.fetch("{url}sample/minilm.npz")
layer = load_sample((await reply.arrayBuffer()).to_bytes()).layers[3]
arrays = [np.asarray(x, float) for x in (layer.query, layer.key, layer.value)]
{body}
"""


def exact(page, body):
    source = WEIGHT.format(url=page.url.split("#")[0], body=body)
    return page.evaluate("(source) => window.pyAttn.run(source)", source)


def preset(page, name):
    page.locator("#edit").get_by_role("button", name=name, exact=True).click()


def write(page, text):
    editor = page.locator("#edit .cm-content")
    editor.click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.insert_text(text)


def test_a_preset_changes_every_map_and_none_brings_them_back(shown, artifacts):
    thumb = '.thumb[data-head="0/0"] canvas'
    plain, large = pixels(shown, thumb), settled_map(shown)
    before = pixels(shown, ".edit-maps figure:first-child canvas")
    preset(shown, "Prefix-LM")
    status = shown.locator(".edit-status")
    expect(status).to_contain_text("mask_mod traced into WGSL")
    expect(shown.locator("#focus header p")).to_contain_text("Your mask_mod is applied")
    # Each map is painted when its answer comes, in any order.
    wait_for_change(shown, thumb, plain)
    wait_for_change(shown, HEATMAP, large)
    wait_for_change(shown, ".edit-maps figure:last-child canvas", before)
    assert pixels(shown, ".edit-maps figure:first-child canvas") == before
    wanted = exact(shown, """
mod = lambda b, h, i, j: (j < 6) | (j <= i)
float(pa.reference.attention_weights(*arrays[:2], mask_mod=mod)[0, 1, 9, 2])""")  # fmt: skip
    expect_weight(shown, wanted)
    shown.locator(".edit-wgsl summary").click()
    expect(shown.locator(".edit-wgsl .shader")).to_contain_text("fn mask_mod(b: i32")
    shown.get_by_label("with the kernel around it").check()
    expect(shown.locator(".edit-wgsl .shader")).to_contain_text("@compute")
    shown.screenshot(path=artifacts / "page-edit-1440.png", full_page=True)
    preset(shown, "None")
    expect(status).to_contain_text("Nothing is changed")
    shown.wait_for_function(f"document.querySelector(`{thumb}`).toDataURL() === {plain!r}")


def test_maps_follow_what_is_typed_and_errors_say_what_to_write(shown):
    write(shown, "def score_mod(score, b, h, q_idx, kv_idx):\nreturn 3 * score")
    status = shown.locator(".edit-status")
    expect(status).to_have_attribute("data-tone", "bad")
    expect(status).to_contain_text("Line 2. IndentationError")
    write(shown, "def score_mod(score, b, h, q_idx, kv_idx): return 3 * score")
    expect(status).to_contain_text("score_mod traced into WGSL")
    wanted = exact(shown, "float(pa.reference.attention_weights(*arrays[:2], scale=3 / 32**0.5)[0, 1, 9, 2])")
    expect_weight(shown, wanted)
    write(shown, "def score_mod(score, b, h, q_idx, kv_idx): return score if q_idx > 2 else -score")
    expect(status).to_contain_text(
        "Line 1. TypeError: score_mod: a traced value is neither true nor false yet"
    )
    expect(status).to_contain_text("pa.where(condition, a, b)")
    expect(shown.locator(".cm-blamed")).to_have_count(1)
    expect_weight(shown, wanted)  # the maps stay as they were


def test_the_next_source_and_the_kernels_know_the_edit(shown):
    preset(shown, "ALiBi")
    # The text before it was a score_mod too, so that the header says nothing about this one.
    expect(shown.locator(".edit-status")).to_contain_text("score_mod traced into WGSL")
    open_synthetic(shown, Length="96", Heads="4", **{"Head dim": "16"})
    expect(shown.locator("#focus header p")).to_contain_text("Your score_mod is applied")
    kernel = shown.locator("#kernel")
    kernel.get_by_label("Variant").select_option("naive")
    kernel.get_by_label("Runs").select_option("3")
    kernel.get_by_role("button", name="Run").click()
    expect(kernel.locator(".kernel-note")).to_contain_text("with your score_mod. Medians")
    expect(kernel.locator('[data-name="naive"] .ok')).to_be_visible()
    kernel.get_by_label("Runs").select_option("50")
    kernel.get_by_role("button", name="Run").click()
    preset(shown, "None")
    # What was timed with the text before it is not said of the map as it is now.
    expect(kernel.get_by_role("button", name="Run")).to_be_enabled()
    expect(kernel.locator(".kernel-note")).to_contain_text("Press Run.")
    expect(kernel.locator("td .ok")).to_have_count(0)


ENDLESS = "def score_mod(score, b, h, q_idx, kv_idx):\n    while True:\n        pass"
ENDLESS_IN_C = "sum(iter(int, 1))"
TRIPLED = "print('applied')\ndef score_mod(score, b, h, q_idx, kv_idx): return 3 * score"
THUMB = '.thumb[data-head="0/0"] canvas'


def wait_for_typing_to_be_applied(page):
    """Until what was typed would have been run, if it is applied by itself."""
    page.evaluate("() => new Promise((done) => setTimeout(done, 400))")  # set after the editor's own 300 ms
    assert page.evaluate("window.pyAttn.run('1 + 2')") == 3


@pytest.mark.thorough
def test_a_text_that_never_ends_is_ended_and_waits_for_the_visitor(shown):
    preset(shown, "Sliding window")
    status, applied = (
        shown.locator(".edit-status"),
        shown.locator("#edit").get_by_role("button", name="Apply"),
    )
    printed = shown.locator(".output .line.out", has_text="applied")
    expect(status).to_contain_text("mask_mod traced into WGSL")
    expect(applied).to_be_hidden()
    before = weight_shown(shown)
    write(shown, ENDLESS)
    expect(status).to_contain_text("Line 2. score_mod did not finish within 3 seconds", timeout=60_000)
    expect(status).to_contain_text("must return the score to use. It is not applied again by itself")
    expect(shown.locator(".cm-blamed")).to_have_count(1)
    assert weight_shown(shown) == before  # the maps stay as they were
    write(shown, TRIPLED)
    wait_for_typing_to_be_applied(shown)
    expect(printed).to_have_count(0)
    applied.click()
    expect(status).to_contain_text("score_mod traced into WGSL")
    expect(applied).to_be_hidden()
    expect(printed).not_to_have_count(0)
    write(shown, "def mask_mod(b, h, q_idx, kv_idx): return kv_idx <= q_idx")
    expect(status).to_contain_text("mask_mod traced into WGSL")  # while typing, again
    preset(shown, "None")
    expect(status).to_contain_text("Nothing is changed")


@pytest.fixture
def edited(page, site_url):
    """A page of its own with a text that Python never finishes and cannot end by itself."""
    page.goto(site_url)
    wait_until_ready(page)
    wait_for_maps(page, 1)
    page.plain = pixels(page, THUMB)
    preset(page, "Sliding window")
    expect(page.locator("#focus header p")).to_contain_text("Your mask_mod is applied")
    wait_for_change(page, THUMB, page.plain)
    write(page, ENDLESS_IN_C)
    expect(page.locator("#edit").get_by_role("button", name="Stop")).to_be_visible()
    return page


def wait_for_maps_without_the_text(page, why):
    page.wait_for_function(
        f"document.querySelector(`{THUMB}`)?.toDataURL() === {page.plain!r}", timeout=60_000
    )
    wait_for_typing_to_be_applied(page)
    expect(page.locator("#focus header p")).not_to_contain_text("Your")
    expect(page.locator(".edit-status")).to_contain_text(f"Not applied: {why}")
    expect(page.locator("#edit .cm-content")).to_contain_text(ENDLESS_IN_C)


def test_stop_beside_the_text_ends_it_for_good(edited, artifacts):
    status = edited.locator(".edit-status")
    expect(status).to_contain_text("Stop ends it by starting Python anew")
    edited.keyboard.insert_text("  # typed meanwhile")
    edited.locator("#edit").screenshot(path=artifacts / "page-edit-stop.png")
    edited.keyboard.press("Escape")
    edited.keyboard.press("Tab")
    expect(edited.locator("#edit").get_by_role("button", name="Stop")).to_be_focused()
    edited.keyboard.press("Enter")
    expect(edited.locator("#edit").get_by_role("button", name="Stop")).to_be_hidden()
    expect(edited.locator("#edit .cm-content")).to_be_focused()
    expect(edited.locator(".banner")).to_contain_text("Python is back", timeout=60_000)
    wait_for_maps_without_the_text(edited, "Python was stopped before the text had finished")
    expect(edited.locator("#edit .cm-content")).to_contain_text("# typed meanwhile")
    write(edited, TRIPLED)
    edited.keyboard.press("ControlOrMeta+Enter")
    expect(status).to_contain_text("score_mod traced into WGSL")
    expect(edited.locator("#focus header p")).to_contain_text("Your score_mod is applied")


@pytest.mark.thorough
def test_the_consoles_stop_does_not_apply_it_again(edited):
    edited.locator("#console .cm-content").click()
    edited.keyboard.press("ControlOrMeta+Enter")
    edited.locator("#console").get_by_role("button", name="Stop").click()
    expect(edited.locator(".banner")).to_contain_text("Python is back", timeout=60_000)
    wait_for_maps_without_the_text(edited, "Python was stopped before the text had finished")


@pytest.mark.thorough
def test_a_reload_keeps_the_text_and_does_not_apply_it_again(edited):
    edited.reload()
    wait_until_ready(edited)
    wait_for_maps(edited, 1)
    why = "the text had not finished when the page was left"
    wait_for_maps_without_the_text(edited, why)
    edited.reload()
    wait_until_ready(edited)
    wait_for_maps_without_the_text(edited, why)
    preset(edited, "None")
    expect(edited.locator(".edit-status")).to_contain_text("Nothing is changed")
    edited.reload()
    wait_until_ready(edited)
    expect(edited.locator("#edit .cm-content")).to_contain_text("Change it, and every map")
    expect(edited.locator(".edit-status")).to_contain_text("Nothing is changed")


@pytest.mark.thorough
def test_every_operation_is_timed_beside_its_error(shown):
    kernel = shown.locator("#kernel")
    operations = shown.evaluate("window.pyAttn.ready.then((info) => Object.keys(info.operations))")
    assert {"backward", "varlen", "score_mod", "sinks", "turboquant", "sdpa", "onnx"} <= set(operations)
    kernel.get_by_label("Variant").select_option("operations")
    kernel.get_by_role("button", name="Run").click()
    expect(kernel.locator(".operations .ok")).to_have_count(len(operations))
    kernel.get_by_role("button", name="backward", exact=True).click()
    expect(kernel.locator("h3")).to_contain_text("attention_backward")


def test_smaller_caches_stand_side_by_side(shown, artifacts):
    decode = shown.locator("#decode")
    decode.get_by_role("button", name="Compare").click()
    expect(decode.locator(".caches-note")).to_contain_text("The strip below each cache")
    cells = [row.locator("td").all_inner_texts() for row in decode.locator(".caches tr:has(td.number)").all()]
    assert len(cells) == 5
    errors = [float(row[2]) for row in cells]
    assert errors == sorted(errors)
    assert errors[0] < 1e-5 < 1e-2 < errors[4]
    assert "÷" in cells[4][0]
    decode.get_by_role("button", name="Step").click()
    expect(decode.locator('.caches [data-dtype="turboquant2"] td').nth(2)).not_to_have_text(cells[4][2])
    decode.screenshot(path=artifacts / "page-decode.png")


def test_weights_times_gradients(shown, artifacts):
    painted = int(shown.get_attribute("#overview", "data-painted"))
    shown.get_by_role("radio", name="Sentence").check(force=True)
    wait_for_maps(shown, painted + 1)
    shown.locator('.thumb[data-head="3/1"]').click()
    expect(shown.locator(".heatmap-box")).to_have_attribute("data-shown", re.compile("/3/1$"))
    plain = settled_map(shown)
    shown.get_by_role("radio", name="Weight × gradient").check(force=True)
    expect(shown.locator(".legend-ticks")).to_contain_text("−1")
    expect(shown.locator(".links-table thead")).to_contain_text("Share of the output")
    shown.locator("canvas.heatmap").focus()
    shown.keyboard.press("Home")
    wanted = exact(shown, """
out = pa.reference.attention(*arrays)
grad = out / (out ** 2).sum(-1, keepdims=True)
pa.reference.attention_weights(*arrays[:2], value=arrays[2], grad_out=grad)[0, 1].tolist()""")  # fmt: skip
    row = int(shown.locator("canvas.heatmap").get_attribute("aria-label").split("Row ")[1].split(",")[0])
    assert sum(wanted[row]) == pytest.approx(1)
    expect_weight(shown, wanted[row][0])
    wait_for_change(shown, HEATMAP, plain)
    shown.screenshot(path=artifacts / "page-gradient-1440.png")
    shown.get_by_role("radio", name="Weights", exact=True).check(force=True)
