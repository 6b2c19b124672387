"""What a cache of each dtype holds of the rows that are appended, in plain numpy.

The blocks of 32 are ggml's q8_0 and q4_0 (https://github.com/ggml-org/ggml, ``ggml-quants.c``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn.gpu.dtypes import DTYPES, round_to

Array = npt.NDArray[Any]
#: Numbers that share a scale.
BLOCK = 32


def cached(x: npt.ArrayLike, dtype: str, *, scale: npt.ArrayLike | None = None) -> Array:
    """The numbers that a cache holds of rows [B, H, S, D], as float64.

    Parameters
    ----------
    dtype : str
        As of :class:`py_attn.KVCache`. The integers of "int8", "q8_0" and "q4_0" are found in float32, as on
        the GPU:

        - "int8": x / scale rounded to the nearest (ties to even), from -128 to 127.
        - "q8_0": d is the largest magnitude of a block, over 127; x / d rounded to the nearest (ties away
          from zero). d is kept in float16.
        - "q4_0": d is the number of the largest magnitude, with its sign, over -8; x / d rounded to the
          nearest (ties up), from -8 to 7. d is kept in float16.
        - "uniform4", "turboquant1" … "turboquant4": as :mod:`py_attn.turboquant_reference` quantises in
          float32.
    scale : array_like, optional
        Of "int8": a number, [H] or [B, H].
    """
    if dtype in DTYPES:
        return round_to(x, dtype).astype(np.float64)
    rows = np.asarray(x, np.float32)
    if dtype == "int8":
        if scale is None:
            raise ValueError("scale: expected a number, [H] or [B, H] for int8, got None")
        factor = np.asarray(scale, np.float32)[..., None, None]
        codes = np.clip(np.round(rows / factor), -128, 127)
        return np.where(np.isnan(codes), 0, codes).astype(np.float64) * factor
    if dtype in ("q8_0", "q4_0"):
        return _blocks(rows, dtype)
    from py_attn import turboquant_reference  # a start does not need it

    uniform = dtype == "uniform4"
    held = turboquant_reference.roundtrip(rows, int(dtype[-1]), np.float32, uniform=uniform)
    return held.astype(np.float64)


def _blocks(rows: Array, dtype: str) -> Array:
    """Rows in blocks, the last of which is filled up with zeros."""
    dim = rows.shape[-1]
    padded = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, -dim % BLOCK)])
    blocks = padded.reshape(*rows.shape[:-1], math.ceil(dim / BLOCK), BLOCK)
    at = np.abs(blocks).argmax(-1)[..., None]
    extreme = np.take_along_axis(blocks, at, -1)
    with np.errstate(all="ignore"):
        d = np.abs(extreme) / np.float32(127) if dtype == "q8_0" else extreme / np.float32(-8)
        scaled = blocks * np.where(np.abs(d) > 1e-37, 1 / d, np.float32(0))
        if dtype == "q8_0":
            codes = np.copysign(np.minimum(np.floor(np.abs(scaled) + np.float64(0.5)), 127), scaled)
        else:
            codes = np.minimum(np.floor(scaled + np.float32(8.5)), 15) - 8
        held = codes * d.astype(np.float16).astype(np.float64)
    finite = np.isfinite(blocks).all(-1, keepdims=True)
    return np.where(finite, held, np.nan).reshape(padded.shape)[..., :dim]
