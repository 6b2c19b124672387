"""Traced score_mods, mask_mods and prob_mods as kernels take them: WGSL, and tensors to look up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from py_attn.gpu.device import Device, as_tensor
from py_attn.gpu.kernel import Arg
from py_attn.gpu.tensor import Tensor
from py_attn.tracing import Lookup, trace_mask_mod, trace_prob_mod, trace_score_mod

#: Tensors that score_mod and mask_mod look things up in, at most.
MAX_CAPTURED = 4
#: Their first elements, as lib/mods.wgsl reads them.
MOD_PARAMS = {f"captured_{n}_first": "u32" for n in range(MAX_CAPTURED)}
_ELEMENTS = {"float32": "f32", "int32": "i32", "uint32": "i32"}


@dataclass(frozen=True, slots=True)
class Mods:
    """A traced score_mod, mask_mod and prob_mod: their WGSL, and the dtypes of the tensors they read.

    ``lookups`` are the places where score_mod reads tensors that are differentiated.
    """

    wgsl: str = ""
    has_score_mod: bool = False
    has_mask_mod: bool = False
    has_prob_mod: bool = False
    captured: tuple[str, ...] = ()
    lookups: tuple[Lookup, ...] = ()

    def constants(self) -> dict[str, object]:
        """Template variables of lib/mods.wgsl and lib/score.wgsl."""
        return {
            "mods": self.wgsl,
            "has_score_mod": self.has_score_mod,
            "has_mask_mod": self.has_mask_mod,
            "has_prob_mod": self.has_prob_mod,
            "captured": self.captured,
        }

    def args(self) -> list[Arg]:
        """How a kernel declares the tensors: captured_0, captured_1, …"""
        return [Arg(f"captured_{n}", _ELEMENTS.get(dtype, "u32")) for n, dtype in enumerate(self.captured)]


def trace_mods(
    score_mod: object,
    mask_mod: object,
    device: Device,
    *,
    prob_mod: object = None,
    slope: bool = False,
    differentiated: Sequence[Tensor] = (),
) -> tuple[Mods, dict[str, Tensor]]:
    """Trace the functions, and check the tensors they look things up in.

    Returns
    -------
    Mods
    dict
        The tensors by the names of :meth:`Mods.args`.

    Raises
    ------
    TypeError, ValueError
        When a function cannot be traced, or uses more than four tensors or one of another device.
    """
    tensors: list[Tensor] = []
    lookups: list[Lookup] = []
    wgsl = ""
    if score_mod is not None:
        wgsl = trace_score_mod(
            score_mod, tensors, gradient=slope, differentiated=differentiated, lookups=lookups
        )
    wgsl += "" if mask_mod is None else trace_mask_mod(mask_mod, tensors)
    wgsl += "" if prob_mod is None else trace_prob_mod(prob_mod, tensors)
    if len(tensors) > MAX_CAPTURED:
        raise ValueError(
            f"score_mod: expected at most {MAX_CAPTURED} tensors with those of mask_mod, got {len(tensors)}"
        )
    for tensor in tensors:
        as_tensor("score_mod", tensor, device)
    dtypes = tuple(tensor.dtype for tensor in tensors)
    mods = Mods(
        wgsl, score_mod is not None, mask_mod is not None, prob_mod is not None, dtypes, tuple(lookups)
    )
    return mods, {f"captured_{n}": tensor for n, tensor in enumerate(tensors)}
