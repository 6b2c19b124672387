"""Overview, focus and links: images of maps, exact weights, and a query's strongest keys."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np

from py_attn import colormaps
from py_attn.viewer.engines.engine import Over, Show, Style, Window, largest_step, row_step
from py_attn.viewer.methods import method
from py_attn.viewer.viewer import Viewer

#: Exact weights given out at once: a file of 10 MB as text.
MAX_WEIGHTS = 1_000_000


@method(start={"colormap": "rocket", "scale": "sqrt"}, notebook=True)
async def legend(
    viewer: Viewer, colormap: str, scale: Any, show: Show = "weights", maximum: float = 1.0
) -> dict[str, object]:
    """The legend of the colours; see :func:`py_attn.colormaps.legend`."""
    style = Style(show, colormap, scale)
    return colormaps.legend(style.colormap, style.scale, signed=style.show == "gradient", maximum=maximum)


@method(start={"layer": 0}, after="window", notebook=True)
async def overview(
    viewer: Viewer, layer: int, size: int = 96, maximum: float | None = None, **style: Any
) -> dict[str, Any]:
    """All heads of a layer as pictures of at most ``size`` × ``size`` cells.

    With the range "map" the colours of each head span 0 to its own largest weight, or to ``maximum`` for
    all of them.

    Returns
    -------
    dict
        ``rgba`` uint8 [heads·size·size·4], ``heads``, ``size``; ``step``: 1, or n where only every n-th row
        was computed; ``maximum``: the largest weight of the layer with the range "map", otherwise 1.

    Raises
    ------
    ValueError
        For a ``maximum`` that is not a number above 0.
    """
    if maximum is not None and not 0 < maximum < float("inf"):
        raise ValueError(f"maximum: expected a number > 0, got {maximum}")
    source, chosen = viewer.layer(layer)
    everything = slice(0, source.length)
    cells = min(size, source.length)
    step = row_step(everything, everything, cells)
    window = Window(
        list(range(source.heads)),
        slice(0, source.length, step),
        everything,
        (cells, cells) if cells < source.length else None,
    )
    chosen_style = Style(**style)
    maxima = None
    if chosen_style.range == "map":
        maxima = await viewer.engine.largest(
            chosen, source.masking, window.heads, source.length, chosen_style.show
        )
    largest = 1.0 if maxima is None else float(maxima.max())
    if maximum is not None and maxima is not None:
        maxima = np.full_like(maxima, maximum)
    pixels = await viewer.engine.image(chosen, source.masking, window, chosen_style, maxima)
    return {
        "layer": layer,
        "heads": source.heads,
        "size": cells,
        "step": step,
        "maximum": largest,
        "rgba": pixels.reshape(-1),
    }


@method(notebook=True)
async def overview_row(viewer: Viewer, query: int, size: int = 96, **style: Any) -> dict[str, Any]:
    """One row of every map, up to its own column: ``rgba`` uint8 [layers·heads·size·4]."""
    source, _ = viewer.layer(0)
    row, columns = checked_range("query", [query, query + 1], source.length), slice(0, query + 1)
    width = min(size, query + 1)
    part = Window(list(range(source.heads)), row, columns, (1, width) if width <= query else None)
    # All are recorded before the first is waited for.
    pixels = await asyncio.gather(
        *(viewer.engine.image(layer, source.masking, part, Style(**style)) for layer in source.layers)
    )
    return {"query": query, "size": width, "rgba": np.concatenate(pixels).reshape(-1)}


@method(
    start={"layer": 0, "head": 0, "rows": [0, 4], "columns": [0, 4], "size": [2, 2]},
    notebook=True,
)
async def window(
    viewer: Viewer,
    layer: int,
    head: int,
    rows: list[int],
    columns: list[int],
    size: list[int],
    edited: bool = True,
    over: Over = "head",
    **style: Any,
) -> dict[str, Any]:
    """A part of one map, at most ``size`` [height, width] cells of it.

    With ``edited`` False the map is shown without the visitor's score_mod and mask_mod. ``over`` is "head"
    for the map of one head, "layer" or "all" for the mean over the heads of the layer or of all layers, or
    "rollout" for the attention rollout up to the layer.

    Returns
    -------
    dict
        ``rgba`` uint8 [height·width·4], ``height``, ``width``, ``rows``, ``columns``; ``exact``: whether
        every cell is one weight; ``step``: 1, or n where only every n-th row was computed; ``maximum``: the
        weight that has the last colour; ``maximum_step``: 1, or n where it is the largest of every n-th row.
    """
    source, _ = viewer.layer(layer)
    engine, chosen, head = viewer.map(layer, head, over)
    r, c = checked_range("rows", rows, source.length), checked_range("columns", columns, source.length)
    full = (r.stop - r.start, c.stop - c.start)
    cells = (max(1, min(size[0], full[0])), max(1, min(size[1], full[1])))
    exact = cells == full
    step = 1 if exact else row_step(r, c, cells[0])
    masking = source.masking if edited else replace(source.masking, mods=None)
    part = Window([head], slice(r.start, r.stop, step), c, None if exact else cells)
    chosen_style = Style(**style)
    maxima, maximum_step = None, 1
    if chosen_style.range == "map":
        maxima = await engine.largest(chosen, masking, [head], source.length, chosen_style.show)
        maximum_step = largest_step(source.length)
    pixels = await engine.image(chosen, masking, part, chosen_style, maxima)
    return {
        "rgba": pixels.reshape(-1),
        "height": cells[0],
        "width": cells[1],
        "rows": [r.start, r.stop],
        "columns": [c.start, c.stop],
        "exact": exact,
        "step": step,
        "maximum": 1.0 if maxima is None else float(maxima[0]),
        "maximum_step": maximum_step,
    }


@method(notebook=True)
async def weights(
    viewer: Viewer,
    layer: int,
    head: int,
    rows: list[int],
    columns: list[int],
    show: Show = "weights",
    over: Over = "head",
) -> dict[str, Any]:
    """The exact weights of a part of one map: ``weights`` float32 [rows·columns], ``rows``, ``columns``.

    ``over`` is as for :func:`window`.

    Raises
    ------
    ValueError
        When the part has more than :data:`MAX_WEIGHTS` weights.
    """
    source, _ = viewer.layer(layer)
    engine, chosen, head = viewer.map(layer, head, over)
    style = Style(show)
    r, c = checked_range("rows", rows, source.length), checked_range("columns", columns, source.length)
    count = (r.stop - r.start) * (c.stop - c.start)
    if count > MAX_WEIGHTS:
        raise ValueError(f"rows, columns: expected at most {MAX_WEIGHTS:,} weights, got {count:,}; zoom in")
    found = await engine.weights(chosen, source.masking, Window([head], r, c), style)
    return {
        "weights": np.ascontiguousarray(found, np.float32).reshape(-1),
        "rows": [r.start, r.stop],
        "columns": [c.start, c.stop],
    }


@method(start={"layer": 0, "head": 0, "query": 0}, after="window", notebook=True)
async def row(
    viewer: Viewer,
    layer: int,
    head: int,
    query: int,
    links: int = 8,
    show: Show = "weights",
    over: Over = "head",
) -> dict[str, Any]:
    """The exact weights of one query (or their gradients, see ``show``), and its strongest keys.

    ``over`` is as for :func:`window`.
    """
    source, _ = viewer.layer(layer)
    engine, chosen, head = viewer.map(layer, head, over)
    part = Window([head], checked_range("query", [query, query + 1], source.length), slice(0, source.length))
    values = (await engine.weights(chosen, source.masking, part, Style(show)))[0, 0]
    strongest = np.argsort(-np.abs(values), kind="stable")[:links]
    return {
        "query": query,
        "weights": np.ascontiguousarray(values, np.float32),
        "links": [{"key": int(k), "weight": float(values[k])} for k in strongest if values[k] != 0],
    }


def checked_range(name: str, given: list[int], length: int) -> slice:
    """First and last + 1 as a slice; raises ValueError outside of 0 to ``length``, or for none at all."""
    start, stop = int(given[0]), int(given[1])
    if not 0 <= start < stop <= length:
        raise ValueError(f"{name}: expected a range inside 0 to {length}, got {start} to {stop}")
    return slice(start, stop)
