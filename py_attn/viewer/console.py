"""A Python console: top-level ``await``, one namespace for all inputs, results as data or as pictures."""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np

import py_attn as pa
from py_attn.colormaps import paint
from py_attn.gpu.tensor import Tensor
from py_attn.viewer.engines.pooling import pool
from py_attn.viewer.plain import plain

MAX_ROWS = 200
MAX_TEXT = 20_000
MAX_MAP = 512


class ConsoleError(Exception):
    """Code in the console raised.

    Attributes
    ----------
    kind : str
        The exception's class.
    traceback : str
        Beginning with the first line of the code itself.
    """

    def __init__(self, kind: str, traceback: str) -> None:
        super().__init__(traceback)
        self.kind = kind
        self.traceback = traceback


class Console:
    """Runs source texts in one namespace, in which ``pa`` and ``np`` are defined.

    Attributes
    ----------
    namespace : dict
    """

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {"__name__": "__console__", "pa": pa, "np": np}
        self._numbers = itertools.count(1)

    async def answer(self, source: str, *, show: bool = False) -> dict[str, Any]:
        """Run ``source``; returns the value of its last expression, or the error, as plain data.

        Parameters
        ----------
        source : str
        show : bool
            Give the value as something to draw (see :func:`shown`) instead of as it is.

        Returns
        -------
        dict
            ``value``; or ``error`` (the traceback) and ``type`` (the exception's class).
        """
        try:
            value = await self.evaluate(source)
            return {"value": await (shown if show else plain)(value)}
        except ConsoleError as error:
            return {"error": error.traceback, "type": error.kind}
        except Exception as error:  # for example when a tensor is read back
            return {"error": traceback.format_exc().rstrip(), "type": type(error).__name__}

    async def evaluate(self, source: str) -> Any:
        """Run ``source``; returns the value of its last expression, or None.

        Raises
        ------
        ConsoleError
            When the code raised, or is no Python.
        """
        name = f"<console {next(self._numbers)}>"
        # So that a traceback can quote the line.
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        try:
            tree = ast.parse(source, name)
            last = tree.body[-1] if tree.body else None
            if not isinstance(last, ast.Expr):
                await self._execute(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
                return None
            tree.body.pop()
            await self._execute(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
            expression = ast.Expression(last.value)
            return await self._execute(compile(expression, name, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        except BaseException as error:
            raise ConsoleError(type(error).__name__, _traceback(error, name)) from None

    async def _execute(self, code: Any) -> Any:
        result = eval(code, self.namespace)
        return await result if code.co_flags & inspect.CO_COROUTINE else result


def _traceback(error: BaseException, name: str) -> str:
    """The traceback without the frames of the console itself."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != name:
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame)).rstrip()


async def shown(value: Any) -> dict[str, Any]:
    """A result as something to draw.

    Returns
    -------
    dict
        ``kind`` is "none"; "text" with ``text``; "table" with ``columns``, ``rows`` (lists of text) and
        ``total``; or "map" with ``rgba``, ``width``, ``height``, ``low``, ``high`` and ``text``.
    """
    if value is None:
        return {"kind": "none"}
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Tensor):
        array = await value.numpy()
        return _array(array, f"Tensor {list(value.shape)} {value.dtype}")
    if isinstance(value, np.ndarray):
        return _array(value, f"array {list(value.shape)} {value.dtype}")
    if isinstance(value, Mapping):
        return _table([{"key": str(k), "value": v} for k, v in value.items()])
    if isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
        return _table(list(value))
    return _text(repr(value))


def _text(text: str) -> dict[str, Any]:
    return {
        "kind": "text",
        "text": text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} … ({len(text):,} characters)",
    }


def _table(rows: list[Mapping[Any, Any]]) -> dict[str, Any]:
    columns = list(dict.fromkeys(str(key) for row in rows for key in row))
    cells = [[_cell(row.get(column)) for column in columns] for row in rows[:MAX_ROWS]]
    return {"kind": "table", "columns": columns, "rows": cells, "total": len(rows)}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        text = value
    elif isinstance(value, float | np.floating):
        text = f"{value:.6g}"
    elif isinstance(value, np.ndarray):
        text = f"array {list(value.shape)} {value.dtype}"
    else:
        text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]} …"


def _array(array: np.ndarray[Any, Any], title: str) -> dict[str, Any]:
    picture = array
    while picture.ndim > 2:
        picture = picture[0]
    if picture.ndim < 2 or min(picture.shape) < 2 or picture.dtype.kind not in "biuf":
        return _text(f"{title}\n{np.array2string(array, threshold=200, precision=5)}")
    values = picture.astype(np.float32)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    values = np.nan_to_num(values, nan=low, posinf=high, neginf=low)
    cells = (min(MAX_MAP, values.shape[0]), min(MAX_MAP, values.shape[1]))
    scale = "sqrt" if low >= 0 else "linear"  # arrays without negative numbers are mostly weights
    pixels = paint(pool(values - np.float32(low), cells, "mean"), "rocket", scale, (high - low) or 1.0)
    where = f", first of {array.size // picture.size}" if array.ndim > 2 and array.size > picture.size else ""
    return {
        "kind": "map",
        "text": f"{title}{where}",
        "rgba": pixels.reshape(-1),
        "width": cells[1],
        "height": cells[0],
        "low": low,
        "high": high,
    }
