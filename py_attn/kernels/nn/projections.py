"""The products of a language model's layer, each one dispatch: Llama's, with quantised weights.

What is written lies in logs, which are indexed by a token's number in the text: ``x`` (the residual
stream) and ``query``; keys and values go to a cache. A call processes the ``count`` tokens from the position
on that ``state`` holds (:mod:`py_attn.kernels.steps`), so that one of a single token can be recorded once and
replayed for every token. The position is on the GPU and cannot be checked here: it plus ``count`` must not
exceed the logs.

RMSNorm: Zhang & Sennrich, arXiv 1910.07467. RoPE: Su et al., arXiv 2104.09864. SwiGLU: Shazeer, arXiv
2002.05202. The combination of splits: Dao et al., Flash-Decoding, 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py_attn.arguments import check_int, check_positive, check_real
from py_attn.gpu.device import Device
from py_attn.gpu.kernel import Arg, NewTensor, Plan
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.nn.checks import check_devices, check_floats, check_log
from py_attn.kernels.nn.projection_checks import (
    check_head_dim_of_inputs,
    check_heads,
    check_partials,
    check_rope,
    check_slots,
)
from py_attn.kernels.nn.quantized import QuantizedMatrix, check_matrix
from py_attn.kernels.nn.quantized_linear import Linear, LinearConfig, plan_linear
from py_attn.kernels.nn.quantized_matmul import MatmulConfig
from py_attn.kernels.steps import check_state

_NORMED = [Arg("x", "vec4<f32>"), Arg("norm", "vec4<f32>")]


def project_qkv(
    x: Tensor,
    norm: Tensor,
    weight: QuantizedMatrix,
    rope: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: Tensor,
    *,
    count: int = 1,
    epsilon: float = 1e-5,
    head_dim: int = 64,
    heads: int = 9,
    kv_heads: int = 3,
    kept: int = 0,
    cache: bool = True,
    config: LinearConfig | MatmulConfig | None = None,
) -> None:
    """RMSNorm, the projections to queries, keys and values, RoPE, and the append to the cache.

    Parameters
    ----------
    x : Tensor
        float32 [history, width], of which the rows of the tokens are read.
    norm : Tensor
        float32 [width], RMSNorm's weights.
    weight : QuantizedMatrix
        [(heads + 2 · kv_heads) · head_dim, width]: the rows of the queries' heads, the keys', the values'.
    rope : Tensor
        float32 [positions, head_dim / 2, 2]: the cosine and the sine of the angle by which the pair
        (2i, 2i + 1) of a head turns at a position; at least as many positions as ``query`` has.
    query : Tensor
        float32 [history, heads, head_dim], of which the rows of the tokens are written, after RoPE.
    key, value : Tensor
        The storage of a cache, [1, kv_heads, capacity, head_dim] of float32, float16 or bfloat16
        (:attr:`py_attn.KVCache.keys`); a token goes to its slot. With ``cache=False`` float32
        [1, kv_heads, count, head_dim], written from the first row on.
    state : Tensor
    count : int
    epsilon : float
        Added to the mean of the squares.
    head_dim, heads, kv_heads : int
        head_dim is even; heads is a multiple of kv_heads.
    kept : int
        The first slots of the cache that are filled once; the others are a ring.
    cache : bool
        Whether ``key`` and ``value`` are a cache's storage.
    config : LinearConfig or MatmulConfig, optional
        Chosen by the adapter unless given.

    Raises
    ------
    ValueError, TypeError
        Before anything is dispatched, for a tensor of another shape or dtype, with gaps, destroyed, or on
        another device than ``x``; for a number out of its range.
    """
    _check_is_matrix("weight", weight)

    def make() -> Planned:
        sizes = check_heads(head_dim, heads, kv_heads)
        device = _check_normed(x, norm, weight, state, count, epsilon)
        if weight.rows != sizes:
            raise ValueError(
                f"weight: expected {sizes} rows for {heads} query and twice {kv_heads} key/value heads of"
                f" {head_dim}, got {weight.rows}"
            )
        check_rope(rope, query, heads, head_dim, device)
        for name, tensor in (("key", key), ("value", value)):
            check_slots(name, tensor, (1, kv_heads), count, head_dim, device, cache=cache)
        capacity = key.shape[2]
        if value.shape[2] != capacity:
            raise ValueError(f"value: expected the key's {capacity} slots, got {value.shape[2]}")
        if not 0 <= check_int("kept", kept) < capacity:
            raise ValueError(f"kept: expected 0 to {capacity - 1} for {capacity} slots, got {kept}")
        linear = Linear(
            "project_qkv",
            weight,
            count,
            "rms_norm",
            "rope",
            [
                *_NORMED,
                Arg("rope", "vec2<f32>"),
                Arg("query", "vec2<f32>", writes=True),
                Arg("key", _pair_type(key.dtype), writes=True),
                Arg("value", _pair_type(value.dtype), writes=True),
            ],
            params={
                "epsilon": epsilon,
                "capacity": capacity,
                "kept": kept,
                "key_strides": key.strides[1:3],
                "value_strides": value.strides[1:3],
            },
            constants={
                "D": head_dim,
                "HEADS": heads,
                "KV_HEADS": kv_heads,
                "in_cache": cache,
                "has_totals": False,
                "key_dtype": key.dtype,
                "value_dtype": value.dtype,
                "dtypes": (key.dtype, value.dtype),
            },
        )
        return _planned(linear, tensors, device, config)

    tensors = {
        "x": x, "norm": norm, "weight": weight.data, "rope": rope, "query": query, "key": key, "value": value,
        "state": state,
    }  # fmt: skip
    options = count, epsilon, head_dim, heads, kv_heads, kept, cache, config
    run_call("project_qkv", tensors, (*weight.options(), *options), make)


def add_projection(
    x: Tensor,
    inputs: Tensor | tuple[Tensor, Tensor],
    weight: QuantizedMatrix,
    state: Tensor,
    *,
    count: int = 1,
    head_scale: Tensor | None = None,
    heads: int = 9,
    config: LinearConfig | MatmulConfig | None = None,
) -> None:
    """Add a product to the residual stream: ``x[position + t] += weight · inputs[t]``.

    Parameters
    ----------
    x : Tensor
        float32 [history, width], written in place.
    inputs : Tensor or pair of Tensor
        float32 [count, inner]. Or, for a count of 1, what a decode's splits left: their normalised outputs,
        float32 [1, heads, 1, splits, inner / heads], and float32 [1, heads, 1, splits, 2]: the maximum of
        each split's scores in units of log2, and its sum of exp2(score - maximum). A split that saw nothing
        has the lowest finite number and 0 there.
    weight : QuantizedMatrix
        [width, inner].
    state : Tensor
    count : int
    head_scale : Tensor, optional
        float32 [heads]: what each head's part of the inputs is multiplied by. A head with 0 adds nothing,
        even where its inputs are not finite.
    heads : int
        Of the inputs, each of a multiple of 32 numbers; only looked at with ``head_scale`` or splits.
    config : LinearConfig or MatmulConfig, optional
        Chosen by the adapter unless given.

    Raises
    ------
    ValueError, TypeError
        As :func:`project_qkv`.
    """
    _check_is_matrix("weight", weight)
    parts: tuple[Any, ...] = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    if len(parts) > 2:
        raise ValueError(
            f"inputs: expected a tensor, or the splits' outputs and rows, got {len(parts)} tensors"
        )
    combines = len(parts) == 2
    partial_out, partial_rows = parts if combines else (None, None)

    def make() -> Planned:
        check_positive("count", count)
        check_state(state)
        device = check_log("x", x, weight.rows)
        check_matrix("weight", weight, device)
        check_devices({"state": state}, device)
        constants: dict[str, Any] = {}
        args = [Arg("x", "f32", writes=True)]
        if combines or head_scale is not None:
            constants["D"] = check_head_dim_of_inputs(weight.inner, heads)
        if combines:
            constants["SPLITS"] = check_partials(
                partial_out, partial_rows, count, heads, constants["D"], device
            )
            args += [Arg("partial_out", "vec4<f32>"), Arg("partial_rows", "vec2<f32>")]
        else:
            check_floats("inputs", parts[0], (count, weight.inner), device)
            args.append(Arg("inputs", "vec4<f32>"))
        if head_scale is not None:
            check_floats("head_scale", head_scale, (heads,), device, aligned=False)
            args.append(Arg("head_scale", "f32"))
        linear = Linear(
            "add_projection",
            weight,
            count,
            "partials" if combines else "inputs",
            "residual",
            args,
            constants=constants,
        )
        return _planned(linear, tensors, device, config)

    tensors: dict[str, Tensor | None] = {
        "x": x,
        "inputs": None if combines else parts[0],
        "partial_out": partial_out,
        "partial_rows": partial_rows,
        "weight": weight.data,
        "head_scale": head_scale,
        "state": state,
    }
    run_call("add_projection", tensors, (*weight.options(), count, heads, config), make)


def gated_linear(
    x: Tensor,
    norm: Tensor,
    weight: QuantizedMatrix,
    state: Tensor,
    *,
    count: int = 1,
    epsilon: float = 1e-5,
    config: LinearConfig | MatmulConfig | None = None,
) -> Tensor:
    """RMSNorm, two projections, and their gate: ``silu(gate) · up`` with silu(z) = z / (1 + exp(-z)).

    Parameters
    ----------
    x, norm, state, count, epsilon, config
        As of :func:`project_qkv`.
    weight : QuantizedMatrix
        [2 · inner, width]: the rows gate 0, up 0, gate 1, up 1, …

    Returns
    -------
    Tensor
        float32 [count, inner].

    Raises
    ------
    ValueError, TypeError
        As :func:`project_qkv`, and for an odd number of rows.
    """
    _check_is_matrix("weight", weight)

    def make() -> Planned:
        device = _check_normed(x, norm, weight, state, count, epsilon)
        if weight.rows % 2:
            raise ValueError(
                f"weight: expected an even number of rows, gate and up in turn, got {weight.rows}"
            )
        linear = Linear(
            "gated_linear",
            weight,
            count,
            "rms_norm",
            "gated",
            [*_NORMED, Arg("out", "f32", writes=True)],
            params={"epsilon": epsilon},
        )
        return _planned(linear, tensors, device, config, NewTensor("out", (count, weight.rows // 2)))

    tensors = {"x": x, "norm": norm, "weight": weight.data, "state": state}
    options = (*weight.options(), count, epsilon, config)
    return run_call("gated_linear", tensors, options, make)["out"]


def logits(
    x: Tensor,
    norm: Tensor,
    table: QuantizedMatrix,
    *,
    state: Tensor | None = None,
    first_row: int = 0,
    count: int = 1,
    epsilon: float = 1e-5,
    config: LinearConfig | MatmulConfig | None = None,
) -> Tensor:
    """The last RMSNorm and the products with all rows of the embedding table.

    Parameters
    ----------
    x, norm, count, epsilon, config
        As of :func:`project_qkv`.
    table : QuantizedMatrix
        [vocabulary, width].
    state : Tensor, optional
    first_row : int
        The first of the rows of ``x``; with ``state`` it is counted from the position on.

    Returns
    -------
    Tensor
        float32 [count, vocabulary].

    Raises
    ------
    ValueError, TypeError
        As :func:`project_qkv`, and for rows that ``x`` does not have.
    """
    _check_is_matrix("table", table)

    def make() -> Planned:
        device = _check_normed(x, norm, table, state, count, epsilon, name="table")
        if not 0 <= check_int("first_row", first_row) <= x.shape[0] - count:
            raise ValueError(
                f"first_row: expected 0 to {x.shape[0] - count} for {count} of {x.shape[0]} rows,"
                f" got {first_row}"
            )
        linear = Linear(
            "logits",
            table,
            count,
            "rms_norm",
            "plain",
            [*_NORMED, Arg("out", "f32", writes=True)],
            has_state=state is not None,
            params={"epsilon": epsilon, "first_row": first_row},
        )
        return _planned(linear, tensors, device, config, NewTensor("out", (count, table.rows)))

    tensors = {"x": x, "norm": norm, "weight": table.data, "state": state}
    options = (*table.options(), first_row, count, epsilon, config)
    return run_call("logits", tensors, options, make)["out"]


def _planned(
    linear: Linear,
    tensors: Mapping[str, Tensor | None],
    device: Device,
    config: LinearConfig | MatmulConfig | None,
    *makes: NewTensor,
) -> Planned:
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    return Planned(device, Plan(makes, (plan_linear(linear, given, device.info, config),)), given)


def _pair_type(dtype: str) -> str:
    """The WGSL type of two neighbouring elements."""
    return "vec2<f32>" if dtype == "float32" else "u32"


def _check_is_matrix(name: str, weight: object) -> None:
    if not isinstance(weight, QuantizedMatrix):
        raise TypeError(f"{name}: expected a QuantizedMatrix, got {type(weight).__name__}")


def _check_normed(
    x: Tensor,
    norm: Tensor,
    weight: QuantizedMatrix,
    state: Tensor | None,
    count: int,
    epsilon: float,
    *,
    name: str = "weight",
) -> Device:
    """Check what RMSNorm and the product behind it take; give the device."""
    check_positive("count", count)
    if check_real("epsilon", epsilon) < 0:
        raise ValueError(f"epsilon: expected a number >= 0, got {epsilon}")
    device = check_log("x", x, weight.inner)
    check_matrix(name, weight, device)
    check_floats("norm", norm, (weight.inner,), device)
    if count > x.shape[0]:
        raise ValueError(f"count: expected at most the {x.shape[0]} rows of x, got {count}")
    if state is not None:
        check_devices({"state": check_state(state)}, device)
    return device
