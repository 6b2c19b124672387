"""What the visitor changes: a score_mod while it is typed, gradients, smaller caches, other operations."""

import pytest
from playwright.sync_api import expect

from e2e.lab import wait_for_maps
from e2e.test_page import open_synthetic, weight_shown

WEIGHT = """
import io, js
from py_attn.models import load_sample
reply = await js.fetch("{url}sample/minilm.npz")
layer = load_sample((await reply.arrayBuffer()).to_bytes()).layers[5]
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


def pixels(page, selector):
    return page.locator(selector).evaluate("one => one.toDataURL()")


def wait_for_change(page, selector, before):
    changed = "([selector, before]) => document.querySelector(selector).toDataURL() !== before"
    page.wait_for_function(changed, arg=[selector, before])


def test_a_preset_changes_every_map_and_none_brings_them_back(shown, artifacts):
    thumb = '.thumb[aria-label="Layer 1, head 1"] canvas'
    plain, large = pixels(shown, thumb), pixels(shown, "canvas.heatmap")
    before = pixels(shown, ".edit-maps figure:first-child canvas")
    preset(shown, "Prefix-LM")
    status = shown.locator(".edit-status")
    expect(status).to_contain_text("mask_mod traced into WGSL")
    expect(shown.locator("#focus header p")).to_contain_text("Your mask_mod is applied")
    # Each map is painted when its answer comes, in any order.
    wait_for_change(shown, thumb, plain)
    wait_for_change(shown, "canvas.heatmap", large)
    wait_for_change(shown, ".edit-maps figure:last-child canvas", before)
    assert pixels(shown, ".edit-maps figure:first-child canvas") == before
    wanted = exact(shown, """
mod = lambda b, h, i, j: (j < 6) | (j <= i)
float(pa.reference.attention_weights(*arrays[:2], mask_mod=mod)[0, 11, 9, 2])""")  # fmt: skip
    assert weight_shown(shown) == pytest.approx(wanted, abs=1e-4)
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
    wanted = exact(
        shown, "float(pa.reference.attention_weights(*arrays[:2], scale=3 / 32**0.5)[0, 11, 9, 2])"
    )
    assert weight_shown(shown) == pytest.approx(wanted, abs=1e-4)
    write(shown, "def score_mod(score, b, h, q_idx, kv_idx): return score if q_idx > 2 else -score")
    expect(status).to_contain_text("Line 1. TypeError: score_mod: a traced value has no truth yet")
    expect(status).to_contain_text("pa.where(condition, a, b)")
    expect(shown.locator(".cm-blamed")).to_have_count(1)
    assert weight_shown(shown) == pytest.approx(wanted, abs=1e-4)  # the maps stay as they were


def test_the_next_source_and_the_kernels_know_the_edit(shown):
    preset(shown, "ALiBi")
    expect(shown.locator("#focus header p")).to_contain_text("Your score_mod is applied")
    open_synthetic(shown, Length="96", Heads="4", **{"Head dim": "16"})
    expect(shown.locator("#focus header p")).to_contain_text("Your score_mod is applied")
    kernel = shown.locator("#kernel")
    kernel.get_by_label("Variant").select_option("naive")
    kernel.get_by_label("Runs").select_option("3")
    kernel.get_by_role("button", name="Run").click()
    expect(kernel.locator(".kernel-note")).to_contain_text("with your score_mod. Medians", timeout=60_000)
    expect(kernel.locator('[data-name="naive"] .ok')).to_be_visible()
    preset(shown, "None")


def test_every_operation_is_timed_beside_its_error(shown):
    kernel = shown.locator("#kernel")
    operations = shown.evaluate("window.pyAttn.ready.then((info) => Object.keys(info.operations))")
    assert {"backward", "varlen", "score_mod", "sinks", "turboquant", "sdpa", "onnx"} <= set(operations)
    kernel.get_by_label("Variant").select_option("operations")
    kernel.get_by_role("button", name="Run").click()
    expect(kernel.locator(".operations .ok")).to_have_count(len(operations), timeout=120_000)
    kernel.get_by_role("button", name="backward", exact=True).click()
    expect(kernel.locator("h3")).to_contain_text("attention_backward")


def test_smaller_caches_stand_side_by_side(shown, artifacts):
    decode = shown.locator("#decode")
    decode.get_by_role("button", name="Compare").click()
    expect(decode.locator(".caches-note")).to_contain_text("The strip below each cache", timeout=120_000)
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
    shown.get_by_role("gridcell", name="Layer 6, head 12", exact=True).click()
    plain = pixels(shown, "canvas.heatmap")
    shown.get_by_role("radio", name="Weight × gradient").check(force=True)
    expect(shown.locator(".legend-ticks")).to_contain_text("−1")
    expect(shown.locator(".links-table thead")).to_contain_text("Share of the output")
    shown.locator("canvas.heatmap").focus()
    shown.keyboard.press("Home")
    wanted = exact(shown, """
out = pa.reference.attention(*arrays)
grad = out / (out ** 2).sum(-1, keepdims=True)
pa.reference.attention_weights(*arrays[:2], value=arrays[2], grad_out=grad)[0, 11].tolist()""")  # fmt: skip
    row = int(shown.locator("canvas.heatmap").get_attribute("aria-label").split("Row ")[1].split(",")[0]) - 1
    assert sum(wanted[row]) == pytest.approx(1)
    assert weight_shown(shown) == pytest.approx(wanted[row][0], abs=1e-4)
    assert pixels(shown, "canvas.heatmap") != plain
    shown.screenshot(path=artifacts / "page-gradient-1440.png")
    shown.get_by_role("radio", name="Weights", exact=True).check(force=True)
