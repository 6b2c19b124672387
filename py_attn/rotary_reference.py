"""Rotary position embeddings in plain numpy: what :func:`py_attn.rotary` computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def rotary(
    x: npt.ArrayLike,
    cos: npt.ArrayLike,
    sin: npt.ArrayLike,
    *,
    positions: npt.ArrayLike = 0,
    interleaved: bool = False,
    compute_dtype: npt.DTypeLike = np.float64,
) -> npt.NDArray[Any]:
    """The pairs of each head turned; arguments and result as of :func:`py_attn.rotary`.

    Parameters
    ----------
    x : array_like
        [B, H, S, D].
    cos, sin : array_like
        [max_positions, rotary_dim / 2].
    positions : array_like of int
        A number, [B], [B, S] or [1, S].
    compute_dtype
        Precision of every step.
    """
    y = np.array(x, compute_dtype)
    at = np.asarray(positions)
    if at.ndim < 2:
        at = at.reshape(-1, 1) + np.arange(y.shape[2])
    c, s = (np.asarray(table, compute_dtype)[at][:, None] for table in (cos, sin))
    pairs = c.shape[-1]
    first, second = (
        (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
        if interleaved
        else (slice(0, pairs), slice(pairs, 2 * pairs))
    )
    u, v = y[..., first].copy(), y[..., second].copy()
    y[..., first], y[..., second] = u * c - v * s, u * s + v * c
    return y
