"""Kernels that take rows [B, H, S, D] one by one and write each to a slot of [B, H, capacity, …]."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from py_attn.gpu.binding import Limits
from py_attn.gpu.kernel import Arg, Kernel, Launch, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.decode.pages import PAGE_PARAMS, TABLE, page_args, page_constants, page_params
from py_attn.kernels.operands import Operand
from py_attn.kernels.rotary import ROTARY_PARAMS, Rotary
from py_attn.kernels.steps import READS_STATE, STATE_PARAMS

_FIELDS = {
    "source_strides": "vec4<u32>",
    "source_first": "u32",
    "batch": "u32",
    "heads": "u32",
    "count": "u32",
    "first_slot": "u32",
    "capacity": "u32",
    "kept": "u32",
    **STATE_PARAMS,
}
#: Where a tensor "totals" says how many rows each batch element has.
TOTALS_PARAMS = {"totals_first": "u32", "counts_first": "u32", "counts_stride": "u32"}


@functools.cache
def row_kernel(
    name: str, template: str, *, has_totals: bool = False, rotates: bool = False, has_pages: bool = False
) -> Kernel:
    """The kernel of a template that writes rows, with the params that it needs."""
    fields = _FIELDS | (TOTALS_PARAMS if has_totals else {}) | (ROTARY_PARAMS if rotates else {})
    fields |= PAGE_PARAMS if has_pages else {}
    return Kernel(name, template, ParamsLayout(**fields))


def launch_rows(
    kernel_name: str,
    template: str,
    source: Operand,
    target: Arg,
    tensors: Mapping[str, Tensor],
    limits: Limits,
    *,
    name: str,
    variant: str,
    workgroups: int,
    constants: Mapping[str, Any],
    capacity: int,
    element: str | None = None,
    first_slot: int = 0,
    kept: int = 0,
    rotary: Rotary | None = None,
    first_position: int = 0,
    more: Sequence[Arg] = (),
) -> Launch:
    """Plan a kernel over the rows of ``source``; row n goes to slot first_slot + n.

    With a tensor "state" among ``tensors`` the kernel is one of a step (:mod:`py_attn.kernels.steps`); its
    template says what it then finds by the state's position. With "totals" row n of a batch element goes
    behind the rows that it has, and only as many of them are new as "counts" says, if that is among them too;
    with "block_table" its slots are those of blocks.

    Parameters
    ----------
    source : Operand
        [B, H, S, D], called "source".
    target : Arg
        What the kernel writes, [B, H, capacity, …].
    name : str
        The source's name among the call's tensors.
    element : str, optional
        The source's WGSL element type; by its dtype and strides unless given.
    kept : int
        The slot after the last one.
    rotary : Rotary, optional
        Turn the rows on the way, the first of which stands at ``first_position``, or with "totals" behind
        those of its batch element. The template then includes lib/rotary.wgsl.
    more : sequence of Arg
        What else the template reads.
    """
    batch, heads, count = source.shape[:3]
    has_state, has_totals = "state" in tensors, "totals" in tensors
    turning: dict[str, Any] = {"turns": rotary is not None}
    if rotary:
        turning |= rotary.constants(tensors)
        turning["dtypes"] = (*constants["dtypes"], *rotary.dtypes(tensors))
    return launch(
        row_kernel(
            kernel_name,
            template,
            has_totals=has_totals,
            rotates=rotary is not None,
            has_pages=TABLE in tensors,
        ),
        [
            Arg("source", element or source.arg.type, tensor=name),
            *([READS_STATE] if has_state else []),
            *totals_args(tensors),
            *page_args(tensors),
            *(rotary.args(tensors) if rotary else []),
            *more,
            target,
        ],
        tensors,
        limits,
        variant=variant,
        workgroups=workgroups,
        params={
            "source_strides": source.strides,
            "batch": batch,
            "heads": heads,
            "count": count,
            "first_slot": first_slot,
            "capacity": capacity,
            "kept": kept,
            **({"counts_stride": counts_stride(tensors)} if has_totals else {}),
            **(rotary.params(tensors, first_position) if rotary else {}),
            **page_params(tensors),
        },
        constants={
            "source_dtype": source.dtype,
            "source_packed": source.packed,
            "has_state": has_state,
            "has_totals": has_totals,
            "has_counts": "counts" in tensors,
            **constants,
            **turning,
            **page_constants(tensors),
        },
        grid_name=name,
    )


def totals_args(tensors: Mapping[str, Tensor], *, writes: bool = False) -> list[Arg]:
    """How a kernel declares the "totals" and "counts" among ``tensors`` (lib/row_slot.wgsl)."""
    args = [Arg("totals", "i32", writes=writes)] if "totals" in tensors else []
    if "counts" in tensors:
        args.append(Arg("counts", "i32"))
    return args


def counts_stride(tensors: Mapping[str, Tensor]) -> int:
    """Elements from one batch element's count to the next; 0 without counts."""
    return tensors["counts"].strides[0] if "counts" in tensors else 0
