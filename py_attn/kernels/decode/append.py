"""The launches that write new keys and values into a cache."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from py_attn.gpu.binding import Limits
from py_attn.gpu.kernel import Arg, Launch, launch
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.decode.formats import Integers
from py_attn.kernels.operands import in_vec4s, operand, output_type
from py_attn.kernels.quantization import turboquant
from py_attn.kernels.rotary import Rotary
from py_attn.kernels.rows import counts_stride, launch_rows, row_kernel, totals_args

_WORKGROUP = 64
_ADVANCE = row_kernel("cache_advance", "decode/advance.wgsl", has_totals=True)


def launch_write(
    name: str,
    tensors: Mapping[str, Tensor],
    form: turboquant.Format | Integers | None,
    *,
    turn: Rotary | None,
    **place: int,
) -> Launch:
    """Plan writing new keys or values into a cache.

    Parameters
    ----------
    name : str
        "key" or "value", the rows [B, Hkv, S, D] in ``tensors``.
    tensors : mapping
        With the cache's. With a tensor "state" among them, the rows go to the slots of the positions from the
        state's on instead; with "totals", to those behind the positions that each batch element has.
    form : Format or Integers or None
        How rows are kept, None for floats.
    turn : Rotary, optional
        The rotary embeddings that the rows get.
    **place
        ``capacity``, ``kept``, ``first_slot`` and ``first_position``, as of :func:`launch_rows`.
    """
    target = f"cache {name}s"
    to: dict[str, Any] = {**place, "rotary": turn}
    if isinstance(form, turboquant.Format):
        return turboquant.launch_quantize(name, tensors, form, target, **to)
    if form and form.blocks:
        return _launch_blocks(name, tensors, form, target, to)
    dim, dtype = tensors[name].shape[3], tensors[target].dtype
    if form:
        to["more"] = [Arg("scales", "f32")]
        return _launch_append(name, tensors, dim, "int8", Arg("cache", "u32", True, target), to)
    return _launch_append(name, tensors, dim, dtype, Arg("cache", output_type(dtype), True, target), to)


def _launch_append(
    name: str,
    tensors: Mapping[str, Tensor],
    dim: int,
    dtype: str,
    target: Arg,
    place: Mapping[str, Any],
) -> Launch:
    rows = tensors[name]
    return launch_rows(
        "cache_append",
        "decode/append.wgsl",
        operand("source", rows),
        target,
        tensors,
        rows.device.info.limits,
        name=name,
        variant=f"{rows.dtype}-{dtype}",
        workgroups=-(-math.prod(rows.shape[:3]) * in_vec4s(dim) // _WORKGROUP),
        constants={
            "cache_dtype": dtype,
            "dtypes": (rows.dtype, dtype),
            "D": dim,
            "D4": in_vec4s(dim),
            "WORKGROUP": _WORKGROUP,
            # Which of a head's two scales.
            "scale": int(name == "value"),
        },
        **place,
    )


def _launch_blocks(
    name: str, tensors: Mapping[str, Tensor], form: Integers, target: str, place: Mapping[str, Any]
) -> Launch:
    rows = tensors[name]
    return launch_rows(
        "cache_append",
        "decode/append_blocks.wgsl",
        operand("source", rows),
        Arg("cache", "u32", writes=True, tensor=target),
        tensors,
        rows.device.info.limits,
        name=name,
        variant=f"{rows.dtype}-{form.dtype}",
        workgroups=-(-math.prod(rows.shape[:3]) * form.scale_words // _WORKGROUP),
        constants={
            "dtypes": (rows.dtype, "float16"),
            "format": form.dtype,
            "bits": form.bits,
            "D": form.dim,
            "SCALE_WORDS": form.scale_words,
            "ROW_WORDS": form.words,
            "WORKGROUP": _WORKGROUP,
        },
        **place,
    )


def launch_advance(
    tensors: Mapping[str, Tensor], limits: Limits, *, batch: int, heads: int, count: int, **place: int
) -> Launch:
    """Plan adding what was appended to a ragged cache's totals."""
    return launch(
        _ADVANCE,
        totals_args(tensors, writes=True),
        tensors,
        limits,
        variant="counts" if "counts" in tensors else "all",
        workgroups=-(-batch // _WORKGROUP),
        params={
            "source_strides": (0, 0, 0, 0),
            "batch": batch,
            "heads": heads,
            "count": count,
            "first_slot": 0,
            **place,
            "counts_stride": counts_stride(tensors),
        },
        constants={
            "WORKGROUP": _WORKGROUP,
            "has_state": False,
            "has_totals": True,
            "has_counts": "counts" in tensors,
        },
        grid_name="totals",
    )
