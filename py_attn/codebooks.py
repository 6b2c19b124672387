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
from collections.abc import Sequence
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


class _Coordinate:
    """The distribution of |t|, t a coordinate of a random vector of mean square 1 in ``dim`` dimensions."""

    def __init__(self, dim: int) -> None:
        # In one dimension the only unit vectors are ±1, which any levels reproduce once the scale is fitted.
        self._dim = max(dim, 2)
        self.top = math.sqrt(self._dim)
        # In terms of the angle θ from the equator, t = √D sin θ, the density cos^(D-2) θ has no pole. Beyond
        # twelve standard deviations it is negligible.
        self._end = min(math.pi / 2, 12 / self.top)
        self._angles = np.linspace(0.0, self._end, _GRID + 1)
        density = np.cos(self._angles) ** (self._dim - 2)
        steps = (density[1:] + density[:-1]) / 2 * self._angles[1]
        self._mass = np.concatenate([[0.0], np.cumsum(steps)])

    def quantiles(self, shares: _Array) -> _Array:
        """The magnitudes below which these shares of the numbers lie."""
        return self.top * np.sin(np.interp(shares, self._mass / self._mass[-1], self._angles))

    def cells(self, thresholds: _Array) -> tuple[_Array, _Array]:
        """Mean and probability of each cell between thresholds, from 0 outwards."""
        edges = np.concatenate([[0.0], np.arcsin(np.minimum(thresholds / self.top, 1)), [self._end]])
        weight = np.diff(np.interp(edges, self._angles, self._mass))
        # The first moment has a closed form: ∫ sin θ cos^(D-2) θ dθ = -cos^(D-1) θ / (D-1).
        moment = -np.diff(np.cos(edges) ** (self._dim - 1)) / (self._dim - 1)
        means = self.top * moment / np.where(weight > 0, weight, 1)
        return means, weight / self._mass[-1]


@functools.lru_cache(maxsize=256)
def codebook(bits: int, dim: int) -> Codebook:
    """The Lloyd–Max quantiser of ``bits`` bits for a random unit vector in ``dim`` dimensions.

    In one dimension the levels of two dimensions are returned.
    """
    coordinate = _Coordinate(dim)
    count = 1 << (bits - 1)
    thresholds = coordinate.quantiles(np.arange(1, count) / count)
    levels, weight = coordinate.cells(thresholds)
    for _ in range(_MAX_STEPS):
        before = levels
        thresholds = (levels[1:] + levels[:-1]) / 2
        levels, weight = coordinate.cells(thresholds)
        if np.abs(levels - before).max() < _TOLERANCE:
            break
    # With each level at the mean of its cell, the error's mean square is 1 minus that of the levels.
    distortion = 1.0 - float((weight * levels**2).sum())
    return Codebook(tuple(levels.tolist()), tuple(thresholds.tolist()), distortion)


#: Magnitudes in half steps, for a kernel that multiplies codes of 4 bits as bytes (:func:`integer_codebook`).
INTEGER_LEVELS = (1, 3, 5, 7, 9, 11, 14, 18)
#: The only head dim that has such a kernel.
INTEGER_DIM = 128


@functools.lru_cache(maxsize=256)
def uniform_codebook(bits: int, dim: int) -> Codebook:
    """The best quantiser of ``bits`` bits whose levels are odd multiples of half a step (Max 1960, table II).

    Levels at equal distances are integers but for a factor, so that products can be taken in integers. They
    cost some distortion: with 4 bits in many dimensions 0.0115 in place of :func:`codebook`'s 0.0095.
    """
    return _spaced(range(1, 1 << bits, 2), dim)


@functools.lru_cache(maxsize=256)
def integer_codebook(dim: int) -> Codebook:
    """The best quantiser of 4 bits whose levels are :data:`INTEGER_LEVELS` times half a step.

    They follow those of :func:`codebook` outwards and are integers but for a factor, which few instructions
    make of codes (``shaders/lib/code_tiles.wgsl``). In 128 dimensions their distortion is 0.0096, where the
    levels of :func:`codebook` have 0.0093 and those of :func:`uniform_codebook` 0.0112.
    """
    return _spaced(INTEGER_LEVELS, dim)


def book_of(bits: int, dim: int, uniform: bool) -> Codebook:
    """The levels of a dtype's codes: "uniform4" has ``uniform`` ones, "turboquant1" … "turboquant4" others.

    TurboQuant's are Lloyd–Max levels, but for 4 bits in :data:`INTEGER_DIM` dimensions, which are integers.
    """
    if uniform:
        return uniform_codebook(bits, dim)
    return integer_codebook(dim) if (bits, dim) == (4, INTEGER_DIM) else codebook(bits, dim)


def _spaced(multiples: Sequence[int], dim: int) -> Codebook:
    """The best quantiser whose levels are these multiples of half a step, ascending."""
    coordinate = _Coordinate(dim)
    halves = np.asarray(multiples) / 2
    between = (halves[1:] + halves[:-1]) / 2

    def fitted(step: float) -> tuple[float, float]:
        """The factor by which levels at this step come closest to the numbers, and the distortion then."""
        means, weight = coordinate.cells(step * between)
        levels = step * halves
        product, square = float((weight * means * levels).sum()), float((weight * levels**2).sum())
        return product / square, 1.0 - product**2 / square

    # Up to where the outermost threshold is eight times the root mean square, the distortion has one minimum
    # over the step: a search by thirds narrows it down.
    low, high = 0.0, 8 / halves.size
    while high - low > _TOLERANCE:
        third = (high - low) / 3
        if fitted(low + third)[1] < fitted(high - third)[1]:
            high -= third
        else:
            low += third
    factor, distortion = fitted(high)
    return Codebook(tuple((factor * high * halves).tolist()), tuple((high * between).tolist()), distortion)
