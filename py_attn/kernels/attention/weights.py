"""Attention weights to look at: any window, pooled or coloured, recomputed instead of stored."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from py_attn import colormaps
from py_attn.arguments import Layout, Window, check_int, check_positive, check_real
from py_attn.gpu.device import Device
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, Shader, render
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.options import (
    SCORE_PARAMS,
    Inputs,
    Operand,
    check_lse,
    output_like,
    pad4,
    prepare,
    score_params,
)
from py_attn.kernels.mods import MOD_PARAMS, mod_params

_PARAMS = ParamsLayout(
    **SCORE_PARAMS,
    **MOD_PARAMS,
    value_strides="vec4<u32>",
    grad_strides="vec4<u32>",
    lse_strides="vec4<u32>",
    value_first="u32",
    grad_first="u32",
    lse_first="u32",
    heads_first="u32",
    chosen_heads="u32",
    pictures="u32",
    rows="u32",
    row_begin="u32",
    row_step="u32",
    columns="u32",
    column_begin="u32",
    column_step="u32",
    width="u32",
    height="u32",
    color_max="f32",
    color_decades="f32",
)
_SIDE = 8  # cells along a side of a workgroup


def attention_weights(
    query: Any,
    key: Any,
    lse: Any,
    *,
    rows: slice = slice(None),
    columns: slice = slice(None),
    heads: int | list[int] | None = None,
    size: tuple[int, int] | None = None,
    pool: Literal["max", "mean"] = "max",
    colormap: str | None = None,
    color_scale: Literal["linear", "sqrt", "log"] = "linear",
    color_max: float = 1.0,
    value: Any = None,
    grad_out: Any = None,
    mask: Any = None,
    causal: bool | Literal["bottom-right", "top-left"] = False,
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
    kv_lengths: Any = None,
    query_offset: int | None = None,
    layout: Layout = "BHSD",
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
) -> Tensor:
    """The probabilities of a window of rows and columns, from query, key and :func:`attention`'s LSE.

    The masking keywords must be those of the attention call that gave ``lse``.

    Parameters
    ----------
    query, key : Tensor or array_like
        [B, Hq, Sq, D] and [B, Hkv, Sk, D], or "BSHD".
    lse : Tensor or array_like
        [B, Hq, Sq] whatever the layout, natural log.
    rows, columns : slice
        Queries and keys to show, with positive steps.
    heads : int or list of int, optional
        Query heads to show; all of them unless given. Negative ones count from the end.
    size : (int, int), optional
        Pool to (height, width) cells; a cell covers rows floor(c·R/h) to ceil((c+1)·R/h).
    pool : str
        "max" or "mean" of the weights of a cell.
    colormap : str, optional
        A name from :mod:`py_attn.colormaps`: colours instead of numbers.
    color_scale : str
        "linear", "sqrt" or "log" (four decades) between 0 and ``color_max``.
    color_max : float
        The weight that gets the last colour.
    value, grad_out : Tensor or array_like, optional
        [B, Hkv, Sk, Dv] and the gradient of some objective with respect to the output, [B, Hq, Sq, Dv]:
        every weight comes times the objective's gradient with respect to it, A ∘ (grad_out · valueᵀ).
        These have signs: "max" then pools to the one furthest from zero, and there are no colours.

    Returns
    -------
    Tensor
        [B, heads, rows, columns] (or [B, heads, height, width]): float32, or with a colour map uint32
        whose bytes are R, G, B, A in memory order.

    Raises
    ------
    ValueError, TypeError
        For an argument that does not fit.
    """
    if (value is None) != (grad_out is None):
        raise ValueError("grad_out: expected value with it, and value only with it")
    if grad_out is not None and colormap is not None:
        raise ValueError("colormap: gradients have signs, and the colours begin at zero; leave it out")
    inputs = prepare(
        query,
        key,
        value,
        mask=mask,
        causal=causal,
        window=window,
        scale=scale,
        softcap=softcap,
        kv_lengths=kv_lengths,
        query_offset=query_offset,
        layout=layout,
        score_mod=score_mod,
        mask_mod=mask_mod,
    )
    p, device = inputs.problem, inputs.device
    chosen = check_heads(heads, p.heads)
    row_begin, row_step, row_count = check_slice("rows", rows, p.queries)
    column_begin, column_step, column_count = check_slice("columns", columns, p.keys)
    height, width = _check_size(size, row_count, column_count)
    if pool not in ("max", "mean"):
        raise ValueError(f'pool: expected "max" or "mean", got {pool!r}')
    if color_scale not in colormaps.SCALES:
        raise ValueError(f"color_scale: expected one of {', '.join(colormaps.SCALES)}, got {color_scale!r}")
    maximum = check_real("color_max", color_max)
    if maximum <= 0:
        raise ValueError(f"color_max: expected a number > 0, got {maximum}")
    palette = None if colormap is None else _palette(device, colormap)
    out_shape = (p.batch, p.heads, p.queries, p.value_head_dim)
    grad = None if grad_out is None else output_like("grad_out", grad_out, out_shape, inputs)
    return _dispatch(
        inputs,
        check_lse(lse, inputs),
        chosen,
        rows=(row_begin, row_step, row_count),
        columns=(column_begin, column_step, column_count),
        size=(height, width),
        pool=pool,
        palette=palette,
        color_scale=color_scale,
        color_max=maximum,
        grad=grad,
    )


def attention_scores(
    query: Any,
    key: Any,
    *,
    lse: Tensor | None = None,
    columns: int | None = None,
    mask: Any = None,
    causal: bool | Literal["bottom-right", "top-left"] = False,
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
    kv_lengths: Any = None,
    query_offset: int | None = None,
    layout: Layout = "BHSD",
) -> Tensor:
    """All scaled, capped and masked scores, -inf where hidden; with an LSE the probabilities.

    For those who want to look inside; nothing else stores them.

    Parameters
    ----------
    query, key, lse
        As in :func:`attention_weights`.
    columns : int, optional
        Width of the result where that is more than the keys; what is past the last key is hidden.

    Returns
    -------
    Tensor
        [B, Hq, Sq, columns] float32.
    """
    inputs = prepare(
        query,
        key,
        None,
        mask=mask,
        causal=causal,
        window=window,
        scale=scale,
        softcap=softcap,
        kv_lengths=kv_lengths,
        query_offset=query_offset,
        layout=layout,
    )
    p = inputs.problem
    width = p.keys if columns is None else columns
    return _dispatch(
        inputs,
        None if lse is None else check_lse(lse, inputs),
        list(range(p.heads)),
        rows=(0, 1, p.queries),
        columns=(0, 1, width),
        size=(p.queries, width),
    )


def _dispatch(
    inputs: Inputs,
    lse: Tensor | None,
    heads: list[int],
    *,
    rows: tuple[int, int, int],
    columns: tuple[int, int, int],
    size: tuple[int, int],
    pool: str = "max",
    palette: Tensor | None = None,
    color_scale: str = "linear",
    color_max: float = 1.0,
    grad: Operand | None = None,
) -> Tensor:
    """Record the kernel; rows and columns are begin, step and count. Without an LSE it gives scores."""
    p, device = inputs.problem, inputs.device
    height, width = size
    out = device.empty((p.batch, len(heads), height, width), "float32" if palette is None else "uint32")
    if not out.size:
        return out
    head_list = device.cached(("heads", *heads), lambda: device.tensor(np.array(heads, np.uint32)))
    optional = (("grad_out", grad.tensor if grad else None), ("lse", lse), ("colors", palette))
    tensors = [*inputs.tensors(), ("heads", head_list), *((name, t) for name, t in optional if t is not None)]
    bound = {name: device.bind(tensor, name) for name, tensor in tensors}
    firsts = {name: buffer.first for name, buffer in bound.items()}
    params = _PARAMS.pack(
        **score_params(inputs, firsts),
        **mod_params(inputs.mods, firsts),
        value_strides=inputs.value.strides if inputs.value else (0, 0, 0, 0),
        grad_strides=grad.strides if grad else (0, 0, 0, 0),
        value_first=firsts.get("value", 0),
        grad_first=firsts.get("grad_out", 0),
        lse_strides=(*lse.strides, 0) if lse is not None else (0, 0, 0, 0),
        lse_first=bound["lse"].first if lse is not None else 0,
        heads_first=bound["heads"].first,
        chosen_heads=len(heads),
        pictures=p.batch * len(heads),
        rows=rows[2],
        row_begin=rows[0],
        row_step=rows[1],
        columns=columns[2],
        column_begin=columns[0],
        column_step=columns[1],
        width=width,
        height=height,
        color_max=color_max,
        color_decades=math.log10(2) / colormaps.DECADES,
    )
    numbers = "gradients" if grad else "weights"
    variant = "scores" if lse is None else numbers if palette is None else "colors"
    shader = _shader(inputs, variant, pool, color_scale, grad)
    workgroups = p.batch * len(heads) * -(-height // _SIDE) * -(-width // _SIDE)
    device.dispatch(
        shader, params, [*bound.values(), device.bind(out, "out")], device.grid(workgroups, "rows")
    )
    return out


def check_heads(heads: object, count: int) -> list[int]:
    """``heads`` as a list of head numbers from 0 on."""
    if heads is None:
        return list(range(count))
    given = list(heads) if isinstance(heads, (list, tuple, range, np.ndarray)) else [heads]
    chosen = [check_int("heads", head) for head in given]
    for head in chosen:
        if not -count <= head < count:
            raise ValueError(f"heads: expected numbers from {-count} to {count - 1}, got {head}")
    return [head % count for head in chosen]


def check_slice(name: str, part: object, length: int) -> tuple[int, int, int]:
    """A slice as begin, step and count."""
    if not isinstance(part, slice):
        raise TypeError(f"{name}: expected a slice such as slice(0, 64), got {part!r}")
    if part.step is not None and check_int(name, part.step) < 1:
        raise ValueError(f"{name}: expected a positive step, got {part.step}")
    try:
        begin, stop, step = part.indices(length)
    except TypeError:
        raise TypeError(f"{name}: expected a slice of integers, got {part!r}") from None
    return begin, step, max(0, -(-(stop - begin) // step))


def _check_size(size: object, rows: int, columns: int) -> tuple[int, int]:
    if size is None:
        return rows, columns
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        raise ValueError(f"size: expected (height, width), got {size!r}")
    height, width = (check_positive("size", n) for n in size)
    return (height, width) if rows and columns else (0, 0)


def _palette(device: Device, colormap: str) -> Tensor:
    table = colormaps.table(colormap)
    return device.cached(("colormap", colormap), lambda: device.tensor(table.view(np.uint32)[:, 0]))


def _shader(inputs: Inputs, variant: str, pool: str, color_scale: str, grad: Operand | None) -> Shader:
    bindings = [*inputs.bindings(), Binding("heads", "u32")]
    constants = inputs.constants() | {"pool": pool, "color_scale": color_scale}
    if grad:
        bindings.append(grad.binding)
        constants |= {
            "grad_dtype": grad.tensor.dtype,
            "grad_packed": grad.packed,
            "dtypes": tuple(sorted({*inputs.dtypes(), grad.tensor.dtype})),
            "DV": inputs.problem.value_head_dim,
            "DV4": pad4(inputs.problem.value_head_dim) // 4,
        }
    if variant != "scores":
        bindings.append(Binding("lse", "f32"))
    if variant == "colors":
        bindings.append(Binding("colors", "u32"))
    bindings.append(Binding("out", "u32" if variant == "colors" else "f32", writes=True))
    return _render(variant, tuple(bindings), tuple(constants.items()))


@functools.lru_cache(maxsize=128)
def _render(variant: str, bindings: tuple[Binding, ...], constants: tuple[tuple[str, Any], ...]) -> Shader:
    return render(
        "attention/weights.wgsl",
        "attention_weights",
        variant,
        params=_PARAMS,
        bindings=bindings,
        constants=dict(constants) | {name: variant == name for name in ("scores", "colors", "gradients")},
    )
