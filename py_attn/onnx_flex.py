"""ONNX's preview operator FlexAttention (domain ai.onnx.preview, version 1 as in onnx 1.23).

https://onnx.ai/onnx/operators/onnx_aionnxpreview_FlexAttention.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn import onnx_reference
from py_attn.arguments import check_int, resolve
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.forward import plan_call
from py_attn.kernels.attention.options import resolve as resolve_call
from py_attn.kernels.checks import find_device, shape_of
from py_attn.kernels.packed import with_packed
from py_attn.onnx_graph import graph_function
from py_attn.onnx_protobuf import read_graph

SOFTMAX_PRECISIONS = (1, 10, 11, 16)  # onnx.TensorProto's FLOAT, FLOAT16, DOUBLE and BFLOAT16


def flex_attention(
    Q: Any,
    K: Any,
    V: Any,
    *,
    scale: float | None = None,
    score_mod: Any = None,
    prob_mod: Any = None,
    softmax_precision: int | None = None,
) -> Tensor:
    """The preview operator FlexAttention: prob_mod(softmax(score_mod(scale · Q Kᵀ))) V.

    Storage may be float32, float16 or bfloat16 (float64 becomes float32); all arithmetic is float32.

    Parameters
    ----------
    Q : Tensor or array_like
        [B, Hq, Sq, D].
    K, V : Tensor or array_like
        [B, Hkv, Sk, D] and [B, Hkv, Sk, Dv]; Hq a multiple of Hkv.
    scale : float, optional
        1/√D unless given.
    score_mod, prob_mod : GraphProto, bytes or callable, optional
        What is applied to the scores and to the probabilities: a graph of elementwise operators with one
        input and one output (also as protobuf bytes), or a function of (score, b, h, q_idx, kv_idx) as in
        :func:`py_attn.attention`. With a ``prob_mod`` the naive variant goes over the keys of a row twice.
    softmax_precision : int, optional
        1 (float), 10 (float16), 11 (double) or 16 (bfloat16). Softmax is computed in float32 in any case.

    Returns
    -------
    Tensor
        [B, Hq, Sq, Dv] in Q's dtype. A row whose scores are all -inf is zero (ONNX's formula gives NaN).

    Raises
    ------
    TypeError, ValueError
        Naming the argument, what was given and what was expected; for a graph with an operator that
        cannot be traced, which one, and those that can.
    """
    if softmax_precision is not None and check_int("softmax_precision", softmax_precision) not in (
        SOFTMAX_PRECISIONS
    ):
        expected = ", ".join(map(str, SOFTMAX_PRECISIONS))
        raise ValueError(f"softmax_precision: expected one of {expected}, got {softmax_precision}")
    problem = resolve(shape_of("Q", Q), shape_of("K", K), shape_of("V", V), scale=scale)
    device = find_device(Q, K, V)

    def upload(array: npt.NDArray[Any]) -> Tensor:
        return device.tensor(_narrow(array))

    call = resolve_call(
        Q,
        K,
        V,
        scale=scale,
        score_mod=_function("score_mod", score_mod, problem.score_shape, upload),
        prob_mod=_function("prob_mod", prob_mod, problem.score_shape, upload),
    )
    planned = plan_call(call, "naive" if prob_mod is not None else "auto", return_lse=False)
    return planned.device.run(planned.plan, with_packed(*planned))["out"]


def reference_flex_attention(
    Q: npt.ArrayLike,
    K: npt.ArrayLike,
    V: npt.ArrayLike,
    *,
    scale: float | None = None,
    score_mod: Any = None,
    prob_mod: Any = None,
    softmax_precision: int | None = None,
    compute_dtype: npt.DTypeLike = np.float64,
) -> npt.NDArray[Any]:
    """The operator in numpy, in ``compute_dtype``; arguments as in :func:`flex_attention`."""
    problem = resolve(np.shape(Q), np.shape(K), np.shape(V), scale=scale)
    before, after = (
        _function(name, mod, problem.score_shape, lambda array: array)
        for name, mod in (("score_mod", score_mod), ("prob_mod", prob_mod))
    )
    return onnx_reference.flex_attention(Q, K, V, problem.masking.scale, before, after, compute_dtype)


def _function(
    name: str, mod: Any, shape: tuple[int, int, int, int], table: Callable[[npt.NDArray[Any]], Any]
) -> Callable[..., Any] | None:
    """A mod as a function of one element and its indices."""
    if mod is None or callable(mod):
        return mod  # type: ignore[no-any-return]
    return graph_function(name, read_graph(name, mod), shape, table)


def _narrow(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A constant in the dtype that it has on the GPU."""
    if array.dtype.kind == "i":
        if np.abs(array.astype(np.float64)).max() >= 2**31:
            raise ValueError("expected constants that fit into int32")
        return array.astype(np.int32)
    return array.astype(np.float32) if array.dtype.kind == "f" else array
