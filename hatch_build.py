"""Puts the widget's front end, which the build bundles from web/, into the wheel and the sdist."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STATIC = "py_attn/widget/static"
FILES = ("widget.js", "widget.css", "bridge.js")


class WidgetBundle(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the bundle; the page's own wheel (``PY_ATTN_WHEEL=page``), where nothing uses it, goes without."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files that the builder would leave out."""
        if os.environ.get("PY_ATTN_WHEEL") == "page" or version == "editable":
            return
        missing = [name for name in FILES if not (Path(self.root) / STATIC / name).is_file()]
        if missing:
            raise RuntimeError(f"{STATIC}/{missing[0]} is missing: run `npm run build` first")
        build_data["artifacts"] += [f"/{STATIC}/{name}" for name in FILES]
