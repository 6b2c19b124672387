"""Sums of results that several workgroups or batch elements computed by themselves, in a fixed order."""

from __future__ import annotations

import math

from py_attn.gpu.binding import Limits
from py_attn.gpu.kernel import Arg, Kernel, Launch, NewTensor, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.kernels.operands import output_type

_SUM = Kernel("sum_parts", "sum_parts.wgsl", ParamsLayout(parts="u32", count4="u32"))
_WORKGROUP = 64


def plan_sum(parts: str, count: int, total: NewTensor, limits: Limits) -> Launch:
    """The launch that adds ``count`` parts, which lie one behind the other like ``total``, but in float32.

    Parameters
    ----------
    parts : str
        The tensor of them.
    total : NewTensor
        Its rows are padded to multiples of four elements.
    """
    elements = math.prod(total.shape[:-1]) * (total.pitch or total.shape[-1])
    count4 = elements // 4
    return launch(
        _SUM,
        [
            Arg("parts", "vec4<f32>", tensor=parts),
            Arg("out", output_type(total.dtype), writes=True, tensor=total.name),
        ],
        {},
        limits,
        variant=total.dtype,
        workgroups=-(-count4 // _WORKGROUP),
        params={"parts": count, "count4": count4},
        constants={"out_dtype": total.dtype, "dtypes": (total.dtype,), "WORKGROUP": _WORKGROUP},
        grid_name=total.name,
    )
