"""Errors of results against float64, compared with those of the same computation in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn import reference
from py_attn.viewer.panels.operations import Exact
from py_attn.viewer.sources.source import Array, Masking

#: The float64 reference keeps [rows, keys] scores per head; more than this many are sampled instead.
MAX_SCORES = 4_000_000
#: How far two float32 computations may differ where both are exact to the last digit.
ABSOLUTE = 1e-6


def errors(results: list[Array], exact: Exact) -> dict[str, Any]:
    """The largest absolute error of several results against float64, that of float32 numpy, and whether each
    result's error is at most twice numpy's.
    """
    compared = []
    for result, wanted, single in zip(results, exact(np.float64), exact(np.float32), strict=True):
        error, plain = (float(np.abs(each - wanted).max()) for each in (result, single))
        bound = 2 * plain + ABSOLUTE * max(1.0, float(np.abs(wanted).max()))
        compared.append((error, plain, error <= bound))
    return {
        "error": max(error for error, _, _ in compared),
        "plain": max(plain for _, plain, _ in compared),
        "ok": all(ok for _, _, ok in compared),
    }


def compare(result: Array, arrays: tuple[Array, Array, Array], masking: Masking) -> dict[str, Any]:
    """The largest absolute error of the result against float64, and that of plain float32 numpy."""
    rows = sampled_rows(arrays[0])
    exact = rows_of(arrays, masking, rows, np.float64)
    plain = float(np.abs(rows_of(arrays, masking, rows, np.float32) - exact).max())
    error = float(np.abs(result[:, :, rows] - exact).max())
    return {
        "error": error,
        "plain": plain,
        "ok": error <= 2 * plain + ABSOLUTE,
        "rows": len(rows),
        "allRows": arrays[0].shape[2],
    }


def sampled_rows(query: Array) -> npt.NDArray[np.intp]:
    """All rows, or as many as the reference can compute: evenly spread, with the first and the last."""
    _, heads, length, _ = query.shape
    count = max(2, min(length, MAX_SCORES // (heads * length)))
    return np.unique(np.linspace(0, length - 1, count).round().astype(np.intp))


def rows_of(
    arrays: tuple[Array, Array, Array], masking: Masking, rows: npt.NDArray[np.intp], dtype: npt.DTypeLike
) -> Array:
    """Reference output [1, Hq, rows, D] of some rows, head by head to keep the scores small."""
    query, key, value = arrays
    group = query.shape[1] // key.shape[1]
    heads = []
    for head in range(query.shape[1]):
        kv = slice(head // group, head // group + 1)
        keywords = masking.head_keywords(head, rows, key.shape[2])
        chosen = query[:, head : head + 1][:, :, rows]
        heads.append(reference.attention(chosen, key[:, kv], value[:, kv], compute_dtype=dtype, **keywords))
    return np.concatenate(heads, axis=1)
