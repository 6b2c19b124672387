"""What the end-to-end tests stand on: the built site under a sub-path, a browser, and Python in the page.

- ``site_url``: the address of the built site, on a loopback server, under a path of several folders.
- ``page``: a fresh page that is watched: console errors, page errors and requests to other hosts fail the
  test; errors that are meant to happen are named by regular expressions in
  ``@pytest.mark.expects_console_errors(*patterns)``.
- ``lab``: one page for the whole session whose Python is ready; ``lab.run(source)`` runs Python there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

from scripts.browser import browser_flags, find_browser
from scripts.build import build
from scripts.serve import HOST, serving

ARTIFACTS = Path(__file__).parent / "artifacts"
SUB_PATH = "/some/where/"
#: Booting takes 2 s on a fast machine; two busy cores may need ten times that.
READY_TIMEOUT_S = 120.0


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "expects_console_errors(*patterns): console or page errors that match are meant to happen"
    )


@pytest.fixture(scope="session")
def site_url() -> Iterator[str]:
    """The built site's address; the site is brought up to date first."""
    with serving(build(), SUB_PATH) as url:
        yield url


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    executable = find_browser()
    assert executable, "no Chromium: run `npm test`, or `node scripts/python.js setup --browser` once"
    return {**browser_type_launch_args, "executable_path": str(executable), "args": browser_flags()}


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """The folder for screenshots and other things to look at; never compared with anything."""
    ARTIFACTS.mkdir(exist_ok=True)
    return ARTIFACTS


@dataclass
class Watch:
    """Notes what a page must not do."""

    errors: list[str] = field(default_factory=list)
    foreign_requests: list[str] = field(default_factory=list)

    def attach(self, context: BrowserContext) -> None:
        context.on("console", self._on_console)
        context.on("weberror", lambda error: self.errors.append(str(error.error)))
        context.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")

    def _on_request(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme in ("http", "https", "ws", "wss") and url.hostname != HOST:
            self.foreign_requests.append(request.url)

    def check(self, expected: tuple[str, ...] = ()) -> None:
        """Fail if something was seen that was not expected."""
        unexpected = [e for e in self.errors if not any(re.search(pattern, e) for pattern in expected)]
        assert not unexpected, f"errors in the page: {unexpected}"
        assert not self.foreign_requests, f"requests to other hosts: {self.foreign_requests}"


@pytest.fixture
def watch(context: BrowserContext, request: pytest.FixtureRequest) -> Iterator[Watch]:
    """The watch over the test's browser context; checked when the test has ended."""
    watch = Watch()
    watch.attach(context)
    yield watch
    marker = request.node.get_closest_marker("expects_console_errors")
    watch.check(marker.args if marker else ())


@pytest.fixture
def page(page: Page, watch: Watch) -> Page:
    """A fresh, watched page; `site_url` is for its first `goto`."""
    return page


class Lab:
    """Python in the page: what the kernels' tests run in.

    Parameters
    ----------
    page
        The page whose `window.pyAttn` is used.
    info
        What `window.pyAttn.ready` gave: adapter, features, software, versions.
    """

    def __init__(self, page: Page, info: dict[str, Any]) -> None:
        self.page = page
        self.info = info

    def run(self, source: str, timeout: float = 60.0) -> Any:
        """Run Python with top-level `await`; return its last expression as plain data.

        Raises
        ------
        PythonError
            With the traceback, when the source raised.
        TimeoutError
            When it took longer than `timeout` seconds.
        """
        answer = self.page.evaluate(RUN, [source, timeout * 1000])
        if answer["timedOut"]:
            raise TimeoutError(f"no answer from Python within {timeout} s")
        if answer["error"] is not None:
            raise PythonError(answer["error"])
        return answer["value"]


class PythonError(Exception):
    """Python code in the page raised; the text is its traceback."""


RUN = """async ([source, milliseconds]) => {
    let timer;
    const timeout = new Promise((done) => {
        timer = setTimeout(() => done({ timedOut: true }), milliseconds);
    });
    const run = window.pyAttn.run(source).then(
        (value) => ({ timedOut: false, error: null, value: value ?? null }),
        (error) => ({ timedOut: false, error: String(error?.message ?? error) }),
    );
    const answer = await Promise.race([run, timeout]);
    clearTimeout(timer);
    return answer;
}"""


def wait_until_ready(page: Page) -> dict[str, Any]:
    """Wait for `window.pyAttn.ready` and give what it resolves to."""
    page.set_default_timeout(READY_TIMEOUT_S * 1000)
    info: dict[str, Any] = page.evaluate("() => window.pyAttn.ready")
    page.set_default_timeout(30_000)
    return info


@pytest.fixture(scope="session")
def lab(browser: Browser, site_url: str) -> Iterator[Lab]:
    """Python in one page for the whole session; anything unexpected on the way fails at the end."""
    context = browser.new_context()
    watch = Watch()
    watch.attach(context)
    page = context.new_page()
    page.goto(site_url)
    yield Lab(page, wait_until_ready(page))
    context.close()
    watch.check()
