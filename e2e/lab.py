"""Python in the built page, as the tests use it: sources go in, plain data comes out."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from e2e.page.run import check_all

#: How long anything may take before a test takes it for hung. It says nothing about how long things do take:
#: machines that run tests are busy, and every wait ends with what it waits for. Whoever works on a test that
#: fails can have less patience: `PATIENCE_S=10 .venv/bin/python -m pytest e2e/test_page.py`.
PATIENCE_S = float(os.environ.get("PATIENCE_S", "240"))
PATIENCE_MS = 1000 * PATIENCE_S


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

    def run(self, source: str, timeout: float = PATIENCE_S) -> Any:
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

    def install(self) -> None:
        """Make the modules of `e2e.page` importable in the page, by the same name."""
        files = {
            path.relative_to(PACKAGE.parent.parent).as_posix(): path.read_text("utf-8")
            for path in PACKAGE.glob("*.py")
        }
        self.run(INSTALL.format(files=files))

    def call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Call a function of `e2e.page` there, and await what it returns if it is a coroutine function.

        Arguments are functions of `e2e.page` too, or plain data, whose repr is an expression.
        """
        called = [x for x in (function, *arguments) if inspect.isfunction(x)]
        imports = [f"from {x.__module__} import {x.__name__}" for x in called]
        shown = [x.__name__ if inspect.isfunction(x) else repr(x) for x in arguments]
        shown += [f"{name}={x!r}" for name, x in keywords.items()]
        wait = "await " if inspect.iscoroutinefunction(function) else ""
        return self.run("\n".join([*imports, f"{wait}{function.__name__}({', '.join(shown)})"]))

    def check(self, check: Callable[..., Any], cases: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
        """What a check of `e2e.page` answers to each case; an error above its bound (1) fails the test."""
        answers: list[dict[str, Any]] = self.call(check_all, check, list(cases))
        wrong = [
            f"{answer.get('failed') or answer}\n{case}"
            for answer, case in zip(answers, cases, strict=True)
            if "failed" in answer or max(answer.values()) > 1
        ]
        assert not wrong, "\n".join(wrong)
        return answers


class PythonError(Exception):
    """Python code in the page raised; the text is its traceback."""


PACKAGE = Path(__file__).parent / "page"
INSTALL = """
import sys
from pathlib import Path
for _name, _text in {files!r}.items():
    _path = Path("/checks", _name)
    _path.parent.mkdir(parents=True, exist_ok=True)
    _path.write_text(_text, encoding="utf-8")
sys.path.append("/checks")
"""

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
    # A page that is just loading again has run no script yet.
    page.wait_for_function("() => window.pyAttn !== undefined")
    info: dict[str, Any] = page.evaluate("() => window.pyAttn.ready")
    return info


def until(page: Page, condition: Callable[[], bool], what: str) -> None:
    """Wait until ``condition`` holds here, and let the page's events come in meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s for {what}"
        page.wait_for_timeout(50)


def next_frames(page: Page) -> None:
    """Wait until the page was laid out and drawn anew, and what observes sizes has had its turn."""
    frame = "await new Promise((done) => requestAnimationFrame(done));"
    page.evaluate(f"async () => {{ {2 * frame} }}")


def wait_for_maps(page: Page, source: int) -> None:
    """Until all thumbnails of the page's n-th source are painted."""
    page.wait_for_selector(f'#overview[data-painted="{source}"]')
