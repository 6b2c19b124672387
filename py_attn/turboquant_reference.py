"""TurboQuant in plain numpy, as the formulas are written (arXiv 2504.19874).

``quantize`` and ``dequantize`` here are the oracle of :mod:`py_attn.turboquant`; ``compute_dtype``
works as in :mod:`py_attn.reference`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn.codebooks import codebook

Array = npt.NDArray[Any]

ROUNDS = 3
SEED = 0x9E3779B9


@functools.cache
def signs(dim: int) -> Array:
    """[ROUNDS, dim] of ±1: one bit of a hash (Wellons' lowbias32) of the seed, the round and the index."""
    x = np.arange(ROUNDS * dim, dtype=np.uint32) + np.uint32(SEED)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    x ^= x >> np.uint32(16)
    return (1.0 - 2.0 * (x & 1)).reshape(ROUNDS, dim)


@functools.cache
def butterflies(dim: int) -> list[tuple[Array, Array, Array]]:
    """The stages of the transform: per element its partner, whether it is the upper one, and if alone.

    Each stage halves every block, the first half taking the odd element, pairs the halves element by
    element, and goes on within them. For a power of two that is the Walsh–Hadamard transform; for
    other lengths an element without a partner waits for the next stage. Each stage is orthogonal.
    """
    index, begin, size = np.arange(dim), np.zeros(dim, int), np.full(dim, dim)
    stages = []
    while size.max() > 1:
        half = (size + 1) // 2
        upper = index - begin >= half
        alone = ~upper & (index + half >= begin + size)
        stages.append((np.where(alone, index, np.where(upper, index - half, index + half)), upper, alone))
        begin, size = np.where(upper, begin + half, begin), np.where(upper, size - half, half)
    return stages


def rotate(x: npt.ArrayLike, compute_dtype: npt.DTypeLike = np.float64) -> Array:
    """Rotate the last axis: ROUNDS times random signs, then the butterflies."""
    y = np.asarray(x).astype(compute_dtype)
    for sign in signs(y.shape[-1]).astype(y.dtype):
        y = y * sign
        for stage in butterflies(y.shape[-1]):
            y = _stage(y, *stage)
    return y


def rotate_back(y: npt.ArrayLike, compute_dtype: npt.DTypeLike = np.float64) -> Array:
    """The inverse of :func:`rotate`, which is its transpose."""
    x = np.asarray(y).astype(compute_dtype)
    for sign in signs(x.shape[-1]).astype(x.dtype)[::-1]:
        for stage in butterflies(x.shape[-1])[::-1]:
            x = _stage(x, *stage)
        x = x * sign
    return x


def _stage(x: Array, partner: Array, upper: Array, alone: Array) -> Array:
    other = x[..., partner]
    return np.where(alone, x, np.where(upper, other - x, x + other) * x.dtype.type(np.sqrt(0.5)))


def quantize(
    x: npt.ArrayLike, bits: int, compute_dtype: npt.DTypeLike = np.float64
) -> tuple[npt.NDArray[np.uint8], Array]:
    """Codes and scales of the vectors along the last axis.

    Returns
    -------
    codes : numpy.ndarray of uint8
        The shape of x: the index of the magnitude in the lower bits, the sign (1 = negative) above it.
    scales : numpy.ndarray
        x's shape without the last axis; 0 for a vector of zeros, NaN for one with NaN or infinities.
    """
    x = np.asarray(x).astype(compute_dtype)
    finite = np.isfinite(x).all(axis=-1)
    x = np.where(finite[..., None], x, 0)
    # Divided by its largest number first, so that no square overflows.
    largest = np.abs(x).max(axis=-1, initial=0)
    y = rotate(x / np.where(largest == 0, 1, largest)[..., None], compute_dtype)
    rms = np.sqrt((y * y).mean(axis=-1))
    y = y / np.where(rms == 0, 1, rms)[..., None]
    book = codebook(bits, x.shape[-1])
    thresholds = np.asarray(book.thresholds, x.dtype)
    index = (np.abs(y)[..., None] > thresholds).sum(axis=-1)
    levels = np.asarray(book.levels, x.dtype)[index]
    # The norm's correction: of all multiples of the levels the one that comes closest to y.
    fit = (np.abs(y) * levels).sum(axis=-1) / (levels * levels).sum(axis=-1)
    codes = index | ((y < 0).astype(np.int64) << (bits - 1))
    return codes.astype(np.uint8), np.where(finite, largest * rms * fit, np.nan)


def dequantize(
    codes: npt.NDArray[np.uint8], scales: Array, bits: int, compute_dtype: npt.DTypeLike = np.float64
) -> Array:
    """The vectors that ``codes`` and ``scales`` stand for."""
    levels = np.asarray(codebook(bits, codes.shape[-1]).levels, np.dtype(compute_dtype))
    magnitudes = levels[codes & ((1 << (bits - 1)) - 1)]
    y = np.where(codes >> (bits - 1), -magnitudes, magnitudes) * scales[..., None].astype(compute_dtype)
    return rotate_back(y, compute_dtype)


def roundtrip(x: npt.ArrayLike, bits: int, compute_dtype: npt.DTypeLike = np.float64) -> Array:
    """``x`` as it comes back after :func:`quantize`."""
    return dequantize(*quantize(x, bits, compute_dtype), bits, compute_dtype)
