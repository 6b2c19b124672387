"""Collects how much of its error bound every kernel check used; a table of the largest ends the run."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

Table = dict[tuple[str, str], list[float]]


class ErrorRatios:
    """Error over bound per feature and kernel variant; 1 is the most that is allowed."""

    def __init__(self) -> None:
        self.rows: Table = defaultdict(list)

    def note(self, features: list[str], variant: str, ratio: float) -> None:
        """Count one checked result."""
        for feature in ["all", *features]:
            self.rows[feature, variant].append(ratio)

    def table(self) -> list[str]:
        """Markdown lines: features down, variants across, the largest ratio and the number of checks."""
        variants = sorted({variant for _, variant in self.rows})
        lines = [
            f"| largest error / bound (checks) | {' | '.join(variants)} |",
            f"|---|{'---|' * len(variants)}",
        ]
        for feature in dict.fromkeys(feature for feature, _ in self.rows):
            found = [self.rows.get((feature, variant)) for variant in variants]
            cells = (f"{max(ratios):.2f} ({len(ratios)})" if ratios else "" for ratios in found)
            lines.append(f"| {feature} | {' | '.join(cells)} |")
        return lines


_RATIOS = ErrorRatios()


@pytest.fixture(scope="session")
def error_ratios() -> ErrorRatios:
    """Where kernel checks note their ratios."""
    return _RATIOS


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what this process has noted to the one that prints, where several run the tests."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["error_ratios"] = [[*row, ratios] for row, ratios in _RATIOS.rows.items()]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what another process has noted."""
    for feature, variant, ratios in getattr(node, "workeroutput", {}).get("error_ratios", ()):
        _RATIOS.rows[feature, variant] += ratios


def show_table(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the table behind the run's results, and to a file."""
    if not _RATIOS.rows:
        return
    lines = _RATIOS.table()
    terminalreporter.section("kernels against float64")
    for line in lines:
        terminalreporter.write_line(line)
    path = Path(__file__).parent / "artifacts" / "error_ratios.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
