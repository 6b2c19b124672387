"""Runs bench.html in the browser and writes what it measured to bench/results/, as JSON and as Markdown.

``npm run bench`` measures everything that the adapter can take; options of web/src/bench/options.js
can be given as in its address: ``npm run bench -- 'only=minilm,decode&peers=0'``.

The page is opened with ``?report=/report`` and POSTs lines there: JSON objects with a ``type``, of which
"report" is the whole run and "markdown" its table; the line ``DONE`` ends the run.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import queue
import sys
import threading
import time
from functools import partial
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Page, sync_playwright

from scripts.browser import browser_flags, find_browser
from scripts.build import build
from scripts.common import ROOT, Failure, run_main, say
from scripts.serve import HOST, SiteHandler, SiteServer, address

RESULTS = ROOT / "bench" / "results"
SILENCE_S = 600.0


class ReportHandler(SiteHandler):
    """Serves the site, and receives the lines that the page posts."""

    def __init__(self, *args: object, lines: queue.Queue[str], **options: Any) -> None:
        self.lines = lines
        super().__init__(*args, **options)

    def do_POST(self) -> None:
        """Take the body's lines."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if self.path == "/report":
            for line in body.splitlines():
                self.lines.put(line)
        self.send_response(HTTPStatus.NO_CONTENT if self.path == "/report" else HTTPStatus.NOT_FOUND)
        self.send_header("Content-Length", "0")
        self.end_headers()


def collect(page: Page, lines: queue.Queue[str]) -> dict[str, dict[str, Any]]:
    """Read lines until ``DONE`` and print a summary of each; returns the last of each type."""
    found: dict[str, dict[str, Any]] = {}
    heard = time.monotonic()
    while True:
        try:
            line = lines.get_nowait()
        except queue.Empty:
            if time.monotonic() - heard > SILENCE_S:
                raise Failure(
                    f"the benchmark page has not reported anything for {SILENCE_S:.0f} s."
                ) from None
            page.wait_for_timeout(200)  # Playwright handles the page's events meanwhile
            continue
        heard = time.monotonic()
        if line == "DONE":
            return found
        if not line.startswith("{"):
            print(f"  {line}", flush=True)
            continue
        content = json.loads(line)
        found[content.pop("type")] = content
        if text := remark(content):
            print(f"  {text}", flush=True)


def remark(content: dict[str, Any]) -> str:
    """What to print about a line during the run; "" for nothing."""
    if "row" in content:
        return _model_remark(content)
    if "peer" in content and "workload" not in content:
        values = (f"{name} {value:,.4g}" for name, value in content.get("values", {}).items())
        return f"{content['peer']}: {', '.join(values) or content['unavailable']}"
    if "peer" in content:
        wall = content.get("wall")
        outcome = f"{wall['row_us']:,.0f} µs wall" if wall else content.get("unavailable", "")
        return f"{content['workload']}: {content['peer']} {outcome}"
    if "workload" in content:
        if content.get("failed"):
            return f"{content['workload']}: FAILED, {content['failed']}"
        rate = f"{content['gpu_us']:,.1f} µs, {content['rate']:,.3f} ({', '.join(content['ran'])})"
        if tiles := content.get("tiles"):
            rate += f", {tiles['ratio']:.3f} of the fastest tile {tiles['best']}"
        return f"{content['workload']}: {rate}{'' if content['ok'] else ', ERROR OVER THE BOUND'}"
    if "read_gbs" in content or "call_us" in content:
        return ", ".join(f"{name} {value:.4g}" for name, value in content.items() if isinstance(value, float))
    return str(content.get("message", ""))


def _model_remark(content: dict[str, Any]) -> str:
    """Of a row of the language model."""
    if content.get("failed"):
        return f"{content['row']}: FAILED, {content['failed']}"
    value = content["value"]
    figure = "no figure" if value is None else f"{value:,.4g} {content['unit']}".strip()
    wrong = "" if content["ok"] else ", NOT RIGHT"
    return f"{content['row']}: {figure}{wrong} ({'; '.join(content['notes'])})"


def run(site: Path, options: str = "") -> dict[str, dict[str, Any]]:
    """Serve the site and open the page; returns what it posted, by type."""
    lines: queue.Queue[str] = queue.Queue()
    with SiteServer((HOST, 0), partial(ReportHandler, directory=str(site), lines=lines)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # A profile on disk, as visitors have: without one Chromium keeps no machine code of the interpreter.
        with TemporaryDirectory(ignore_cleanup_errors=True) as profile, sync_playwright() as playwright:
            browser = playwright.chromium.launch_persistent_context(
                profile, executable_path=find_browser(), args=browser_flags()
            )
            page = browser.new_page()
            page.on("pageerror", lambda error: lines.put(f"page error: {error}"))
            page.goto(f"{address(server)}bench.html?report=/report{'&' if options else ''}{options}")
            found = collect(page, lines)
            browser.close()
        server.shutdown()
    return found


def main() -> None:
    """Run the benchmarks and write the results."""
    found = run(build(), "&".join(sys.argv[1:]))
    if "report" not in found:
        raise Failure(found.get("error", {}).get("message", "the page reported nothing"))
    RESULTS.mkdir(parents=True, exist_ok=True)
    name = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H-%M-%S")
    host = {"machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count()}
    record = {"host": host, **found["report"]}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    (RESULTS / f"{name}.md").write_text(found["markdown"]["text"], encoding="utf-8")
    say(f"wrote bench/results/{name}.json and .md")


if __name__ == "__main__":
    run_main(main)
