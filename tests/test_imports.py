"""Which parts of the package may import which others; imports for type checkers count too."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

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
