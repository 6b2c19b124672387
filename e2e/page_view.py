"""What tests look at on the page: maps as pictures, and the weight under the cursor."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from e2e.lab import next_frames, until

HEATMAP = "canvas.heatmap"


def pixels(page: Page, selector: str) -> str:
    """A canvas's picture as a data URL."""
    picture: str = page.locator(selector).evaluate("one => one.toDataURL()")
    return picture


def wait_for_change(page: Page, selector: str, before: str) -> None:
    """Until a canvas shows another picture."""
    changed = "([selector, before]) => document.querySelector(selector).toDataURL() !== before"
    page.wait_for_function(changed, arg=[selector, before])


def settled_map(page: Page, before: str | None = None) -> str:
    """The large map's picture, other than ``before``, once nothing more of it is computed or drawn."""
    if before is not None:
        wait_for_change(page, HEATMAP, before)
    expect(page.locator(".heatmap-box")).to_have_attribute("aria-busy", "false")
    next_frames(page)
    return pixels(page, HEATMAP)


def point_at(page: Page, row: int, column: int) -> None:
    """Move the pointer over a cell of the large map, which is shown whole."""
    canvas = page.locator(HEATMAP)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box
    left, top, side, tokens = map(float, (canvas.get_attribute("data-plot") or "").split())
    cell = side / tokens
    page.mouse.move(box["x"] + left + (column + 0.5) * cell, box["y"] + top + (row + 0.5) * cell)


def weight_shown(page: Page) -> float:
    """The weight under the cursor, once it is there."""
    weight = page.locator(".inspector .weight")
    expect(weight).not_to_have_text("…")
    return float(weight.inner_text().replace("\N{MINUS SIGN}", "-"))


def expect_weight(page: Page, weight: float, tolerance: float = 1e-4) -> None:
    """Wait until the weight under the cursor is this one."""
    until(page, lambda: abs(weight_shown(page) - weight) <= tolerance, f"a weight of {weight}")
