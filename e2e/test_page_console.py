"""The Python console of the page, and that it can always be stopped."""

import re

import pytest
from playwright.sync_api import expect

from e2e.conftest import watched_context
from e2e.lab import wait_for_maps, wait_until_ready


@pytest.fixture(scope="module")
def console(browser, site_url):
    with watched_context(browser) as context:
        page = context.new_page()
        page.goto(site_url)
        wait_until_ready(page)
        page.wait_for_selector("#console .cm-content")
        wait_for_maps(page, 1)
        yield page


def type_and_run(page, source):
    page.locator("#console .cm-content").click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(source)
    page.get_by_role("button", name="Clear").click()
    page.locator("#console .cm-content").focus()
    page.keyboard.press("ControlOrMeta+Enter")


EXAMPLES = {
    "Attention, checked": "table",
    "A map of weights": "canvas",
    "Time the variants": "table",
    "The head in focus": "table",
    "Write a kernel": "table",
    "Record and replay": "table",
    "TurboQuant: error by bits": "table",
    "A model by hand": "canvas",
}


def run_example(page, name):
    page.get_by_role("button", name="Clear").click()
    page.locator("#console .examples").get_by_role("button", name=name).click()
    expect(page.locator(".output .took")).to_have_count(1)
    expect(page.locator(".output .traceback")).to_have_count(0)


@pytest.mark.parametrize(("name", "shown"), EXAMPLES.items())
def test_the_examples_run(console, name, shown, artifacts):
    run_example(console, name)
    expect(console.locator(f".output .value {shown}")).to_be_visible()
    console.locator("#console").screenshot(path=artifacts / f"console-{shown}.png")
    if "rror" in console.locator(".output").inner_text() and name != "TurboQuant: error by bits":
        figures = re.findall(r"error[^\d]*([\d.]+(?:e-?\d+)?)", console.locator(".output").inner_text())
        assert figures
        assert all(float(figure) < 1e-4 for figure in figures)


def test_every_example_is_run_here(console):
    buttons = console.locator("#console .examples button").all_inner_texts()
    assert set(buttons) == {*EXAMPLES, "Show an array"}


def test_an_example_shows_an_array_on_the_page(console):
    run_example(console, "Show an array")
    expect(console.locator("#overview header p")).to_contain_text("2 heads")
    difference = console.locator(".output .line.out").last.inner_text().split(": ")[1]
    assert float(difference) < 1e-5
    assert console.evaluate("window.pyAttn.run('page.title')") == "softmax, and made symmetric"
    console.reload()
    wait_until_ready(console)
    wait_for_maps(console, 1)


def test_prints_and_values_and_awaits(console):
    type_and_run(
        console,
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\nawait device.synchronize()\n6 * 7",
    )
    expect(console.locator(".output .value")).to_have_text("42")
    expect(console.locator(".output .line.out")).to_have_text("out")
    expect(console.locator(".output .line.err")).to_have_text("err")


def test_an_exception_shows_its_traceback(console):
    type_and_run(console, "def inner():\n    return [][1]\ninner()")
    expect(console.locator(".output .traceback")).to_contain_text("IndexError: list index out of range")
    expect(console.locator(".output .traceback")).to_contain_text("return [][1]")


def test_html_in_a_result_is_text(console):
    type_and_run(console, "print('<img src=x onerror=alert(1)>')\n'<b>bold</b>'")
    expect(console.locator(".output .value")).to_have_text("<b>bold</b>")
    expect(console.locator(".output .line")).to_have_text("<img src=x onerror=alert(1)>")


def test_a_hundred_thousand_lines_leave_the_page_alive(console):
    console.evaluate(
        """() => {
            window.drawn = 0;
            const count = () => { window.drawn++; requestAnimationFrame(count); };
            count();
        }"""
    )
    type_and_run(console, "for i in range(100_000):\n    print('line', i)\n'done'")
    expect(console.locator(".output .value")).to_have_text("done")
    assert console.locator(".output").evaluate("one => one.childElementCount") <= 3000
    expect(console.locator(".output")).to_contain_text("97,900 lines are not shown")
    expect(console.locator(".output")).to_contain_text("line 99999")
    assert console.evaluate("window.drawn") > 3


def test_completions_know_the_api(console):
    console.locator("#console .cm-content").click()
    console.keyboard.press("ControlOrMeta+a")
    console.keyboard.type("pa.atten")
    options = console.locator(".cm-tooltip-autocomplete li")
    expect(options.first).to_contain_text("attention")
    console.keyboard.press("Escape")


def test_completions_know_what_there_is_now(console):
    type_and_run(console, "mine = np.zeros((3, 5))")
    expect(console.locator(".output .took")).to_have_count(1)
    options = console.locator(".cm-tooltip-autocomplete li")
    for typed, label in (("min", "mine"), ("page.wei", "weights"), ("np.lina", "linalg")):
        console.locator("#console .cm-content").click()
        console.keyboard.press("ControlOrMeta+a")
        console.keyboard.type(typed)
        expect(options.filter(has_text=label).first).to_be_visible()
        console.keyboard.press("Escape")


def test_a_cell_sees_the_head_in_focus(console):
    console.locator('.thumb[data-head="2/3"]').click()
    seen = console.evaluate(
        "window.pyAttn.run('[page.layer, page.head, page.query.shape, float(page.weights[1].sum())]')"
    )
    assert seen[:3] == [2, 3, [20, 32]]
    assert seen[3] == pytest.approx(1, abs=1e-5)


def test_an_endless_loop_is_stopped_and_the_text_stays(console):
    console.locator("#edit").get_by_role("button", name="Sliding window").click()
    expect(console.locator("#focus header p")).to_contain_text("Your mask_mod is applied")
    console.evaluate(
        "() => { new BroadcastChannel('test').onmessage = ({ data }) => { window.heard = data; }; }"
    )
    type_and_run(
        console, "import js\njs.BroadcastChannel.new('test').postMessage('begun')\nwhile True:\n    pass"
    )
    stop = console.locator("#console").get_by_role("button", name="Stop")
    expect(stop).to_be_enabled()
    console.wait_for_function("window.heard === 'begun'")  # the page itself goes on
    stop.click()
    expect(console.locator(".output .stopped")).to_contain_text("stopped")
    expect(console.locator(".banner")).to_contain_text("Python is back")
    expect(console.locator("#console .cm-content")).to_contain_text("while True")
    expect(console.locator("#focus header p")).to_contain_text("Your mask_mod is applied")
    type_and_run(console, "'alive'")
    expect(console.locator(".output .value")).to_have_text("alive")
    assert console.evaluate("window.pyAttn.run('1 + 2')") == 3


def test_the_door_rejects_what_was_running_when_python_stops(console):
    console.evaluate("() => { window.endless = window.pyAttn.run('while True: pass').catch((e) => e.name); }")
    type_and_run(console, "1")
    expect(console.locator("#console").get_by_role("button", name="Stop")).to_be_enabled()
    console.locator("#console").get_by_role("button", name="Stop").click()
    assert console.evaluate("window.endless") == "StoppedError"
    expect(console.locator(".banner")).to_contain_text("Python is back")


def test_the_text_survives_a_reload(console):
    console.locator("#console .cm-content").click()
    console.keyboard.press("ControlOrMeta+a")
    console.keyboard.insert_text("kept = 1")
    console.reload()
    wait_until_ready(console)
    expect(console.locator("#console .cm-content")).to_contain_text("kept = 1")
