"""Figures for papers: the saved map, the colours' range, and the map's place in the window."""

import base64
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from playwright.sync_api import expect

from e2e.lab import until

SVG = "{http://www.w3.org/2000/svg}"
WINDOWS = [(1280, 720), (1440, 900), (2560, 1440), (390, 844)]


def saved(page, label):
    page.locator("#focus").get_by_label("Save what is shown").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name=label).click()
    return Path(waiting.value.path())


def corners(page, png):
    """The colours of a picture's four corners."""
    return page.evaluate(
        """async (base64) => {
      const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      const image = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
      const context = new OffscreenCanvas(image.width, image.height).getContext('2d');
      context.drawImage(image, 0, 0);
      const [x, y] = [image.width - 1, image.height - 1];
      return [[0, 0], [x, 0], [0, y], [x, y]].map((at) => [...context.getImageData(...at, 1, 1).data]);
    }""",
        base64.b64encode(png).decode(),
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_saved_drawing_is_a_figure_on_white(shown, artifacts, theme):
    shown.emulate_media(color_scheme=theme)
    shown.locator("#focus canvas.heatmap").hover()
    source = saved(shown, "SVG drawing").read_text()
    (artifacts / f"figure-{theme}.svg").write_text(source)
    root = ElementTree.fromstring(source)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts.count("Layer 3, head 1") == 1
    assert any("Attention weight" in text for text in texts)
    tokens = shown.evaluate("document.querySelector('#focus canvas.heatmap').dataset.plot.split(' ')[3]")
    rects = list(root.iter(f"{SVG}rect"))
    assert len(rects) >= int(float(tokens)) ** 2 + 256  # the cells and the colour bar
    assert rects[0].get("fill") == "#fff"
    assert not list(root.iter(f"{SVG}image"))
    picture = saved(shown, "PNG picture").read_bytes()
    (artifacts / f"figure-{theme}.png").write_bytes(picture)
    width = int.from_bytes(picture[16:20], "big")
    assert width == round(3 * float(root.get("width")))
    assert corners(shown, picture) == [[255, 255, 255, 255]] * 4
    shown.emulate_media(color_scheme=None)


def test_the_colours_span_the_map(shown, artifacts):
    ticks = shown.locator("#focus .legend-ticks span")
    expect(ticks.last).to_have_text("1")
    shown.locator("#focus").get_by_role("radio", name="map", exact=True).check(force=True)
    expect(ticks.last).not_to_have_text("1")
    largest = float(ticks.last.inner_text())
    assert 0 < largest < 1
    until(shown, lambda: "map" in shown.evaluate("location.hash"), "the range in the address")
    shown.locator("#focus").screenshot(path=artifacts / "page-range.png")
    shown.locator("#focus").get_by_role("radio", name="0–1", exact=True).check(force=True)
    expect(ticks.last).to_have_text("1")


def test_the_map_and_its_readout_are_in_the_window_together(shown, artifacts):
    for width, height in WINDOWS:
        shown.set_viewport_size({"width": width, "height": height})
        shown.locator("#focus .inspector").evaluate("e => e.scrollIntoView({ block: 'start' })")
        shown.wait_for_timeout(200)
        boxes = [shown.locator(f"#focus {part}").bounding_box() for part in (".inspector", "canvas.heatmap")]
        shown.screenshot(path=artifacts / f"figure-window-{width}.png")
        for box in boxes:
            assert box["y"] >= -1, (width, boxes)
            assert box["y"] + box["height"] <= height, (width, boxes)
            assert box["x"] >= 0, (width, boxes)
            assert box["x"] + box["width"] <= width, (width, boxes)
    shown.set_viewport_size({"width": 1440, "height": 900})
