"""What a BERT encoder needs beside attention: embeddings, linear, layer norm, pooling. All in float32.

Shaders: ``shaders/nn/``. None of them uses subgroups or more than 1 KiB of workgroup memory, so they
run on every WebGPU adapter. Inputs are packed (row-major, without gaps) float32 tensors of one device, and
may begin anywhere in their buffers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from py_attn.arguments import check_int, check_real
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, Shader, render
from py_attn.gpu.tensor import Tensor, contiguous_strides

Activation = Literal["gelu"]

_TILE_COLUMNS = 128


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
    if activation not in (None, "gelu"):
        raise ValueError(f'activation: expected "gelu" or None, got {activation!r}')
    _check_rank("x", x, 1)
    inner = x.shape[-1]
    _check_rank("weight", weight, 2)
    columns = weight.shape[1]
    inputs = {"x": x, "weight": weight}
    shapes = {"x": x.shape, "weight": (inner, columns)}
    if bias is not None:
        inputs["bias"] = bias
        shapes["bias"] = (columns,)
    _check(inputs, shapes)
    rows = math.prod(x.shape[:-1])
    # More rows an invocation read the weights less often, but leave fewer invocations for a short input.
    rows_each = 8 if rows >= 64 else 4
    packed = not any(n % 4 for n in (inner, columns, *(tensor.offset for tensor in inputs.values())))
    shader = _linear_shader(rows_each, activation or "none", bias is not None, packed)
    column_tiles = -(-columns // _TILE_COLUMNS)
    return _run(
        shader,
        inputs,
        (*x.shape[:-1], columns),
        column_tiles * -(-rows // (4 * rows_each)),
        rows=rows,
        columns=columns,
        inner=inner,
        column_tiles=column_tiles,
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
    if check_real("epsilon", epsilon) < 0:
        raise ValueError(f"epsilon: expected a number >= 0, got {epsilon}")
    _check_rank("x", x, 1)
    inputs = {"x": x, "weight": weight, "bias": bias}
    shapes = {"x": x.shape, "weight": x.shape[-1:], "bias": x.shape[-1:]}
    if residual is not None:
        inputs["residual"] = residual
        shapes["residual"] = x.shape
    _check(inputs, shapes)
    rows = math.prod(x.shape[:-1])
    shader = _layer_norm_shader(residual is not None)
    return _run(shader, inputs, x.shape, rows, rows=rows, width=x.shape[-1], epsilon=epsilon)


def embedding(ids: Sequence[int], word: Tensor, position: Tensor, token_type: Tensor) -> Tensor:
    """BERT's input embedding of a text in one segment: ``word[ids] + position[:T] + token_type[0]``.

    Parameters
    ----------
    ids : sequence of int
        T token ids; checked here, on the host, since a shader could only read something else instead.
    word : Tensor
        [vocabulary, width].
    position : Tensor
        [positions, width], positions >= T.
    token_type : Tensor
        [types, width].

    Returns
    -------
    Tensor
        [T, width].

    Raises
    ------
    ValueError, TypeError
        For an id outside the vocabulary, more ids than positions, or a tensor that does not fit.
    """
    for name, table in {"word": word, "position": position, "token_type": token_type}.items():
        _check_rank(name, table, 2)
    vocabulary, width = word.shape
    numbers = [check_int("ids", i) for i in ids]
    wrong = next((i for i in numbers if not 0 <= i < vocabulary), None)
    if wrong is not None:
        raise ValueError(f"ids: expected ids from 0 to {vocabulary - 1}, got {wrong}")
    if len(numbers) > position.shape[0]:
        raise ValueError(f"ids: expected at most {position.shape[0]} (the positions), got {len(numbers)}")
    tables = {"word": word, "position": position, "token_type": token_type}
    _check(tables, {name: (table.shape[0], width) for name, table in tables.items()})
    inputs = {"ids": word.device.tensor(np.array(numbers, np.uint32), name="ids"), **tables}
    tokens = len(numbers)
    return _run(
        _embedding_shader(), inputs, (tokens, width), -(-tokens * width // 64), tokens=tokens, width=width
    )


def mean_pool(x: Tensor) -> Tensor:
    """The mean of the rows of ``x`` [rows, width], divided by its L2 norm: [width].

    Raises
    ------
    ValueError
        When `x` has no rows, another number of axes or another dtype.
    """
    _check_rank("x", x, 2)
    _check({"x": x}, {"x": x.shape})
    rows, width = x.shape
    if rows == 0:
        raise ValueError("x: expected at least one row to take the mean of, got none")
    return _run(_mean_pool_shader(), {"x": x}, (width,), 1, rows=rows, width=width)


@functools.cache
def _linear_shader(rows_each: int, activation: str, has_bias: bool, packed: bool) -> Shader:
    names = ("x", "weight", *(("bias",) if has_bias else ()))
    return _shader(
        "linear",
        f"{4 * rows_each}x{_TILE_COLUMNS}" + ("" if packed else " unaligned"),
        dict.fromkeys(names, "vec4<f32>" if packed else "f32"),
        {"rows": "u32", "columns": "u32", "inner": "u32", "column_tiles": "u32"},
        {"ROWS_EACH": rows_each, "ACTIVATION": activation, "HAS_BIAS": has_bias, "PACKED": packed},
        out="vec4<f32>" if packed else "f32",
    )


@functools.cache
def _layer_norm_shader(has_residual: bool) -> Shader:
    return _shader(
        "layer_norm",
        "residual" if has_residual else "plain",
        {"x": "f32", "weight": "f32", "bias": "f32", **({"residual": "f32"} if has_residual else {})},
        {"rows": "u32", "width": "u32", "epsilon": "f32"},
        {"HAS_RESIDUAL": has_residual},
    )


@functools.cache
def _embedding_shader() -> Shader:
    tables = {"word": "f32", "position": "f32", "token_type": "f32"}
    return _shader("embedding", "plain", {"ids": "u32", **tables}, {"tokens": "u32", "width": "u32"}, {})


@functools.cache
def _mean_pool_shader() -> Shader:
    return _shader("mean_pool", "plain", {"x": "f32"}, {"rows": "u32", "width": "u32"}, {})


def _shader(
    name: str,
    variant: str,
    inputs: dict[str, str],
    sizes: dict[str, str],
    constants: dict[str, object],
    out: str = "f32",
) -> Shader:
    """Render one of this module's templates; every input has its first element among the params."""
    params = ParamsLayout(**sizes, **{f"{key}_first": "u32" for key in inputs})
    bindings = (*(Binding(key, element) for key, element in inputs.items()), Binding("out", out, True))
    return render(f"nn/{name}.wgsl", name, variant, params=params, bindings=bindings, constants=constants)


def _run(
    shader: Shader, inputs: dict[str, Tensor], shape: tuple[int, ...], workgroups: int, **sizes: float
) -> Tensor:
    """Record one dispatch that writes a new float32 tensor of `shape`."""
    device = next(iter(inputs.values())).device
    out = device.empty(shape)
    if out.size == 0:
        return out
    bound = {name: device.bind(tensor, name) for name, tensor in inputs.items()}
    firsts = {f"{name}_first": buffer.first for name, buffer in bound.items()}
    device.dispatch(
        shader,
        shader.params.pack(**sizes, **firsts),
        [*bound.values(), device.bind(out, "out")],
        device.grid(workgroups, shader.name),
    )
    return out


def _check_rank(name: str, tensor: Tensor, axes: int) -> None:
    _check_tensor(name, tensor)
    if tensor.ndim < axes:
        raise ValueError(f"{name}: expected at least {axes} dimensions, got shape {list(tensor.shape)}")


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a Tensor, got {type(value).__name__}")


def _check(inputs: dict[str, Tensor], shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise unless every input is a live, packed float32 tensor of its shape on the first one's device."""
    device = next(iter(inputs.values())).device
    for name, tensor in inputs.items():
        _check_tensor(name, tensor)
        tensor.storage(name)
        if tensor.device is not device:
            raise ValueError(f"{name}: the tensor is on another device ({tensor.device}) than {device}")
        if tensor.dtype != "float32":
            raise ValueError(f"{name}: expected dtype float32, got {tensor.dtype}")
        if tensor.shape != shapes[name]:
            raise ValueError(f"{name}: expected shape {list(shapes[name])}, got {list(tensor.shape)}")
        if not _is_packed(tensor):
            raise ValueError(
                f"{name}: expected packed rows, got a view with strides {list(tensor.strides)}"
                f" of shape {list(tensor.shape)}"
            )


def _is_packed(tensor: Tensor) -> bool:
    # The stride of an axis of length 1 means nothing, and views set it as they like.
    packed = contiguous_strides(tensor.shape)
    return all(n == 1 or a == b for n, a, b in zip(tensor.shape, tensor.strides, packed, strict=True))
