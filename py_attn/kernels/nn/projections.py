"""The products of a language model's layer, each one dispatch: Llama's, with quantised weights.

Whatever is written lies in logs, which are indexed by a token's number in the text: ``x`` (the residual
stream), ``query``, and the key/value cache. A call processes the ``count`` tokens from the position on that
``state`` holds (:mod:`py_attn.kernels.steps`); with ``count=1`` it can be recorded once and replayed for every
token. The position itself is on the GPU and cannot be checked here: it plus ``count`` must not exceed the logs.

RMSNorm: Zhang & Sennrich, arXiv 1910.07467. RoPE: Su et al., arXiv 2104.09864. SwiGLU: Shazeer, arXiv
2002.05202. The combination of splits: Dao et al., Flash-Decoding, 2023.
"""

from __future__ import annotations

from typing import Any

from py_attn.arguments import check_int, check_positive, check_real
from py_attn.gpu.device import Device
from py_attn.gpu.kernel import Arg, NewTensor, Plan
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.nn.checks import check_tensors
from py_attn.kernels.nn.quantized import (
    BLOCK,
    QuantizedMatrix,
    check_aligned,
    check_devices,
    check_log,
    check_matrix,
)
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
        float32 [positions, head_dim / 2, 2]: the cosine and the sine of the angle by which the pair (2i, 2i + 1)
        of a head turns at a position; at least as many positions as ``query`` has.
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
        sizes = _check_heads(head_dim, heads, kv_heads)
        device = _check_normed(x, norm, weight, state, count, epsilon)
        if weight.rows != sizes:
            raise ValueError(
                f"weight: expected {sizes} rows for {heads} query and twice {kv_heads} key/value heads of"
                f" {head_dim}, got {weight.rows}"
            )
        _check_rope(rope, query, heads, head_dim, device)
        for name, tensor in (("key", key), ("value", value)):
            _check_slots(name, tensor, (1, kv_heads), count, head_dim, device, cache=cache)
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
    """Add the product of a matrix with inputs to the residual stream: ``x[position + t] += weight · inputs[t]``.

    Parameters
    ----------
    x : Tensor
        float32 [history, width], written in place.
    inputs : Tensor or pair of Tensor
        float32 [count, inner]. Or, for a count of 1, what a decode's splits left: their normalised outputs, float32
        [1, heads, 1, splits, inner / heads], and float32 [1, heads, 1, splits, 2]: the maximum of each split's scores
        in units of log2, and its sum of exp2(score - maximum). Splits that saw nothing have the sum 0.
    weight : QuantizedMatrix
        [width, inner].
    state : Tensor
    count : int
    head_scale : Tensor, optional
        float32 [heads]: what each head's part of the inputs is multiplied by. A head with 0 adds nothing, even
        where its inputs are not finite.
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
    combines = isinstance(inputs, (tuple, list))
    if combines and len(inputs) != 2:
        raise ValueError(
            f"inputs: expected one tensor, or those of the splits' outputs and rows, got {len(inputs)}"
        )
    partial_out, partial_rows = inputs if combines else (None, None)

    def make() -> Planned:
        check_positive("count", count)
        check_state(state)
        check_log("x", x, weight.rows)
        device: Device = x.device
        check_matrix("weight", weight, device)
        check_devices({"state": state}, device)
        constants: dict[str, Any] = {}
        args = [Arg("x", "f32", writes=True)]
        if combines or head_scale is not None:
            constants["D"] = _check_head_dim_of_inputs(weight.inner, heads)
        if combines:
            constants["SPLITS"] = _check_partials(
                partial_out, partial_rows, count, heads, constants["D"], device
            )
            args += [Arg("partial_out", "vec4<f32>"), Arg("partial_rows", "vec2<f32>")]
        else:
            _check_floats("inputs", inputs, (count, weight.inner), device)
            args.append(Arg("inputs", "vec4<f32>"))
        if head_scale is not None:
            _check_floats("head_scale", head_scale, (heads,), device, aligned=False)
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

    tensors = {
        "x": x,
        "inputs": None if combines else inputs,
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
                f"first_row: expected 0 to {x.shape[0] - count} for {count} of {x.shape[0]} rows, got {first_row}"
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
    tensors: dict[str, Tensor | None],
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
    check_log("x", x, weight.inner)
    device: Device = x.device
    check_matrix(name, weight, device)
    _check_floats("norm", norm, (weight.inner,), device)
    if count > x.shape[0]:
        raise ValueError(f"count: expected at most the {x.shape[0]} rows of x, got {count}")
    if state is not None:
        check_devices({"state": check_state(state)}, device)
    return device


def _check_floats(
    name: str, tensor: Any, shape: tuple[int, ...], device: Device, *, aligned: bool = True
) -> None:
    check_tensors({name: tensor}, {name: shape})
    check_devices({name: tensor}, device)
    if aligned:
        check_aligned(name, tensor)


def _check_heads(head_dim: int, heads: int, kv_heads: int) -> int:
    """The rows of the three projections."""
    for name, number in (("head_dim", head_dim), ("heads", heads), ("kv_heads", kv_heads)):
        check_positive(name, number)
    if head_dim % 2:
        raise ValueError(f"head_dim: expected an even number, since RoPE turns pairs, got {head_dim}")
    if heads % kv_heads:
        raise ValueError(f"heads: expected a multiple of the {kv_heads} key/value heads, got {heads}")
    return (heads + 2 * kv_heads) * head_dim


def _check_rope(rope: Tensor, query: Tensor, heads: int, head_dim: int, device: Device) -> None:
    history = query.shape[0] if isinstance(query, Tensor) and query.ndim else 0
    _check_floats("query", query, (history, heads, head_dim), device)
    positions = rope.shape[0] if isinstance(rope, Tensor) and rope.ndim else 0
    _check_floats("rope", rope, (positions, head_dim // 2, 2), device)
    if positions < history:
        raise ValueError(f"rope: expected at least the {history} positions of query, got {positions}")


def _check_slots(
    name: str,
    tensor: Any,
    heads: tuple[int, int],
    count: int,
    head_dim: int,
    device: Device,
    *,
    cache: bool,
) -> None:
    """Raise unless ``tensor`` can take keys or values: of a cache, or of the call's tokens."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expected a Tensor, got {type(tensor).__name__}")
    check_devices({name: tensor}, device)
    if not tensor.kind.floating or (not cache and tensor.dtype != "float32"):
        wanted = "float32, float16 or bfloat16" if cache else "float32"
        raise ValueError(f"{name}: expected dtype {wanted}, got {tensor.dtype}")
    slots = tensor.shape[2] if tensor.ndim == 4 and cache else count
    if tensor.shape != (*heads, slots, head_dim) or not slots:
        wanted = "capacity" if cache else str(count)
        raise ValueError(
            f"{name}: expected shape [{heads[0]}, {heads[1]}, {wanted}, {head_dim}], got {list(tensor.shape)}"
        )
    if tensor.strides[3] != 1 or any(n % 2 for n in (tensor.offset, *tensor.strides[1:3])):
        raise ValueError(
            f"{name}: expected rows without gaps, each from an even element on, got strides"
            f" {list(tensor.strides)} from element {tensor.offset} on"
        )


def _check_head_dim_of_inputs(inner: int, heads: int) -> int:
    """Numbers of each head; a block of weights must not belong to two heads."""
    if inner % (check_positive("heads", heads) * BLOCK):
        raise ValueError(
            f"heads: expected heads of a multiple of {BLOCK} numbers, the weights of a block, which make up the"
            f" {inner} of a row, got {heads} heads"
        )
    return inner // heads


def _check_partials(
    partial_out: Any, partial_rows: Any, count: int, heads: int, head_dim: int, device: Device
) -> int:
    """The number of splits."""
    if count != 1:
        raise ValueError(f"count: expected 1 with inputs of splits, got {count}")
    splits = partial_out.shape[3] if isinstance(partial_out, Tensor) and partial_out.ndim == 5 else 1
    _check_floats("inputs[0]", partial_out, (1, heads, 1, splits, head_dim), device)
    _check_floats("inputs[1]", partial_rows, (1, heads, 1, splits, 2), device)
    return splits
