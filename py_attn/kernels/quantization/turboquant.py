"""TurboQuant on the GPU (arXiv 2504.19874): quantise rows, rotate them and back.

What the steps mean is in :mod:`py_attn.turboquant_reference`, how codes lie in memory in
``shaders/lib/turboquant.wgsl``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from py_attn.arguments import check_int
from py_attn.codebooks import codebook
from py_attn.gpu.bridge import AdapterInfo
from py_attn.gpu.shader import Binding, Shader, render
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.options import operand, output_type, pad4
from py_attn.kernels.rows import ROW_PARAMS, dispatch_rows
from py_attn.turboquant_reference import ROUNDS, SEED

MAX_BITS = 4
CACHE_DTYPES = tuple(f"turboquant{bits}" for bits in range(MAX_BITS, 0, -1))
_WORKGROUP = 64
#: What lib/turboquant.wgsl needs of the rotation beside the vectors' length.
ROTATION: Mapping[str, object] = {"ROUNDS": ROUNDS, "SEED": SEED}


def check_bits(bits: object, qjl: object = False) -> int:
    """Return ``bits`` if it is a width from 1 to 4; with ``qjl`` one of them goes to the residual."""
    number = check_int("bits", bits)
    if not 1 <= number <= MAX_BITS:
        raise ValueError(f"bits: expected 1 to {MAX_BITS}, got {number}")
    if qjl and number == 1:
        raise ValueError(f"bits: expected 2 to {MAX_BITS} with qjl, which takes one of them, got 1")
    return number


def check_finite(name: str, value: object) -> None:
    """Raise for an array of floats with NaN or infinities; a Tensor's numbers are not looked at."""
    if isinstance(value, Tensor):
        return
    array = np.asarray(value)
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        return
    with np.errstate(over="ignore"):
        finite = np.isfinite(array.astype(np.float32))
    if not finite.all():
        where = np.argwhere(~finite)
        raise ValueError(
            f"{name}: expected finite float32 numbers to quantise, got {array[tuple(where[0])]} "
            f"at {where[0].tolist()} ({len(where)} in all)"
        )


@dataclass(frozen=True, slots=True)
class Format:
    """How rows of numbers are kept as codes.

    Attributes
    ----------
    bits : int
        Bits for each number.
    dim : int
    qjl : bool
        Whether one of the bits is the sign of the residual.
    """

    bits: int
    dim: int
    qjl: bool = False

    @property
    def code_bits(self) -> int:
        """Bits of a level's code."""
        return self.bits - self.qjl

    @property
    def code_words(self) -> int:
        """u32 words of a row's scale and codes."""
        return 1 + -(-self.code_bits * pad4(self.dim) // 32)

    @property
    def words(self) -> int:
        """u32 words of a row."""
        return self.code_words + (1 + -(-pad4(self.dim) // 32) if self.qjl else 0)

    @property
    def width(self) -> int:
        """Numbers that an inner product with a row takes: codes, and signs of the residual."""
        return 2 * pad4(self.dim) if self.qjl else self.dim

    def row(self) -> dict[str, object]:
        """What lib/turboquant.wgsl needs to read a row."""
        return {
            "bits": self.code_bits,
            "levels": codebook(self.code_bits, self.dim).levels,
            "qjl": self.qjl,
            "numbers": pad4(self.dim),
            "words": self.code_words,
        }


def quantize_rows(
    name: str, tensor: Tensor, target: Tensor, form: Format, first_slot: int = 0, kept: int = 0
) -> None:
    """Write the codes of ``tensor`` [B, H, S, D] into slots of ``target`` uint32 [B, H, capacity, words]."""
    source = operand("source", tensor)
    shader = _quantize_shader(source.binding, tensor.dtype, source.packed, form)
    dispatch_rows(shader, name, source, target, _workgroups(tensor, form.dim), first_slot, kept)


def dequantize_rows(words: Tensor, form: Format) -> Tensor:
    """The float32 rows [B, H, S, D] that uint32 ``words`` [B, H, S, …] stand for."""
    return _rotated("packed", words, form, "float32", "dequantize")


def rotate_query(tensor: Tensor, form: Format) -> Tensor:
    """The query [B, H, S, D] as float32 [B, H, S, width], for inner products with rows of ``form``."""
    return _rotated("query", tensor, form, "float32", "forth")


def rotate_back(tensor: Tensor, dim: int, dtype: str) -> Tensor:
    """A sum of rotated rows, float32 [B, H, S, D], rotated back, as ``dtype``."""
    return _rotated("out", tensor, Format(MAX_BITS, dim), dtype, "back")


def rotates_in_subgroup(form: Format | None, info: AdapterInfo) -> bool:
    """Whether a kernel can rotate such rows on the way (rotation_in_subgroup in lib/turboquant.wgsl)."""
    if form is None or form.qjl:
        return False
    return form.dim.bit_count() == 1 and max(_lanes(form.dim), 4) <= info.subgroup_min_size


def _rotated(name: str, tensor: Tensor, form: Format, dtype: str, direction: str) -> Tensor:
    width = form.width if direction == "forth" else form.dim
    out = tensor.device.empty((*tensor.shape[:3], width), dtype, pitch=pad4(width))
    if out.size:
        source = operand("source", tensor)
        binding = Binding("source", "u32") if direction == "dequantize" else source.binding
        shader = _rotate_shader(binding, tensor.dtype, source.packed, form, dtype, direction)
        dispatch_rows(shader, name, source, out, _workgroups(tensor, form.dim))
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
        **ROTATION,
    }


@functools.lru_cache(maxsize=64)
def _quantize_shader(source: Binding, dtype: str, packed: bool, form: Format) -> Shader:
    book = codebook(form.code_bits, form.dim)
    return render(
        "quantization/quantize.wgsl",
        "turboquant_quantize",
        f"{form.bits}-bit{' qjl' if form.qjl else ''}",
        params=ROW_PARAMS,
        bindings=(source, Binding("cache", "u32", writes=True)),
        constants={
            "source_dtype": dtype,
            "source_packed": packed,
            "dtypes": (dtype,),
            "levels": book.levels,
            "thresholds": book.thresholds,
            "qjl": form.qjl,
            "BITS": form.code_bits,
            "CODE_WORDS": form.code_words,
            "ROW_WORDS": form.words,
            **_rotation_constants(form.dim),
        },
    )


@functools.lru_cache(maxsize=64)
def _rotate_shader(
    source: Binding, dtype: str, packed: bool, form: Format, out_dtype: str, direction: str
) -> Shader:
    from_codes = direction == "dequantize"
    return render(
        "quantization/rotate.wgsl",
        "turboquant_rotate",
        direction,
        params=ROW_PARAMS,
        bindings=(source, Binding("out", output_type(out_dtype), writes=True)),
        constants={
            "source_dtype": dtype,
            "source_packed": packed,
            "source_row": form.row() if from_codes else None,
            "out_dtype": out_dtype,
            "dtypes": (dtype, out_dtype),
            "inverse": direction != "forth",
            "qjl": form.qjl,
            "OUT_PITCH": pad4(form.width if direction == "forth" else form.dim),
            **_rotation_constants(form.dim),
        },
    )
