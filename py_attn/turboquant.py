"""TurboQuant (Zandieh et al., arXiv 2504.19874): vectors in 1 to 4 bits a number, near the optimum.

A vector is rotated by a fixed random orthogonal matrix, after which its coordinates are all alike
whatever it was, and each coordinate takes the nearest level of a codebook made for that distribution.
Nothing is learned from data. A :class:`py_attn.KVCache` of dtype "turboquant4" keeps its keys and
values so; docs/turboquant.md has the measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from py_attn.arguments import check_head_dim
from py_attn.gpu.device import Device
from py_attn.gpu.kernel import Plan
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.checks import find_device, float_tensor, shape_of
from py_attn.kernels.copy import contiguous
from py_attn.kernels.quantization import turboquant as kernels

__all__ = ["Packed", "dequantize", "quantize"]


@dataclass(frozen=True, slots=True)
class Packed:
    """Vectors as :func:`quantize` leaves them.

    Attributes
    ----------
    words : Tensor
        uint32 [..., words a vector]: its scale (the bits of a float32), then its codes, low bits first.
    shape : tuple of int
        Of what was quantised.
    bits : int
        Bits for each number.
    qjl : bool
        Whether one of them is the sign of the residual.
    """

    words: Tensor
    shape: tuple[int, ...]
    bits: int
    qjl: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of scales and codes."""
        return self.words.nbytes

    def __repr__(self) -> str:
        qjl = ", qjl" if self.qjl else ""
        return f"Packed(shape={list(self.shape)}, bits={self.bits}{qjl}, nbytes={self.nbytes:,})"


def quantize(x: Any, bits: int, *, qjl: bool = False) -> Packed:
    """Quantise the vectors along the last axis of ``x``.

    Parameters
    ----------
    x : Tensor or array_like
        [..., D] of any float dtype, D from 1 to 512.
    bits : int
        1 to 4.
    qjl : bool
        Spend one of at least two bits on the sign of what the others leave over (QJL, arXiv 2406.03482).
        Inner products are then right on average, but each is further off, and so is the vector:
        attention does not gain by it.

    Returns
    -------
    Packed
        A vector of zeros stays one. A vector of a Tensor that holds NaN or an infinity comes back as NaN
        in all its numbers; no other vector is touched by it.

    Raises
    ------
    ValueError, TypeError
        For another width or length, no floats, or an array that holds NaN or an infinity.
    """
    form_bits = kernels.check_bits(bits, qjl)
    shape = shape_of("x", x)
    if not shape:
        raise ValueError("x: expected at least one axis, got a single number")
    dim = shape[-1]
    check_head_dim("x", dim)
    device = find_device(x)
    kernels.check_finite("x", x)
    tensor = float_tensor("x", x, device)
    form = kernels.Format(form_bits, dim, bool(qjl))
    words = device.empty((*shape[:-1], form.words), "uint32")
    if words.size:
        rows = _four_axes(tensor)
        quantize_all = kernels.launch_quantize("x", rows, form, "words", rows.shape[2])
        device.run(Plan((), (quantize_all,)), {"x": rows, "words": words})
    return Packed(words, shape, form.bits, form.qjl)


def dequantize(packed: Packed) -> Tensor:
    """The vectors that ``packed`` stands for.

    Returns
    -------
    Tensor
        float32, the shape of what was quantised.

    Raises
    ------
    TypeError, ValueError
        When it is nothing that :func:`quantize` gave, or its tensor was destroyed.
    """
    if not isinstance(packed, Packed):
        raise TypeError(f"packed: expected what quantize returns, got {type(packed).__name__}")
    packed.words.storage("packed")
    if not packed.words.size:
        device: Device = packed.words.device
        return device.empty(packed.shape)
    form = kernels.Format(packed.bits, packed.shape[-1], packed.qjl)
    out = kernels.run_rotation("packed", _four_axes(packed.words), form, "dequantize")
    return out.reshape(*packed.shape)


def _four_axes(tensor: Tensor) -> Tensor:
    """The tensor seen as [B, H, S, D]; more axes than that are copied where they do not merge."""
    if tensor.ndim <= 4:
        view: Tensor = tensor[(None,) * (4 - tensor.ndim)]
        return view
    return contiguous(tensor).reshape(1, 1, math.prod(tensor.shape[:-1]), tensor.shape[-1])
