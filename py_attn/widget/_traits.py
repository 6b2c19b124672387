"""The traits that a view shares with its front end, and the checks of their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from py_attn.colormaps import table
from py_attn.widget._viewer import NotebookViewer

STATIC = Path(__file__).parent / "static"


def _bundled(name: str) -> str:
    path = STATIC / name
    if path.is_file():
        return path.read_text(encoding="utf-8")
    if name.endswith(".css"):
        return ""
    say = f"{path} is missing: in a checkout of py-attn, `npm run build` makes it."
    return f"export default {{ render({{ el }}) {{ el.textContent = {say!r}; }} }}"


def _sync(trait: Any) -> Any:
    return trait.tag(sync=True)


#: The parts of a view, in the order in which they stand.
PARTS = ("overview", "focus", "links", "compare", "kernel")
#: Traits that a front end may set.
SETTABLE = ("layer", "head", "selection", "variant", "coloring")


class ViewTraits(anywidget.AnyWidget):
    """The traits that :mod:`py_attn.remote.protocol` describes."""

    _esm = _bundled("widget.js")
    _css = _bundled("widget.css")

    layer = _sync(traitlets.Int(0))
    head = _sync(traitlets.Int(0))
    selection = _sync(traitlets.Tuple(traitlets.Int(), traitlets.Int(), default_value=(0, 0)))
    variant = _sync(traitlets.Unicode("auto"))
    coloring = _sync(traitlets.Dict())
    parts = _sync(traitlets.List(traitlets.Unicode(), default_value=list(PARTS)))
    timings = _sync(traitlets.Dict())
    tokens = _sync(traitlets.List(traitlets.Unicode()))
    title = _sync(traitlets.Unicode())
    source = _sync(traitlets.Dict())
    state = _sync(traitlets.Unicode("live"))
    message = _sync(traitlets.Unicode(""))
    still = _sync(traitlets.Bytes(b""))
    still_text = _sync(traitlets.Unicode(""))
    still_id = _sync(traitlets.Unicode(""))

    _viewer: NotebookViewer

    @traitlets.validate("layer", "head")
    def _check_map(self, proposal: Any) -> int:
        name, given = proposal["trait"].name, proposal["value"]
        source = self._viewer.source
        limit = len(source.layers) if name == "layer" else source.heads
        if not 0 <= given < limit:
            raise traitlets.TraitError(f"{name}: expected 0 to {limit - 1}, got {given}")
        return int(given)

    @traitlets.validate("selection")
    def _check_selection(self, proposal: Any) -> tuple[int, int]:
        query, key = proposal["value"]
        length = self._viewer.source.length
        if not (0 <= query < length and 0 <= key < length):
            raise traitlets.TraitError(
                f"selection: expected a query and a key from 0 to {length - 1}, got {(query, key)}"
            )
        return int(query), int(key)

    @traitlets.validate("parts")
    def _check_parts(self, proposal: Any) -> list[str]:
        given = list(proposal["value"])
        unknown = [part for part in given if part not in PARTS]
        if unknown or not given:
            raise traitlets.TraitError(f"parts: expected some of {', '.join(PARTS)}, got {given!r}")
        return [part for part in PARTS if part in given]

    @traitlets.validate("coloring")
    def _check_coloring(self, proposal: Any) -> dict[str, str]:
        given = {"colormap": "auto", "scale": "sqrt", "pool": "max"} | dict(proposal["value"])
        if given["colormap"] != "auto":
            try:
                table(given["colormap"])
            except ValueError as error:
                raise traitlets.TraitError(str(error)) from None
        for name, allowed in (("scale", ("linear", "sqrt", "log")), ("pool", ("max", "mean"))):
            if given[name] not in allowed:
                raise traitlets.TraitError(
                    f"{name}: expected one of {', '.join(allowed)}, got {given[name]!r}"
                )
        return given
