"""How tokens are read, maps of several heads, and margins, on the page and in an element."""

import json

import numpy as np
import pytest
from playwright.sync_api import expect

from e2e.conftest import watched_context
from e2e.page_view import expect_weight, settled_map
from e2e.test_element import npz

SAMPLE = """
import io, js
from py_attn.models import load_sample
reply = await js.fetch("{url}sample/minilm.npz")
trace = load_sample((await reply.arrayBuffer()).to_bytes())
pairs = [[np.asarray(x, float) for x in (layer.query, layer.key)] for layer in trace.layers]
maps = np.array([pa.reference.attention_weights(*pair)[0] for pair in pairs])
inner = maps[..., 1:-1, 1:-1]
rollout = np.eye(maps.shape[-1])
for layer in maps[:4]:  # up to layer 3
    step = (layer.mean(axis=0) + np.eye(len(rollout))) / 2
    rollout = step / step.sum(axis=1, keepdims=True) @ rollout
{body}
"""

ELEMENT = b"""<!doctype html><html lang="en"><title>Words</title>
<script type="module" src="../py-attn.js"></script><py-attn src="words.npz"></py-attn></html>"""

#: Means, rollouts and readings of the GPU's engine against those of numpy, for odd shapes and masks.
ENGINES = """
from py_attn.viewer.engines.derived import DerivedEngine
from py_attn.viewer.engines.engine import Style, Window
from py_attn.viewer.engines.gpu import GPUEngine
from py_attn.viewer.engines.host import ReferenceEngine
from py_attn.viewer.engines.over import OverEngine, over_layer
from py_attn.viewer.sources.synthetic import synthetic

found = []
gpu, exact = OverEngine(GPUEngine(pa.default_device())), OverEngine(ReferenceEngine())
for length, heads, kv_heads, mask in ((67, 6, 3, "causal"), (130, 5, 1, "none"), (33, 4, 4, "padding")):
    source = synthetic(length=length, heads=heads, kv_heads=kv_heads, head_dim=24, layers=3, mask=mask)
    for over in ("layer", "all", "rollout"):
        layer = over_layer(source, 1, over)
        everything = slice(0, length)
        for window in (
            Window([0], everything, everything),
            Window([0], slice(3, 4), slice(0, 4)),
            Window([0], slice(1, 30), slice(2, 29), (7, 5)),
        ):
            ours = await gpu.weights(layer, source.masking, window, Style())
            theirs = await exact.weights(layer, source.masking, window, Style())
            found.append((ours.shape == theirs.shape, float(abs(ours - theirs).max())))
found
"""


def exact(page, body):
    source = SAMPLE.format(url=page.url.split("#")[0], body=body)
    return page.evaluate("(source) => window.pyAttn.run(source)", source)


def over(page, name):
    page.locator("#focus").get_by_role("radiogroup", name="Whose map").get_by_text(name).click()


def special(page, name):
    page.locator("#focus").get_by_label("Special tokens").select_option(name)


def test_the_gpu_agrees_with_numpy(shown):
    found = shown.evaluate("(source) => window.pyAttn.run(source)", ENGINES)
    assert len(found) == 27
    for same_shape, error in found:
        assert same_shape
        assert error <= 2e-6


def test_special_tokens_are_hidden_and_the_focus_stays(shown, artifacts):
    before = settled_map(shown)
    special(shown, "renormalise")
    expect(shown.locator("#focus .focus-said")).to_contain_text("[CLS] and [SEP] are hidden")
    expect(shown.locator("#overview header p")).to_contain_text("each 18 × 18 weights")
    expect(shown.locator(".inspector .token").first).to_have_text("it")
    expect(shown.locator(".inspector .token").nth(1)).to_have_text("animal")
    expect_weight(shown, exact(shown, "float(inner[3, 1, 8, 1] / inner[3, 1, 8].sum())"))
    settled_map(shown, before)
    special(shown, "hide")
    expect(shown.locator("#focus .focus-said")).to_contain_text("rows sum to what is left of them")
    expect_weight(shown, exact(shown, "float(inner[3, 1, 8, 1])"))
    # The kernel and decoding go on with the tokens.
    expect(shown.locator("#kernel")).to_contain_text("20 × 20")
    expect(shown.locator("#decode input[type=range]").first).to_have_attribute("max", "19")
    expect(shown.locator("#decode figcaption").first).to_contain_text("of 20 rows so far")
    shown.screenshot(path=artifacts / "page-reading-1440.png", full_page=True)
    special(shown, "show")
    expect(shown.locator("#overview header p")).to_contain_text("each 20 × 20 weights")
    expect_weight(shown, exact(shown, "float(maps[3, 1, 9, 2])"))


@pytest.mark.parametrize(
    ("name", "title", "body"),
    [
        ("Layer mean", "Layer 3, mean of its heads", "float(maps[3].mean(axis=0)[9, 2])"),
        ("All heads", "Mean of all heads", "float(maps.mean(axis=(0, 1))[9, 2])"),
        ("Rollout", "Rollout up to layer 3", "float(rollout[9, 2])"),
    ],
)
def test_maps_of_several_heads(shown, name, title, body):
    before = settled_map(shown)
    over(shown, name)
    expect(shown.locator("#focus h2")).to_have_text(title)
    expect_weight(shown, exact(shown, body))
    settled_map(shown, before)
    over(shown, "This head")
    expect(shown.locator("#focus h2")).to_have_text("Layer 3, head 1")
    expect_weight(shown, exact(shown, "float(maps[3, 1, 9, 2])"))


def test_margins_are_drawn_and_read(shown):
    focus = shown.locator("#focus")
    before = settled_map(shown)
    focus.get_by_label("Margins").check()
    entropy, column = exact(shown, """
row, column = maps[3, 1, 9], maps[3, 1, :, 2]
[float(-(row * np.log2(row)).sum()), float(column.mean())]""")  # fmt: skip
    expect(focus.locator(".margin-figures")).to_contain_text(f"entropy {entropy:.2f} bits, sum 1.0000")
    expect(focus.locator(".margin-figures")).to_contain_text(f"receives {column:.4f} on average")
    settled_map(shown, before)
    with shown.expect_download() as download:
        focus.get_by_label("Save what is shown").click()
        focus.get_by_role("button", name="SVG drawing").click()
    drawing = download.value.path().read_text()
    assert "attention received, up to" in drawing
    focus.get_by_label("Margins").uncheck()
    expect(focus.locator(".margin-figures")).to_be_hidden()


def test_a_link_has_the_map_and_the_reading(shown):
    shown.evaluate("location.hash = '#over=layer&special=hide&layer=2&head=0&query=3&key=1'")
    expect(shown.locator("#focus h2")).to_have_text("Layer 2, mean of its heads")
    expect(shown.locator("#focus .focus-said")).to_contain_text("are hidden")
    expect_weight(shown, exact(shown, "float(inner[2].mean(axis=0)[3, 1])"))
    with shown.expect_download() as download:
        shown.locator("#focus").get_by_label("Save what is shown").click()
        shown.locator("#focus").get_by_role("button", name="JSON weights").click()
    saved = json.loads(download.value.path().read_text())
    assert (saved["over"], saved["reading"]) == ("layer", {"words": False, "special": "hide"})
    assert len(saved["tokens"]) == 18
    np.testing.assert_allclose(saved["weights"], exact(shown, "inner[2].mean(axis=0)"), atol=1e-6)
    shown.evaluate("history.back()")
    expect(shown.locator("#focus h2")).to_have_text("Layer 3, head 1")
    expect_weight(shown, exact(shown, "float(maps[3, 1, 9, 2])"))


def test_word_pieces_are_merged_in_an_element(browser, site_url, artifacts):
    tokens = ["[CLS]", "un", "##believ", "##able", "news", "[SEP]"]
    rng = np.random.default_rng(3)
    weights = rng.dirichlet(np.ones(6), (1, 2, 6)).astype(np.float32)
    files = {"words.npz": npz(weights=weights, tokens=np.array(tokens)), "page.html": ELEMENT}
    with watched_context(browser, viewport={"width": 390, "height": 900}) as context:
        context.route(
            f"{site_url}there/**",
            lambda route: route.fulfill(
                body=files[route.request.url.rsplit("/", 1)[1]],
                content_type="text/html" if route.request.url.endswith("html") else "application/zip",
            ),
        )
        page = context.new_page()
        page.goto(f"{site_url}there/page.html")
        page.locator("py-attn .painted").nth(1).wait_for()
        focus = page.locator("py-attn .focus")
        focus.get_by_label("Merge word pieces").check()
        expect(focus.locator(".focus-said")).to_contain_text("1 word has several pieces")
        expect(focus.locator(".inspector .token").first).to_have_text("[CLS]")
        page.locator("py-attn .links-table .token").first.wait_for()
        focus.locator("canvas.heatmap").focus()
        for key in ("ArrowDown", "ArrowRight"):
            page.keyboard.press(key)
        expect(focus.locator(".inspector .token").nth(1)).to_have_text("unbelievable")
        expected = weights[0, 0, 1:4, 1:4].sum(axis=1).mean()
        expect(focus.locator(".inspector .weight")).to_have_text(f"{expected:.4f}")
        page.screenshot(path=artifacts / "element-reading-390.png", full_page=True)
