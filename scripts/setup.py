"""Sets up a fresh clone: Python environment, npm packages, downloads and, with options, browsers.

npm runs it before start, build, test and bench. Steps that are up to date are skipped, so later runs are
quick and need no network. Every step can be interrupted; the next run repeats it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from scripts.common import (
    ROOT,
    VENV,
    VENV_PYTHON,
    Failure,
    Stamp,
    call,
    locked,
    npm,
    run_main,
    say,
    sha256_file,
)
from scripts.fetch import fetch_all

REQUIREMENTS = ROOT / "requirements-dev.lock"
#: Arguments of an environment's Python. Pip compiles no modules: most are never imported, and Python compiles
#: those that are.
PIP_INSTALL = (
    *("-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-compile"),
    *("--only-binary", ":all:"),
)


def make_python_environment(
    folder: Path = VENV, requirements: Path = REQUIREMENTS, finish: Callable[[Path], None] | None = None
) -> Path:
    """Make an environment and install the locked packages, unless both are current; returns its Python.

    ``finish`` is called with that Python after the packages were installed.
    """
    inner = VENV_PYTHON.relative_to(VENV)
    python = f"{platform.python_implementation()} {platform.python_version()} {platform.machine()}"
    stamp = Stamp(folder / "py-attn.stamp", f"{python} {sha256_file(requirements)}")
    own, name = folder / inner, folder.relative_to(ROOT)
    if stamp.is_current() and _runs(own):
        return own
    say(f"making {name} with {python}")
    _need_venv_module()
    call([sys.executable, "-m", "venv", "--clear", folder], f"the environment {name} could not be made")
    say(f"installing the locked Python packages into {name}")
    call(
        [
            own,
            *PIP_INSTALL,
            *("--require-hashes", "--no-deps", "--requirement", requirements),
        ],
        "the Python packages could not be installed; is the package index reachable?",
    )
    if finish is not None:
        finish(own)
    stamp.write()
    return own


def _runs(python: object) -> bool:
    """Whether an environment's interpreter still starts (its base Python may have been removed)."""
    try:
        return subprocess.run([str(python), "-c", ""], check=False).returncode == 0
    except OSError:
        return False


def _need_venv_module() -> None:
    """Make sure that the venv module works; in Debian it is a package of its own."""
    if importlib.util.find_spec("ensurepip") and importlib.util.find_spec("venv"):
        return
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    if not can_apt_install():
        raise Failure(
            f"this Python has no venv module; install it (on Debian: sudo apt-get install {package})."
        )
    apt_install(package)


def can_apt_install() -> bool:
    """Whether this is a Debian-like system on which this user may install packages."""
    return shutil.which("apt-get") is not None and hasattr(os, "geteuid") and os.geteuid() == 0


def apt_install(package: str) -> None:
    """Install a Debian package."""
    say(f"installing Debian's package {package}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    failure = f"Debian's package {package} could not be installed"
    call(["apt-get", "update", "-qq"], failure, env=environment)
    call(
        ["apt-get", "install", "-qq", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0", package],
        failure,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


def install_npm_packages() -> None:
    """Run `npm ci`, unless node_modules is current."""
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    lock = sha256_file(ROOT / "package-lock.json")
    stamp = Stamp(ROOT / "node_modules" / ".py-attn.stamp", f"{node} {platform.machine()} {lock}")
    if stamp.is_current():
        return
    say("installing the locked npm packages into node_modules")
    call([npm(), "ci", "--no-audit", "--no-fund"], "npm ci failed; is the package registry reachable?")
    stamp.write()


def main() -> None:
    """Do all steps, in one process at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--browser", action="store_true", help="also find or install a Chromium")
    parser.add_argument(
        "--firefox", action="store_true", help="also find a Firefox, or install one where possible"
    )
    options = parser.parse_args()
    with locked("setup"):
        make_python_environment()
        install_npm_packages()
        fetch_all()
        if options.browser:
            call([VENV_PYTHON, "-m", "scripts.browser"], "there is no browser to test with")
        if options.firefox:
            call([VENV_PYTHON, "-m", "scripts.firefox"], "Firefox does not start")
    say("everything is set up")


if __name__ == "__main__":
    run_main(main)
