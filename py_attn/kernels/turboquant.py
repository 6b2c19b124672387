"""TurboQuant on the GPU (arXiv 2504.19874): quantise rows, rotate them and back.

What the steps mean is in :mod:`py_attn.turboquant_reference`, how codes lie in memory in
``shaders/lib/turboquant.wgsl``.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from py_attn.arguments import check_int
from py_attn.codebooks import codebook
from py_attn.gpu.shader import Binding, Shader, render
from py_attn.gpu.tensor import Tensor
from py_attn.kernels._inputs import operand, output_type, pad4
from py_attn.kernels._rows import ROW_PARAMS, dispatch_rows
from py_attn.turboquant_reference import ROUNDS, SEED

MAX_BITS = 4
CACHE_DTYPES = tuple(f"turboquant{bits}" for bits in range(MAX_BITS, 0, -1))
_WORKGROUP = 64


def check_bits(bits: object) -> int:
    """Return ``bits`` if it is a width from 1 to 4."""
    number = check_int("bits", bits)
    if not 1 <= number <= MAX_BITS:
        raise ValueError(f"bits: expected 1 to {MAX_BITS}, got {number}")
    return number


def check_finite(name: str, value: object) -> None:
    """Raise for an array that holds NaN or infinities; a Tensor's numbers are not looked at."""
    if isinstance(value, Tensor):
        return
    with np.errstate(over="ignore"):
        finite = np.isfinite(np.asarray(value).astype(np.float32))
    if not finite.all():
        where = np.argwhere(~finite)
        raise ValueError(
            f"{name}: expected finite float32 numbers to quantise, got {np.asarray(value)[tuple(where[0])]} "
            f"at {where[0].tolist()} ({len(where)} in all)"
        )


def cache_bits(dtype: str) -> int:
    """The width of a cache dtype; 0 for one that is not quantised."""
    return int(dtype[-1]) if dtype in CACHE_DTYPES else 0


def row_words(bits: int, dim: int) -> int:
    """u32 words of one row: its scale and its codes."""
    return 1 + -(-bits * pad4(dim) // 32)


def code_constants(name: str, bits: int, dim: int) -> dict[str, object]:
    """What lib/turboquant.wgsl needs to read the buffer ``name``; without codes, only that there are none."""
    levels = codebook(bits, dim).levels if bits else ()
    return {f"{name}_bits": bits, f"{name}_levels": levels}


def quantize_rows(name: str, tensor: Tensor, target: Tensor, bits: int, first_slot: int = 0) -> None:
    """Write the codes of ``tensor`` [B, H, S, D] into slots of ``target`` uint32 [B, H, capacity, words]."""
    dim = tensor.shape[3]
    source = operand("source", tensor)
    shader = _quantize_shader(source.binding, tensor.dtype, source.packed, bits, dim)
    dispatch_rows(shader, name, source, target, _workgroups(tensor, dim), first_slot)


def rotate(name: str, tensor: Tensor) -> Tensor:
    """``tensor`` [B, H, S, D] rotated, as float32."""
    return _rotated(name, tensor, tensor.shape[3], 0, "float32", inverse=False)


def rotate_back(name: str, tensor: Tensor, dtype: str) -> Tensor:
    """``tensor`` float32 [B, H, S, D] rotated back, as ``dtype``."""
    return _rotated(name, tensor, tensor.shape[3], 0, dtype, inverse=True)


def dequantize_rows(words: Tensor, bits: int, dim: int) -> Tensor:
    """The float32 rows [B, H, S, D] that uint32 ``words`` [B, H, S, …] stand for."""
    return _rotated("packed", words, dim, bits, "float32", inverse=True)


def _rotated(name: str, tensor: Tensor, dim: int, bits: int, dtype: str, *, inverse: bool) -> Tensor:
    out = tensor.device.empty((*tensor.shape[:3], dim), dtype, pitch=pad4(dim))
    if out.size:
        source = operand("source", tensor)
        binding = Binding("source", "u32") if bits else source.binding
        shader = _rotate_shader(binding, tensor.dtype, source.packed, bits, dim, dtype, inverse)
        dispatch_rows(shader, name, source, out, _workgroups(tensor, dim))
    return out


def _lanes(dim: int) -> int:
    """Invocations for a row: each holds four numbers, and a power of two halves to one."""
    return 1 << (pad4(dim) // 4 - 1).bit_length()


def _vectors(dim: int) -> int:
    return max(1, _WORKGROUP // _lanes(dim))


def _workgroups(tensor: Tensor, dim: int) -> int:
    return -(-math.prod(tensor.shape[:3]) // _vectors(dim))


def _rotation_constants(dim: int) -> dict[str, object]:
    return {
        "D": dim,
        "D4": pad4(dim) // 4,
        "LANES": _lanes(dim),
        "VECTORS": _vectors(dim),
        "WORKGROUP": _lanes(dim) * _vectors(dim),
        "STAGES": (dim - 1).bit_length(),
        "ROUNDS": ROUNDS,
        "SEED": SEED,
    }


@functools.lru_cache(maxsize=64)
def _quantize_shader(source: Binding, dtype: str, packed: bool, bits: int, dim: int) -> Shader:
    book = codebook(bits, dim)
    return render(
        "turboquant_quantize.wgsl",
        "turboquant_quantize",
        f"{bits}-bit",
        params=ROW_PARAMS,
        bindings=(source, Binding("cache", "u32", writes=True)),
        constants={
            "source_dtype": dtype,
            "source_packed": packed,
            "dtypes": (dtype,),
            "bits": bits,
            "levels": book.levels,
            "thresholds": book.thresholds,
            "BITS": bits,
            "ROW_WORDS": row_words(bits, dim),
            **_rotation_constants(dim),
        },
    )


@functools.lru_cache(maxsize=64)
def _rotate_shader(
    source: Binding, dtype: str, packed: bool, bits: int, dim: int, out_dtype: str, inverse: bool
) -> Shader:
    return render(
        "turboquant_rotate.wgsl",
        "turboquant_rotate",
        "back" if inverse else "forth",
        params=ROW_PARAMS,
        bindings=(source, Binding("out", output_type(out_dtype), writes=True)),
        constants={
            "source_dtype": dtype,
            "source_packed": packed,
            "out_dtype": out_dtype,
            "dtypes": (dtype, out_dtype),
            "inverse": inverse,
            **code_constants("source", bits, dim),
            **_rotation_constants(dim),
        },
    )
