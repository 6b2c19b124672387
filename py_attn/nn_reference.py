"""The layers of a language model in plain numpy: what ``py_attn.kernels.nn`` computes from quantised weights.

Every function computes in ``compute_dtype``, float64 unless given. RMSNorm: Zhang & Sennrich, arXiv
1910.07467. RoPE: Su et al., arXiv 2104.09864. SwiGLU: Shazeer, arXiv 2002.05202. The blocks of weights are
ggml's (https://github.com/ggml-org/ggml, ``ggml-common.h``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn.products import product

Array = npt.NDArray[Any]

#: Weights of a block, and bytes of a block in a file.
BLOCK = 32
BLOCK_BYTES = {"Q4_1": 20, "Q8_0": 34}


def dequantize(blocks: Array, rows: int, inner: int, format: str, compute_dtype: Any = np.float64) -> Array:
    """The weights [rows, inner] of a matrix whose blocks are as in a GGUF file.

    Parameters
    ----------
    blocks : array
        The bytes of the blocks, row by row, uint8 [rows · inner / 32 · 20 (Q4_1) or 34 (Q8_0)].
    rows, inner : int
    format : str
        "Q4_1": d and m (float16), then 16 bytes, of which byte j holds q of element j in its low half and
        that of element j + 16 in its high half; a weight is q · d + m. "Q8_0": d, then 32 signed bytes; a
        weight is q · d.
    """
    given = np.ascontiguousarray(blocks, np.uint8).reshape(rows * inner // BLOCK, BLOCK_BYTES[format])
    d = given[:, :2].copy().view(np.float16).astype(compute_dtype)
    weights: Array
    if format == "Q8_0":
        weights = given[:, 2:].view(np.int8) * d
        return weights.reshape(rows, inner)
    m = given[:, 2:4].copy().view(np.float16).astype(compute_dtype)
    codes = np.concatenate([given[:, 4:] & 15, given[:, 4:] >> 4], axis=1)
    weights = codes * d + m
    return weights.reshape(rows, inner)


def rms_norm(x: Array, weight: Array, epsilon: float = 1e-5, compute_dtype: Any = np.float64) -> Array:
    """``x / sqrt(mean(x²) + epsilon) · weight`` along the last axis."""
    x = np.asarray(x, compute_dtype)
    mean = np.square(x).mean(axis=-1, keepdims=True)
    normed: Array = x / np.sqrt(mean + compute_dtype(epsilon)) * np.asarray(weight, compute_dtype)
    return normed


def rope(x: Array, table: Array, compute_dtype: Any = np.float64) -> Array:
    """Turn the pairs (2i, 2i + 1) of each head.

    Parameters
    ----------
    x : array
        [tokens, heads, head_dim].
    table : array
        [tokens, head_dim / 2, 2]: cosine and sine of each token's angles.
    """
    x, table = np.asarray(x, compute_dtype), np.asarray(table, compute_dtype)[:, None]
    even, odd, cos, sin = x[..., ::2], x[..., 1::2], table[..., 0], table[..., 1]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


def silu(x: Array, compute_dtype: Any = np.float64) -> Array:
    """``x / (1 + exp(-x))``."""
    x = np.asarray(x, compute_dtype)
    with np.errstate(over="ignore"):
        gated: Array = x / (1 + np.exp(-x))
    return gated


def swiglu(gate: Array, up: Array, compute_dtype: Any = np.float64) -> Array:
    """``silu(gate) · up``."""
    gated: Array = silu(gate, compute_dtype) * np.asarray(up, compute_dtype)
    return gated


def linear(x: Array, weight: Array, compute_dtype: Any = np.float64) -> Array:
    """Each row of x [tokens, inner] times each row of weight [rows, inner]: [tokens, rows]."""
    return product(np.asarray(x, compute_dtype), np.asarray(weight, compute_dtype).T)


def combine_splits(outs: Array, rows: Array, compute_dtype: Any = np.float64) -> Array:
    """One output for each head from those of a decode's splits.

    Parameters
    ----------
    outs : array
        [heads, splits, head_dim], each split's normalised output.
    rows : array
        [heads, splits, 2]: the maximum of each split's scores in units of log2, and its sum of
        exp2(score - maximum), 0 where the split saw nothing.
    """
    outs, rows = np.asarray(outs, compute_dtype), np.asarray(rows, compute_dtype)
    largest = np.where(rows[..., 1] > 0, rows[..., 0], -np.inf).max(axis=1, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0)
    weights = rows[..., 1] * np.where(rows[..., 1] > 0, np.exp2(np.minimum(rows[..., 0] - largest, 0)), 0)
    total = weights.sum(axis=1, keepdims=True)
    share = weights / np.where(total > 0, total, 1)
    combined: Array = (share[..., None] * outs).sum(axis=1)
    return combined
