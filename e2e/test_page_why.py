"""Why this number? The steps for the chosen cell, on the page."""

from playwright.sync_api import expect

from e2e.page_view import HEATMAP


def test_the_steps_follow_the_chosen_cell(shown):
    shown.get_by_text("Why this number?").click()
    steps = shown.locator(".why-steps tr")
    expect(steps.first).to_contain_text("query · key")
    weight = shown.locator(".inspector .weight").inner_text()
    expect(steps.last).to_contain_text(weight)
    expect(shown.locator(".why")).to_contain_text("was computed by WGSL; it differs from float64 by")
    before = steps.first.inner_text()
    shown.locator(HEATMAP).press("ArrowRight")
    expect(steps.first).not_to_have_text(before)
    expect(shown.locator(".why-bars rect")).to_have_count(32)
