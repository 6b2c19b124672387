"""Runs the end-to-end tests marked ``thorough``, which `npm test` leaves out to end within half an hour.

They take long, or are one more case of what a test of `npm test` checks: another form of a kernel, another
width of the page, another moment at which the device is lost. Arguments go to pytest:
``npm run test:thorough -- e2e/test_kernels_attention.py -k causal``.
"""

from __future__ import annotations

import sys

from scripts.check import THOROUGH, TWO_WORKERS
from scripts.common import VENV_PYTHON, call, run_main, with_tests


def main() -> None:
    """Run them."""
    options = with_tests(sys.argv[1:], "e2e")
    call([VENV_PYTHON, "-m", "pytest", "-m", THOROUGH, *TWO_WORKERS, *options], "pytest found problems.")


if __name__ == "__main__":
    run_main(main)
