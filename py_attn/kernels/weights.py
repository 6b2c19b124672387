"""Attention weights to look at: any window, pooled or coloured, recomputed instead of stored."""

from __future__ import annotations

import functools
import math
from typing import Any, Literal

import numpy as np

from py_attn import colormaps
from py_attn.arguments import Layout, Window, check_int, check_positive, check_real
from py_attn.gpu.device import Device
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, Shader, render
from py_attn.gpu.tensor import Tensor
from py_attn.kernels._inputs import SCORE_PARAMS, Inputs, check_lse, prepare, score_params

_PARAMS = ParamsLayout(
    **SCORE_PARAMS,
    lse_strides="vec4<u32>",
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
    mask: Any = None,
    causal: bool | Literal["bottom-right", "top-left"] = False,
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
    kv_lengths: Any = None,
    layout: Layout = "BHSD",
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
        layout=layout,
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
    row_lse = check_lse(lse, inputs)
    out = device.empty((p.batch, len(chosen), height, width), "uint32" if palette else "float32")
    if not out.size:
        return out
    head_list = device.cached(("heads", *chosen), lambda: device.tensor(np.array(chosen, np.uint32)))
    tensors = [*inputs.tensors(), ("lse", row_lse), ("heads", head_list)]
    if palette:
        tensors.append(("colors", palette))
    bound = {name: device.bind(tensor, name) for name, tensor in tensors}
    params = _PARAMS.pack(
        **score_params(inputs, {name: buffer.first for name, buffer in bound.items()}),
        lse_strides=(*row_lse.strides, 0),
        lse_first=bound["lse"].first,
        heads_first=bound["heads"].first,
        chosen_heads=len(chosen),
        pictures=p.batch * len(chosen),
        rows=row_count,
        row_begin=row_begin,
        row_step=row_step,
        columns=column_count,
        column_begin=column_begin,
        column_step=column_step,
        width=width,
        height=height,
        color_max=maximum,
        color_decades=math.log10(2) / colormaps.DECADES,
    )
    shader = _shader(inputs, pool, color_scale if palette else None)
    workgroups = p.batch * len(chosen) * -(-height // _SIDE) * -(-width // _SIDE)
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
    try:
        begin, stop, step = part.indices(length)
    except TypeError:
        raise TypeError(f"{name}: expected a slice of integers, got {part!r}") from None
    if step < 1:
        raise ValueError(f"{name}: expected a positive step, got {step}")
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


def _shader(inputs: Inputs, pool: str, color_scale: str | None) -> Shader:
    bindings = [*inputs.bindings(), Binding("lse", "f32"), Binding("heads", "u32")]
    if color_scale:
        bindings.append(Binding("colors", "u32"))
    bindings.append(Binding("out", "u32" if color_scale else "f32", writes=True))
    constants = inputs.constants() | {
        "pool": pool,
        "colors": color_scale is not None,
        "color_scale": color_scale or "linear",
    }
    return _render(tuple(bindings), tuple(constants.items()))


@functools.lru_cache(maxsize=128)
def _render(bindings: tuple[Binding, ...], constants: tuple[tuple[str, Any], ...]) -> Shader:
    values = dict(constants)
    variant = "colors" if values["colors"] else "weights"
    return render(
        "attention_weights.wgsl",
        "attention_weights",
        variant,
        params=_PARAMS,
        bindings=bindings,
        constants=values,
    )
