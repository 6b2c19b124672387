"""Tensors as kernels see them: element types, strides and padded rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py_attn.gpu.kernel import Arg, NewTensor
from py_attn.gpu.tensor import Tensor, contiguous_strides

#: WGSL elements by layout: rows of aligned eights or fours of elements, or single elements at any strides.
HALF_ELEMENTS = {"packed8": "vec4<u32>", "packed4": "vec2<u32>", "single": "u32"}


@dataclass(frozen=True, slots=True)
class Operand:
    """A [B, H, S, D] tensor as a kernel reads it.

    Attributes
    ----------
    name : str
        In WGSL.
    dtype : str
    shape, strides : tuple of int
        Strides in elements, 0 along axes of length 1.
    layout : str
        "packed8" or "packed4" where rows are contiguous and begin at multiples of so many elements, else
        "single".
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    layout: str

    @property
    def packed(self) -> bool:
        """Whether rows are read four elements at a time."""
        return self.layout != "single"

    def constants(self) -> dict[str, Any]:
        """Template variables that say how a kernel reads it."""
        return {f"{self.name}_dtype": self.dtype, f"{self.name}_packed": self.packed}

    @property
    def arg(self) -> Arg:
        """The WGSL declaration."""
        if self.dtype == "float32":
            return Arg(self.name, "vec4<f32>" if self.packed else "f32")
        return Arg(self.name, "vec2<u32>" if self.packed else "u32")

    @property
    def wide_arg(self) -> Arg:
        """The declaration of a half type whose rows are read eight elements at a time where they can be."""
        return Arg(self.name, HALF_ELEMENTS[self.layout])


def operand(name: str, tensor: Tensor) -> Operand:
    """See a [B, H, S, D] tensor as a kernel's operand."""
    return _operand(name, tensor.dtype, tensor.shape, tensor.strides, tensor.offset)


def new_operand(name: str, new: NewTensor) -> Operand:
    """See a [B, H, S, D] tensor that the plan makes as the operand of a later launch."""
    steps = contiguous_strides((*new.shape[:3], new.pitch or new.shape[3]))
    return _operand(name, new.dtype, new.shape, steps, 0)


def _operand(name: str, dtype: str, shape: tuple[int, ...], steps: tuple[int, ...], offset: int) -> Operand:
    strides = tuple(0 if n == 1 else s for n, s in zip(shape, steps, strict=True))
    layout = "single"
    if strides[3] == 1:
        multiples = (shape[3], offset, *strides[:3])
        layout = next((f"packed{n}" for n in (8, 4) if not any(each % n for each in multiples)), layout)
    return Operand(name, dtype, shape, strides, layout)


def strided(tensor: Tensor) -> tuple[int, ...]:
    """The strides of a tensor of up to four axes, as a kernel broadcasts it to four."""
    strides = [0 if n == 1 else s for n, s in zip(tensor.shape, tensor.strides, strict=True)]
    return (*[0] * (4 - len(strides)), *strides)


def output_type(dtype: str) -> str:
    """The WGSL element of an output whose rows are padded to multiples of 4 elements."""
    return "vec4<f32>" if dtype == "float32" else "vec2<u32>"


def scalar_type(dtype: str) -> str:
    """The WGSL element of a floating tensor that is read one element at a time."""
    return "f32" if dtype == "float32" else "u32"


def pad4(n: int) -> int:
    """The next multiple of 4."""
    return -(-n // 4) * 4


def in_vec4s(n: int) -> int:
    """How many vec4s hold ``n`` elements."""
    return -(-n // 4)


def padded_rows(name: str, shape: tuple[int, ...], dtype: str) -> NewTensor:
    """A result with padded rows, so that every store is a whole vec4 and no two invocations share a word."""
    return NewTensor(name, shape, dtype, pad4(shape[-1]))


def power_of_two(n: int) -> int:
    """The smallest power of two that is not less than ``n``."""
    return 1 << (n - 1).bit_length()
