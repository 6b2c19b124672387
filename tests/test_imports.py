"""Which parts of the package may import which others; imports for type checkers count too."""

import ast
import importlib
import pickle
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import py_attn as pa

PACKAGE = Path(__file__).parent.parent / "py_attn"


def imports(path):
    """The modules of py_attn that a file imports, also inside of functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if module(name) else node.module for name in names}
    return {name for name in found if name.split(".")[0] == "py_attn"}


def module(name):
    """The file of a module by its dotted name, or None."""
    path = PACKAGE.parent.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def files(*folders):
    return [path for folder in folders for path in sorted((PACKAGE / folder).rglob("*.py"))]


@pytest.mark.parametrize(
    ("folder", "below"),
    [
        ("gpu", {"py_attn.gpu", "py_attn.errors", "py_attn.arguments"}),
        ("native", {"py_attn.native", "py_attn.gpu", "py_attn.errors", "py_attn.models.files"}),
        ("remote", {"py_attn.remote", "py_attn.gpu", "py_attn.errors", "py_attn.models.files"}),
    ],
)
def test_a_folder_imports_only_what_is_below_it(folder, below):
    for path in files(folder):
        above = {name for name in imports(path) if not any(f"{name}.".startswith(f"{b}.") for b in below)}
        assert not above, f"{path.name} imports {sorted(above)}"


def test_no_modules_import_each_other_in_a_circle():
    graph = {}
    for path in files("."):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        graph[name] = imports(path)
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules of a circle


@pytest.mark.parametrize("package", [pa, pa.models])
def test_what_a_package_defines_can_be_used(package):
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        value = getattr(package, name)
        assert vars(package)[name] is value  # later uses find it at once
        if isinstance(value, type):
            assert pickle.loads(pickle.dumps(value)) is value
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018


@pytest.mark.parametrize("package", [pa, pa.models])
def test_what_is_imported_when_it_is_used_is_what_type_checkers_see(package):
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    checked = [node for node in tree.body if isinstance(node, ast.If)]
    late = [node for node in checked[0].body if isinstance(node, ast.ImportFrom)]
    for module, alias in ((node.module, alias) for node in late for alias in node.names):
        name = alias.asname or alias.name
        if name in package.__all__:
            found = getattr(package, name)
            assert found is getattr(importlib.import_module(module), alias.name)


START = """
import asyncio, sys
from pathlib import Path
from py_attn.gpu.device import request_device
from py_attn.viewer import Viewer
from py_attn.viewer.methods import METHODS
from tests.recording_bridge import RecordingBridge

async def start():
    viewer = Viewer(lambda: request_device(RecordingBridge()))
    await viewer.call("connect", {})
    await viewer.call("open_sample", {"data": Path(sys.argv[1]).read_bytes()})
    for name in ("legend", "window"):
        await viewer.call(name, METHODS[name].start)

asyncio.run(start())
print(*(name for name in sys.modules if name.startswith("py_attn.")))
"""


def test_a_first_map_needs_few_modules():
    sample = PACKAGE.parent / "web" / "public" / "sample" / "capitals.npz"
    command = [sys.executable, "-c", START, sample]
    answer = subprocess.run(command, cwd=PACKAGE.parent, check=True, capture_output=True, text=True)
    found = answer.stdout.split()
    assert "py_attn.kernels.attention.forward" in found
    late = ("models.minilm", "tracing", "torch", "kernels.attention.backward", "kernels.decode", "kernels.nn")
    assert not [name for name in found if name.startswith(tuple(f"py_attn.{each}" for each in late))]
    # Each takes about a millisecond of the start; more than this should have a reason.
    assert len(found) < 100
