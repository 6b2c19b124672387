"""Bytecode that is kept from one visit to the next."""

import importlib
import io
import sys
import zipfile

import pytest

from py_attn.viewer.bytecode import collect


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module imported from a folder of its own, its bytecode written."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kept_module.py").write_text("value = 1\n")
    importlib.invalidate_caches()
    yield importlib.import_module("kept_module")
    sys.modules.pop("kept_module", None)


def test_kept_bytecode_is_used_whatever_the_source_s_time(module, tmp_path):
    archive = zipfile.ZipFile(io.BytesIO(collect([module])))
    (name,) = archive.namelist()
    cached = tmp_path / "__pycache__" / name.split("/")[-1]
    assert name == cached.as_posix().lstrip("/")
    # The unpacked bytecode is taken even where the source beside it is another.
    cached.write_bytes(archive.read(name))
    (tmp_path / "kept_module.py").write_text("value = 'compiled again'\n")
    del sys.modules["kept_module"]
    importlib.invalidate_caches()
    assert importlib.import_module("kept_module").value == 1


def test_modules_without_bytecode_are_left_out():
    archive = zipfile.ZipFile(io.BytesIO(collect([sys, importlib.import_module("math")])))
    assert archive.namelist() == []
