"""The bench page on a few small workloads, and what the page costs before the GPU has anything to do."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from e2e.lab import PATIENCE_MS, until
from scripts.build import build
from scripts.common import DIST
from scripts.serve import serving

#: Machines that test are busy: a figure may be this many times its goal before a test fails.
SLACK = 4
CALL_US = 300
SUBMIT_300_US = 3_000
FIRST_MAP_BYTES = 18_000_000


@pytest.fixture(scope="module")
def measured(browser, whole_site_url):
    """The bench page after a run of three workloads with both peers, and the lines that it posted."""
    context = browser.new_context(accept_downloads=True)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    lines, errors, requested = [], [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "request",
        lambda asked: requested.append(asked.url) if not asked.url.startswith(whole_site_url) else None,
    )
    page.route("**/lines", lambda route: (lines.append(route.request.post_data), route.fulfill(status=204)))
    page.goto(f"{whole_site_url}bench.html?size=small&only=short,decode-256,varlen&starts=1&report=lines")
    page.wait_for_selector("html[data-bench=done]")
    until(page, lambda: "DONE" in lines, "the last line")
    yield page, lines
    context.close()
    assert errors == []
    assert [url for url in requested if not url.startswith((whole_site_url, "blob:", "data:"))] == []


def posted(lines, kind):
    return [content for content in map(json.loads, lines[:-1]) if content["type"] == kind]


def test_lines_are_posted_and_end_with_done(measured):
    _, lines = measured
    assert lines[-1] == "DONE"
    assert not posted(lines, "error")
    assert [line["workload"] for line in posted(lines, "workload")] == ["short", "decode-256", "varlen"]
    (report,) = posted(lines, "report")
    assert [row["workload"]["name"] for row in report["rows"]] == ["short", "decode-256", "varlen"]
    (markdown,) = posted(lines, "markdown")
    assert "| a sentence: B1 H12 S20 D32 |" in markdown["text"]


def test_ceilings_are_measured_by_clocks_that_agree(measured):
    (ceilings,) = posted(measured[1], "ceilings")
    assert ceilings["read_gbs"] > 0.1
    assert ceilings["copy_gbs"] > 0.1
    assert ceilings["fma_tflops"] > 0.001
    assert 0 < ceilings["empty_us"] <= ceilings["empty_pair_us"] * SLACK
    assert 0 < ceilings["empty_pair_us"] < ceilings["empty_wall_us"] * SLACK
    assert 0 < ceilings["least_wait_us"] < ceilings["empty_wall_us"] * SLACK
    # The wall clock runs from before the submission until after its end, so it never shows less than the
    # timestamps, however busy the machine is.
    assert ceilings["clock_ratio"] is None or 0.95 < ceilings["clock_ratio"] < 2


def test_every_result_is_checked_before_it_is_timed(measured):
    for row in posted(measured[1], "workload"):
        assert row["ok"], row
        assert 0 < row["error"] <= row["bound"]
        assert row["gpu_us"] > 0
        assert row["wall"]["row_us"] > 0
        assert row["replay"]["row_us"] > 0


def test_peers_give_the_same_result_on_the_same_inputs(measured):
    found = {(line["workload"], line["peer"]): line for line in posted(measured[1], "peer")}
    assert set(found) == {
        ("short", "onnxruntime-web"),
        ("short", "jax-js"),
        ("decode-256", "onnxruntime-web"),
    }
    for line in found.values():
        assert line.get("ok"), line
        assert line["wall"]["row_us"] > 0


def test_the_stages_of_the_page_s_start(measured):
    first, repeated = posted(measured[1], "start")
    assert (first["visit"], repeated["visit"]) == ("first", "repeated")
    order = ["download", "python", "packages", "gpu", "ready", "first-map"]
    for start in (first, repeated):
        print(start)
        times = [start["marks"][stage] for stage in order]
        assert times == sorted(times)


def test_the_table_the_picture_and_the_files(measured):
    page, _ = measured
    expect(page.locator("tr[data-workload]")).to_have_count(3)
    expect(page.locator("tr[data-workload=short]")).to_contain_text("attention/rows")
    expect(page.locator("svg.roofline circle")).to_have_count(3)
    for name, kind in (("Markdown", ".md"), ("JSON", ".json")):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        text = Path(download.value.path()).read_text(encoding="utf-8")
        assert download.value.suggested_filename.endswith(kind)
        assert "short" in text or "a sentence" in text


@pytest.mark.thorough
def test_the_language_model_and_its_peer(browser, site_url):
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    lines, elsewhere = [], []
    page.on("request", lambda asked: elsewhere.append(asked.url))
    page.route("**/lines", lambda route: (lines.append(route.request.post_data), route.fulfill(status=204)))
    page.goto(f"{site_url}bench.html?size=small&only=model-decode-f16,model-step&report=lines")
    page.wait_for_selector("html[data-bench=done]")
    until(page, lambda: "DONE" in lines, "the last line")
    decode, step = posted(lines, "model")
    assert decode["ok"], decode
    assert decode["value"] > 0
    assert step["value"] > 0
    assert step["dispatches"] == 153
    peers = {line["peer"]: line for line in posted(lines, "model-peer")}
    processor = peers["wllama on the CPU"]
    assert processor.get("ok"), processor
    assert processor["values"]["model-decode-f16"] > 0
    gpu = peers["wllama on WebGPU"]
    assert gpu.get("ok") or "shader-f16" in gpu["unavailable"], gpu
    expect(page.get_by_role("region", name="Tables of the language model")).to_contain_text("decode")
    page.close()
    assert [url for url in elsewhere if not url.startswith((site_url, "blob:", "data:"))] == []


def test_the_processor_s_share_of_a_call(measured):
    (processor,) = posted(measured[1], "processor")
    assert processor["call_us"] < SLACK * CALL_US
    assert processor["submit_300_us"] < SLACK * SUBMIT_300_US
    assert min(processor["awaited_us"], processor["read_us"]) > 0


def test_bytes_before_the_first_map_and_over_the_wire(context, watch):
    asked = []
    # The page asks for these some time after the first map. They are never answered here, so that they do not
    # count where the machine is too slow to leave the page before.
    context.route("**/{rest,image}.pack*", lambda route: None)
    context.on("response", lambda response: asked.append((urlsplit(response.url).path, response.headers)))
    with serving(build(), "/x/", compressed=True) as url:
        page = context.new_page()
        page.goto(url)
        page.wait_for_selector("[data-shown]", state="attached")
        page.goto("about:blank")
    paths = {path.removeprefix("/x/") or "index.html": headers for path, headers in asked}
    whole = sum((DIST / path).stat().st_size for path in paths)
    sent = sum(int(headers["content-length"]) for headers in paths.values())
    print(f"before the first map: {whole / 1e6:.1f} MB in {len(paths)} files, {sent / 1e6:.1f} MB compressed")
    assert whole <= FIRST_MAP_BYTES
    assert sent < 0.65 * whole
    assert paths["pyodide/pyodide.asm.wasm"]["content-encoding"] == "br"
    assert not any(path.startswith("assets/o") or "jax" in path or "wllama" in path for path in paths)


@pytest.mark.thorough
def test_every_tile_is_compared_with_the_one_that_a_call_takes(browser, site_url):
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    lines = []
    page.route("**/lines", lambda route: (lines.append(route.request.post_data), route.fulfill(status=204)))
    page.goto(f"{site_url}bench.html?size=small&only=short&tiles=1&report=lines")
    page.wait_for_selector("html[data-bench=done]")
    until(page, lambda: "DONE" in lines, "the last line")
    (row,) = posted(lines, "workload")
    assert {"naive", "rows"} < row["tiles"]["us"].keys()
    assert row["tiles"]["chosen"] in row["tiles"]["us"]
    assert row["tiles"]["ratio"] >= 1
    assert "wall" not in row
    assert not posted(lines, "peer")
    assert not posted(lines, "start")
    (markdown,) = posted(lines, "markdown")
    assert "a sentence: B1 H12 S20 D32 takes" in markdown["text"]
    expect(page.locator("tr[data-workload=short]")).to_contain_text("the time of the fastest tile")
    context.close()
