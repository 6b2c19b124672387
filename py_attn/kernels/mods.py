"""Traced score_mods, mask_mods and prob_mods as kernels take them: WGSL, and tensors to look up."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from py_attn.gpu.device import Device, as_tensor
from py_attn.gpu.kernel import Arg
from py_attn.gpu.tensor import Tensor

if TYPE_CHECKING:
    from py_attn.tracing import Lookup

#: Tensors that score_mod and mask_mod look things up in and that are bound one by one, at most.
MAX_CAPTURED = 4
#: The tensor that holds them all where there are more, or where too few buffers are left for them.
PACKED = "captured"
#: Their first elements, as lib/mods.wgsl reads them.
MOD_PARAMS = {f"captured_{n}_first": "u32" for n in range(MAX_CAPTURED)}
_ELEMENTS = {"float32": "f32", "int32": "i32", "uint32": "i32"}


@dataclass(frozen=True, slots=True)
class Mods:
    """A traced score_mod, mask_mod and prob_mod: their WGSL, and the dtypes of the tensors they read.

    ``lookups`` are the places where score_mod reads tensors that are differentiated. ``packed_at`` says where
    each tensor begins in the one that holds them all, if there is one.
    """

    wgsl: str = ""
    has_score_mod: bool = False
    has_mask_mod: bool = False
    has_prob_mod: bool = False
    captured: tuple[str, ...] = ()
    lookups: tuple[Lookup, ...] = ()
    packed_at: tuple[int, ...] = ()

    def constants(self) -> dict[str, object]:
        """Template variables of lib/mods.wgsl and lib/score.wgsl."""
        return {
            "mods": self.wgsl,
            "has_score_mod": self.has_score_mod,
            "has_mask_mod": self.has_mask_mod,
            "has_prob_mod": self.has_prob_mod,
            "captured": self.captured,
            "packed_at": self.packed_at,
        }

    def args(self) -> list[Arg]:
        """How a kernel declares the tensors: captured_0, captured_1, …, or the one that holds them all."""
        if self.packed_at:
            return [Arg(PACKED, "u32")]
        return [Arg(f"captured_{n}", _ELEMENTS.get(dtype, "u32")) for n, dtype in enumerate(self.captured)]


def trace_mods(
    score_mod: object,
    mask_mod: object,
    device: Device,
    *,
    prob_mod: object = None,
    slope: bool = False,
    differentiated: Sequence[Tensor] = (),
    others: int = 0,
) -> tuple[Mods, dict[str, Tensor]]:
    """Trace the functions, and check the tensors they look things up in.

    ``others`` is how many other buffers the kernels bind. Where they leave too few, or there are more than
    four tensors, :func:`with_packed` puts the tensors into one.

    Returns
    -------
    Mods
    dict
        The tensors by name: captured_0, captured_1, …

    Raises
    ------
    TypeError, ValueError
        When a function cannot be traced, or uses a tensor of another device.
    """
    if score_mod is mask_mod is prob_mod is None:
        return Mods(), {}
    from py_attn.tracing import Packed  # a start does not need it

    tensors: list[Tensor] = []
    mods = _traced(tensors, score_mod, mask_mod, prob_mod, slope, differentiated)
    room = device.info.limits["maxStorageBuffersPerShaderStage"] - others
    if len(tensors) > max(1, min(MAX_CAPTURED, room)):
        tensors = Packed()
        mods = _traced(tensors, score_mod, mask_mod, prob_mod, slope, differentiated)
        mods = replace(mods, packed_at=places(tensors)[:-1])
    for tensor in tensors:
        as_tensor("score_mod", tensor, device)
    return mods, {f"captured_{n}": tensor for n, tensor in enumerate(tensors)}


def places(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Where each tensor begins in the one that holds them all, in 32-bit words, and where the last ends."""
    return tuple(itertools.accumulate((tensor.size for tensor in tensors), initial=0))


def _traced(
    tensors: list[Tensor],
    score_mod: object,
    mask_mod: object,
    prob_mod: object,
    slope: bool,
    differentiated: Sequence[Tensor],
) -> Mods:
    """The functions traced; the tensors that they read are appended to ``tensors``."""
    from py_attn.tracing import trace_mask_mod, trace_prob_mod, trace_score_mod

    lookups: list[Lookup] = []
    wgsl = ""
    if score_mod is not None:
        wgsl = trace_score_mod(
            score_mod, tensors, gradient=slope, differentiated=differentiated, lookups=lookups
        )
    wgsl += "" if mask_mod is None else trace_mask_mod(mask_mod, tensors)
    wgsl += "" if prob_mod is None else trace_prob_mod(prob_mod, tensors)
    return Mods(
        wgsl,
        has_score_mod=score_mod is not None,
        has_mask_mod=mask_mod is not None,
        has_prob_mod=prob_mod is not None,
        captured=tuple(tensor.dtype for tensor in tensors),
        lookups=tuple(lookups),
    )
