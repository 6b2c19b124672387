"""`lab` without a browser: the same tests on this computer's own adapter, by `npm run test:native`.

One rule says which tests run: those that ask for `lab` and for no page or site, and are not marked
`needs_page(reason)`. The run ends with a list of what was left out.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import py_attn as pa
from e2e.lab import PATIENCE_S, Lab, PythonError
from py_attn.native import NativeBridge

_LEFT_OUT = pytest.StashKey[Counter[str]]()
FIXTURES_OF_A_PAGE = {"browser", "context", "page", "site_url"}


class NativeLab(Lab):
    """Python of the tests' own process, with one event loop and one set of names for the whole session."""

    def __init__(self, runner: asyncio.Runner, folder: Path) -> None:
        self._folder = folder
        self._runner = runner
        self._names: dict[str, Any] = {"__name__": "__lab__"}
        device = runner.run(pa.request_device(NativeBridge()))
        features = sorted(device.info.features)
        self.info = {"adapter": str(device.info), "features": features, "software": device.info.software}

    def run(self, source: str, timeout: float = PATIENCE_S) -> Any:
        # Examples may write files.
        with contextlib.chdir(self._folder), warnings.catch_warnings():
            # As in the page, where a warning is no error and reaches nobody.
            warnings.simplefilter("ignore")
            return self._runner.run(self._run(source, timeout))

    async def _run(self, source: str, timeout: float) -> Any:
        try:
            return plain(await asyncio.wait_for(self._evaluate(source), timeout))
        except TimeoutError:
            raise TimeoutError(f"no answer from Python within {timeout} s") from None
        except (Exception, asyncio.CancelledError) as error:
            raise PythonError(f"{''.join(traceback.format_exception(error))}") from None

    async def _evaluate(self, source: str) -> Any:
        """Run a source with top-level `await`; the value of its last expression."""
        tree = ast.parse(source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        await self._execute(compile(tree, "<lab>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        if last is None:
            return None
        return await self._execute(
            compile(ast.Expression(last.value), "<lab>", "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        )

    async def _execute(self, code: Any) -> Any:
        value = eval(code, self._names)
        return await value if code.co_flags & inspect.CO_COROUTINE else value

    def install(self) -> None:
        """`e2e.page` is importable here."""


def plain(value: Any) -> Any:
    """What reaches the tests from a page: a tuple arrives as a list."""
    if isinstance(value, (list, tuple)):
        return [plain(x) for x in value]
    return {key: plain(x) for key, x in value.items()} if isinstance(value, dict) else value


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeLab]:
    """Python on this computer's own adapter."""
    with asyncio.Runner() as runner:
        yield NativeLab(runner, tmp_path_factory.mktemp("lab"))


def why_left_out(item: pytest.Item) -> str:
    """Why a test does not run here, or ''."""
    if marker := item.get_closest_marker("needs_page"):
        return str(marker.args[0])
    fixtures = getattr(item, "fixturenames", ())
    given = getattr(getattr(item, "callspec", None), "params", {})
    if FIXTURES_OF_A_PAGE.intersection(fixtures) - given.keys():
        return "asks for a page"
    return "" if "lab" in fixtures else "does not ask for `lab`"


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only the tests that run without a browser."""
    reasons = [why_left_out(item) for item in items]
    config.stash[_LEFT_OUT] = Counter(
        f"{item.path.name}: {why}" for item, why in zip(items, reasons, strict=True) if why
    )
    items[:] = [item for item, why in zip(items, reasons, strict=True) if not why]


def summary(reporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List what was left out."""
    reporter.section("left out, as they need a browser")
    # Not known where other processes ran the tests.
    for line, count in config.stash.get(_LEFT_OUT, Counter()).items():
        reporter.write_line(f"{count:4} of {line}")
