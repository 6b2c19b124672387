"""Finds the Chromium for tests and benchmarks, or installs one."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.common import CACHE, Failure, run_main, say
from scripts.setup import apt_install, can_apt_install

FOUND = CACHE / "browser.txt"
SYSTEM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC_CHROME = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"

# Playwright's own Node needs a library (libatomic) that a minimal Debian lacks, so the system's Node is used.
if node := shutil.which("node"):
    os.environ.setdefault("PLAYWRIGHT_NODEJS_PATH", node)

#: What the browser does for itself and no page of ours needs: pages that wait for somebody to type into its
#: address bar, and a process that waits for the next page. They take a third of the CPU time that it takes to
#: open our page.
_OWN = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "SpareRendererForSitePerProcess")
#: What Playwright turns off. Chromium heeds the last list of features only, so ours repeats them:
#: https://github.com/microsoft/playwright/blob/v1.65.0/packages/playwright-core/src/server/chromium/chromiumSwitches.ts
_PLAYWRIGHTS = (
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable",
    "LensOverlay",
    "MediaRouter",
    "PaintHolding",
    "ThirdPartyStoragePartitioning",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "TcpPortRandomizationWin",
    "OptimizationHints",
    "NetworkTimeServiceQuerying",
    "AimEnabled",
    "PreconnectToSearch",
)

#: WebGPU on any adapter (also a software one), exact timestamps, no network traffic of the browser's own.
FLAGS = [
    "--no-sandbox",
    "--enable-unsafe-webgpu",
    "--enable-webgpu-developer-features",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    f"--disable-features={','.join((*_PLAYWRIGHTS, *_OWN))}",
]


def browser_flags() -> list[str]:
    """The flags to start it with, and those in $PY_ATTN_BROWSER_FLAGS (to reach a GPU, for example)."""
    return [*FLAGS, *shlex.split(os.environ.get("PY_ATTN_BROWSER_FLAGS", ""))]


def find_browser() -> Path | None:
    """Return the browser to use: $PY_ATTN_BROWSER, the remembered one, Playwright's, or the system's."""
    given = os.environ.get("PY_ATTN_BROWSER")
    if given:
        if not starts(Path(given)):
            raise Failure(f"PY_ATTN_BROWSER={given} does not start")
        return Path(given)
    if FOUND.is_file():
        remembered = Path(FOUND.read_text(encoding="utf-8"))
        if remembered.is_file():
            return remembered
    system = [shutil.which(name) for name in SYSTEM_NAMES]
    candidates = [_playwright_path(), *(Path(path) for path in [*system, MAC_CHROME] if path)]
    found = next((path for path in candidates if starts(path)), None)
    if found:
        FOUND.parent.mkdir(exist_ok=True)
        FOUND.write_text(str(found), encoding="utf-8")
    return found


def _playwright_path() -> Path:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        return Path(playwright.chromium.executable_path)


def starts(path: Path) -> bool:
    """Whether the program exists and has all its libraries."""
    if not path.is_file():
        return False
    if os.name == "nt":  # where --version opens a window
        return True
    return subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0


def install_browser() -> None:
    """Install Playwright's Chromium, or Debian's where that download is not possible."""
    say("no Chromium found, installing Playwright's")
    command = [sys.executable, "-m", "playwright", "install", "chromium", "--no-shell"]
    installed = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if installed.returncode == 0 and find_browser():
        return
    reasons = [line for line in installed.stderr.splitlines() if "Error: " in line]
    say(f"could not install Playwright's Chromium ({reasons[0] if reasons else 'it does not start'})")
    if can_apt_install():
        apt_install("chromium")


def main() -> None:
    """Make sure that there is a browser, and print which."""
    browser = find_browser()
    if browser is None:
        install_browser()
        browser = find_browser()
    if browser is None:
        raise Failure(
            "no Chromium or Chrome was found and none could be installed; "
            "install one and set PY_ATTN_BROWSER to its path if it has an unusual one."
        )
    say(f"browser: {browser}")


if __name__ == "__main__":
    run_main(main)
