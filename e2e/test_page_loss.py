"""No memory, or a lost device, while a panel of the page works: it says so, goes on, and keeps its input."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from e2e.lab import until, wait_for_maps, wait_until_ready
from e2e.page_view import settled_map
from e2e.test_page_console import type_and_run
from e2e.test_page_edit import preset, write
from e2e.test_page_kernel_author import fork, own, time_one
from e2e.test_page_own_data import drop, expect_file, npz
from e2e.test_page_write import SLOW, generate, prepared, python, tokens

#: From now on no buffer of the page's device can be made, nor a kept one be used: its memory is full.
NO_ROOM = """
memory, bridge = pa.default_device()._memory, pa.default_device().queue.bridge
memory._pool.take = lambda size: None
create = bridge.create_buffer
bridge.create_buffer = lambda size, label: create(1 << 41, label)
"""
ROOM = "del memory._pool.take; bridge.create_buffer = create"
LOSE = "pa.default_device().destroy()"
#: What WebGPU says of a buffer that is too large, after its name and size.
LACK = re.compile(r"of [\d,]+ bytes: ")


def lose(page):
    """Lose the device; the page has another one, and what was chosen is chosen still."""
    address = page.url
    python(page, LOSE)
    expect(page.locator(".banner")).to_contain_text("A new GPU device is here")
    assert python(page, "pa.default_device().lost or device is not pa.default_device()") is False
    until(page, lambda: page.url == address, "the address as it was")


@pytest.fixture
def sample(page, site_url):
    page.goto(site_url)
    wait_until_ready(page)
    wait_for_maps(page, 1)
    page.wait_for_selector("[data-shown]")
    return page


def synthetic(page, maps=2):
    page.get_by_role("radio", name="Synthetic").check(force=True)
    page.wait_for_selector(f'#overview[data-painted="{maps}"]')


@pytest.mark.thorough
def test_every_panel_says_that_there_is_no_room(sample):
    expect(sample.locator("#decode .slots li").first).to_be_visible()
    python(sample, NO_ROOM)
    sample.locator("#decode").get_by_role("button", name="Compare").click()
    expect(sample.locator("#decode .caches-note")).to_contain_text(LACK)
    sample.get_by_role("radio", name="Synthetic").check(force=True)
    expect(sample.locator("#overview header p")).to_contain_text(LACK)
    expect(sample.locator("#focus .inspector")).to_contain_text(LACK)
    expect(sample.locator("#decode .decode-now")).to_contain_text(LACK)
    sample.locator("#kernel").get_by_role("button", name="Run").click()
    expect(sample.locator("#kernel .kernel-note")).to_contain_text(LACK)
    sample.locator("#compare").get_by_role("radio", name="Another head", exact=True).check(force=True)
    expect(sample.locator("#compare .bad")).to_contain_text(LACK)
    sample.locator("#edit").get_by_role("button", name="Sliding window").click()
    expect(sample.locator(".edit-status")).to_contain_text(LACK)
    type_and_run(sample, "await pa.attention(*np.ones((3, 1, 2, 9, 8), np.float32)).numpy()")
    expect(sample.locator(".output .traceback")).to_contain_text(LACK)
    python(sample, ROOM)
    sample.get_by_role("button", name="Make").click()
    expect(sample.locator("#overview header p")).to_contain_text("s for all maps")
    expect(sample.locator("#focus .heatmap-box")).to_have_attribute("aria-busy", "false")
    expect(sample.locator("#compare .compare-body")).to_have_attribute("data-shown", re.compile("head"))
    preset(sample, "Sliding window")
    expect(sample.locator(".edit-status")).to_contain_text("mask_mod traced into WGSL")
    expect(sample.locator("#decode .slots li").first).to_be_visible()
    sample.locator("#kernel").get_by_role("button", name="Run").click()
    expect(sample.locator("#kernel .kernel-note")).to_contain_text("Medians")


def test_a_kernel_of_ones_own_keeps_its_name_and_text(sample):
    time_one(sample)
    fork(sample)
    name = sample.get_by_label("Name of your kernel")
    name.fill("mine")
    name.press("Enter")
    written = sample.locator(".fork .cm-content").inner_text()
    python(sample, NO_ROOM)
    sample.get_by_role("button", name="Time it").click()
    expect(sample.locator(".fork-status").nth(1)).to_contain_text(LACK)
    python(sample, ROOM)
    sample.get_by_role("button", name="Time it").click()
    expect(own(sample, "mine").locator(".ok")).to_be_visible()
    # While it runs.
    sample.locator("#kernel").get_by_label("Runs").select_option("50")
    sample.get_by_role("button", name="Time it").click()
    lose(sample)
    assert sample.locator(".fork .cm-content").inner_text() == written
    expect(sample.locator("#kernel").get_by_label("Runs")).to_have_value("50")
    time_one(sample)
    sample.get_by_role("button", name="Time it").click()
    expect(own(sample, "mine").locator(".ok")).to_be_visible()


@pytest.mark.thorough
def test_a_score_mod_and_a_comparison_are_applied_again(sample):
    write(sample, "def score_mod(score, b, h, q_idx, kv_idx): return 3 * score")
    expect(sample.locator(".edit-status")).to_contain_text("score_mod traced into WGSL")
    compare = sample.locator("#compare")
    compare.get_by_role("radio", name="Another head", exact=True).check(force=True)
    sample.get_by_label("Head of B").fill("2")
    sample.get_by_label("Head of B").press("Tab")
    body = compare.locator(".compare-body")
    expect(body).to_have_attribute("data-shown", re.compile('"head":2'))
    until(sample, lambda: "compare=" in sample.url and "mod=" in sample.url, "the choice in the address")
    lose(sample)
    expect(sample.locator("#edit .cm-content")).to_contain_text("return 3 * score")
    expect(sample.locator("#focus header p")).to_contain_text("Your score_mod is applied")
    expect(compare.get_by_role("radio", name="Another head", exact=True)).to_be_checked()
    expect(body).to_have_attribute("aria-busy", "false")
    expect(body).to_be_visible()
    write(sample, "def score_mod(score, b, h, q_idx, kv_idx): return 5 * score")
    expect(sample.locator("#focus .heatmap-box")).to_have_attribute("aria-busy", "false")


@pytest.mark.thorough
def test_own_data_stays(sample):
    query, key = np.random.default_rng(0).standard_normal((2, 2, 4, 7, 8)).astype(np.float32)
    drop(sample, "heads.npz", npz(q=query, k=key, layout="LHSD"))
    expect_file(sample, "heads.npz", 2, 4, 7)
    lose(sample)
    expect_file(sample, "heads.npz", 2, 4, 7)
    python(sample, NO_ROOM)
    drop(sample, "more.npz", npz(q=query, k=key, layout="LHSD"))
    expect(sample.locator("#overview header p")).to_contain_text(LACK)
    python(sample, ROOM)
    drop(sample, "more.npz", npz(q=query, k=key, layout="LHSD"))
    expect_file(sample, "more.npz", 2, 4, 7)
    expect(sample.locator("#overview header p")).not_to_contain_text(LACK)


@pytest.mark.thorough
def test_a_zoomed_map_and_a_step_of_decoding_are_where_they_were(sample):
    """The fields of the form hold another shape by then, which nobody has asked for."""
    synthetic(sample)
    sample.get_by_role("button", name="Zoom in").click()
    until(sample, lambda: "view=" in sample.url, "the view in the address")
    decode = sample.locator("#decode")
    capacity = decode.get_by_label("Cache capacity")
    choices = capacity.locator("option").evaluate_all("all => all.map((one) => one.value)")
    capacity.select_option(choices[-1])
    decode.get_by_role("button", name="Step").click()
    shown = decode.locator(".decode-now")
    position = int(decode.locator("input[type=range]").input_value())
    expect(shown).to_contain_text(f"at position {position} ")
    sample.get_by_label("Length").fill("7.5")
    lose(sample)
    wait_for_maps(sample, 3)
    assert settled_map(sample)
    expect(shown).to_contain_text(f"at position {position} ")
    expect(capacity).to_have_value(choices[-1])
    expect(sample.get_by_label("Length")).to_have_value("7.5")


BUSY = """# my own
x = device.tensor(np.ones((1, 4, 256, 64), np.float32))
while True:
    await pa.attention(x, x, x).numpy()
"""


@pytest.mark.thorough
def test_the_console_keeps_its_text_and_what_it_showed(sample):
    type_and_run(sample, 'page.show(np.eye(7), title="seven ones")')
    expect(sample.locator("#overview .thumb")).to_have_count(1)
    until(sample, lambda: "python=seven" in sample.url, "what is shown in the address")
    type_and_run(sample, BUSY)
    expect(sample.locator("#console").get_by_role("button", name="Stop")).to_be_enabled()
    lose(sample)
    expect(sample.locator(".output .traceback")).to_contain_text("DeviceLostError")
    expect(sample.locator("#console .cm-content")).to_contain_text("# my own")
    expect(sample.locator("#overview .thumb")).to_have_count(1)
    type_and_run(sample, "float((await device.tensor(np.ones(3, np.float32)).numpy()).sum())")
    expect(sample.locator(".output .value")).to_contain_text("3.0")
    # With Python itself it is gone, and the page says so instead of showing what cannot be computed.
    type_and_run(sample, "while True: pass")
    sample.locator("#console").get_by_role("button", name="Stop").click()
    expect(sample.locator(".banner")).to_contain_text("Python is back")
    expect(sample.locator("#overview .thumb")).to_have_count(72)
    expect(sample.locator(".input-message").first).to_contain_text("was shown here by a cell of the console")


def test_a_text_that_is_being_written_stays(sample):
    page = prepared(sample, seconds=SLOW)
    panel = page.locator("#write")
    panel.get_by_label("New tokens").fill("400")
    panel.get_by_role("button", name=re.compile("and generate")).click()
    until(page, lambda: tokens(page).count() > 15, "a text")
    python(page, LOSE)
    expect(panel.locator(".write-foot .input-message")).to_contain_text("The text is kept")
    expect(page.locator(".banner")).to_contain_text("A new GPU device is here")
    written = page.locator(".write-text").inner_text()
    count = tokens(page).count()
    assert 15 < count < 409
    panel.get_by_label("New tokens").fill("3")
    panel.get_by_role("button", name="Go on").click()
    expect(tokens(page)).to_have_count(count + 3)
    assert page.locator(".write-text").inner_text().startswith(written)


#: The device goes in the middle of what is done next: when it is asked for the first result.
LOSE_AT_WORK = """
import asyncio
bridge = pa.default_device().queue.bridge
read = bridge.read_buffer
async def read_buffer(*given):
    bridge.read_buffer = read
    reading = asyncio.ensure_future(read(*given))
    await asyncio.sleep(0)
    pa.default_device().destroy()
    await reading
bridge.read_buffer = read_buffer
"""

#: From now on the language model's stand-in takes long for what it is asked about its text.
SLOWLY = """
import asyncio
from e2e.page.fake_writer import FakeWriter
for name in ("profile", "read_exactly"):
    async def slowly(self, answer=getattr(FakeWriter, name)):
        await asyncio.sleep(1)
        self.device.check_alive()
        return await answer(self)
    setattr(FakeWriter, name, slowly)
"""


def lose_at_work(page, begin):
    """Lose the device in the middle of what `begin` begins; once the page has another one, nothing waits."""
    # The labels of the heads are asked for last.
    page.wait_for_selector("#overview[data-findings]", state="attached")
    until(page, lambda: not busy(page), "a page at rest")
    python(page, LOSE_AT_WORK)
    begin()
    expect(page.locator(".banner")).to_contain_text("A new GPU device is here")
    until(page, lambda: not busy(page), "a page at rest")


def busy(page):
    """The parts that say that they wait for something."""
    return page.evaluate(
        "[...document.querySelectorAll('[aria-busy=true]')].map(({ className }) => className)"
    )


@pytest.mark.thorough
def test_maps_that_were_being_computed_come(sample):
    """Those of all heads, and a part of the one in focus."""
    lose_at_work(sample, lambda: sample.get_by_role("radio", name="Synthetic").check(force=True))
    expect(sample.locator("#overview header p")).to_contain_text("s for all maps")
    expect(sample.locator("#overview .thumb.painted")).to_have_count(8)
    sample.get_by_label("Length").fill("40")
    sample.get_by_role("button", name="Make").click()
    expect(sample.locator("#overview header p")).to_contain_text("40 × 40 weights")
    assert settled_map(sample)


@pytest.mark.thorough
def test_a_map_that_was_being_zoomed_comes(sample):
    lose_at_work(sample, lambda: sample.get_by_role("button", name="Zoom in").click())
    assert settled_map(sample)
    expect(sample.locator("#focus .inspector")).not_to_contain_text("lost")
    before = sample.locator("#focus h2").inner_text()
    sample.locator('.thumb[data-head="0/1"]').click()
    expect(sample.locator("#focus h2")).not_to_have_text(before)
    assert settled_map(sample)


@pytest.mark.thorough
def test_a_comparison_of_heads_that_was_being_made_comes(sample):
    compare = sample.locator("#compare")
    another = compare.get_by_role("radio", name="Another head", exact=True)
    lose_at_work(sample, lambda: another.check(force=True))
    expect(another).to_be_checked()
    body = compare.locator(".compare-body")
    expect(body).to_have_attribute("data-shown", re.compile('"head":2'))
    expect(compare.locator(".bad")).to_have_count(0)
    sample.get_by_label("Head of B").fill("5")
    sample.get_by_label("Head of B").press("Tab")
    expect(body).to_have_attribute("data-shown", re.compile('"head":5'))


@pytest.mark.thorough
def test_a_file_that_was_being_opened_is_shown(sample):
    query, key = np.random.default_rng(0).standard_normal((2, 2, 4, 7, 8)).astype(np.float32)
    lose_at_work(sample, lambda: drop(sample, "heads.npz", npz(q=query, k=key, layout="LHSD")))
    expect_file(sample, "heads.npz", 2, 4, 7)
    drop(sample, "more.npz", npz(q=query[:, :3], k=key[:, :3], layout="LHSD"))
    expect_file(sample, "more.npz", 2, 3, 7)


@pytest.mark.thorough
def test_caches_that_were_being_compared_are_told_as_lost(sample):
    note, start = (sample.locator("#decode").locator(name) for name in (".caches-note", ".caches .button"))
    lose_at_work(sample, lambda: start.first.click())
    expect(note).to_have_text(
        "The GPU was lost while the caches were compared. Press “Compare” to begin again."
    )
    start.first.click()
    expect(note).to_contain_text("The strip below each cache shows the weights")


@pytest.mark.thorough
def test_a_step_of_decoding_is_made(sample):
    decode = sample.locator("#decode")
    position = int(decode.locator("input[type=range]").input_value())
    lose_at_work(sample, lambda: decode.get_by_role("button", name="Step").click())
    expect(decode.locator(".decode-now")).to_contain_text(f"at position {position + 1} ")
    decode.get_by_role("button", name="Step").click()
    expect(decode.locator(".decode-now")).to_contain_text(f"at position {position + 2} ")


@pytest.mark.thorough
def test_a_kernel_that_was_being_timed_is_told_as_lost(sample):
    note, start = (
        sample.locator("#kernel .kernel-note"),
        sample.locator("#kernel").get_by_role("button", name="Run"),
    )
    lose_at_work(sample, start.click)
    expect(note).to_contain_text("The GPU was lost while a kernel ran. Press Run to begin again.")
    start.click()
    expect(note).to_contain_text("Medians")


@pytest.mark.thorough
def test_a_text_that_was_being_applied_is_applied(sample):
    lose_at_work(sample, lambda: preset(sample, "Sliding window"))
    expect(sample.locator(".edit-status")).to_contain_text("mask_mod traced into WGSL")
    expect(sample.locator("#focus header p")).to_contain_text("Your mask_mod is applied")
    until(sample, lambda: "mod=" in sample.url, "the text in the address")
    expect(sample.locator("#kernel .kernel-note")).to_contain_text("with your mask_mod")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["Measure", "Compare"])
def test_what_the_language_model_was_asked_is_told_as_lost(sample, name):
    page = prepared(sample)
    generate(page, 6)
    panel = page.locator("#write")
    button = panel.get_by_role("button", name=name)
    expect(button).to_be_enabled()
    python(page, SLOWLY)
    button.click()
    lose(page)
    expect(panel.locator(".write-foot .input-message")).to_contain_text("The text is kept")
    expect(button).to_be_disabled()
    until(page, lambda: not busy(page), "a page at rest")
    panel.get_by_label("New tokens").fill("3")
    panel.get_by_role("button", name="Go on").click()
    expect(tokens(page)).to_have_count(18)
    button.click()
    done = (
        panel.locator(".write-times tbody tr")
        if name == "Measure"
        else panel.locator(".kl-chart path.kl-line")
    )
    expect(done.first).to_be_attached()
