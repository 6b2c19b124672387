"""Own data: files that a visitor opens, an example of them, and what is open as such a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from py_attn.viewer.methods import method
from py_attn.viewer.viewer import Viewer


@method()
async def open_file(
    viewer: Viewer, data: Any, name: str = "", layout: str | None = None, tokens: list[str] | None = None
) -> dict[str, Any]:
    """Show what a file holds; arguments as for :func:`py_attn.viewer.sources.files.read_file`.

    Returns
    -------
    dict
        What every source is described by, and under ``file``: its ``kind``, what was ``found`` in it, the
        ``layout`` in which its axes were read, the possible ``layouts``, and ``hasTokens``.
    """
    from py_attn.viewer.sources import files

    try:
        file = files.read_file(data, name, layout=layout, tokens=tokens)
    except MemoryError:
        raise ValueError(
            f"file: the browser's Python has too little memory for its {len(data):,} bytes"
        ) from None
    return {
        **viewer.open(file.source),
        "file": {
            "kind": file.kind,
            "found": file.found,
            "layout": file.layout,
            "layouts": file.layouts,
            "hasTokens": file.has_tokens,
        },
    }


@method()
async def make_example(viewer: Viewer, holds: str = "queries") -> dict[str, Any]:
    """A small file to try: its ``name``, and its bytes as ``data`` uint8.

    ``holds`` is "queries" or "attentions".
    """
    from py_attn.viewer.sources.example import example_file

    return {"name": f"example-{holds}.npz", "data": np.frombuffer(example_file(holds), np.uint8)}


@method()
async def save_source(viewer: Viewer, holds: str = "queries") -> dict[str, Any]:
    """What is open as a file that :func:`open_file` reads: its ``name``, and its bytes as ``data`` uint8.

    Raises
    ------
    ValueError
        When nothing is open, it has no queries and keys, or it is too large.
    """
    from py_attn.viewer.sources.saving import save

    # Weights are saved as they are read, such as by words; queries and keys only lie by tokens.
    source, engine = (
        (viewer.base, viewer.base_engine) if holds == "queries" else (viewer.source, viewer.engine)
    )
    data = await save(source, engine, holds)
    return {"name": f"{holds}.npz", "data": np.frombuffer(data, np.uint8)}
