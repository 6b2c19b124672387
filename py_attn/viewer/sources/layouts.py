"""In which order the axes of an array lie: layers L, batch B, heads H, positions S, and head dim D.

An order is written with a letter for each axis, "BHSD" for queries and keys and "BHSS" for maps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from py_attn.viewer.sources.source import Array

ROLES = ("query", "key", "value")
#: The orders for each number of axes, the usual one first.
_QUERIES = {
    2: ["SD"],
    3: ["HSD", "SHD"],
    4: ["BHSD", "BSHD", "LHSD", "LSHD"],
    5: ["LBHSD", "LBSHD"],
}
_WEIGHTS = {2: ["SS"], 3: ["HSS", "LSS"], 4: ["BHSS", "LHSS"], 5: ["LBHSS"]}


def layouts_of(axes: int, role: str, numbered: bool) -> list[str]:
    """The orders in which an array with so many axes can be read; without layers where those are numbered.

    Raises
    ------
    ValueError
        When it has too few or too many axes.
    """
    known = _WEIGHTS if role == "weights" else _QUERIES
    possible = [order for order in known.get(axes, []) if not (numbered and order.startswith("L"))]
    if not possible:
        most = "[B, H, S, {0}] for each layer" if numbered else "[layers, B, H, S, {0}]"
        last = "S" if role == "weights" else "D"
        dimensions = f"2 to {4 if numbered else 5} dimensions"
        raise ValueError(f"{role}: expected {dimensions} ([S, {last}] up to {most.format(last)}), got {axes}")
    return possible


def likely_layout(possible: list[str], shapes: Sequence[tuple[int, ...]], tokens: int | None) -> str:
    """The order in which arrays are read when nothing says which it is.

    The usual one, unless heads and positions must have changed places: the first two arrays (query and key)
    have as many positions, but may differ in heads; and there are as many positions as tokens.
    """
    usual = possible[0]
    if not usual.endswith("HSD"):
        return usual
    other = usual.replace("HSD", "SHD")
    heads, positions = usual.index("H"), usual.index("S")
    query, key = shapes[0], shapes[min(1, len(shapes) - 1)]
    if query[positions] != key[positions] and query[heads] == key[heads]:
        return other
    same = query[positions] == key[positions]
    if query[heads] == key[heads] == tokens and same and query[positions] != tokens:
        return other
    return usual


def arranged(array: Array, layout: str) -> Array:
    """The array as [L, B, H, S, D], or [L, B, H, S, S] for maps; without a copy."""
    letters = layout[:-1] + "D"  # the last S of a map is its keys
    lying: Array = array.transpose([letters.index(axis) for axis in "LBHSD" if axis in letters])
    missing = [place for place, axis in enumerate("LBHSD") if axis not in letters]
    return np.expand_dims(lying, tuple(missing))
