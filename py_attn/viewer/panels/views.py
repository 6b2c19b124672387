"""Several heads at once: what a token attends to, who attends to it, and the strongest links of a part."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from py_attn.viewer.engines.engine import Engine, Over, Show, Style, Window, in_chunks
from py_attn.viewer.methods import method
from py_attn.viewer.panels.maps import checked_range
from py_attn.viewer.sources.source import Layer
from py_attn.viewer.viewer import Viewer

#: As many heads as there are hues that people tell apart.
MAX_HEADS = 8
#: Links given out at once.
MAX_LINKS = 20_000
#: Weights among which the strongest are looked for at once; the engine takes them in parts.
MAX_SEARCHED = 1 << 25


@method(notebook=True)
async def token_weights(
    viewer: Viewer,
    heads: list[list[int]],
    position: int,
    direction: Literal["from", "to"] = "from",
    show: Show = "weights",
    over: Over = "head",
    range: Literal["unit", "map"] = "unit",
) -> dict[str, Any]:
    """The exact weights of one token in several heads.

    Parameters
    ----------
    heads : list of [layer, head]
        At most :data:`MAX_HEADS`. With an ``over`` other than "head" there is one map, of the first one's
        layer.
    position : int
    direction : str
        "from" for the token's row, the weights with which it attends to every token; "to" for its column,
        the weights with which every token attends to it.
    show, over, range
        As for :func:`py_attn.viewer.panels.maps.window`.

    Returns
    -------
    dict
        ``weights`` float32 [heads·length]; ``maximum``: the weight that has the last colour, 1 for the range
        "unit" and for "map" the largest weight of all these maps.

    Raises
    ------
    ValueError
        For a position, a head or a direction that does not exist.
    """
    length = viewer.layer(0)[0].length
    if direction not in ("from", "to"):
        raise ValueError(f"direction: expected from or to, got {direction!r}")
    token, everything = checked_range("position", [position, position + 1], length), slice(0, length)
    part = (token, everything) if direction == "from" else (everything, token)
    found = await _weights(viewer, heads, part, Style(show), over)
    return {
        "weights": np.ascontiguousarray(found, np.float32).reshape(-1),
        "maximum": await _maximum(viewer, heads, Style(show, range=range), over),
    }


@method(notebook=True)
async def strongest(
    viewer: Viewer,
    heads: list[list[int]],
    rows: list[int],
    columns: list[int],
    most: int = 1000,
    show: Show = "weights",
    over: Over = "head",
    range: Literal["unit", "map"] = "unit",
) -> dict[str, Any]:
    """The strongest links of a part of several heads' maps.

    Parameters
    ----------
    heads : list of [layer, head]
        As for :func:`token_weights`.
    rows, columns : list of int
        First and last + 1.
    most : int
        How many links are given out at most.
    show, over, range
        As for :func:`py_attn.viewer.panels.maps.window`.

    Returns
    -------
    dict
        The links, the strongest first: ``head`` int32 (a place in ``heads``), ``query`` int32, ``key`` int32
        and ``weight`` float32, [links] each; ``count``: how many weights of the part are not zero;
        ``maximum`` as for :func:`token_weights`.

    Raises
    ------
    ValueError
        When the part has more than :data:`MAX_SEARCHED` weights, or for heads that do not exist.
    """
    length = viewer.layer(0)[0].length
    r, c = checked_range("rows", rows, length), checked_range("columns", columns, length)
    searched = len(heads) * (r.stop - r.start) * (c.stop - c.start)
    if searched > MAX_SEARCHED:
        raise ValueError(f"rows, columns: expected at most {MAX_SEARCHED:,} weights, got {searched:,}")
    most = max(1, min(int(most), MAX_LINKS))
    places: list[npt.NDArray[np.intp]] = []
    values: list[npt.NDArray[np.float32]] = []
    count = 0
    width = c.stop - c.start
    for part in in_chunks(Window([0] * max(1, len(heads)), r, c)):
        found = await _weights(viewer, heads, (part.rows, c), Style(show), over)
        flat = np.nan_to_num(found, nan=0.0).reshape(len(found), -1)
        count += int(np.count_nonzero(flat))
        best = _largest(np.abs(flat).reshape(-1), most)
        head, cell = np.divmod(best, flat.shape[1])
        row, column = np.divmod(cell, width)
        places.append(np.stack([head, row + part.rows.start, column + c.start]))
        values.append(flat.reshape(-1)[best])
    place, value = np.concatenate(places, axis=1), np.concatenate(values)
    order = np.argsort(-np.abs(value), kind="stable")[:most]
    order = order[value[order] != 0]
    head, query, key = place[:, order].astype(np.int32)
    return {
        "head": head,
        "query": query,
        "key": key,
        "weight": np.ascontiguousarray(value[order], np.float32),
        "count": count,
        "maximum": await _maximum(viewer, heads, Style(show, range=range), over),
    }


def _largest(values: npt.NDArray[Any], most: int) -> npt.NDArray[np.intp]:
    """The places of the ``most`` largest values, in no particular order."""
    if len(values) <= most:
        return np.arange(len(values))
    found: npt.NDArray[np.intp] = np.argpartition(values, -most)[-most:]
    return found


async def _weights(
    viewer: Viewer, heads: Sequence[Sequence[int]], part: tuple[slice, slice], style: Style, over: Over
) -> npt.NDArray[Any]:
    """The weights [heads, rows, columns]; each layer computes its heads together."""
    source = viewer.layer(0)[0]
    maps = _maps(viewer, heads, over)
    found = await asyncio.gather(
        *(
            engine.weights(layer, source.masking, Window(wanted, *part), style)
            for engine, layer, wanted, _ in maps
        )
    )
    places = [place for *_, of in maps for place in of]
    result: npt.NDArray[Any] = np.concatenate(found)[np.argsort(places)]
    return result


async def _maximum(viewer: Viewer, heads: Sequence[Sequence[int]], style: Style, over: Over) -> float:
    if style.range == "unit":
        return 1.0
    source = viewer.layer(0)[0]
    most = [
        await engine.largest(layer, source.masking, wanted, source.length, style.show)
        for engine, layer, wanted, _ in _maps(viewer, heads, over)
    ]
    return float(np.concatenate(most).max())


def _maps(
    viewer: Viewer, heads: Sequence[Sequence[int]], over: Over
) -> list[tuple[Engine, Layer, list[int], list[int]]]:
    """What computes the heads, layer by layer: engine, layer, its heads, and their places in ``heads``."""
    if not 1 <= len(heads) <= MAX_HEADS:
        raise ValueError(f"heads: expected 1 to {MAX_HEADS}, got {len(heads)}")
    if over != "head":
        engine, layer, head = viewer.map(heads[0][0], heads[0][1], over)
        return [(engine, layer, [head], [0])]
    count = viewer.layer(0)[0].heads
    by_layer: dict[int, tuple[list[int], list[int]]] = {}
    for place, (index, head) in enumerate(heads):
        if not 0 <= head < count:
            raise ValueError(f"heads: expected heads from 0 to {count - 1}, got {head}")
        wanted, places = by_layer.setdefault(index, ([], []))
        wanted.append(head)
        places.append(place)
    return [
        (viewer.engine, viewer.layer(index)[1], wanted, places)
        for index, (wanted, places) in by_layer.items()
    ]
