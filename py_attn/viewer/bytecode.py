"""The compiled modules of this Python as an archive, for a page that keeps them until its next visit."""

from __future__ import annotations

import importlib.util
import io
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

# PEP 552: bytecode that is never checked against its source, whose times change with every unpacking.
_UNCHECKED = (1).to_bytes(4, "little")


def collect(modules: Iterable[ModuleType] | None = None) -> bytes:
    """A zip, to be unpacked at the root, of the bytecode that importing ``modules`` has written.

    Parameters
    ----------
    modules : iterable of module, optional
        All that are imported unless given.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        imported = list(sys.modules.values()) if modules is None else modules
        for path in sorted({path for module in imported if (path := _bytecode(module))}):
            data = path.read_bytes()
            archive.writestr(path.as_posix().lstrip("/"), data[:4] + _UNCHECKED + data[8:])
    return out.getvalue()


def _bytecode(module: ModuleType) -> Path | None:
    """The file that holds the module's bytecode, if there is one."""
    source = getattr(module, "__file__", None)
    if not source or not source.endswith(".py"):
        return None
    path = Path(importlib.util.cache_from_source(source))
    return path if path.is_file() else None
