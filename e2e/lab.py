"""Python in the built page, as the tests use it: sources go in, plain data comes out."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

#: Booting takes 2 s on a fast machine; two busy cores may need ten times that.
READY_TIMEOUT_S = 120.0


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
    # A page that is just loading again has run no script yet.
    page.wait_for_function("() => window.pyAttn !== undefined")
    info: dict[str, Any] = page.evaluate("() => window.pyAttn.ready")
    page.set_default_timeout(30_000)
    return info


def wait_for_maps(page: Page, source: int) -> None:
    """Until all thumbnails of the page's n-th source are painted."""
    page.wait_for_selector(f'#overview[data-painted="{source}"]', timeout=60_000)
