"""Compressed copies of the site's files, and the server that sends them where asked to."""

import gzip
import http.client
import subprocess
from urllib.parse import urlsplit

import pytest

from scripts import compressed
from scripts.serve import serving

TEXT = "attention is all you need\n" * 400


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Files of a site, with the cache of copies elsewhere."""
    monkeypatch.setattr(compressed, "FOLDER", tmp_path / "cache")
    folder = tmp_path / "site"
    folder.mkdir()
    for name, text in {"a.js": TEXT, "b.wasm": TEXT * 2, "c.whl": TEXT, "small.css": "a{}"}.items():
        (folder / name).write_text(text)
    return folder


def files_of(folder):
    return {path.name: path for path in folder.iterdir()}


def unpacked(path):
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes()).decode()
    script = "process.stdout.write(zlib.brotliDecompressSync(fs.readFileSync(process.argv[1])))"
    command = ["node", "-e", script, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_what_shrinks_has_two_copies(site):
    copies = compressed.compressed_copies(files_of(site))
    assert sorted(copies) == ["a.js.br", "a.js.gz", "b.wasm.br", "b.wasm.gz"]
    assert [unpacked(copies[name]) for name in sorted(copies)] == [TEXT, TEXT, TEXT * 2, TEXT * 2]
    assert all(copy.stat().st_size < 500 for copy in copies.values())


def test_copies_are_made_once_and_go_with_their_file(site, monkeypatch):
    first = compressed.compressed_copies(files_of(site))
    made = []
    monkeypatch.setattr(compressed, "_compress", made.append)
    assert compressed.compressed_copies(files_of(site)) == first
    assert made == []
    (site / "a.js").unlink()
    compressed.compressed_copies(files_of(site))
    assert len(list(compressed.FOLDER.iterdir())) == 2


def fetch(url, path, accepted):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port)
    connection.request("GET", f"{parts.path}{path}", headers={"Accept-Encoding": accepted})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


@pytest.mark.parametrize(
    ("on", "accepted", "encoding"),
    [
        (True, "gzip, deflate, br, zstd", "br"),
        (True, "gzip;q=1.0", "gzip"),
        (True, "identity", None),
        (False, "gzip, br", None),
    ],
)
def test_the_server_sends_what_is_taken(site, on, accepted, encoding):
    for name, copy in compressed.compressed_copies(files_of(site)).items():
        (site / name).write_bytes(copy.read_bytes())
    with serving(site, "/x/", compressed=on) as url:
        response, body = fetch(url, "a.js?sha256=1", accepted)
        assert response.headers["Content-Type"].startswith("text/javascript")
        assert response.headers["Content-Encoding"] == encoding
        assert response.headers["Vary"] == ("Accept-Encoding" if on else None)
        assert len(body) < 500 if encoding else body == TEXT.encode()
        plain, body = fetch(url, "c.whl", accepted)
        assert (plain.headers["Content-Encoding"], body) == (None, TEXT.encode())
