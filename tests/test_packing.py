"""The archives of the page's Python: what is compiled, what comes later, and that both make one library."""

import importlib.util
import io
import marshal
import tarfile
import zipfile

import pytest

from scripts.common import Failure
from scripts.dev import read_pack, read_wheel, with_package, write_pack
from scripts.packing import LIBRARY, PACKAGES, module_name, write_image, write_packs


def zipped(files):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return target.getvalue()


@pytest.fixture(scope="module")
def packs():
    stdlib = zipped({"json/__init__.py": "early = 1", "pdb.py": "late = 1", "json/notes.txt": "data"})
    wheel = zipped(
        {
            "numpy/core.cpython-314-wasm32-emscripten.so": b"\0asm",
            "numpy/random.cpython-314-wasm32-emscripten.so": b"\0asm",
            "numpy/core.pyi": "",
            "numpy-2.dist-info/LICENSE": "BSD",
        }
    )
    ours = zipped({"py_attn/late.py": "ours = 1", "py_attn/shaders/a.wgsl": "fn main() {}"})
    return [
        read(pack)
        for pack in write_packs(stdlib, [wheel, ours], ["json", "numpy.core"], {"/a/b.cache": b"more"})
    ]


def read(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {name: opened.extractfile(name).read() for name in opened.getnames()}


def test_what_a_start_imports_comes_compiled_and_first(packs):
    start, rest = packs
    assert set(rest) == {
        f"{LIBRARY}pdb.py",
        f"{PACKAGES}numpy/random.cpython-314-wasm32-emscripten.so",
    }
    cached = importlib.util.cache_from_source("py_attn/late.py", optimization="")
    assert set(start) == {
        f"{LIBRARY}json/__init__.pyc",
        f"{LIBRARY}json/notes.txt",
        f"{PACKAGES}numpy/core.cpython-314-wasm32-emscripten.so",
        f"{PACKAGES}numpy-2.dist-info/LICENSE",
        f"{PACKAGES}py_attn/late.py",
        f"{PACKAGES}{cached}",
        f"{PACKAGES}py_attn/shaders/a.wgsl",
        "a/b.cache",
    }


def test_an_image_leaves_out_the_bytecode_of_what_is_imported_in_it():
    stdlib = zipped({"json/__init__.py": "a = 1", "pdb.py": "b = 1", "json/notes.txt": "data"})
    ours = zipped({"py_attn/early.py": "c = 1", "py_attn/late.py": "d = 1"})
    start, _ = write_packs(stdlib, [ours], ["json", "pdb"], {})
    image = read(write_image(start, {"memory": b"memory", "memory.json": b"{}"}, ["json", "py_attn.early"]))
    late = importlib.util.cache_from_source("py_attn/late.py", optimization="")
    assert list(image)[:2] == ["memory", "memory.json"]
    assert set(image) == {
        "memory",
        "memory.json",
        f"{LIBRARY}json/notes.txt",
        f"{LIBRARY}pdb.pyc",
        f"{PACKAGES}py_attn/early.py",
        f"{PACKAGES}py_attn/late.py",
        f"{PACKAGES}{late}",
    }


def test_bytecode_is_this_python_s_and_never_checked(packs):
    content = packs[0][f"{LIBRARY}json/__init__.pyc"]
    assert content[:4] == importlib.util.MAGIC_NUMBER
    assert int.from_bytes(content[4:8], "little") == 0b01  # by hash, unchecked (PEP 552)
    code = marshal.loads(content[16:])
    assert code.co_filename == "/lib/python/json/__init__.py"
    namespace = {}
    exec(code, namespace)
    assert namespace["early"] == 1


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("os.py", "os"),
        ("json/__init__.py", "json"),
        ("numpy/_core/_multiarray_umath.cpython-314-wasm32-emscripten.so", "numpy._core._multiarray_umath"),
    ],
)
def test_a_file_s_module(path, name):
    assert module_name(path) == name


def test_the_development_server_replaces_only_py_attn():
    packages = "lib/python3.14/site-packages/"
    before = {
        f"{packages}numpy/core.pyc": b"numpy",
        f"{packages}py_attn/__init__.py": b"same",
        f"{packages}py_attn/__pycache__/__init__.cpython-314.pyc": b"bytecode",
        f"{packages}py_attn/a/b.py": b"old",
        f"{packages}py_attn/a/__pycache__/b.cpython-314.pyc": b"old bytecode",
        f"{packages}py_attn/a/gone.py": b"gone",
        f"{packages}py_attn/a/__pycache__/gone.cpython-314.pyc": b"gone",
        f"{packages}py_attn/shaders/compiled/c.cache": b"checked against its source",
    }
    now = {"py_attn/__init__.py": b"same", "py_attn/a/b.py": b"new", "py_attn/shaders/a.wgsl": b"fn"}
    expected = dict(list(before.items())[:3])
    expected |= {f"{packages}py_attn/a/b.py": b"new", f"{packages}py_attn/shaders/a.wgsl": b"fn"}
    expected |= dict(list(before.items())[-1:])
    assert read_pack(write_pack(with_package(before, now))) == expected


def test_the_development_server_names_a_syntax_error(tmp_path):
    wheel = tmp_path / "py_attn.whl"
    wheel.write_bytes(zipped({"py_attn/a.py": "x = 1\ny = \n"}))
    with pytest.raises(Failure, match=r"py_attn/a\.py, line 2: invalid syntax"):
        read_wheel(wheel)
