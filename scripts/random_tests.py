"""Runs the tests with generated examples, in `tests/`, `e2e/` and `web/tests/`, on fresh examples.

It prints the seed. With that seed as the first argument the run is repeated: ``npm run test:random -- 1234``.
Further arguments go to pytest: ``npm run test:random -- 1234 tests -k cut`` runs some of the tests.
"""

from __future__ import annotations

import os
import secrets
import sys

from scripts.common import VENV_PYTHON, VITEST, Failure, call, run_main, say, with_tests

SUITES = ("tests", "e2e")


def main() -> None:
    """Run them; print the seed before and, where one fails, after."""
    given, *options = sys.argv[1:] or [str(secrets.randbelow(1 << 32))]
    if not given.isdecimal():
        raise Failure(f"expected a seed (a whole number) first, got {given!r}.")
    everything = not options
    options = with_tests(options, *SUITES)
    repeat = f"`npm run test:random -- {given}` repeats this run"
    say(f"seed {given}; {repeat}.")
    call(
        [VENV_PYTHON, "-m", "pytest", "-m", "hypothesis", f"--hypothesis-seed={given}", *options],
        f"a test failed with seed {given}; {repeat}.",
    )
    if everything:
        call(
            [*VITEST, "hostile"],
            f"a test failed with seed {given}; {repeat}.",
            env=os.environ | {"RANDOM_SEED": given},
        )
    say(f"all passed with seed {given}.")


if __name__ == "__main__":
    run_main(main)
