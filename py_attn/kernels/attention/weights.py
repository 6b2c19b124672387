"""Attention weights to look at: any window, pooled or coloured, recomputed instead of stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from py_attn import colormaps
from py_attn.arguments import Layout, Window, check_int, check_positive, check_real
from py_attn.gpu.kernel import Arg, Constant, Kernel, Launch, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.leading import Leading
from py_attn.kernels.attention.options import Call, Keywords, resolve, resolve_like_output, resolve_lse
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.lse import ROW_PARTS_PARAMS, row_parts_params
from py_attn.kernels.mods import MOD_PARAMS
from py_attn.kernels.operands import Operand
from py_attn.kernels.scores import SCORE_PARAMS

_WEIGHTS = Kernel(
    "attention_weights",
    "attention/weights.wgsl",
    ParamsLayout(
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
        **ROW_PARTS_PARAMS,
    ),
)
_SIDE = 8  # cells along a side of a workgroup


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows or columns of a picture: the first, the distance from one to the next, and how many."""

    begin: int
    step: int
    count: int


@dataclass(frozen=True, slots=True)
class _Picture:
    """Which weights a call asks for, and how it wants to see them.

    Attributes
    ----------
    heads : tuple of int
    rows, columns : _Part
    height, width : int
        Cells that they are pooled to.
    pool : str
    colormap : str or None
    color_scale : str
    color_max : float
    """

    heads: tuple[int, ...]
    rows: _Part
    columns: _Part
    height: int
    width: int
    pool: str = "max"
    colormap: str | None = None
    color_scale: str = "linear"
    color_max: float = 1.0


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
        [B, Hq, Sq, D] and [B, Hkv, Sk, D], or "BSHD"; without B, or B and H, as in :func:`attention`.
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
    leading = Leading(layout, query=query, key=key)
    query, key, value, grad_out = map(leading.operand, (query, key, value, grad_out))
    lse = leading.rows(lse)
    tensors = {
        "query": query,
        "key": key,
        "lse": lse,
        "value": value,
        "grad_out": grad_out,
        "mask": mask,
        "kv_lengths": kv_lengths,
    }
    keywords = Keywords(causal, window, scale, softcap, query_offset, layout, score_mod, mask_mod)
    picked = (rows, columns, heads, size, pool, colormap, color_scale, color_max)

    def make() -> Planned:
        if (value is None) != (grad_out is None):
            raise ValueError("grad_out: expected value with it, and value only with it")
        if grad_out is not None and colormap is not None:
            raise ValueError("colormap: gradients have signs, and the colours begin at zero; leave it out")
        call = resolve(query, key, value, mask=mask, kv_lengths=kv_lengths, **keywords._asdict(), buffers=7)
        picture = _check_picture(call, *picked)
        grad = None
        if grad_out is not None:
            grad, grad_tensor = resolve_like_output("grad_out", grad_out, call)
            call = call.with_({}, {"grad_out": grad_tensor})
        call = call.with_({}, {"lse": resolve_lse(lse, call)})
        return Planned(call.device, _plan(call, picture, grad), call.tensors)

    return leading.take_first(run_call("attention_weights", tensors, (*keywords, *picked), make)["result"])


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
    keywords = Keywords(causal, window, scale, softcap, query_offset, layout, None, None)
    call = resolve(query, key, None, mask=mask, kv_lengths=kv_lengths, **keywords._asdict())
    if lse is not None:
        call = call.with_({}, {"lse": resolve_lse(lse, call)})
    p = call.options.problem
    width = p.keys if columns is None else columns
    every_row, every_column = _Part(0, 1, p.queries), _Part(0, 1, width)
    picture = _Picture(tuple(range(p.heads)), every_row, every_column, p.queries, width)
    return call.device.run(_plan(call, picture, None), call.tensors)["result"]


def _plan(call: Call, picture: _Picture, grad: Operand | None) -> Plan:
    """The plan that makes ``result``; without an LSE it holds scores."""
    batch = call.options.problem.batch
    colored = picture.colormap is not None
    shape = (batch, len(picture.heads), picture.height, picture.width)
    makes = (NewTensor("result", shape, "uint32" if colored else "float32"),)
    if 0 in shape:
        return Plan(makes, ())
    constants = [Constant("heads", ("heads", picture.heads), lambda: np.array(picture.heads, np.uint32))]
    if picture.colormap is not None:
        name = picture.colormap
        constants.append(Constant("colors", ("colormap", name), lambda: _palette(name)))
    return Plan(makes, (_launch(call, picture, grad),), constants=tuple(constants))


def _launch(call: Call, picture: _Picture, grad: Operand | None) -> Launch:
    options, lse = call.options, call.tensors.get("lse")
    colored = picture.colormap is not None
    numbers = "colors" if colored else "gradients" if grad else "weights"
    variant = "scores" if lse is None else numbers
    args = [*options.args(), Arg("heads", "u32")]
    constants = options.constants() | {"pool": picture.pool, "color_scale": picture.color_scale}
    if grad:
        args.append(Arg(grad.name, grad.arg.type, tensor="grad_out"))
        constants |= grad.constants() | options.value_constants() | {"dtypes": options.dtypes(grad.dtype)}
    if lse is not None:
        args.append(Arg("lse", "f32"))
    if colored:
        args.append(Arg("colors", "u32"))
    args.append(Arg("out", "u32" if colored else "f32", writes=True, tensor="result"))
    pictures = options.problem.batch * len(picture.heads)
    return launch(
        _WEIGHTS,
        args,
        call.tensors,
        call.device.info.limits,
        variant=variant,
        workgroups=pictures * -(-picture.height // _SIDE) * -(-picture.width // _SIDE),
        params={
            **options.score_params(),
            "value_strides": options.value.strides if options.value else (0, 0, 0, 0),
            "grad_strides": grad.strides if grad else (0, 0, 0, 0),
            "lse_strides": (*lse.strides, 0) if lse is not None else (0, 0, 0, 0),
            **row_parts_params(lse, call.device.info.limits, natural=options.natural),
            "chosen_heads": len(picture.heads),
            "pictures": pictures,
            "rows": picture.rows.count,
            "row_begin": picture.rows.begin,
            "row_step": picture.rows.step,
            "columns": picture.columns.count,
            "column_begin": picture.columns.begin,
            "column_step": picture.columns.step,
            "width": picture.width,
            "height": picture.height,
            "color_max": picture.color_max,
            "color_decades": math.log10(2) / colormaps.DECADES,
        },
        constants=constants | {name: variant == name for name in ("scores", "colors", "gradients")},
        grid_name="rows",
    )


def _palette(colormap: str) -> npt.NDArray[np.uint32]:
    return colormaps.table(colormap).view(np.uint32)[:, 0]


def _check_picture(
    call: Call,
    rows: object,
    columns: object,
    heads: object,
    size: object,
    pool: object,
    colormap: str | None,
    color_scale: object,
    color_max: object,
) -> _Picture:
    p = call.options.problem
    chosen = check_heads(heads, p.heads)
    picked_rows = _Part(*check_slice("rows", rows, p.queries))
    picked_columns = _Part(*check_slice("columns", columns, p.keys))
    height, width = _check_size(size, picked_rows.count, picked_columns.count)
    if pool not in ("max", "mean"):
        raise ValueError(f'pool: expected "max" or "mean", got {pool!r}')
    if color_scale not in colormaps.SCALES:
        raise ValueError(f"color_scale: expected one of {', '.join(colormaps.SCALES)}, got {color_scale!r}")
    maximum = check_real("color_max", color_max)
    if maximum <= 0:
        raise ValueError(f"color_max: expected a number > 0, got {maximum}")
    if colormap is not None:
        colormaps.table(colormap)
    return _Picture(
        tuple(chosen),
        picked_rows,
        picked_columns,
        height,
        width,
        str(pool),
        colormap,
        str(color_scale),
        maximum,
    )


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
