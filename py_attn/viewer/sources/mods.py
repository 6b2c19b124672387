"""A visitor's score_mod and mask_mod: Python text, run once for the kernels and once for numpy.

The text and its functions run under a time limit; see :mod:`py_attn.viewer.sources.limit`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import py_attn as pa
from py_attn.errors import DeviceLostError
from py_attn.gpu.tensor import Tensor
from py_attn.traced import Row, Traced, gather
from py_attn.tracing import trace_mask_mod, trace_score_mod
from py_attn.viewer.sources.limit import LIMIT_SECONDS, STEP, Limit, NotFinishedError, compile_with_steps

FILE = "<score_mod>"
NAMES = ("score_mod", "mask_mod")

_TEXT_TASK = "it is run once from top to bottom and must define score_mod, mask_mod or both"
_TASKS = {
    "score_mod": "a score_mod is called once with symbolic values and must return the score to use",
    "mask_mod": (
        "a mask_mod is called once with symbolic values and must return a condition (True = may attend)"
    ),
}


class ModError(Exception):
    """The text is not Python, raised, did not finish, or cannot be traced.

    Attributes
    ----------
    line : int or None
        Of the text, from 1 on.
    finished : bool
        False where it ran until something ended it; then it should not be run again by itself.
    """

    def __init__(self, message: str, line: int | None, *, finished: bool = True) -> None:
        super().__init__(message)
        self.line = line
        self.finished = finished


@dataclass(frozen=True)
class Mods:
    """Functions that a text defined.

    Attributes
    ----------
    functions : dict
        ``score_mod`` and ``mask_mod``, whichever there are, for the kernels.
    plain : dict
        The same for numpy: they read arrays instead of tensors.
    wgsl : str
        The functions as WGSL, "" where there is no device.
    """

    functions: dict[str, Any]
    plain: dict[str, Any]
    wgsl: str

    def on_arrays(self, head: int, rows: npt.NDArray[np.intp]) -> dict[str, Any]:
        """The functions for the reference called with head ``head`` and rows ``rows`` alone."""

        def placed(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                *score, b, _, i, j = arguments
                return function(*score, b, np.full_like(b, head), rows[i], j)

            return call

        return {name: placed(function) for name, function in self.plain.items()}

    def at(self, query: int, key: int) -> dict[str, Any]:
        """The functions for the reference called with queries from ``query`` and keys from ``key`` on."""
        return {name: _shifted(function, query, key) for name, function in self.plain.items()}

    def on_device_at(self, device: pa.Device, query: int, key: int) -> dict[str, Any]:
        """The same for kernels; the two numbers are looked up, so that no other shader is made for others."""
        begin = device.tensor(np.array([query, key], np.int32))

        def look_up(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *at: _shifted(function, gather(begin, (0,)), gather(begin, (1,)))(*at)

        return {name: look_up(function) for name, function in self.functions.items()}


def _shifted(function: Callable[..., Any], query: Any, key: Any) -> Callable[..., Any]:
    return lambda *at: function(*at[:-2], at[-2] + query, at[-1] + key)


def compile_mods(
    text: str, device: pa.Device | None, *, limit_seconds: float = LIMIT_SECONDS, **given: Any
) -> Mods | None:
    """Run ``text``, which may define ``score_mod`` and ``mask_mod``; None where it defines neither.

    It finds ``pa``, ``np``, ``math``, ``device`` and what is ``given``. Without a device, and for the
    reference, ``device.tensor`` keeps its array on the host.

    Raises
    ------
    ModError
        With the line of the text that is to blame, where one is.
    """
    limit = Limit(limit_seconds)
    plain = _run(text, _Host(), given, limit)
    if not plain:
        return None
    functions = _run(text, device, given, limit) if device else plain
    wgsl = _trace(functions)
    return Mods(functions, plain, wgsl if device else "")


def explain(error: Exception) -> dict[str, Any]:
    """What went wrong with a text as plain data: ``message``, ``line`` and ``finished`` as in ModError."""
    if not isinstance(error, ModError):
        finished = not isinstance(error, NotFinishedError | DeviceLostError)
        error = ModError(f"{type(error).__name__}: {error}", _line_of(error), finished=finished)
    return {"message": str(error), "line": error.line, "finished": error.finished}


def _run(text: str, device: Any, given: dict[str, Any], limit: Limit) -> dict[str, Any]:
    space: dict[str, Any] = {"pa": pa, "np": np, "math": math, "device": device, **given, STEP: limit.step}
    try:
        code = compile_with_steps(text, FILE)
    except SyntaxError as error:
        raise ModError(f"{type(error).__name__}: {error.msg}", error.lineno) from None
    _guarded("The text", _TEXT_TASK, lambda: limit.run("The text", exec, code, space))
    return {name: limit.wrap(name, space[name]) for name in NAMES if callable(space.get(name))}


def _trace(functions: dict[str, Any]) -> str:
    tensors: list[Tensor] = []
    traces = {"score_mod": trace_score_mod, "mask_mod": trace_mask_mod}
    parts = []
    for name, function in functions.items():
        first_line = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_firstlineno", None)
        work = functools.partial(traces[name], function, tensors)
        parts.append(_guarded(name, _TASKS[name], work, first_line))
    return "".join(parts)


def _guarded(what: str, task: str, work: Callable[[], Any], line: int | None = None) -> Any:
    """What ``work`` gives; what it raises is laid to a line of the text, or to ``line``."""
    cause: BaseException
    try:
        return work()
    except NotFinishedError as error:
        cause, message = error, f"{error}; {task}"
    except RecursionError as error:
        cause = error
        message = f"{what} calls itself too often, or its expression is nested too deeply; {task}"
    except MemoryError as error:
        cause, message = (
            error,
            f"{what} needs more memory than there is ({str(error) or 'MemoryError'}); {task}",
        )
    except (Exception, SystemExit) as error:
        cause, message = error, f"{type(error).__name__}: {error}"
    finished = not isinstance(cause, NotFinishedError)
    raise ModError(message, _line_of(cause) or line, finished=finished) from None


def _line_of(error: BaseException) -> int | None:
    """The innermost line of the text that the traceback of an error, or of its cause, goes through."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line if line or error.__context__ is None else _line_of(error.__context__)


class _Host:
    """What ``device`` is where the functions run in numpy."""

    def tensor(self, array: Any, dtype: str | None = None) -> Any:
        given = np.asarray(array, dtype)
        given = given.astype(np.float32) if given.dtype == np.float64 else given
        return _Table(given) if given.ndim else given[()]


class _Table:
    """An array that is indexed like a tensor: an index out of bounds reads the nearest element."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array
        self.shape = array.shape
        self.ndim = array.ndim

    def __getitem__(self, index: Any) -> Any:
        given = index if isinstance(index, tuple) else (index,)
        if len(given) < self.array.ndim:
            return Row(self, given)
        if len(given) > self.array.ndim:
            raise IndexError(
                f"a tensor of shape {list(self.shape)} takes {self.array.ndim} indices, got {len(given)}"
            )
        if any(isinstance(i, Traced) for i in given):
            kind = {"f": "f32", "b": "bool"}.get(self.array.dtype.kind, "i32")
            return Traced("name", kind, "table")
        return self.array[tuple(np.clip(i, 0, n - 1) for i, n in zip(given, self.shape, strict=True))]
