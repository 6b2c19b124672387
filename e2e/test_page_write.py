"""The Write panel, with a stand-in for the language model that writes the same everywhere."""

import re

import pytest
from playwright.sync_api import expect

from e2e.lab import Lab, wait_until_ready
from e2e.main_thread import longest_task

#: Seconds a token, where a test has to act while it is being written.
SLOW = 0.03


@pytest.fixture
def sample(page, site_url):
    """The page as it begins."""
    page.goto(site_url)
    wait_until_ready(page)
    page.wait_for_selector('#overview[data-painted="1"]')
    return page


@pytest.fixture
def writer(sample):
    """The page with its Write panel, and the model's stand-in in place of the download."""
    return prepared(sample)


@pytest.fixture
def slow_writer(sample):
    """The same with a stand-in that takes its time."""
    return prepared(sample, seconds=SLOW)


def prepared(page, **given):
    lab = Lab(page, {})
    lab.install()
    arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
    lab.run(f"from e2e.page.fake_writer import install\ninstall({arguments})")
    page.get_by_role("radio", name="Write").check(force=True)
    panel(page).get_by_role("textbox", name="Prompt").wait_for()  # its script has come
    return page


def panel(page):
    return page.locator("#write")


def tokens(page):
    return page.locator(".write-token")


def generate(page, count):
    panel(page).get_by_label("New tokens").fill(str(count))
    panel(page).get_by_role("button", name=re.compile("Generate|and generate")).click()
    expect(panel(page).get_by_role("button", name="Generate")).to_be_enabled()
    expect(page.locator("#overview[data-painted]")).to_have_attribute("data-painted", re.compile(r"\d+"))


def python(page, source):
    return page.evaluate("(source) => window.pyAttn.run(source)", source)


def test_the_first_view_loads_nothing_of_it(page, site_url):
    requests = []
    page.context.on("request", lambda request: requests.append(request.url))
    page.goto(site_url)
    wait_until_ready(page)
    page.wait_for_selector('#overview[data-painted="1"]')
    assert not any(re.search(r"/write-|smollm2", url) for url in requests)
    expect(panel(page)).to_be_hidden()
    page.get_by_role("link", name="Write", exact=True).click()
    expect(panel(page)).to_be_visible()
    expect(panel(page).get_by_role("button", name=re.compile(r"Load SmolLM2 \(\d+ MB\)"))).to_be_enabled()
    assert any(re.search(r"/write-", url) for url in requests)


SHADES = """[...document.querySelectorAll('.write-token')]
    .map((one) => Number(one.style.getPropertyValue('--weight')))"""


def test_it_writes_and_all_maps_show_what_it_wrote(sample, artifacts):
    page = prepared(sample, layers=30)  # as many as SmolLM2 has
    generate(page, 30)
    expect(tokens(page)).to_have_count(39)
    expect(tokens(page).locator("nth=8")).to_have_class(re.compile("given"))
    expect(page.locator(".write-numbers")).to_contain_text("9 tokens read, 30 written")
    expect(page.locator(".write-numbers")).to_contain_text("tokens/s")
    expect(page.locator("#overview header p")).to_contain_text("30 layers × 9 heads")
    expect(page.locator("#overview .thumb")).to_have_count(270)
    panel(page).get_by_role("button", name="Measure").click()
    expect(page.locator(".write-times tbody tr").first).to_contain_text("project_qkv")
    # The newest token is in focus, and colours the text before it.
    expect(tokens(page).last).to_have_class(re.compile("looks"))
    shades = page.evaluate(SHADES)
    assert sum(shade**2 for shade in shades) == pytest.approx(1, abs=0.02)
    tokens(page).nth(20).hover()
    expect(tokens(page).nth(20)).to_have_class(re.compile("looks"))
    expect(page.locator(".inspector .token").first).to_have_attribute("title", "position 20")
    page.locator("#write").get_by_role("radio", name="All heads").check(force=True)
    expect(page.locator(".write-looking")).to_contain_text("The mean of all heads")
    page.get_by_role("radio", name="Whole maps").check(force=True)
    expect(page.locator("#overview header p")).to_contain_text("for all maps")
    page.locator("#edit").get_by_role("button", name="Sliding window").click()
    expect(page.locator("#focus header p")).to_contain_text("Your mask_mod is applied")
    page.screenshot(path=artifacts / "page-write.png", full_page=True)


def test_back_to_a_token_and_on_with_another_choice(writer):
    page = writer
    generate(page, 12)
    tokens(page).nth(14).click()
    lines = page.locator(".alternative")
    expect(page.locator(".write-chosen")).to_contain_text("token 14")
    expect(lines.locator("nth=0")).to_have_attribute("aria-current", "true")
    other = lines.nth(3).locator(".token").inner_text()
    lines.nth(3).click()
    expect(tokens(page)).to_have_count(15)
    assert tokens(page).nth(14).inner_text().strip() == other.replace("␣", "")
    panel(page).get_by_role("button", name="Step").click()
    expect(tokens(page)).to_have_count(16)
    panel(page).get_by_role("button", name="Back", exact=True).click()
    expect(tokens(page)).to_have_count(15)
    tokens(page).nth(11).click()
    panel(page).get_by_role("button", name="Back to here").click()
    expect(tokens(page)).to_have_count(12)
    tokens(page).nth(0).click()
    expect(page.locator(".write-note")).to_contain_text("the first token")
    expect(page.locator(".alternative:enabled")).to_have_count(0)


def test_stop_acts_at_once_and_nothing_moves(slow_writer):
    page = slow_writer
    box = page.locator(".write-text").bounding_box()
    stage = page.locator(".stage").bounding_box()
    panel(page).get_by_label("New tokens").fill("2000")
    with longest_task(page) as busiest:
        panel(page).get_by_role("button", name=re.compile("Load SmolLM2")).click()
        expect(tokens(page).nth(40)).to_be_attached()
        assert python(page, "1 + 1") == 2  # other requests get through
        panel(page).get_by_role("button", name="Stop").click()
        expect(panel(page).get_by_role("button", name="Generate")).to_be_enabled()
    assert 0 < busiest.cpu_ms < 100
    count = tokens(page).count()
    assert count < 1000
    expect(page.locator("#write .write-foot .input-message")).to_have_text("Stopped.")
    assert page.locator(".write-text").bounding_box() == box
    assert page.locator(".stage").bounding_box()["y"] == stage["y"]
    panel(page).get_by_label("New tokens").fill("5")
    panel(page).get_by_role("button", name="Go on").click()
    expect(tokens(page)).to_have_count(count + 5)


def test_by_keyboard(writer):
    page = writer
    prompt = panel(page).get_by_role("textbox", name="Prompt")
    prompt.fill("the ship")
    panel(page).get_by_label("New tokens").fill("6")
    prompt.press("Enter")
    expect(tokens(page)).to_have_count(8)
    text = panel(page).get_by_role("listbox")
    text.focus()
    page.keyboard.press("ArrowLeft")
    expect(tokens(page).nth(7)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Home")
    expect(page.locator(".write-chosen")).to_contain_text("token 0")
    heads = panel(page).get_by_role("grid")
    heads.get_by_role("gridcell").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(heads.get_by_role("gridcell", name="Layer 1, head 1, off")).to_be_focused()
    expect(panel(page).locator(".write-heads")).to_contain_text("1 of 270 heads are off")
    panel(page).get_by_role("button", name="All but this head").click()
    expect(panel(page).locator(".write-heads")).to_contain_text("269 of 270 heads are off")
    panel(page).get_by_role("button", name="All on").click()
    expect(panel(page).locator(".write-heads")).to_contain_text("All heads are on")


@pytest.mark.thorough
def test_the_keyboard_keeps_its_place(writer):
    page = writer
    generate(page, 12)
    step = panel(page).get_by_role("button", name="Step")
    step.focus()
    for count in (22, 23):
        page.keyboard.press("Enter")
        expect(tokens(page)).to_have_count(count)
        expect(step).to_be_focused()
    text = panel(page).get_by_role("listbox")
    text.focus()
    page.keyboard.press("Home")
    expect(page.locator(".write-chosen")).to_contain_text("token 0")
    page.keyboard.press("Escape")
    expect(page.locator(".write-note")).to_contain_text("Click a token")
    expect(tokens(page).last).to_have_class(re.compile("looks"))
    expect(page.locator(".write-token[aria-selected=true]")).to_have_count(0)
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".write-chosen")).to_contain_text("token 22")
    other = page.locator(".alternative").nth(2)
    other.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".alternative").nth(2)).to_have_attribute("aria-current", "true")
    expect(other).to_be_focused()
    size = panel(page).get_by_label("Cache size")
    size.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".write-figures").first).to_contain_text("of 64")
    expect(size).to_be_focused()
    compare = panel(page).get_by_role("button", name="Compare")
    compare.focus()
    page.keyboard.press("Enter")
    expect(panel(page).locator(".kl-chart path.kl-line")).to_have_count(5)
    expect(compare).to_be_focused()


SPOKEN = """() => {
    window.spoken = [];
    const told = document.querySelector('#write > .sr-only[role=status]');
    new MutationObserver(() => window.spoken.push(told.textContent)).observe(told, { childList: true });
}"""


def test_a_screen_reader_is_told_the_text_in_portions(slow_writer):
    page = slow_writer
    page.evaluate(SPOKEN)
    generate(page, 100)
    spoken = page.evaluate("() => window.spoken")
    assert 1 <= len(spoken) < 10
    text = "".join(tokens(page).all_inner_texts()[9:])
    assert text.strip().startswith(spoken[0])
    assert all(40 <= len(portion) <= 330 for portion in spoken)


@pytest.mark.thorough
def test_the_chart_keeps_its_words_readable(writer):
    page = writer
    generate(page, 20)
    panel(page).get_by_role("button", name="Compare").click()
    expect(panel(page).locator(".kl-chart path.kl-line")).to_have_count(5)
    expect(panel(page).get_by_role("button", name="Compare")).to_be_enabled()
    table, word = panel(page).locator(".write-compare .scroll-x"), panel(page).locator(".kl-chart text").first
    for width in (390, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(
            """() => {
                const figure = document.querySelector('.kl-chart');
                return Math.abs(figure.querySelector('svg').viewBox.baseVal.width - figure.clientWidth) < 1;
            }"""
        )
        assert word.bounding_box()["height"] == pytest.approx(13, abs=3)
        assert table.evaluate("(region) => region.scrollWidth <= region.clientWidth")


@pytest.mark.thorough
def test_with_forced_colours_the_heads_can_be_told_apart(writer):
    page = writer
    page.emulate_media(forced_colors="active")
    cells = panel(page).locator(".head-cell")
    cells.nth(3).click()
    colours = [cells.nth(i).evaluate("(cell) => getComputedStyle(cell).backgroundColor") for i in (3, 4)]
    page.mouse.move(0, 0)
    assert colours[0] != colours[1]


@pytest.mark.thorough
def test_on_paper_there_is_the_text_with_its_probabilities_and_no_control(writer, artifacts):
    page = writer
    generate(page, 60)
    tokens(page).nth(20).click()
    expect(page.locator(".write-chosen")).to_contain_text("token 20")
    page.emulate_media(media="print", color_scheme="dark")
    text = page.locator(".write-text")
    assert text.evaluate("(text) => text.scrollHeight <= text.clientHeight + 1")
    below = tokens(page).nth(20).evaluate("(token) => getComputedStyle(token, '::after').content")
    assert re.fullmatch(r'"[<\d. ]+ %"', below)
    surface = page.locator("#write").evaluate("(panel) => getComputedStyle(panel).backgroundColor")
    assert surface == "rgb(255, 255, 255)"
    buttons = page.locator("button:visible:not(.alternative):not(.thumb)")
    assert buttons.all_inner_texts() == []
    assert page.locator("select:visible, input:visible").count() == 0
    for shown in ("#write .write-numbers", ".alternatives", "#overview .thumb", "#focus canvas"):
        expect(page.locator(shown).first).to_be_visible()
    page.pdf(path=artifacts / "page-write.pdf", format="A4")


@pytest.mark.thorough
def test_the_cache_is_a_choice_and_is_compared_on_the_text(writer):
    page = writer
    generate(page, 60)
    panel(page).get_by_label("Cache dtype").select_option("turboquant4")
    expect(panel(page).locator(".write-figures")).to_contain_text("Memory")
    panel(page).get_by_label("Cache size").select_option("64")
    expect(panel(page).locator(".write-figures")).to_contain_text("64 of 64, 5 dropped")
    expect(panel(page).get_by_label("First tokens kept")).to_be_enabled()
    panel(page).get_by_role("button", name="Compare").click()
    expect(panel(page).locator(".write-compare > p")).to_contain_text(
        "Without the first tokens the ring’s perplexity is"
    )
    expect(panel(page).locator(".write-compare tbody tr")).to_have_count(7)
    expect(panel(page).locator(".kl-chart path.kl-line")).to_have_count(7)


def test_an_empty_prompt_and_a_full_cache_are_said(writer):
    page = writer
    prompt = panel(page).get_by_role("textbox", name="Prompt")
    message = page.locator("#write .write-foot .input-message")
    prompt.fill("  ")
    panel(page).get_by_role("button", name=re.compile("Load SmolLM2")).click()
    expect(message).to_contain_text("Type a few words first")
    prompt.fill("the " * 2040)
    panel(page).get_by_label("New tokens").fill("50")
    panel(page).get_by_role("button", name=re.compile("Load SmolLM2")).click()
    expect(message).to_contain_text("The cache is full")
    expect(tokens(page)).to_have_count(2048)
    expect(panel(page).get_by_role("button", name="Go on")).to_be_disabled()
    prompt.fill("the " * 2050)
    panel(page).get_by_role("button", name="Generate").click()
    expect(message).to_contain_text("the prompt has 2,050 tokens")


@pytest.mark.thorough
def test_a_lost_device_leaves_the_text(writer):
    page = writer
    generate(page, 10)
    text = page.locator(".write-text").inner_text()
    python(page, "pa.default_device().destroy()")
    message = page.locator("#write .write-foot .input-message")
    expect(message).to_contain_text("The text is kept")
    expect(page.locator(".banner")).to_contain_text("A new GPU device is here")
    assert page.locator(".write-text").inner_text() == text
    panel(page).get_by_label("New tokens").fill("3")
    panel(page).get_by_role("button", name="Go on").click()
    expect(tokens(page)).to_have_count(22)
    assert page.locator(".write-text").inner_text().startswith(text)


@pytest.mark.thorough
def test_another_input_and_back(writer):
    page = writer
    generate(page, 10)
    page.get_by_role("radio", name="Sentence").check(force=True)
    expect(panel(page)).to_be_hidden()
    expect(page.locator("#overview header p")).to_contain_text("6 layers × 12 heads")
    page.get_by_role("radio", name="Write").check(force=True)
    expect(tokens(page)).to_have_count(19)
    expect(page.locator("#overview header p")).to_contain_text("12 layers × 9 heads")


ROW = """
import numpy as np
from e2e.page.fake_writer import FakeWriter
from py_attn.viewer.engines.engine import Window
from py_attn.viewer.engines.gpu import GPUEngine
from py_attn.viewer.engines.host import ReferenceEngine
from py_attn.viewer.sources.written import written_source

model = FakeWriter(pa.default_device(), context={context}, ring={context} < 2048, sink_tokens={sinks})
await model.start(list(range(1, 31)) * 2)
source = written_source(model, [str(i) for i in range(60)])
on_device = source.layers[11]
model.device = None
exact = written_source(model, source.tokens)
found = []
for row in (0, 17, 40, 59):
    for size in (None, (1, 20)):
        window = Window([0, 4, 8], slice(row, row + 1), slice(0, 60), size)
        layers = on_device, exact.layers[11]
        ours = await GPUEngine(pa.default_device()).weights(layers[0], source.masking, window)
        theirs = await ReferenceEngine().weights(layers[1], exact.masking, window)
        found.append(float(np.abs(ours - theirs).max()) if ours.shape == theirs.shape else 1.0)
        found.append(float(len(layers[0].kept)))
found
"""


@pytest.mark.parametrize(("context", "sinks"), [(2048, 0), (16, 0), (16, 4)])
def test_a_row_alone_is_the_row_of_the_whole_map(lab, context, sinks):
    found = lab.run(ROW.format(context=context, sinks=sinks))
    assert max(found[::2]) < 1e-5
    assert max(found[1::2]) == 0  # nothing was computed for other rows


def test_prompts_take_the_place_of_sentences(writer):
    """Examples of sentences are for reading; those of prompts fill the field, and nothing moves."""
    page = writer
    sentences = page.locator(".examples-zone")
    expect(sentences).to_be_hidden()
    expect(page.get_by_text("or type a sentence of your own")).to_be_hidden()
    prompt = panel(page).get_by_role("textbox", name="Prompt")
    prompts = panel(page).get_by_role("group", name="Example prompts").get_by_role("button")
    box = page.locator(".write-text").bounding_box()
    seen = set()
    for button in prompts.all():
        button.click()
        expect(prompt).to_have_value(button.get_attribute("title"))
        seen.add(prompt.input_value())
        assert page.locator(".write-text").bounding_box() == box
    assert len(seen) == prompts.count() == 6
    panel(page).get_by_role("button", name="A question").click()
    expect(panel(page).get_by_role("radio", name="Chat")).to_be_checked()
    generate(page, 3)
    # Five words, and two of the stand-in's chat template.
    expect(page.locator(".write-token.given")).to_have_count(7)
    panel(page).get_by_role("button", name="A story").click()
    expect(panel(page).get_by_role("radio", name="Plain")).to_be_checked()
    page.get_by_role("radio", name="Sentence").check(force=True)
    expect(sentences).to_be_visible()
    sentences.get_by_role("button").nth(1).click()
    expect(panel(page)).to_be_hidden()
