"""The rest of the set-up: stamps, locks, progress lines, pure wheels, the static server, the site's files."""

from __future__ import annotations

import http.client
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scripts import build, common, start
from scripts.common import Failure, Progress, Stamp
from scripts.serve import make_server, serving
from scripts.wheels import write_pure_wheel


def test_a_stamp_is_current_only_for_its_own_fingerprint(tmp_path):
    stamp = Stamp(tmp_path / "made" / "stamp", "one")
    assert not stamp.is_current()
    stamp.write()
    assert stamp.is_current()
    assert not Stamp(stamp.path, "two").is_current()


def test_a_tree_s_hash_sees_contents_and_names(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "ROOT", tmp_path)
    (tmp_path / "a").write_text("1")
    first = common.sha256_tree([tmp_path])
    (tmp_path / "a").write_text("2")
    second = common.sha256_tree([tmp_path])
    (tmp_path / "a").rename(tmp_path / "b")
    assert len({first, second, common.sha256_tree([tmp_path])}) == 3


def test_progress_without_a_terminal_is_one_plain_line(capsys):
    progress = Progress("thing", 2_000_000)
    progress.update(1_000_000)
    progress.finish(2_000_000)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert "thing 100%  2.0 of 2.0 MB" in lines[0]


@pytest.mark.parametrize(("error", "code"), [("Failure('no network')", 1), ("KeyboardInterrupt", 130)])
def test_a_script_ends_with_one_line_instead_of_a_traceback(error, code):
    source = f"from scripts.common import *\ndef main():\n    raise {error}\nrun_main(main)"
    ended = subprocess.run(
        [sys.executable, "-c", source], cwd=common.ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == code
    assert len(ended.stderr.strip().splitlines()) == 1
    assert "Traceback" not in ended.stderr


def write_platform_wheel(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("thing/__init__.py", "import math\n")
        archive.writestr("thing/_fast.cpython-314-x86_64-linux-gnu.so", b"\x7fELF")
        archive.writestr("thing/_fast.c", "int x;")
        archive.writestr("thing-1.dist-info/WHEEL", "Tag: cp314-cp314-linux_x86_64\n")
        archive.writestr("thing-1.dist-info/METADATA", "Name: thing\n")
        archive.writestr("thing-1.dist-info/RECORD", "")


def test_a_pure_wheel_has_no_compiled_parts_and_the_same_bytes_each_time(tmp_path):
    write_platform_wheel(tmp_path / "platform.whl")
    write_pure_wheel(tmp_path / "platform.whl", tmp_path / "one.whl")
    write_pure_wheel(tmp_path / "platform.whl", tmp_path / "two.whl")
    assert (tmp_path / "one.whl").read_bytes() == (tmp_path / "two.whl").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.whl") as archive:
        names = archive.namelist()
        assert not [name for name in names if name.endswith((".so", ".c"))]
        assert "Tag: py3-none-any" in archive.read("thing-1.dist-info/WHEEL").decode()
        recorded = archive.read("thing-1.dist-info/RECORD").decode().splitlines()
    assert sorted(line.split(",")[0] for line in recorded) == sorted(names)


def get(url: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc, timeout=10)
    connection.request("GET", address.path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "pyodide").mkdir()
    (tmp_path / "index.html").write_text("<p>page")
    (tmp_path / "pyodide" / "pyodide.mjs").write_text("export {}")
    (tmp_path / "pyodide" / "pyodide.asm.wasm").write_bytes(b"\0asm")
    return tmp_path


def test_the_server_serves_a_site_under_a_sub_path_only(site):
    with serving(site, "/some/where/") as url:
        assert get(url)[1] == b"<p>page"
        assert get(url.removesuffix("/"))[0].status == 301
        assert get(url.replace("/some/where/", "/"))[0].status == 404
        assert get(f"{url}../index.html")[0].status != 500


def test_the_server_names_types_and_has_browsers_ask_again(site):
    with serving(site) as url:
        script, _ = get(f"{url}pyodide/pyodide.mjs")
        assert script.headers["Content-Type"].startswith("text/javascript")
        assert script.headers["Cache-Control"] == "no-cache"
        assert get(f"{url}pyodide/pyodide.asm.wasm")[0].headers["Content-Type"] == "application/wasm"
        unchanged, _ = get(url, **{"If-Modified-Since": script.headers["Last-Modified"]})
        assert unchanged.status == 304


def test_a_port_that_was_asked_for_and_is_taken_is_said_in_one_line(site, monkeypatch):
    with make_server(site) as taken:
        monkeypatch.setenv("PORT", str(taken.server_address[1]))
        with pytest.raises(Failure, match=r"port \d+ cannot be used"):
            start.open_server(site)
    monkeypatch.setenv("PORT", "http")
    with pytest.raises(Failure, match="PORT=http is not a port number"):
        start.open_server(site)


def test_the_default_port_gives_way_when_it_is_taken(site, monkeypatch):
    monkeypatch.delenv("PORT", raising=False)
    with make_server(site) as taken:
        port = taken.server_address[1]
        monkeypatch.setattr(start, "DEFAULT_PORT", port)
        with start.open_server(site) as server:
            assert server.server_address[1] != port


def test_dist_holds_exactly_what_belongs_there(tmp_path):
    dist = tmp_path / "dist"
    old = dist / "assets" / "old-1234.js"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    page = tmp_path / "page.html"
    page.write_text("one")
    build.put_in_place({"index.html": page}, dist)
    assert [path.name for path in dist.rglob("*")] == ["index.html"]
    page.unlink()
    page.write_text("two, longer")
    build.put_in_place({"index.html": page}, dist)
    assert (dist / "index.html").read_text() == "two, longer"
