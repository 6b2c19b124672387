"""Runs the tests with real models of Hugging Face's transformers, in numpy and on this computer's adapter.

They lie in `tests_transformers/` and need torch and transformers, which nothing else here does, so they have
an environment of their own, `.cache/transformers`. Arguments go to pytest:
``npm run test:transformers -- -k gemma3``.

torch is installed by its version and without a hash: pip takes a build for CPUs (``2.13.0+cpu``) wherever it
finds one (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL), and else PyPI's. On Linux that one needs CUDA's packages,
several GB, even where nothing is computed with them; they are installed only if torch does not start without.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from scripts.common import CACHE, ROOT, Failure, call, locked, run_main, say, with_tests
from scripts.native_tests import with_adapter
from scripts.setup import PIP_INSTALL, make_python_environment

FOLDER = CACHE / "transformers"
REQUIREMENTS = ROOT / "requirements-transformers.lock"
TESTS = "tests_transformers"


def torch_version() -> str:
    """The requirement of torch in pyproject.toml, e.g. ``torch==2.13.0``."""
    found = re.search(r'"(torch==[\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if found is None:
        raise Failure("pyproject.toml names no version of torch.")
    return found[1]


def install_torch(python: Path) -> None:
    """Install torch, without CUDA's packages if it starts without them."""
    torch = torch_version()
    install: list[str | Path] = [python, *PIP_INSTALL]
    failure = f"{torch} could not be installed; is the package index reachable?"
    say(f"installing {torch}")
    call([*install, "--no-deps", torch], failure)
    if subprocess.run([str(python), "-c", "import torch"], capture_output=True, check=False).returncode:
        say("this build of torch needs CUDA's packages: installing several GB")
        call([*install, torch], failure)


def main() -> None:
    """Make the environment, find an adapter, and run the tests."""
    with locked("transformers"):
        python = make_python_environment(FOLDER, REQUIREMENTS, install_torch)
    variables = with_adapter() | {"HF_HUB_OFFLINE": "1"}
    options = with_tests(sys.argv[1:], TESTS)
    call([python, "-m", "pytest", *options], "a test failed.", env=variables)


if __name__ == "__main__":
    run_main(main)
