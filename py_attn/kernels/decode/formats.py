"""How rows of keys and values are kept in a cache: its dtypes, and the scales that are given for int8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn.cache_reference import BLOCK
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.operands import in_vec4s
from py_attn.kernels.quantization import turboquant

FLOATS = ("float32", "float16", "bfloat16")
#: What a language model keeps its caches in too.
CACHE_DTYPES = (*FLOATS, *turboquant.CACHE_DTYPES)
BLOCK_DTYPES = ("q8_0", "q4_0")
DTYPES = (*CACHE_DTYPES, turboquant.UNIFORM_DTYPE, "int8", *BLOCK_DTYPES)


@dataclass(frozen=True, slots=True)
class Integers:
    """How rows are kept as integers (shaders/lib/integer_rows.wgsl).

    Attributes
    ----------
    dtype : str
        "int8", whose scale is that of the head; "q8_0" or "q4_0", with a scale for each 32 numbers.
    dim : int
    """

    dtype: str
    dim: int

    @property
    def bits(self) -> int:
        """Bits of an integer."""
        return 4 if self.dtype == "q4_0" else 8

    @property
    def blocks(self) -> int:
        """Blocks of a row, the last one filled up with zeros; 0 for "int8"."""
        return -(-self.dim // BLOCK) if self.dtype in BLOCK_DTYPES else 0

    @property
    def scale_words(self) -> int:
        """u32 words of a row's scales, two to a word."""
        return -(-self.blocks // 2)

    def shape(self, rows: int) -> tuple[int, int]:
        """The last axes of what holds so many rows, in u32 words."""
        return rows, self.words

    @property
    def words(self) -> int:
        """u32 words of a row."""
        # A block of 32 integers takes as many words as an integer has bits.
        return self.scale_words + self.blocks * self.bits if self.blocks else in_vec4s(self.dim)


def integers_of(dtype: str, dim: int) -> Integers | None:
    """How rows of a dtype are kept as integers, None for others."""
    return Integers(dtype, dim) if dtype == "int8" or dtype in BLOCK_DTYPES else None


def codes_of(dtype: str, dim: int, qjl: bool) -> turboquant.Format | None:
    """How rows are kept as codes of their rotated numbers, None for other dtypes."""
    uniform = dtype == turboquant.UNIFORM_DTYPE
    if uniform or dtype in turboquant.CACHE_DTYPES:
        if dim > turboquant.MAX_DIM:
            raise ValueError(f"dtype: {dtype} takes head dims up to {turboquant.MAX_DIM}, got {dim}")
        if not (uniform and qjl):
            return turboquant.Format(turboquant.check_bits(int(dtype[-1]), qjl), dim, bool(qjl), uniform)
    if qjl:
        raise ValueError(f"qjl: expected quantised keys to spend a bit of, got keys of dtype {dtype!r}")
    return None


def check_dtypes(dtype: object, allowed: tuple[str, ...] = CACHE_DTYPES) -> tuple[str, str]:
    """The dtypes of keys and values, from one of them or a pair.

    Raises
    ------
    ValueError
        When one of them is none of ``allowed``.
    """
    pair = dtype if isinstance(dtype, (tuple, list)) else (dtype, dtype)
    if len(pair) != 2:
        raise ValueError(f"dtype: expected one dtype or a pair for keys and values, got {dtype!r}")
    for kind in pair:
        if kind not in allowed:
            raise ValueError(f"dtype: expected one of {', '.join(allowed)}, got {kind!r}")
    return str(pair[0]), str(pair[1])


def check_scales(
    k_scale: object, v_scale: object, dtypes: tuple[str, str], batch: int, heads: int
) -> npt.NDArray[np.float32] | None:
    """The scales of int8 keys and values, [B, Hkv, 2] with 1 where there is none; None without int8.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.
    """
    given = (("k_scale", k_scale, "keys"), ("v_scale", v_scale, "values"))
    scales = [
        _check_scale(name, scale, kind, dtype, batch, heads)
        for (name, scale, kind), dtype in zip(given, dtypes, strict=True)
    ]
    return np.stack(scales, -1) if "int8" in dtypes else None


def _check_scale(
    name: str, scale: Any, kind: str, dtype: str, batch: int, heads: int
) -> npt.NDArray[np.float32]:
    if dtype != "int8":
        if scale is not None:
            raise ValueError(f"{name}: expected None for {kind} of dtype {dtype}; only int8 takes a scale")
        return np.ones((batch, heads), np.float32)
    wanted = f"a number, [{heads}], one a head, or [{batch}, {heads}]"
    if scale is None:
        raise ValueError(f"{name}: expected {wanted} for {kind} of dtype int8, got None")
    if isinstance(scale, Tensor):
        raise TypeError(f"{name}: expected numbers or an array, which are checked here, got a Tensor")
    try:
        with np.errstate(over="ignore"):
            numbers = np.asarray(scale, np.float32)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected {wanted}, got {scale!r}") from None
    if numbers.shape not in ((), (heads,), (batch, heads)):
        raise ValueError(f"{name}: expected {wanted}, got the shape {list(numbers.shape)}")
    if not (np.isfinite(numbers).all() and (numbers >= np.finfo(np.float32).tiny).all()):
        raise ValueError(f"{name}: expected finite float32 numbers above 0, got {scale!r}")
    return np.broadcast_to(numbers, (batch, heads))
