"""Attention sinks as kernels take them; lib/row_end.wgsl has what they do to a row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from py_attn.gpu.kernel import Arg
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.checks import shape_of
from py_attn.kernels.operands import scalar_type

# Where lib/row_end.wgsl finds each head's sink.
SINK_PARAMS = {"sinks_first": "u32", "sinks_stride": "u32"}
_LARGEST_SINK = 2e38


def check_sinks(sinks: object, heads: int) -> None:
    """Raise unless ``sinks`` is None or [heads] numbers that float32 holds, or minus infinity."""
    if sinks is None:
        return
    shape = shape_of("sinks", sinks)
    if tuple(shape) != (heads,):
        raise ValueError(f"sinks: expected [Hq] = [{heads}], one logit a query head, got {list(shape)}")
    if isinstance(sinks, Tensor):
        if not sinks.kind.floating:
            raise TypeError(f"sinks: expected float32, float16 or bfloat16, got {sinks.dtype}")
        return
    given = np.asarray(sinks)
    if given.dtype.kind not in "fiu" and given.dtype.name != "bfloat16":
        raise TypeError(f"sinks: expected numbers, got {given.dtype}")
    values = given.astype(np.float64)
    if not ((np.abs(values) <= _LARGEST_SINK) | np.isneginf(values)).all():
        raise ValueError(
            f"sinks: expected numbers within ±{_LARGEST_SINK:g} or -inf (no sink), got {values.tolist()}"
        )


def sink_constants(dtype: str | None, dtypes: Sequence[str]) -> dict[str, object]:
    """Template variables of lib/row_end.wgsl for sinks of ``dtype``, and ``dtypes`` with it."""
    if not dtype:
        return {"has_sinks": False}
    return {"has_sinks": True, "sinks_dtype": dtype, "dtypes": (*dtypes, dtype)}


def sink_args(dtype: str | None) -> list[Arg]:
    """How a kernel declares sinks of ``dtype``, if it has any."""
    return [Arg("sinks", scalar_type(dtype))] if dtype else []
