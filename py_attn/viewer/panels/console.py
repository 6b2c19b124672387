"""The console: names that can follow what is typed."""

from __future__ import annotations

from typing import Any

from py_attn.viewer.methods import method
from py_attn.viewer.viewer import Viewer


@method()
async def complete(viewer: Viewer, text: str, position: int) -> dict[str, Any]:
    """Names that can stand at a position of a text.

    Only names and attributes that exist are looked at: nothing of the text is run, and no property of an
    object is read.

    Returns
    -------
    dict
        ``from``: where the name begins; ``options``: at most 300 of ``label``, ``type`` ("function",
        "class", "namespace", "property", "keyword" or "variable") and ``detail``.
    """
    from py_attn.viewer.completion import completions  # a start does not need it

    return completions(viewer.console.namespace, text, position)
