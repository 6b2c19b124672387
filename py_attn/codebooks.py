"""Lloyd–Max codebooks for the coordinates of a random unit vector.

A vector of D numbers that was rotated at random and divided by its root mean square has coordinates of
density f(t) ∝ (1 - t²/D)^((D-3)/2) on |t| ≤ √D, which tends to the standard normal density as D grows
(TurboQuant, arXiv 2504.19874, lemma 1). Two conditions make a scalar quantiser the best one for it:
thresholds are midway between levels, and each level is the mean of the numbers between its thresholds
(Max, IRE Trans. Inf. Theory 6(1), 1960; Lloyd, IEEE Trans. Inf. Theory 28(2), 1982). Applying the two
conditions in turn converges to that quantiser.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[np.float64]

# With this grid levels are accurate to 1e-6 of their size.
_GRID = 1 << 14
_TOLERANCE = 1e-10
# 4 bits need about 550.
_MAX_STEPS = 2000


@dataclass(frozen=True, slots=True)
class Codebook:
    """The quantiser of one coordinate of mean square 1. It is symmetric: only magnitudes are listed.

    Attributes
    ----------
    levels : tuple of float
        2^(bits-1) magnitudes, ascending.
    thresholds : tuple of float
        The 2^(bits-1) - 1 magnitudes midway between them.
    distortion : float
        The expected square of the error.
    """

    levels: tuple[float, ...]
    thresholds: tuple[float, ...]
    distortion: float


@functools.lru_cache(maxsize=256)
def codebook(bits: int, dim: int) -> Codebook:
    """The Lloyd–Max quantiser of ``bits`` bits for a random unit vector in ``dim`` dimensions.

    In one dimension the only unit vectors are ±1, which any levels reproduce once the scale is fitted; the
    levels of two dimensions are returned.
    """
    n = max(dim, 2)
    top = math.sqrt(n)
    # In terms of the angle θ from the equator, t = √D sin θ, the density cos^(D-2) θ has no pole. Beyond
    # twelve standard deviations it is negligible.
    end = min(math.pi / 2, 12 / math.sqrt(n))
    angles = np.linspace(0.0, end, _GRID + 1)
    density = np.cos(angles) ** (n - 2)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * angles[1])])

    def cells(thresholds: _Array) -> tuple[_Array, _Array]:
        """Mean and probability of each cell from 0 outwards."""
        edges = np.concatenate([[0.0], np.arcsin(thresholds / top), [end]])
        weight = np.diff(np.interp(edges, angles, mass))
        # The first moment has a closed form: ∫ sin θ cos^(D-2) θ dθ = -cos^(D-1) θ / (D-1).
        moment = -np.diff(np.cos(edges) ** (n - 1)) / (n - 1)
        return top * moment / weight, weight / mass[-1]

    count = 1 << (bits - 1)
    quantiles = np.arange(1, count) / count
    thresholds = top * np.sin(np.interp(quantiles, mass / mass[-1], angles))
    levels, weight = cells(thresholds)
    for _ in range(_MAX_STEPS):
        before = levels
        thresholds = (levels[1:] + levels[:-1]) / 2
        levels, weight = cells(thresholds)
        if np.abs(levels - before).max() < _TOLERANCE:
            break
    # With each level at the mean of its cell, the error's mean square is 1 minus that of the levels.
    distortion = 1.0 - float((weight * levels**2).sum())
    return Codebook(tuple(levels.tolist()), tuple(thresholds.tolist()), distortion)
