"""Own data on the page: files dropped or chosen, examples, wrong files, and saving what is shown."""

import base64
import io
import json
import struct

import numpy as np
import pytest
from playwright.sync_api import expect

from e2e.lab import until, wait_until_ready
from e2e.page_view import expect_weight

RNG = np.random.default_rng(2)
MAPS = np.tril(RNG.random((3, 1, 2, 6, 6))) + 1e-3 * np.eye(6)
MAPS = (MAPS / MAPS.sum(-1, keepdims=True)).astype(np.float32)
TOKENS = ["The", "cat", "sat", "on", "it", "."]
DROP = """([name, data, types]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name));
    for (const type of types) {
        const event = new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true });
        document.querySelector("#focus").dispatchEvent(event);
    }
}"""


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def safetensors(name, array, metadata):
    header = {"__metadata__": metadata}
    header[name] = {"dtype": "F16", "shape": array.shape, "data_offsets": [0, array.nbytes]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + array.tobytes()


def drop(page, name, data, types=("dragenter", "dragover", "drop")):
    page.evaluate(DROP, [name, base64.b64encode(data).decode(), types])


def choose(page, name, data):
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Open a file").click()
    chooser.value.set_files({"name": name, "mimeType": "application/octet-stream", "buffer": data})


def own(page):
    return page.locator(".own-data")


def message(page):
    return page.locator(".own-message")


def mode(page, name):
    page.locator(".input-panel > .segmented").get_by_text(name, exact=True).click()


def expect_file(page, name, layers, heads, length):
    expect(page.locator(".own-file")).to_contain_text(name)
    painted = page.locator("#overview .painted")
    expect(painted).to_have_count(layers * heads)
    expect(page.locator(".own-file")).to_contain_text(f"{length} tokens")


def set_cell(page, query, key):
    page.locator("canvas.heatmap").focus()
    for _ in range(10):
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowLeft")
    for name, count in (("ArrowDown", query), ("ArrowRight", key)):
        for _ in range(count):
            page.keyboard.press(name)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("maps.npz", npz(**{f"attentions_{i}": MAPS[i] for i in range(3)}, tokens=TOKENS)),
        ("maps.json", json.dumps({"attentions": MAPS.tolist(), "tokens": TOKENS}).encode()),
        (
            "maps.safetensors",
            safetensors("attentions", MAPS.astype(np.float16), {"tokens": json.dumps(TOKENS)}),
        ),
        ("maps.bin", npz(attentions=MAPS, tokens=TOKENS)),
    ],
)
def test_dropped_attentions_are_shown(shown, name, data):
    drop(shown, name, data)
    expect_file(shown, name, 3, 2, 6)
    expect(shown.locator(".input-panel input:checked").first).to_have_value("file")
    shown.locator('.thumb[data-head="2/1"]').click()
    set_cell(shown, 4, 1)
    expect_weight(shown, float(MAPS[2, 0, 1, 4, 1]), 1e-3)
    expect(shown.locator(".inspector")).to_contain_text("cat")
    expect(shown.locator("#kernel")).to_be_hidden()
    expect(shown.locator("#decode")).to_be_hidden()


def test_queries_and_keys_are_chosen_and_computed(shown, artifacts):
    query, key = RNG.standard_normal((2, 4, 7, 8), np.float32), RNG.standard_normal((2, 2, 7, 8), np.float32)
    mode(shown, "Your data")
    choose(shown, "heads.npz", npz(q=query, k=key, causal=True, layout="LHSD"))
    expect_file(shown, "heads.npz", 2, 4, 7)
    expect(shown.locator(".own-arrays li")).to_have_text(
        ["q: float32 [2, 4, 7, 8]", "k: float32 [2, 2, 7, 8]"]
    )
    expect(shown.locator("#kernel")).to_be_visible()
    expect(shown.locator("#decode")).to_be_visible()
    shown.locator('.thumb[data-head="1/3"]').click()
    set_cell(shown, 5, 2)
    scores = query[1, 3, 5] @ key[1, 1, :6].T / np.sqrt(8)
    expect_weight(shown, float(np.exp(scores[2]) / np.exp(scores).sum()))
    until(shown, lambda: "file=heads.npz" in shown.url, "the address to name the file")
    # The axes can be read in another way, meanwhile the form for tokens stays as it is; named tokens replace
    # the numbers.
    shown.locator(".own-found summary").click()
    shown.get_by_label("Tokens", exact=True).fill("one two three four five six seven")
    shown.get_by_label("Axes").select_option("LSHD")
    expect(message(shown)).to_contain_text("was not opened")
    shown.get_by_label("Axes").select_option("LHSD")
    expect(message(shown)).not_to_contain_text("was not opened")
    expect_file(shown, "heads.npz", 2, 4, 7)
    shown.get_by_role("button", name="Use these tokens").click()
    expect(shown.locator(".own-found summary")).to_have_text("Replace the tokens")
    expect(shown.locator(".inspector")).to_contain_text("three")
    shown.screenshot(path=artifacts / "own-data.png")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("empty.npz", b"", "It is empty (0 bytes)"),
        ("page.html", b"<!doctype html>", "Expected .npz, .npy, .safetensors or .json"),
        ("other.npz", npz(a=np.ones((3, 4))), "and the file has a float64 [3, 4]"),
        ("deep.json", b"[" * 1_000_000, "nested at most 32 levels deep, got 1,000,000"),
        ("wide.npz", npz(attentions=np.ones((3, 4))), "maps are square here"),
        ("cut.npz", npz(attentions=MAPS)[:-40], "not a readable .npz file"),
    ],
)
def test_a_wrong_file_is_refused_and_nothing_else_is_lost(shown, name, data, words):
    drop(shown, "good.npz", npz(attentions=MAPS, tokens=TOKENS))
    expect_file(shown, "good.npz", 3, 2, 6)
    drop(shown, name, data)
    expect(message(shown)).to_contain_text(f"{name} was not opened")
    expect(message(shown)).to_contain_text(words, ignore_case=True)
    expect(message(shown)).to_have_attribute("data-tone", "bad")
    expect_file(shown, "good.npz", 3, 2, 6)
    assert shown.evaluate("window.pyAttn.run('1 + 1')") == 2


def test_the_overlay_is_there_while_a_file_is_dragged(shown, artifacts):
    overlay = shown.locator(".drop-overlay")
    expect(overlay).to_be_hidden()
    drop(shown, "a.npz", b"", ["dragenter", "dragover"])
    expect(overlay).to_be_visible()
    expect(overlay).to_contain_text("never sent anywhere")
    shown.screenshot(path=artifacts / "own-data-drop.png")
    drop(shown, "a.npz", b"", ["dragleave"])
    expect(overlay).to_be_hidden()


def test_examples_and_saved_files_go_round(shown):
    mode(shown, "Your data")
    shown.get_by_role("button", name="Example with queries and keys").click()
    expect_file(shown, "example-queries.npz", 2, 4, 26)
    set_cell(shown, 5, 4)
    weight = shown.locator(".inspector .weight")
    before = weight.inner_text()
    for holds in ("Attentions", "Queries and keys"):
        with shown.expect_download() as download:
            own(shown).get_by_role("group", name="Save").get_by_role("button", name=holds).click()
        saved = download.value
        expect(message(shown)).to_contain_text(f"Saved as {saved.suggested_filename}")
        drop(shown, f"again-{saved.suggested_filename}", saved.path().read_bytes())
        expect_file(shown, "again-", 2, 4, 26)
        expect(weight).to_have_text(before)
        shown.get_by_role("button", name="Example with queries and keys").click()
        expect_file(shown, "example-queries.npz", 2, 4, 26)
    shown.get_by_role("button", name="Example with attentions").click()
    expect_file(shown, "example-attentions.npz", 2, 4, 26)
    own(shown).get_by_role("group", name="Save").get_by_role("button", name="Queries and keys").click()
    expect(message(shown)).to_contain_text("only weights were given")


def test_other_input_and_back(shown):
    drop(shown, "good.npz", npz(attentions=MAPS, tokens=TOKENS))
    expect_file(shown, "good.npz", 3, 2, 6)
    mode(shown, "Sentence")
    expect(shown.locator("#overview .painted")).to_have_count(72)
    expect(own(shown)).to_be_hidden()
    mode(shown, "Your data")
    expect_file(shown, "good.npz", 3, 2, 6)


def test_how_to_save_a_file_is_told(shown):
    mode(shown, "Your data")
    own(shown).get_by_text("How to save such a file in Python").click()
    code = own(shown).locator(".own-code")
    expect(code).to_contain_text("output_attentions=True")
    own(shown).get_by_text("NumPy", exact=True).click()
    expect(code).to_contain_text("np.savez")
    own(shown).get_by_text("How to save such a file in Python").click()


def test_a_reload_asks_for_the_file_and_makes_an_example_again(page, site_url):
    page.goto(f"{site_url}#file=mine.npz&layer=2")
    wait_until_ready(page)
    expect(message(page)).to_contain_text("“mine.npz” was shown here. A page cannot keep a file")
    expect(page.locator(".painted")).to_have_count(72)
    drop(page, "mine.npz", npz(attentions=MAPS, tokens=TOKENS))
    expect_file(page, "mine.npz", 3, 2, 6)
    expect(page.locator("#focus h2")).to_contain_text("Layer 2, head 1")
    page.get_by_role("button", name="Example with attentions").click()
    expect_file(page, "example-attentions.npz", 2, 4, 26)
    until(page, lambda: "file=example-attentions.npz" in page.url, "the address to name the example")
    page.reload()
    wait_until_ready(page)
    expect_file(page, "example-attentions.npz", 2, 4, 26)
