"""Builds what goes to PyPI into dist-python/: the wheel, with the widget's front end in it, and the sdist.

Builds are reproducible byte for byte: hatchling takes all times from SOURCE_DATE_EPOCH, or a fixed date.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from scripts.build import build_widget
from scripts.common import ROOT, VENV_PYTHON, call, locked, run_main, say

PACKAGES = ROOT / "dist-python"


def package(folder: Path = PACKAGES) -> list[Path]:
    """Build wheel and sdist into ``folder``, check their metadata, and return them."""
    with locked("build"):
        build_widget()
        shutil.rmtree(folder, ignore_errors=True)
        call([VENV_PYTHON, "-m", "hatchling", "build", "--directory", folder], "hatchling could not build")
    made = sorted(folder.iterdir())
    call([VENV_PYTHON, "-m", "twine", "check", "--strict", *made], "twine found problems")
    return made


def main() -> None:
    """Build, and print the files' sizes."""
    for path in package():
        say(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    run_main(main)
