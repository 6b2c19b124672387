"""Layer normalisation (Ba et al., arXiv 1607.06450), in float32."""

from __future__ import annotations

import math

from py_attn.arguments import check_real
from py_attn.gpu.kernel import Arg, Kernel, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.nn.checks import check_rank, check_tensors

_LAYER_NORM = Kernel(
    "layer_norm",
    "nn/layer_norm.wgsl",
    ParamsLayout(
        rows="u32",
        width="u32",
        epsilon="f32",
        x_first="u32",
        weight_first="u32",
        bias_first="u32",
        residual_first="u32",
    ),
)


def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, *, residual: Tensor | None = None, epsilon: float = 1e-12
) -> Tensor:
    """Normalise ``x``, or ``x + residual``, along its last axis, then scale by `weight` and add `bias`.

    Parameters
    ----------
    x, residual : Tensor
        [..., width].
    weight, bias : Tensor
        [width].
    epsilon : float
        Added to the variance; the default is BERT's.

    Returns
    -------
    Tensor
        The shape of `x`.

    Raises
    ------
    ValueError, TypeError
        For a tensor of another shape or dtype, with gaps, destroyed, or on another device than `x`; for an
        `epsilon` that is no finite number >= 0.
    """

    def make() -> Planned:
        if check_real("epsilon", epsilon) < 0:
            raise ValueError(f"epsilon: expected a number >= 0, got {epsilon}")
        check_rank("x", x, 1)
        given = {"x": x, "weight": weight, "bias": bias}
        given |= {} if residual is None else {"residual": residual}
        width = x.shape[-1:]
        check_tensors(given, {"x": x.shape, "weight": width, "bias": width, "residual": x.shape})
        return Planned(x.device, _plan(given, epsilon), given)

    tensors = {"x": x, "weight": weight, "bias": bias, "residual": residual}
    return run_call("layer_norm", tensors, (epsilon,), make)["out"]


def _plan(given: dict[str, Tensor], epsilon: float) -> Plan:
    x = given["x"]
    out, rows = NewTensor("out", x.shape), math.prod(x.shape[:-1])
    if not x.size:
        return Plan((out,), ())
    only = launch(
        _LAYER_NORM,
        [*(Arg(name, "f32") for name in given), Arg("out", "f32", writes=True)],
        given,
        x.device.info.limits,
        variant="residual" if "residual" in given else "plain",
        workgroups=rows,
        params={"rows": rows, "width": x.shape[-1], "epsilon": epsilon},
        constants={"HAS_RESIDUAL": "residual" in given},
        grid_name="x",
    )
    return Plan((out,), (only,))
