"""How long the page's main thread was busy in one go, in CPU time: tests share their machine with others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Page


@dataclass
class Busiest:
    """The longest task; `cpu_ms` is known after the block."""

    cpu_ms: float = 0.0


@contextmanager
def longest_task(page: Page) -> Iterator[Busiest]:
    """Trace the page and find the longest task of its main thread."""
    browser = page.context.browser
    assert browser is not None
    busiest = Busiest()
    browser.start_tracing(page=page, categories=["toplevel"])
    try:
        yield busiest
    finally:
        events = json.loads(browser.stop_tracing())["traceEvents"]
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    assert main, "the trace names no main thread"
    events = [event for event in events if (event["pid"], event["tid"]) in main and "ts" in event]
    # What the test itself asks the page, such as to look for a role among all elements, is no work of its.
    asked = [event["ts"] for event in events if _is_asked(event)]
    tasks = [
        event.get("tdur", 0) / 1000
        for event in events
        if not any(event["ts"] <= begun <= event["ts"] + event.get("dur", 0) for begun in asked)
    ]
    busiest.cpu_ms = max(tasks, default=0.0)


def _is_asked(event: dict[str, Any]) -> bool:
    message = event.get("args", {}).get("chrome_mojo_event_info", {})
    return "DevToolsSession" in message.get("mojo_interface_tag", "")
