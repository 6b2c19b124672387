"""For kernel authors: a kernel is edited on the page, checked while it is typed, timed, copied as Python."""

import pytest
from playwright.sync_api import expect

from e2e.lab import until, wait_for_maps, wait_until_ready
from e2e.test_page import open_synthetic

CLIPBOARD = "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"


def time_one(page, variant="naive"):
    kernel = page.locator("#kernel")
    kernel.get_by_label("Variant").select_option(variant)
    kernel.get_by_label("Runs").select_option("3")
    kernel.get_by_role("button", name="Run").click()
    expect(kernel.locator(f'[data-name="{variant}"] .ok')).to_be_visible()


def fork(page, variant="naive"):
    """Edit a kernel that has run; its row opens first."""
    kernel = page.locator("#kernel")
    kernel.locator(f'[data-name="{variant}"]').get_by_role("button").click()
    kernel.get_by_role("button", name="Edit this WGSL").click()
    expect(kernel.locator(".fork .cm-content")).to_be_visible()


def text_of(page):
    return page.locator("#kernel .shader").inner_text()


def write(page, text):
    page.locator(".fork .cm-content").click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.insert_text(text)


def own(page, name="yours · naive"):
    return page.locator(f'#kernel [data-name="{name}"]')


def test_a_kernel_is_edited_checked_and_timed_beside_the_others(shown, artifacts):
    time_one(shown)
    wgsl = text_of(shown)
    fork(shown)
    status, outcome = shown.locator(".fork-status").all()
    expect(status).to_have_text("The WGSL compiler has no objections.")
    expect(own(shown)).to_contain_text("not timed yet")
    shown.get_by_role("button", name="Time it").click()
    expect(outcome).to_contain_text("It computes the same")
    expect(own(shown).locator(".ok")).to_be_visible()
    shown.locator("#kernel").screenshot(path=artifacts / "kernel-fork-1440.png")

    # An error stands at its line, with the compiler's words, and the kernel before it stays in the table.
    lines = wgsl.split("\n")
    at = next(i for i, line in enumerate(lines) if "fn main" in line)
    write(shown, "\n".join([*lines[:at], "let broken = nothing;", *lines[at:]]))
    expect(status).to_contain_text("The WGSL compiler reports 1 error")
    expect(shown.locator(".wgsl-messages li")).to_have_count(1)
    expect(shown.locator(".wgsl-messages")).to_contain_text(f"Line {at + 1}")
    shown.locator(".wgsl-messages").get_by_role("button").click()  # goes to the line
    expect(shown.locator(".fork .cm-content")).to_be_focused()
    expect(shown.locator(".fork .cm-blamed")).to_have_text("let broken = nothing;")
    expect(own(shown)).to_contain_text("changed since it was timed")
    shown.get_by_role("button", name="Time it").click()
    expect(outcome).to_contain_text("It could not be run: shader attention/yours · naive")
    shown.locator("#kernel").screenshot(path=artifacts / "kernel-fork-error.png")

    # What a kernel does not write is told from a result.
    write(shown, wgsl[: wgsl.index("@compute")] + EMPTY)
    expect(status).to_have_text("The WGSL compiler has no objections.")
    shown.get_by_role("button", name="Time it").click()
    expect(outcome).to_contain_text("a part of the output is NaN")
    expect(own(shown).locator(".not-ok")).to_have_text("NaN")

    # The device and the built-in kernels are as before.
    time_one(shown)
    assert shown.evaluate("window.pyAttn.run('device.lost')") is False


EMPTY = """@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x == 0xffffffffu) { out[params.rows] = out[0]; }
}
"""


def test_the_grid_follows_a_changed_workgroup_size(shown):
    time_one(shown)
    wgsl = text_of(shown)
    fork(shown)
    name = shown.get_by_label("Name of your kernel")
    name.fill("wide")
    name.press("Enter")
    assert "const WORKGROUP: u32 = 64u;" in wgsl
    write(shown, wgsl.replace("const WORKGROUP: u32 = 64u;", "const WORKGROUP: u32 = 128u;"))
    shown.keyboard.press("ControlOrMeta+Enter")
    expect(own(shown, "wide").locator(".ok")).to_be_visible()
    # Results belong to their layer, and are there again when it is.
    shown.locator('.thumb[data-head="1/0"]').click()
    expect(own(shown, "wide")).to_contain_text("not timed yet")
    shown.locator('.thumb[data-head="3/1"]').click()
    expect(own(shown, "wide").locator(".ok")).to_be_visible()


def painted_again(page):
    page.reload()
    wait_until_ready(page)
    wait_for_maps(page, 1)


def test_a_fork_is_copied_as_python_that_runs_and_outlives_a_reload(shown):
    shown.evaluate(CLIPBOARD)
    own(shown, "wide").get_by_role("button").click()
    shown.get_by_role("button", name="Copy as Python").click()
    expect(shown.locator(".fork .edit-outcome")).to_contain_text("The cell is copied")
    source = shown.evaluate("window.copied")
    assert "from_text(" in source
    assert "const WORKGROUP: u32 = 128u;" in source
    answer = shown.evaluate("(source) => window.pyAttn.run(source)", source)
    assert answer["largest error against float64"] < 1e-5
    # A reload keeps the text, and runs nothing.
    shown.wait_for_function("location.hash.includes('wgsl=')")
    painted_again(shown)
    expect(own(shown, "wide")).to_contain_text("not timed yet")
    own(shown, "wide").get_by_role("button").click()
    expect(shown.locator(".fork .cm-content")).to_contain_text("const WORKGROUP: u32 = 128u;")
    shown.get_by_role("button", name="Remove").click()
    expect(own(shown, "wide")).to_have_count(0)


def test_an_operation_s_kernel_is_forked_too(shown):
    details = shown.locator("#kernel .other-operations")
    assert details.get_attribute("open") is None  # folded until it is asked for
    time_one(shown, "turboquant")
    assert details.get_attribute("open") is not None
    fork(shown, "turboquant")
    shown.get_by_role("button", name="Time it").click()
    expect(own(shown, "yours · turboquant").locator(".ok")).to_be_visible()
    shown.evaluate(CLIPBOARD)
    shown.get_by_role("button", name="Copy as Python").click()
    expect(shown.locator(".fork .edit-outcome")).to_contain_text("The cell is copied")
    answer = shown.evaluate("window.pyAttn.run(window.copied)")
    assert answer["largest error against float64"] < 1e-5


@pytest.mark.thorough
def test_a_measurement_is_cancelled_and_one_of_another_layer_is_kept(shown):
    kernel = shown.locator("#kernel")
    open_synthetic(shown, Length="512", Heads="8")
    kernel.get_by_label("Variant").select_option("all")
    kernel.get_by_label("Runs").select_option("50")
    kernel.get_by_role("button", name="Run").click()
    cancel = kernel.get_by_role("button", name="Cancel")
    expect(kernel.locator(".kernel-note")).to_contain_text("run 2 of 50")
    cancel.click()
    expect(kernel.locator(".kernel-note")).to_contain_text("Cancelled")
    expect(cancel).to_be_disabled()
    expect(kernel.get_by_role("button", name="Run")).to_be_enabled()


@pytest.mark.thorough
def test_the_table_has_one_unit_a_column(shown):
    time_one(shown)
    kernel = shown.locator("#kernel")
    kernel.get_by_label("Variant").select_option("all")
    kernel.get_by_role("button", name="Run").click()
    variants = shown.evaluate("window.pyAttn.ready.then((info) => info.variants)")
    rows = kernel.locator(".timings tbody:not(.operations):not(.own) tr")
    expect(rows.locator(".ok")).to_have_count(len(variants))
    cells = [[cell.split("\n")[0] for cell in row.locator("td").all_inner_texts()] for row in rows.all()]
    for column in range(5):  # four parts and their total
        assert len({row[column].split(" ")[-1] for row in cells}) == 1
    ratios = [float(row[5].removesuffix(" ×")) for row in cells]
    assert min(ratios) == 1


def test_a_field_of_the_synthetic_form_says_what_is_wrong_with_it(shown):
    open_synthetic(shown, Length="32", Heads="8")
    shown.get_by_label("Heads", exact=True).fill("7")
    problem = shown.locator("#synthetic-kv_heads-problem")
    expect(problem).to_have_text("KV heads must divide Heads (7)")
    shown.get_by_role("button", name="Make").click()
    expect(shown.get_by_label("KV heads")).to_be_focused()
    shown.get_by_label("Heads", exact=True).fill("8")
    expect(problem).to_be_hidden()


def test_decoding_says_where_it_differs_from_the_map(shown):
    open_synthetic(shown, Length="32", Heads="8")
    painted = int(shown.get_attribute("#overview", "data-painted"))
    shown.get_by_role("radio", name="Sentence").check(force=True)
    wait_for_maps(shown, painted + 1)
    differs = shown.locator(".decode-differs")
    expect(differs).to_be_visible()
    open_synthetic(shown, Length="64")  # causal
    expect(differs).to_be_hidden()
    until(shown, lambda: shown.locator("#decode .splits tbody tr").count() > 0, "a step to be shown")
