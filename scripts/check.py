"""Runs all checks in order, as `npm test` does; stops at the first group that fails.

With names of groups as arguments, runs only those.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable

from scripts.build import build
from scripts.common import CACHE, DIST, ROOT, VENV_PYTHON, VITEST, Failure, call, run_main, say

#: Code in the site's own files that would send requests to another host. Links for people are allowed; the
#: end-to-end tests check the requests that are really sent.
FOREIGN = re.compile(rb"""(?:\bfrom|\bimport|src=|fetch\()\s*\(?["'`]https?://""")


def python_module(*arguments: str) -> Callable[[], None]:
    """A check that runs a module of the project's own Python."""
    return lambda: call([VENV_PYTHON, "-m", *arguments], f"{arguments[0]} found problems.")


def types_of_scripts() -> None:
    """Check the types of the page's JavaScript and of its unit tests."""
    tsc = ROOT / "node_modules" / "typescript" / "bin" / "tsc"
    for project in (ROOT, ROOT / "web" / "tests"):
        call(["node", tsc, "--project", project], "tsc found problems.")


def tests_of_scripts() -> None:
    """Run the unit tests of the page's JavaScript."""
    say("web/tests, with vitest")
    colors = [] if sys.stdout.isatty() else ["--no-color"]
    call([*VITEST, *colors], "vitest found problems.")
    say("tests, with pytest")


def site() -> None:
    """Build the site and look for requests to other hosts in what was bundled."""
    build()
    scripts = [*(DIST / "assets").rglob("*.js"), *DIST.glob("*.html")]
    guilty = [path.relative_to(DIST).as_posix() for path in scripts if FOREIGN.search(path.read_bytes())]
    if guilty:
        raise Failure(f"the site loads from another host in {', '.join(guilty)}.")


#: Two processes, or browsers, beside each other; a file's tests share what they stand on and stay together.
TWO_WORKERS = ("--numprocesses", "2", "--dist", "loadfile")
#: Files are begun in the order that conftest.py gives them, not those with the most tests first.
IN_ORDER = "--no-loadscope-reorder"
#: The mark of end-to-end tests that scripts/thorough_tests.py runs.
THOROUGH = "thorough"

GROUPS: dict[str, list[Callable[[], None]]] = {
    "lint": [
        python_module("ruff", "check", "--quiet"),
        python_module("ruff", "format", "--check", "--quiet"),
    ],
    "types": [python_module("mypy", "--cache-dir", str(CACHE / "mypy")), types_of_scripts],
    "unit tests": [tests_of_scripts, python_module("pytest", "tests", *TWO_WORKERS, IN_ORDER)],
    "build": [site],
    "end-to-end tests": [python_module("pytest", "e2e", "-m", f"not {THOROUGH}", *TWO_WORKERS)],
}


def commit() -> str:
    """What is checked: the commit and whether there are changes on top of it."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return "git is not installed"
    return described.stdout.strip() or "not a git tree"


def main() -> None:
    """Run the groups and print which passed."""
    wanted = sys.argv[1:] or list(GROUPS)
    unknown = [name for name in wanted if name not in GROUPS]
    if unknown:
        raise Failure(f"expected groups among {', '.join(GROUPS)}, got {unknown[0]!r}.")
    started = time.monotonic()
    for number, name in enumerate(wanted, 1):
        print(f"\n── {number}/{len(wanted)} {name} ──", flush=True)
        began = time.monotonic()
        try:
            for check in GROUPS[name]:
                check()
        except Failure as failure:
            raise Failure(f"FAILED in {name!r}: {failure}") from None
        say(f"{name}: passed in {time.monotonic() - began:.0f} s")
    say(f"all of {', '.join(wanted)} passed in {time.monotonic() - started:.0f} s ({commit()}).")


if __name__ == "__main__":
    run_main(main)
