"""TurboQuant on the GPU (arXiv 2504.19874): quantise rows, rotate them and back.

What the steps mean is in :mod:`py_attn.turboquant_reference`, how codes lie in memory in
``shaders/lib/turboquant.wgsl``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from py_attn.arguments import check_int
from py_attn.codebooks import Codebook, book_of
from py_attn.gpu.binding import Limits
from py_attn.gpu.bridge import AdapterInfo
from py_attn.gpu.device import Device
from py_attn.gpu.kernel import Arg, Launch, NewTensor, Plan
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.decode.pages import TABLE
from py_attn.kernels.operands import Operand, in_vec4s, operand, output_type, pad4, padded_rows
from py_attn.kernels.rotary import Rotary
from py_attn.kernels.rows import launch_rows
from py_attn.turboquant_reference import NIBBLES, ROUNDS, SEED, TILE

MAX_BITS = 4
#: The longest vectors; a head dim may be greater.
MAX_DIM = 512
CACHE_DTYPES = tuple(f"turboquant{bits}" for bits in range(MAX_BITS, 0, -1))
#: A cache's dtype of rotated rows whose levels are at equal distances.
UNIFORM_DTYPE = "uniform4"
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
    uniform : bool
        Whether levels are at equal distances.
    tiled : bool
        Whether codes lie in tiles of 128 rows, as shaders/lib/code_tiles.wgsl says; needs codes of 4 bits and
        rows of 128 numbers.
    """

    bits: int
    dim: int
    qjl: bool = False
    uniform: bool = False
    tiled: bool = False

    @property
    def book(self) -> Codebook:
        """The levels."""
        return book_of(self.code_bits, self.dim, self.uniform)

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

    def shape(self, rows: int) -> tuple[int, int]:
        """The last axes of what holds so many rows, in u32 words."""
        return (-(-rows // TILE), TILE * self.words) if self.tiled else (rows, self.words)

    @property
    def width(self) -> int:
        """Numbers that an inner product with a row takes: codes, and signs of the residual."""
        return 2 * pad4(self.dim) if self.qjl else self.dim

    def row(self) -> CodeRow:
        """What lib/turboquant.wgsl needs to read a row."""
        return CodeRow(self.code_bits, self.book.levels, self.qjl, pad4(self.dim), self.code_words)


class CodeRow(NamedTuple):
    """How a kernel reads a row of codes: see shaders/lib/turboquant.wgsl."""

    bits: int
    levels: tuple[float, ...]
    qjl: bool
    numbers: int
    words: int


def launch_quantize(
    name: str,
    tensors: Mapping[str, Tensor],
    form: Format,
    target: str,
    capacity: int,
    first_slot: int = 0,
    kept: int = 0,
    rotary: Rotary | None = None,
    first_position: int = 0,
) -> Launch:
    """Plan writing the codes of the tensor ``name`` [B, H, S, D] into slots of ``target``.

    The target is uint32 [B, H, *form.shape(capacity)]. With a tensor "state" the first slot is that of the
    state's position, and with "totals" that behind the rows of each batch element; with ``rotary`` the rows
    turn first (:func:`launch_rows`).
    """
    tensor = tensors[name]
    book = form.book
    tiles = target.removeprefix("cache ") if form.tiled else None
    return launch_rows(
        "turboquant_quantize",
        "quantization/quantize.wgsl",
        operand("source", tensor),
        # Words of values are shared by rows.
        Arg("cache", "atomic<u32>" if tiles == "values" else "u32", writes=True, tensor=target),
        tensors,
        tensor.device.info.limits,
        name=name,
        variant=f"{form.bits}-bit{' qjl' if form.qjl else ''}{f', tiles of {tiles}' if tiles else ''}",
        workgroups=_workgroups(tensor.shape, form.dim),
        constants={
            "dtypes": (tensor.dtype,),
            "levels": book.levels,
            "thresholds": book.thresholds,
            "qjl": form.qjl,
            "tiles": tiles,
            "nibbles": _nibble_words(form) if tiles else (),
            "BITS": form.code_bits,
            "CODE_WORDS": form.code_words,
            "ROW_WORDS": form.words,
            **_rotation_constants(form.dim),
        },
        capacity=capacity,
        first_slot=first_slot,
        kept=kept,
        rotary=rotary,
        first_position=first_position,
    )


def _nibble_words(form: Format) -> tuple[int, int]:
    """The four bits that stand for codes 0 … 7 in a tile, and those for 8 … 15, low bits first."""
    nibbles = NIBBLES[form.uniform]
    low, high = (sum(n << (4 * i) for i, n in enumerate(part)) for part in (nibbles[:8], nibbles[8:]))
    return low, high


def new_rotated(name: str, rows: tuple[int, ...], form: Format, dtype: str, direction: str) -> NewTensor:
    """What :func:`launch_rotation` writes for ``rows`` of [B, H, S]."""
    return padded_rows(name, (*rows, form.width if direction == "forth" else form.dim), dtype)


def launch_rotation(
    source: Operand,
    out: NewTensor,
    form: Format,
    direction: str,
    tensors: Mapping[str, Tensor],
    limits: Limits,
    *,
    name: str,
) -> Launch:
    """Plan the rotation of rows [B, H, S, D], called ``name`` in the call.

    Parameters
    ----------
    direction : str
        "forth" for a query, so that its inner products with codes can be taken; "back" for a sum of rotated
        rows; "dequantize" for codes.
    tensors : mapping
        With a tensor "state" among them, the rows are those of a log from the state's position on.
    """
    from_codes = direction == "dequantize"
    # A cache's lengths and blocks say nothing about where the rows of a query are.
    tensors = {name: x for name, x in tensors.items() if name not in ("totals", "counts", TABLE)}
    return launch_rows(
        "turboquant_rotate",
        "quantization/rotate.wgsl",
        source,
        Arg("out", output_type(out.dtype), writes=True, tensor=out.name),
        tensors,
        limits,
        name=name,
        variant=direction,
        workgroups=_workgroups(source.shape, form.dim),
        constants={
            "source_row": form.row() if from_codes else None,
            "out_dtype": out.dtype,
            "dtypes": (source.dtype, out.dtype),
            "inverse": direction != "forth",
            "qjl": form.qjl,
            "OUT_PITCH": pad4(out.shape[3]),
            **_rotation_constants(form.dim),
        },
        capacity=out.shape[2],
        element="u32" if from_codes else None,
    )


def run_rotation(name: str, tensor: Tensor, form: Format, direction: str) -> Tensor:
    """The rows of ``tensor`` rotated, as float32."""
    out = new_rotated("out", tensor.shape[:3], form, "float32", direction)
    tensors, limits = {name: tensor}, tensor.device.info.limits
    source = operand("source", tensor)
    launches = []
    if 0 not in out.shape:
        launches.append(launch_rotation(source, out, form, direction, tensors, limits, name=name))
    device: Device = tensor.device
    return device.run(Plan((out,), tuple(launches)), tensors)["out"]


def rotates_in_subgroup(form: Format | None, info: AdapterInfo) -> bool:
    """Whether a kernel can rotate such rows on the way (rotation_in_subgroup in lib/turboquant.wgsl)."""
    if form is None or form.qjl:
        return False
    return form.dim.bit_count() == 1 and max(_lanes(form.dim), 4) <= info.subgroup_min_size


def _lanes(dim: int) -> int:
    """Invocations for a row: each holds four numbers, and a power of two halves to one."""
    return 1 << (in_vec4s(dim) - 1).bit_length()


def _vectors(dim: int) -> int:
    return max(1, _WORKGROUP // _lanes(dim))


def _workgroups(shape: tuple[int, ...], dim: int) -> int:
    return -(-math.prod(shape[:3]) // _vectors(dim))


def _rotation_constants(dim: int) -> dict[str, object]:
    return {
        "D": dim,
        "D4": in_vec4s(dim),
        "LANES": _lanes(dim),
        "VECTORS": _vectors(dim),
        "WORKGROUP": _lanes(dim) * _vectors(dim),
        "STAGES": (dim - 1).bit_length(),
        **ROTATION,
    }
