"""The built site as such: complete, self-contained, and alive under a sub-path."""

from __future__ import annotations

import hashlib
import json
import urllib.request
from urllib.parse import urlsplit

import pytest

from e2e.lab import PythonError, wait_until_ready


def read(url: str) -> bytes:
    with urllib.request.urlopen(url) as response:
        return response.read()


def test_the_manifest_says_what_is_there(site_url):
    manifest = json.loads(read(f"{site_url}manifest.json"))
    names = {"numpy", "markupsafe", "jinja2", "py_attn", "pyodide.asm.wasm", "python_stdlib"}
    names |= {"python-start", "python-rest"}
    assert names | {"minilm/model.safetensors", "minilm/vocab.txt"} <= manifest["assets"].keys()
    for entry in manifest["assets"].values():
        content = read(site_url + entry["path"])
        assert (len(content), hashlib.sha256(content).hexdigest()) == (entry["bytes"], entry["sha256"])


@pytest.mark.parametrize("file", ["LICENSE", "THIRD_PARTY_NOTICES.md", "assets/licenses.md"])
def test_licences_travel_with_the_site(site_url, file):
    assert read(site_url + file)


def test_boots_under_a_sub_path_and_says_on_what(page, site_url):
    assert urlsplit(site_url).path.count("/") > 1
    page.goto(site_url)
    info = wait_until_ready(page)
    assert info["adapter"]
    assert isinstance(info["software"], bool)
    assert all(isinstance(feature, str) for feature in info["features"])
    assert info["versions"]


def test_python_answers_with_plain_data(lab):
    lab.run("import numpy as np")
    source = "{'sum': float(np.arange(5).sum()), 'list': [1, None, 'x'], 'nested': {'a': (1, 2)}}"
    assert lab.run(source) == {"sum": 10.0, "list": [1, None, "x"], "nested": {"a": [1, 2]}}


def test_python_s_names_live_on_and_await_works_at_the_top(lab):
    lab.run("import asyncio\nkept = 41")
    assert lab.run("await asyncio.sleep(0)\nkept + 1") == 42


def test_a_python_exception_comes_with_its_traceback(lab):
    with pytest.raises(PythonError, match=r"(?s)Traceback.*ZeroDivisionError"):
        lab.run("1 / 0")
