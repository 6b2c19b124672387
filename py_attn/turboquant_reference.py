"""TurboQuant in plain numpy, as the formulas are written (arXiv 2504.19874).

``quantize`` and ``dequantize`` here are the oracle of :mod:`py_attn.turboquant`; ``compute_dtype``
works as in :mod:`py_attn.reference`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from py_attn.codebooks import INTEGER_DIM, book_of

Array = npt.NDArray[Any]

ROUNDS = 3
SEED = 0x9E3779B9
#: Rows of a tile of codes, and numbers of such a row.
TILE = INTEGER_DIM
#: The four bits that stand for each code (see :class:`Codes`) in a tile (shaders/lib/code_tiles.wgsl), by
#: whether levels are at equal distances, where they are an integer in two's complement.
NIBBLES = {
    True: (0, 1, 2, 3, 4, 5, 6, 7, 15, 14, 13, 12, 11, 10, 9, 8),
    False: (9, 13, 2, 6, 10, 14, 7, 15, 5, 1, 12, 8, 4, 0, 11, 3),
}


class Codes(NamedTuple):
    """Quantised vectors.

    Attributes
    ----------
    codes : numpy.ndarray of uint8
        [..., D]: the index of the magnitude in the lower bits, the sign (1 = negative) above it.
    scales : numpy.ndarray
        [...]: 0 for a vector of zeros, NaN for one with NaN or infinities.
    bits : int
        Bits of a code.
    residual : Codes or None
        The signs of what the codes leave over, rotated once more (QJL, arXiv 2406.03482).
    uniform : bool
        Whether the levels are those of :func:`py_attn.codebooks.uniform_codebook`; see
        :func:`py_attn.codebooks.book_of`.
    """

    codes: npt.NDArray[np.uint8]
    scales: Array
    bits: int
    residual: Codes | None = None
    uniform: bool = False


@functools.cache
def signs(dim: int) -> Array:
    """[2 ROUNDS, dim] of ±1: one bit of a hash (Wellons' lowbias32) of the seed, the round and the index.

    The second half is for the rotation of residuals.
    """
    x = np.arange(2 * ROUNDS * dim, dtype=np.uint32) + np.uint32(SEED)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    x ^= x >> np.uint32(16)
    return (1.0 - 2.0 * (x & 1)).reshape(2 * ROUNDS, dim)


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


def rotate(x: npt.ArrayLike, compute_dtype: npt.DTypeLike = np.float64, *, first_round: int = 0) -> Array:
    """Rotate the last axis: ROUNDS times random signs, then the butterflies."""
    y = np.asarray(x).astype(compute_dtype)
    for sign in _round_signs(y, first_round):
        y = y * sign
        for stage in butterflies(y.shape[-1]):
            y = _stage(y, *stage)
    return y


def rotate_back(
    y: npt.ArrayLike, compute_dtype: npt.DTypeLike = np.float64, *, first_round: int = 0
) -> Array:
    """The inverse of :func:`rotate`, which is its transpose."""
    x = np.asarray(y).astype(compute_dtype)
    for sign in _round_signs(x, first_round)[::-1]:
        for stage in butterflies(x.shape[-1])[::-1]:
            x = _stage(x, *stage)
        x = x * sign
    return x


def _round_signs(x: Array, first_round: int) -> Array:
    return signs(x.shape[-1])[first_round : first_round + ROUNDS].astype(x.dtype)


def _stage(x: Array, partner: Array, upper: Array, alone: Array) -> Array:
    other = x[..., partner]
    return np.where(alone, x, np.where(upper, other - x, x + other) * x.dtype.type(np.sqrt(0.5)))


def quantize(
    x: npt.ArrayLike,
    bits: int,
    compute_dtype: npt.DTypeLike = np.float64,
    *,
    qjl: bool = False,
    uniform: bool = False,
) -> Codes:
    """Quantise the vectors along the last axis.

    With ``qjl`` one of the bits goes to the signs of the residual, which makes inner products with any
    other vector right on average (the paper's second quantiser). With ``uniform`` levels are at equal
    distances.
    """
    x = np.asarray(x).astype(compute_dtype)
    finite = np.isfinite(x).all(axis=-1)
    x = np.where(finite[..., None], x, 0)
    # Divided by its largest number first, so that no square overflows.
    largest = np.abs(x).max(axis=-1, initial=0)
    y = rotate(x / _or_one(largest)[..., None], compute_dtype)
    rms = np.sqrt((y * y).mean(axis=-1))
    y = y / _or_one(rms)[..., None]
    width = bits - 1 if qjl else bits
    book = book_of(width, x.shape[-1], uniform)
    index = (np.abs(y)[..., None] > np.asarray(book.thresholds, x.dtype)).sum(axis=-1)
    levels = np.where(y < 0, -1, 1).astype(x.dtype) * np.asarray(book.levels, x.dtype)[index]
    # The norm's correction: of all multiples of the levels the one that comes closest to y.
    fit = (y * levels).sum(axis=-1) / (levels * levels).sum(axis=-1)
    codes = (index | ((y < 0).astype(np.int64) << (width - 1))).astype(np.uint8)
    unit = np.where(finite, largest * rms, np.nan).astype(x.dtype)
    residual = _residual(y - fit[..., None] * levels, unit) if qjl else None
    return Codes(codes, unit * fit, width, residual, uniform)


def _residual(rest: Array, unit: Array) -> Codes:
    """Signs of the rotated ``rest``, scaled so that their inner product with it is its square."""
    z = rotate(rest, rest.dtype, first_round=ROUNDS)
    scales = unit * (rest * rest).sum(axis=-1) / _or_one(np.abs(z).sum(axis=-1))
    return Codes((z < 0).astype(np.uint8), scales, 1)


def _or_one(x: Array) -> Array:
    return np.asarray(np.where(x == 0, np.ones_like(x), x))


def dequantize(quantized: Codes, compute_dtype: npt.DTypeLike = np.float64) -> Array:
    """The vectors that :func:`quantize` approximated by ``quantized``."""
    codes, scales, bits, residual, uniform = quantized
    dtype = np.dtype(compute_dtype)
    levels = book_of(bits, codes.shape[-1], uniform).levels
    y = _values(codes, levels, bits, dtype) * scales[..., None].astype(dtype)
    if residual is not None:
        rest = _values(residual.codes, (1.0,), 1, dtype) * residual.scales[..., None].astype(dtype)
        y = y + rotate_back(rest, dtype, first_round=ROUNDS)
    return rotate_back(y, dtype)


def _values(
    codes: npt.NDArray[np.uint8], levels: tuple[float, ...], bits: int, dtype: np.dtype[Any]
) -> Array:
    magnitudes: Array = np.asarray(levels, dtype)[codes & ((1 << (bits - 1)) - 1)]
    signs_of_codes: Array = 1 - 2 * (codes >> (bits - 1)).astype(dtype)
    return np.asarray(magnitudes * signs_of_codes)


def roundtrip(
    x: npt.ArrayLike,
    bits: int,
    compute_dtype: npt.DTypeLike = np.float64,
    *,
    qjl: bool = False,
    uniform: bool = False,
) -> Array:
    """``x`` as it comes back after :func:`quantize`."""
    return dequantize(quantize(x, bits, compute_dtype, qjl=qjl, uniform=uniform), compute_dtype)


def pack(quantized: Codes) -> npt.NDArray[np.uint32]:
    """[..., words] as they lie in GPU memory: the scale's bits, then the codes, low bits first.

    Codes are padded with zeros to a multiple of four, and those to whole words. A residual follows in
    the same form.
    """
    codes, scales, bits, residual, _ = quantized
    padding = [(0, 0)] * (codes.ndim - 1)
    padded = np.pad(codes, [*padding, (0, -codes.shape[-1] % 4)])
    stream = (padded[..., None] >> np.arange(bits, dtype=np.uint8)) & 1
    stream = stream.reshape(*codes.shape[:-1], bits * padded.shape[-1])
    stream = np.pad(stream, [*padding, (0, -stream.shape[-1] % 32)])
    words = np.packbits(stream, axis=-1, bitorder="little").view("<u4").astype(np.uint32)
    parts = [np.asarray(scales, np.float32).view(np.uint32)[..., None], words]
    return np.concatenate(parts if residual is None else [*parts, pack(residual)], axis=-1)


def unpack(words: npt.NDArray[np.uint32], bits: int, dim: int, *, qjl: bool = False) -> Codes:
    """The inverse of :func:`pack`; ``bits`` include the residual's with ``qjl``, as in :func:`quantize`."""
    width = bits - 1 if qjl else bits
    end = 1 + -(-width * (dim + -dim % 4) // 32)
    scales = np.ascontiguousarray(words[..., 0]).view(np.float32)
    raw = np.ascontiguousarray(words[..., 1:end]).astype("<u4").view(np.uint8)
    stream = np.unpackbits(raw, axis=-1, bitorder="little", count=width * dim)
    codes = np.packbits(stream.reshape(*words.shape[:-1], dim, width), axis=-1, bitorder="little")[..., 0]
    return Codes(codes, scales, width, unpack(words[..., end:], 1, dim) if qjl else None)


def unpack_tiles(words: npt.NDArray[np.uint32], kind: str, *, uniform: bool = True) -> Codes:
    """The codes [..., 128 tiles, 128] in tiles [..., tiles, 2176] of "keys" or "values".

    The layout is that of shaders/lib/code_tiles.wgsl.
    """
    i = np.arange(TILE, dtype=np.uint32)
    word, shift = (i >> 5) * 4 + ((i >> 2) & 3), 8 * (i & 3) + 4 - ((i >> 2) & 4)
    outer = words.shape[:-2]
    groups = words[..., : TILE * TILE // 8].reshape(*words.shape[:-1], TILE, TILE // 8)
    nibbles = (groups[..., word] >> shift) & 15
    rows = nibbles if kind == "keys" else nibbles.swapaxes(-1, -2)
    code_of = np.argsort(NIBBLES[uniform]).astype(np.uint8)
    scales = np.ascontiguousarray(words[..., TILE * TILE // 8 :]).view(np.float32).reshape(*outer, -1)
    return Codes(code_of[rows].reshape(*outer, -1, TILE), scales, 4, uniform=uniform)
