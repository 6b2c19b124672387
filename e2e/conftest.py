"""What the end-to-end tests stand on: the built site under a sub-path, a browser, and Python in the page.

- ``site_url``: the address of the built site, on a loopback server, under a path of several folders; without
  the image of Python that pages fetch after their first map, so that a later visit starts faster. Tests that
  are about the site as a whole or about later visits take ``whole_site_url``, which has it.
- ``page``: a fresh page that is watched: console errors, page errors and requests to other hosts fail the
  test; errors that are meant to happen are named by regular expressions in
  ``@pytest.mark.expects_console_errors(*patterns)``.
- ``lab``: one page for the whole session whose Python is ready; ``lab.run(source)`` runs Python there. With
  ``LAB=native`` in the environment it is this process's own Python instead, on wgpu (`e2e/native_lab.py`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect

from e2e import thorough
from e2e.error_ratios import (  # noqa: F401 - pytest looks for them here
    error_ratios,
    pytest_sessionfinish,
    pytest_testnodedown,
    show_table,
)
from e2e.lab import PATIENCE_MS, PATIENCE_S, Lab, wait_for_maps, wait_until_ready
from scripts.browser import browser_flags, find_browser
from scripts.build import build
from scripts.serve import HOST, serving

ARTIFACTS = Path(__file__).parent / "artifacts"
SUB_PATH = "/some/where/"
NATIVE = os.environ.get("LAB") == "native"

#: WebGPU clears workgroup memory before a kernel runs. Dawn leaves that to the driver where it can, and then
#: SwiftShader compiles one store for each element, which doubles the time that most kernels take to compile.
#: With this flag Dawn writes a loop into the shader instead, as it does for drivers without that extension.
#: Flags in $PY_ATTN_BROWSER_FLAGS come later and override it.
CLEAR_IN_A_LOOP = "--disable-dawn-features=use_vulkan_zero_initialize_workgroup_memory_extension"
#: A page of a test lives for seconds: what V8 compiles in the background, so that WebAssembly runs faster
#: later, comes too late, and takes a fifth of all the time that tests of pages take. The page of `lab` lives
#: long, and has a browser without this flag.
NO_OPTIMIZED_WASM = "--js-flags=--liftoff-only"
collect_ignore = [] if NATIVE else ["test_native.py"]


def pytest_configure(config: pytest.Config) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    config.addinivalue_line(
        "markers", "expects_console_errors(*patterns): console or page errors that match are meant to happen"
    )
    thorough.declare(config)
    config.addinivalue_line("markers", "needs_page(reason): why a test with `lab` runs in a page only")


@pytest.hookimpl(tryfirst=True)  # before options of the command line choose among the tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what `npm test` leaves out; give a test time for several waits."""
    thorough.mark_cases(config, items)
    if NATIVE:
        native_lab.leave_out(config, items)
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(4 * PATIENCE_S))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """End with what was measured and what was left out."""
    show_table(terminalreporter)
    if NATIVE:
        native_lab.summary(terminalreporter, config)


@pytest.fixture(scope="session")
def whole_site_url() -> Iterator[str]:
    """The built site's address; the site is brought up to date first."""
    with serving(build(), SUB_PATH) as url:
        yield url


@pytest.fixture(scope="session")
def site_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site without the image of Python.

    Most pages of tests are never visited again: fetching, inflating and storing it would be an eighth of what
    their start costs.
    """
    site, folder = build(), tmp_path_factory.mktemp("site")
    manifest = json.loads((site / "manifest.json").read_text(encoding="utf-8"))
    del manifest["assets"]["python-image"]
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    for entry in site.iterdir():
        if entry.name != "manifest.json":
            (folder / entry.name).symlink_to(entry)
    with serving(folder, SUB_PATH) as url:
        yield url


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    executable = find_browser()
    assert executable, "no Chromium: run `npm test`, or `node scripts/python.js setup --browser` once"
    flags = [NO_OPTIMIZED_WASM, CLEAR_IN_A_LOOP, *browser_flags()]
    return {**browser_type_launch_args, "executable_path": str(executable), "args": flags}


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


@contextmanager
def watched_context(browser: Browser, *expected: str, **options: Any) -> Iterator[BrowserContext]:
    """A browser context for several tests, watched; errors that match `expected` are meant to happen."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    watch = Watch()
    watch.attach(context)
    yield context
    context.close()
    watch.check(expected)


@pytest.fixture
def context(context: BrowserContext) -> BrowserContext:
    """The test's browser context; its waits end with what they wait for."""
    context.set_default_timeout(PATIENCE_MS)
    return context


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


@pytest.fixture(scope="session")
def lab_browser(
    launch_browser: Callable[..., Browser], browser_type_launch_args: dict[str, Any]
) -> Iterator[Browser]:
    """A browser that optimizes WebAssembly, for a page that computes much."""
    flags = [flag for flag in browser_type_launch_args["args"] if flag != NO_OPTIMIZED_WASM]
    browser = launch_browser(args=flags)
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def lab(lab_browser: Browser, site_url: str) -> Iterator[Lab]:
    """Python in one page for the whole session; anything unexpected on the way fails at the end."""
    with watched_context(lab_browser) as context:
        page = context.new_page()
        page.goto(site_url)
        info = wait_until_ready(page)
        # The page's own first maps and labels share the device; checks that count its memory want them done.
        page.wait_for_selector("#overview[data-findings]", state="attached")
        lab = Lab(page, info)
        lab.install()
        yield lab


if NATIVE:
    from e2e import native_lab
    from e2e.native_lab import lab  # noqa: F401 - takes the page's place


@pytest.fixture(scope="module")
def shown(browser: Browser, site_url: str) -> Iterator[Page]:
    """One page for all tests of a module, on the sample, with the light theme."""
    size = {"width": 1440, "height": 900}
    with watched_context(browser, viewport=size, color_scheme="light") as context:
        page = context.new_page()
        page.goto(site_url)
        wait_until_ready(page)
        wait_for_maps(page, 1)
        page.wait_for_selector("[data-shown]")
        yield page
