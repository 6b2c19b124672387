"""Matrix products with weights: ``x @ weight + bias`` and an activation, in float32."""

from __future__ import annotations

import math
from typing import Literal

from py_attn.gpu.kernel import Arg, Kernel, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.nn.checks import check_rank, check_tensors

Activation = Literal["gelu"]

_TILE_COLUMNS = 128
_LINEAR = Kernel(
    "linear",
    "nn/linear.wgsl",
    ParamsLayout(
        rows="u32",
        columns="u32",
        inner="u32",
        column_tiles="u32",
        x_first="u32",
        weight_first="u32",
        bias_first="u32",
    ),
)


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, activation: Activation | None = None
) -> Tensor:
    """``x @ weight + bias``, then the activation.

    Parameters
    ----------
    x : Tensor
        [..., inner].
    weight : Tensor
        [inner, columns]: the transpose of what PyTorch's ``nn.Linear`` keeps, so that neighbouring
        invocations read neighbouring columns.
    bias : Tensor, optional
        [columns].
    activation : "gelu", optional
        GELU by the error function; that function's approximation is within 1.5e-7.

    Returns
    -------
    Tensor
        [..., columns].

    Raises
    ------
    ValueError
        For a tensor of another shape or dtype, with gaps, destroyed, or on another device than `x`.
    TypeError
        For anything that is no Tensor.
    """

    def make() -> Planned:
        if activation not in (None, "gelu"):
            raise ValueError(f'activation: expected "gelu" or None, got {activation!r}')
        check_rank("x", x, 1)
        check_rank("weight", weight, 2)
        inner, columns = x.shape[-1], weight.shape[1]
        given = {"x": x, "weight": weight} | ({} if bias is None else {"bias": bias})
        shapes = {"x": x.shape, "weight": (inner, columns), "bias": (columns,)}
        check_tensors(given, shapes)
        return Planned(x.device, _plan(given, inner, columns, activation), given)

    return run_call("linear", {"x": x, "weight": weight, "bias": bias}, (activation,), make)["out"]


def _plan(given: dict[str, Tensor], inner: int, columns: int, activation: str | None) -> Plan:
    x = given["x"]
    out = NewTensor("out", (*x.shape[:-1], columns))
    rows = math.prod(x.shape[:-1])
    if not rows * columns:
        return Plan((out,), ())
    # With more rows for each invocation weights are read less often, but a short input has fewer invocations.
    rows_each = 8 if rows >= 64 else 4
    packed = not any(n % 4 for n in (inner, columns, *(tensor.offset for tensor in given.values())))
    element = "vec4<f32>" if packed else "f32"
    column_tiles = -(-columns // _TILE_COLUMNS)
    only = launch(
        _LINEAR,
        [*(Arg(name, element) for name in given), Arg("out", element, writes=True)],
        given,
        x.device.info.limits,
        variant=f"{4 * rows_each}x{_TILE_COLUMNS}" + ("" if packed else " unaligned"),
        workgroups=column_tiles * -(-rows // (4 * rows_each)),
        params={"rows": rows, "columns": columns, "inner": inner, "column_tiles": column_tiles},
        constants={
            "ROWS_EACH": rows_each,
            "ACTIVATION": activation or "none",
            "HAS_BIAS": "bias" in given,
            "PACKED": packed,
        },
        grid_name="x",
    )
    return Plan((out,), (only,))
