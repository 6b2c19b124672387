"""Compare: the head in focus beside another, and their difference. What computes it is imported late."""

from __future__ import annotations

from typing import Any

import numpy as np

from py_attn.viewer.engines.engine import Style
from py_attn.viewer.methods import method
from py_attn.viewer.panels.maps import checked_range
from py_attn.viewer.viewer import Viewer


@method(notebook=True)
async def compare(
    viewer: Viewer,
    layer: int,
    head: int,
    other: dict[str, Any],
    rows: list[int],
    columns: list[int],
    other_rows: list[int],
    other_columns: list[int],
    size: list[int],
    maximum: float = 1.0,
    span: float = 1.0,
    **style: Any,
) -> dict[str, Any]:
    """Parts of the map of the head in focus (A), of the map of ``other`` (B), and of A - B.

    Parameters
    ----------
    other : dict
        What B is; see :func:`py_attn.viewer.comparing.pair`.
    rows, columns, other_rows, other_columns : list of int
        First and last + 1 of the queries and keys of A and of B.
    size : list of int
        Height and width that a picture has at most, in cells.
    maximum, span : float
        The colours of A and B span 0 to ``maximum``, those of the difference -``span`` to ``span``.
    **style
        As for :class:`py_attn.viewer.engines.engine.Style`; always weights.

    Returns
    -------
    dict
        ``a``, ``b`` and ``difference`` (None where there is none), each as
        :func:`py_attn.viewer.panels.maps.window` returns it.
    """
    from py_attn.viewer.comparing import pair, pictures

    if not (maximum > 0 and span > 0):
        raise ValueError(f"maximum, span: expected positive numbers, got {maximum} and {span}")
    both = await pair(viewer, layer, head, other)
    a = (checked_range("rows", rows, both.a.length), checked_range("columns", columns, both.a.length))
    b = (
        checked_range("other_rows", other_rows, both.b.length),
        checked_range("other_columns", other_columns, both.b.length),
    )
    chosen = Style(**{**style, "show": "weights"})
    cells = (max(1, size[0]), max(1, size[1]))
    return await pictures(both, (a, b if both.why_not else a), cells, chosen, maximum=maximum, span=span)


@method(notebook=True)
async def compare_figures(viewer: Viewer, layer: int, head: int, other: dict[str, Any]) -> dict[str, Any]:
    """How far two maps lie apart, over all rows.

    Returns
    -------
    dict
        ``tokens`` of B; ``maximum``: the largest weight of both; ``note``: a remark, "" for none; ``whyNot``:
        why there is no difference, "" where there is one, and then also ``largest`` (``query``, ``key``,
        ``a``, ``b``, ``difference``) and the means ``variation`` and ``shannon`` over ``rows`` rows, as
        :func:`py_attn.viewer.comparing.diverge` defines them; ``step``: 1, or n where only every
        n-th row was looked at.
    """
    from py_attn.viewer.comparing import figures, pair

    return await figures(await pair(viewer, layer, head, other))


@method(notebook=True)
async def compare_row(
    viewer: Viewer, layer: int, head: int, other: dict[str, Any], query: int
) -> dict[str, Any]:
    """One query's exact weights: ``a`` and ``b`` float32 [length]; ``b`` is None where B lacks this query."""
    from py_attn.viewer.comparing import pair

    both = await pair(viewer, layer, head, other)
    row = checked_range("query", [query, query + 1], both.a.length)
    a, b = [
        np.ascontiguousarray((await side.weights(row, slice(0, side.length)))[0])
        if query < side.length
        else None
        for side in (both.a, both.b)
    ]
    return {"query": query, "a": a, "b": b}
