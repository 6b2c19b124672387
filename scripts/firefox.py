"""Finds the Firefox for the end-to-end tests, or installs one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from scripts.browser import starts
from scripts.common import Failure, run_main, say
from scripts.setup import apt_install, can_apt_install

NAMES = ("firefox", "firefox-esr")
MAC_FIREFOX = "/Applications/Firefox.app/Contents/MacOS/firefox"


def find_firefox() -> Path | None:
    """Return the Firefox to use: $PY_ATTN_FIREFOX, or the system's."""
    given = os.environ.get("PY_ATTN_FIREFOX")
    if given:
        if not starts(Path(given)):
            raise Failure(f"PY_ATTN_FIREFOX={given} does not start")
        return Path(given)
    candidates = [*filter(None, map(shutil.which, NAMES)), MAC_FIREFOX]
    return next((path for path in map(Path, candidates) if starts(path)), None)


def main() -> None:
    """Make sure that there is a Firefox where one can be installed, and print which."""
    firefox = find_firefox()
    if firefox is None and can_apt_install():
        try:
            apt_install("firefox-esr")
        except Failure as failure:
            say(str(failure))
        firefox = find_firefox()
    if firefox is None:
        say("no Firefox was found, so that its tests are skipped; PY_ATTN_FIREFOX may name one.")
    else:
        say(f"Firefox: {firefox}")


if __name__ == "__main__":
    run_main(main)
