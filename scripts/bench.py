"""Runs bench.html in the browser and writes what it reports to bench/results/, as JSON and as a table.

The page is opened with ``?report=/report`` and POSTs text lines there: a JSON object is a row of the table,
anything else a remark that is printed; the line ``DONE`` ends the run.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import queue
import threading
import time
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from scripts.browser import browser_flags, find_browser
from scripts.build import build
from scripts.common import ROOT, Failure, run_main, say
from scripts.serve import HOST, SiteHandler, SiteServer, address

RESULTS = ROOT / "bench" / "results"
SILENCE_S = 600.0


class ReportHandler(SiteHandler):
    """The site, and a place to post lines to."""

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


def collect_rows(page: Page, lines: queue.Queue[str]) -> list[dict[str, Any]]:
    """Read lines until ``DONE``; print them as they come."""
    rows: list[dict[str, Any]] = []
    heard = time.monotonic()
    while True:
        try:
            line = lines.get_nowait()
        except queue.Empty:
            if time.monotonic() - heard > SILENCE_S:
                raise Failure(f"the benchmark page has said nothing for {SILENCE_S:.0f} s.") from None
            page.wait_for_timeout(200)  # lets the page's own events through
            continue
        heard = time.monotonic()
        if line == "DONE":
            return rows
        print(f"  {line}", flush=True)
        if line.startswith("{"):
            rows.append(json.loads(line))


def table(rows: list[dict[str, Any]]) -> str:
    """Write rows as a Markdown table; columns in the order of their first appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    head = [columns, ["---"] * len(columns)]
    body = [[_cell(row.get(column)) for column in columns] for row in rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [*head, *body])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def run(site: Path) -> list[dict[str, Any]]:
    """Serve the site, open the page, give the rows that it posted."""
    lines: queue.Queue[str] = queue.Queue()
    with SiteServer((HOST, 0), partial(ReportHandler, directory=str(site), lines=lines)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_browser(), args=browser_flags())
            page = browser.new_page()
            page.on("pageerror", lambda error: lines.put(f"page error: {error}"))
            page.goto(f"{address(server)}bench.html?report=/report")
            rows = collect_rows(page, lines)
            browser.close()
        server.shutdown()
    return rows


def main() -> None:
    """Run and write."""
    site = build()
    if not (site / "bench.html").is_file():
        raise Failure("there is no web/bench.html in this tree, so nothing to time.")
    rows = run(site)
    RESULTS.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)
    name = now.strftime("%Y-%m-%dT%H-%M-%S")
    host = {"machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count()}
    record = {"when": now.isoformat(timespec="seconds"), "host": host, "rows": rows}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    (RESULTS / f"{name}.md").write_text(table(rows), encoding="utf-8")
    say(f"wrote bench/results/{name}.json and .md")


if __name__ == "__main__":
    run_main(main)
