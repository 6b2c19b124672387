"""TurboQuant (Zandieh et al., arXiv 2504.19874): vectors in 1 to 4 bits for each number, near the optimum.

A vector is rotated by a fixed random orthogonal matrix. Whatever the vector was, its coordinates then have
nearly the same distribution, and each is rounded to the nearest level of a codebook made for it. Nothing is
learned from data. A :class:`py_attn.KVCache` of dtype "turboquant4" stores its keys and values in this way;
docs/turboquant.md has the measurements.
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
    """Vectors that :func:`quantize` has quantised.

    Attributes
    ----------
    words : Tensor
        uint32 [..., words per vector]: its scale (the bits of a float32), then its codes, low bits first.
    shape : tuple of int
        The shape of the numbers that were quantised.
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
        1 to 4. Levels are those of :func:`py_attn.codebooks.book_of`.
    qjl : bool
        Use one of at least two bits for the sign of the residual of the others (QJL, arXiv 2406.03482). Inner
        products are then right on average, but the error of each is larger, and so is that of the vector;
        attention does not gain from it.

    Returns
    -------
    Packed
        A vector of zeros stays zero. A vector of a Tensor with NaN or an infinity comes back as NaN in all
        its numbers; no other vector is affected.

    Raises
    ------
    ValueError, TypeError
        For other bits, for vectors of another length, for numbers that are no floats, or for an array that
        holds NaN or an infinity.
    """
    form_bits = kernels.check_bits(bits, qjl)
    shape = shape_of("x", x)
    if not shape:
        raise ValueError("x: expected at least one axis, got a single number")
    dim = shape[-1]
    check_head_dim("x", dim, kernels.MAX_DIM)
    device = find_device(x)
    kernels.check_finite("x", x)
    tensor = float_tensor("x", x, device)
    form = kernels.Format(form_bits, dim, bool(qjl))
    words = device.empty((*shape[:-1], form.words), "uint32")
    if words.size:
        rows = _four_axes(tensor)
        quantize_all = kernels.launch_quantize("x", {"x": rows}, form, "words", rows.shape[2])
        device.run(Plan((), (quantize_all,)), {"x": rows, "words": words})
    return Packed(words, shape, form.bits, form.qjl)


def dequantize(packed: Packed) -> Tensor:
    """The vectors that :func:`quantize` approximated by ``packed``.

    Returns
    -------
    Tensor
        float32, in the shape of the quantised numbers.

    Raises
    ------
    TypeError, ValueError
        When it is not a result of :func:`quantize`, or its tensor was destroyed.
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
    """The tensor seen as [B, H, S, D]; one with more axes is copied if they cannot be merged."""
    if tensor.ndim <= 4:
        view: Tensor = tensor[(None,) * (4 - tensor.ndim)]
        return view
    return contiguous(tensor).reshape(1, 1, math.prod(tensor.shape[:-1]), tensor.shape[-1])
