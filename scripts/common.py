"""What the scripts share: paths, messages, errors, locks and progress bars."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
DIST = ROOT / "dist"
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
#: Runs the unit tests of the page's JavaScript.
VITEST = ("node", ROOT / "node_modules" / "vitest" / "vitest.mjs", "run")


class Failure(Exception):
    """An error that is reported to the user in one line."""


def say(line: str) -> None:
    """Print one line about what is being done."""
    print(f"py-attn: {line}", flush=True)


def run_main(main: Callable[[], int | None]) -> NoReturn:
    """Run a script's `main`; a `Failure` or Ctrl-C ends it with one line instead of a traceback."""
    try:
        sys.exit(main() or 0)
    except Failure as failure:
        print(f"py-attn: {failure}", file=sys.stderr, flush=True)
        sys.exit(1)
    except KeyboardInterrupt:
        print("\npy-attn: stopped; the next run goes on from here.", file=sys.stderr, flush=True)
        sys.exit(130)


def call(command: Sequence[str | Path], failure: str, **options: object) -> None:
    """Run a command and show its output; raise `Failure` with the given text if it does not succeed."""
    try:
        code = subprocess.run([str(part) for part in command], cwd=ROOT, check=False, **options).returncode  # type: ignore[call-overload]
    except FileNotFoundError:
        raise Failure(f"{failure} ({command[0]} is not installed)") from None
    if code:
        raise Failure(failure)


def with_tests(options: list[str], *suites: str) -> list[str]:
    """Arguments for pytest: `options`, behind whole suites (folders) where they name no tests of these."""
    return options if any(option.startswith(suites) for option in options) else [*suites, *options]


def npm() -> str:
    """The npm program's name on this system."""
    return "npm.cmd" if os.name == "nt" else "npm"


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_tree(paths: Sequence[Path]) -> str:
    """SHA-256 over names and contents of files and whole folders; paths that do not exist are left out."""
    digest = hashlib.sha256()
    for top in paths:
        files = sorted(top.rglob("*")) if top.is_dir() else [top]
        for path in files:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(ROOT).as_posix()}\0{sha256_file(path)}\n".encode())
    return digest.hexdigest()


class Stamp:
    """Remembers the inputs for which a step was last done, so that it is not repeated for the same ones.

    Parameters
    ----------
    path
        The file that holds the fingerprint; it disappears together with what it describes.
    fingerprint
        What the step depends on.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path = path
        self.fingerprint = fingerprint

    def is_current(self) -> bool:
        """Whether the step was finished for this fingerprint."""
        return self.path.is_file() and self.path.read_text(encoding="utf-8") == self.fingerprint

    def write(self) -> None:
        """Note that the step is finished."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.fingerprint, encoding="utf-8")


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Let one process at a time do a step; the operating system frees the lock when its holder ends."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}.lock").open("a+b") as file:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another {name} of this checkout to finish …")
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Progress:
    """A progress bar in bytes: one line that is redrawn on a terminal, elsewhere a plain line now and then.

    Parameters
    ----------
    label
        What is being downloaded.
    total
        Bytes expected.
    start
        Bytes that were there before.
    """

    WIDTH = 28

    def __init__(self, label: str, total: int, start: int = 0) -> None:
        self.label = label
        self.total = total
        self.start = start
        self._terminal = sys.stdout.isatty()
        self._started = time.monotonic()
        # The first plain line waits, because a download of a second needs none.
        self._drawn = self._started if not self._terminal else 0.0

    def update(self, done: int) -> None:
        """Show that `done` bytes have arrived."""
        now = time.monotonic()
        if done >= self.total or now - self._drawn < (0.1 if self._terminal else 5.0):
            return
        self._drawn = now
        self._draw(done)

    def finish(self, done: int) -> None:
        """Show the final state and end the line."""
        self._draw(done)
        if self._terminal:
            print(flush=True)

    def _draw(self, done: int) -> None:
        share = min(done / self.total, 1.0) if self.total else 1.0
        rate = (done - self.start) / max(time.monotonic() - self._started, 1e-3)
        unit, size = ("MB", 1e6) if self.total >= 1e6 else ("kB", 1e3)
        figures = f"{share:4.0%}  {done / size:.1f} of {self.total / size:.1f} {unit}, {rate / 1e6:.1f} MB/s"
        if self._terminal:
            bar = "█" * int(share * self.WIDTH)
            print(f"\r\033[K  {self.label} {bar:░<{self.WIDTH}} {figures}", end="", flush=True)
        else:
            print(f"  {self.label} {figures}", flush=True)
