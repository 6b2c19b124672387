"""Which end-to-end tests `npm test` leaves out, so that it ends within half an hour.

A test marked ``thorough`` takes long, or is one more case of what another one checks. Of a parametrized test,
``quick`` names the cases that `npm test` runs: patterns (`fnmatch`) of what stands in their square brackets,
but for the browser's name. Its other cases are thorough. `npm run test:thorough` runs all thorough tests.
"""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatchcase

import pytest


def declare(config: pytest.Config) -> None:
    """Make the marks known."""
    for line in (
        "thorough: takes long, or is one more case of what another test checks; for `npm run test:thorough`",
        "quick(*patterns): the cases that `npm test` runs; the others are thorough",
    ):
        config.addinivalue_line("markers", line)


def mark_cases(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases that `quick` does not name.

    Raises
    ------
    pytest.UsageError
        If a pattern fits no case, as after a change of the cases' names.
    """
    cases = defaultdict(list)
    for item in items:
        if marker := item.get_closest_marker("quick"):
            cases[item.nodeid.partition("[")[0], marker.args].append(item)
    for (test, patterns), those in cases.items():
        fitting = {p: [item for item in those if fnmatchcase(case_of(item), p)] for p in patterns}
        for item in those:
            if not any(item in some for some in fitting.values()):
                item.add_marker("thorough")
        idle = [pattern for pattern, some in fitting.items() if not some]
        # Who names single cases on the command line need not name all that are quick.
        if idle and not any("::" in argument for argument in config.args):
            raise pytest.UsageError(f"{test} has no case {' and no '.join(map(repr, idle))}.")


def case_of(item: pytest.Item) -> str:
    """What names a case of a parametrized test, without the browser."""
    names = item.name.partition("[")[2].removesuffix("]").split("-")
    return "-".join(name for name in names if name != "chromium")
