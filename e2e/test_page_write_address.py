"""What the language model wrote is in the page's address: it outlives a reload, and is in links."""

import random
import re

import pytest
from playwright.sync_api import expect

from e2e.lab import Lab, until, wait_until_ready
from e2e.page_view import HEATMAP, point_at
from e2e.test_page_write import generate, panel, prepared, sample, tokens, writer  # noqa: F401

READ = re.compile(r"Load SmolLM2 \(\d+ MB\) and read")
SETTINGS = {"New tokens": "5", "Temperature": "0.7", "Top-k": "12", "Top-p": "0.9", "Seed": "3"}
PACK = """async (state) => {
    const packing = new CompressionStream('deflate-raw');
    const packed = new Response(new Blob([JSON.stringify(state)]).stream().pipeThrough(packing));
    const text = String.fromCharCode(...new Uint8Array(await packed.arrayBuffer()));
    return btoa(text).replace(/\\+/g, '-').replace(/\\//g, '_').replace(/=+$/, '');
}"""
STATE = {
    "prompt": "the sea", "chat": False, "numbers": [5, 0, None, None, 0], "off": [], "over": "head",
    "cache": {"cache": "float32", "context": 2048, "ring": False, "sink_tokens": 0},
    "ids": [1, 7, 9], "texts": [" the", " sea", " light"], "given": 2, "finished": "",
}  # fmt: skip


def fragment(page):
    return page.evaluate("location.hash")


def settled(page):
    """The address, once the last change is in it."""
    page.wait_for_timeout(600)
    return fragment(page)


def written_there(page):
    """The text in the address, without the focus, which stays in the maps that are shown."""
    return settled(page).split("&")[0]


def install(page):
    """The model's stand-in in place of the download, on a page that has just been loaded."""
    wait_until_ready(page)
    lab = Lab(page, {})
    lab.install()
    lab.run("from e2e.page.fake_writer import install\ninstall()")


def shown(page):
    """All that the visitor sees of the text, its settings and its maps."""
    fields = {name: panel(page).get_by_label(name, exact=True).input_value() for name in SETTINGS}
    return {
        **fields,
        "prompt": panel(page).get_by_role("textbox", name="Prompt").input_value(),
        "tokens": tokens(page).all_inner_texts(),
        "given": page.locator(".write-token.given").count(),
        "cache": [panel(page).get_by_label(name).input_value() for name in ("Cache dtype", "Cache size")],
        "off": panel(page).locator(".write-heads p[role=status]").inner_text(),
        "chat": panel(page).get_by_role("radio", name="Chat").is_checked(),
        "colours": panel(page).get_by_role("radio", name="Its layer").is_checked(),
    }


def maps(page):
    """What the maps show, as pixels of the one in focus and of two others."""
    expect(page.locator("#overview .thumb.painted")).to_have_count(108)
    page.mouse.move(0, 0)
    pixels = "(canvas) => canvas.toDataURL()"
    names = [page.locator(f'.thumb[data-head="{head}"] canvas') for head in ("0/0", "11/4")]
    return [
        page.locator("#focus h2").inner_text(),
        *(one.evaluate(pixels) for one in (page.locator(HEATMAP), *names)),
    ]


def test_a_reload_loses_nothing(writer):  # noqa: F811
    page = writer
    for name, value in SETTINGS.items():
        panel(page).get_by_label(name, exact=True).fill(value)
    panel(page).get_by_label("Cache dtype").select_option("float16")
    panel(page).locator(".head-cell").nth(3).click()
    panel(page).get_by_role("radio", name="Its layer").check(force=True)
    panel(page).get_by_role("radio", name="Chat").check(force=True)
    panel(page).get_by_role("textbox", name="Prompt").fill("the old 🙂 sea")
    generate(page, 25)
    panel(page).get_by_label("New tokens").fill("5")
    page.locator('.thumb[data-head="11/4"]').click()
    page.wait_for_selector(".heatmap-box[data-shown$='/11/4']")
    point_at(page, 20, 8)
    page.mouse.down()
    page.mouse.up()
    page.get_by_role("button", name="Zoom in").click()
    page.mouse.move(0, 0)
    address = settled(page)
    assert address.startswith("#write=1.")
    before, looks = shown(page), maps(page)
    assert len(before["tokens"]) == before["given"] + 25

    page.reload()
    install(page)
    expect(tokens(page)).to_have_count(len(before["tokens"]))  # at once, without the model
    assert shown(page) == before
    assert settled(page) == address
    message = page.locator("#write .write-foot .input-message")
    expect(message).to_contain_text("The maps below show it once the model has read it")
    expect(panel(page).get_by_role("button", name="Measure")).to_be_disabled()
    tokens(page).nth(20).click()
    expect(page.locator(".write-note")).to_contain_text("once it has read the text again")
    message.get_by_role("button", name=READ).click()
    expect(page.locator("#overview header p")).to_contain_text("12 layers × 9 heads")
    expect(page.locator(".pin-cell")).to_have_count(1)
    until(page, lambda: maps(page) == looks, "the maps as they were")
    assert shown(page) == before
    assert settled(page) == address
    # The probabilities are the model's, and it goes on from there.
    expect(tokens(page).last).to_have_attribute("title", re.compile("probability"))
    panel(page).get_by_role("button", name="Go on").click()
    expect(tokens(page)).to_have_count(len(before["tokens"]) + 5)


def test_back_and_forward_lead_to_what_was_written(writer):  # noqa: F811
    page = writer
    # Steps within a second are one, and what follows is to be a step of its own, here and below.
    page.wait_for_timeout(1500)
    generate(page, 10)
    first = tokens(page).all_inner_texts()
    page.wait_for_timeout(1500)
    panel(page).get_by_role("textbox", name="Prompt").fill("the ship")
    generate(page, 8)
    second = tokens(page).all_inner_texts()
    settled(page)
    page.go_back()
    expect(tokens(page)).to_have_count(len(first))
    assert tokens(page).all_inner_texts() == first
    expect(page.locator("#overview header p")).to_contain_text("12 layers × 9 heads")
    expect(tokens(page).last).to_have_attribute("title", re.compile("probability"))
    page.go_forward()
    expect(tokens(page)).to_have_count(len(second))
    assert tokens(page).all_inner_texts() == second
    expect(panel(page).get_by_role("textbox", name="Prompt")).to_have_value("the ship")
    for _ in range(2):
        page.go_back()
        settled(page)
    expect(page.locator(".write-text")).to_contain_text("What the model writes appears here")


@pytest.mark.thorough
def test_back_and_forward_on_a_slow_machine_leave_the_texts_of_addresses_as_they_are(writer):  # noqa: F811
    page = writer
    panel(page).get_by_label("New tokens").fill("4")
    beginning = written_there(page)
    page.wait_for_timeout(1500)
    generate(page, 4)
    page.wait_for_timeout(1500)
    panel(page).get_by_role("textbox", name="Prompt").fill("the ship")
    first, first_tokens = written_there(page), tokens(page).all_inner_texts()
    generate(page, 4)
    second, second_tokens = written_there(page), tokens(page).all_inner_texts()
    # Addresses are left while their texts are still being packed, unpacked and read.
    slow = page.context.new_cdp_session(page)
    slow.send("Emulation.setCPUThrottlingRate", {"rate": 12})
    page.go_back()
    expect(tokens(page)).to_have_count(len(first_tokens))
    page.go_forward()
    expect(tokens(page)).to_have_count(len(second_tokens))
    page.go_back()
    page.go_back()
    expect(page.locator(".write-text")).to_contain_text("What the model writes appears here")
    slow.send("Emulation.setCPUThrottlingRate", {"rate": 1})
    page.wait_for_timeout(1500)
    assert written_there(page) == beginning
    for address, text in ((first, first_tokens), (second, second_tokens)):
        page.go_forward()
        expect(tokens(page)).to_have_count(len(text))
        assert tokens(page).all_inner_texts() == text
        assert written_there(page) == address


def test_a_link_shows_the_text_elsewhere(writer, site_url, browser):  # noqa: F811
    page = writer
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    generate(page, 10)
    page.get_by_role("button", name="Share").click()
    expect(page.locator(".share-said")).to_have_text("Link copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    before = shown(page)
    other = browser.new_context()
    elsewhere = other.new_page()
    elsewhere.goto(link)
    install(elsewhere)
    expect(tokens(elsewhere)).to_have_count(len(before["tokens"]))
    assert shown(elsewhere) == before
    other.close()


@pytest.mark.thorough
def test_a_text_that_is_too_long_for_an_address_outlives_a_reload(writer):  # noqa: F811
    page = writer
    words = random.Random(1).randbytes(14_000).hex()  # which cannot be packed into less
    panel(page).get_by_role("textbox", name="Prompt").fill(words)
    assert settled(page) == "#write=1"
    page.reload()
    wait_until_ready(page)
    expect(panel(page).get_by_role("textbox", name="Prompt")).to_have_value(words)
    page.get_by_role("button", name="Share").click()
    expect(page.locator(".share-box")).to_contain_text(re.compile("written, which is too long|http"))


def test_what_an_address_says_of_a_text_gives_way_to_the_model(page, site_url):
    packed = page.evaluate(PACK, STATE | {"texts": [" <b>the", " forged", " words"]})
    page.goto(f"{site_url}#write=1.{packed}")
    install(page)
    expect(tokens(page)).to_have_count(3)
    assert tokens(page).first.inner_text() == " <b>the"
    panel(page).get_by_role("button", name=READ).click()
    expect(tokens(page).nth(1)).not_to_contain_text("forged")
    expect(tokens(page)).to_have_count(3)


@pytest.mark.quick("change0")
@pytest.mark.parametrize(
    "change",
    [
        {"ids": [1, 7, 99_999]},
        {"cache": None},
        {"texts": []},
        {"numbers": ["<b>", 0, 0, 0, 0]},
        {"off": [999]},
    ],
)
def test_an_address_that_holds_no_text_gets_a_note(page, site_url, change):
    packed = page.evaluate(PACK, STATE | change)
    page.goto(f"{site_url}#write=1.{packed}")
    wait_until_ready(page)
    expect(page.locator(".banner")).to_contain_text("and are left out: write.")
    expect(page.locator(".write-text")).to_contain_text("What the model writes appears here")
    assert settled(page) == "#write=1"


@pytest.mark.quick("#write=1.x*")
@pytest.mark.parametrize("address", ["#write=1.AAAA", "#write=2", "#write=1.x%3Cb%3E"])
def test_an_address_that_is_damaged_gets_a_note(page, site_url, address):
    page.goto(site_url + address)
    wait_until_ready(page)
    expect(page.locator(".banner")).to_contain_text("and are left out: write.")
