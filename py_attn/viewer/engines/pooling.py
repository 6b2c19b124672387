"""Pooling: fewer cells than weights, for thumbnails and zoomed-out maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def pool(weights: Array, size: tuple[int, int], mode: str = "max") -> Array:
    """Reduce the last two axes to ``size`` cells, as :func:`py_attn.reference.pool` does, only faster.

    Cell i of h covers rows floor(i·R/h) to ceil((i+1)·R/h), so that neighbours share a row where the
    division leaves a remainder.
    """
    if mode not in ("max", "mean", "furthest"):
        raise ValueError(f"pool: expected max, mean or furthest, got {mode!r}")
    result = weights
    for axis, cells in ((-2, size[0]), (-1, size[1])):
        result = _pool_axis(result, axis, cells, mode)
    return result


def pool_as(weights: Array, size: tuple[int, int] | None, mode: str, *, signed: bool = False) -> Array:
    """:func:`pool`, or the weights themselves without a size; the largest of signed numbers is the furthest
    from 0.
    """
    if size is None:
        return weights
    return pool(weights, size, "furthest" if signed and mode == "max" else mode)


def _pool_axis(values: Array, axis: int, cells: int, mode: str) -> Array:
    n = values.shape[axis]
    if cells >= n:
        return values
    index = np.arange(cells)
    first, last = index * n // cells, -(-(index + 1) * n // cells)
    # reduceat takes the start of every range; the ranges between ours are thrown away.
    pairs = np.stack([first, last], axis=-1).reshape(-1)
    padding = [(0, 0)] * values.ndim
    padding[axis] = (0, 1)
    padded = np.pad(values, padding)
    if mode == "furthest":
        high, low = (ufunc.reduceat(padded, pairs, axis=axis) for ufunc in (np.maximum, np.minimum))
        reduced = np.where(-low > high, low, high)
    else:
        reduced = (np.maximum if mode == "max" else np.add).reduceat(padded, pairs, axis=axis)
    result: Array = np.take(reduced, np.arange(0, 2 * cells, 2), axis=axis)
    if mode == "mean":
        shape = [1] * values.ndim
        shape[axis] = cells
        result = result / (last - first).reshape(shape).astype(values.dtype)
    return result
