"""A time limit for a visitor's Python text: loops and functions of the text look at the clock.

The limit is compiled into the text: every round of a loop and every call of a function first calls
:meth:`Limit.step`, which raises once the time is over. Unlike a trace function this needs nothing global,
so a debugger, coverage and other threads go on as they were, and it works alike in every Python.
What spends its time inside one call of C code (``sum(itertools.count())``) takes no steps and is not ended.
"""

from __future__ import annotations

import ast
import functools
import time
from collections.abc import Callable
from types import CodeType
from typing import Any

#: For running the text, and for each call of a function that it defines.
LIMIT_SECONDS = 3.0
#: The name of :meth:`Limit.step` in the text's namespace.
STEP = "__py_attn_step__"
#: Steps from one look at the clock to the next. What takes fewer may take any time, so that a machine which
#: is slow, or was asleep, ends no function that takes a few steps.
_STEPS_BETWEEN_LOOKS = 100


class NotFinishedError(Exception):
    """The text had not finished when its time was over."""


class Limit:
    """Ends a visitor's text that runs too long.

    Parameters
    ----------
    seconds : float
        The time limit of one :meth:`run`; a :meth:`run` inside another one shares its time.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._deadline: float | None = None
        self._name = ""
        self._steps = 0
        self._error: NotFinishedError | None = None

    def run(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``function``, which messages call ``name``.

        Raises
        ------
        NotFinishedError
            When its time was over first, also where the text has caught the error.
        """
        if self._deadline is not None:
            return function(*arguments)
        self._deadline = time.monotonic() + self.seconds
        self._name, self._steps, self._error = name, 0, None
        try:
            result = function(*arguments)
        except BaseException:
            if self._error is None:
                raise
        finally:
            self._deadline = None
        if self._error is not None:
            raise self._error
        return result

    def step(self) -> None:
        """Count one iteration of a loop, or one call of a function, of the text.

        Raises
        ------
        NotFinishedError
            When the time is over. From then on every step raises it, so that a loop that catches it ends too.
        """
        if self._deadline is None:
            return
        self._steps += 1
        if self._error is not None:
            raise NotFinishedError(str(self._error))
        if self._steps % _STEPS_BETWEEN_LOOKS == 0 and time.monotonic() > self._deadline:
            self._error = NotFinishedError(f"{self._name} did not finish within {self.seconds:g} seconds")
            raise self._error

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, every call of which runs under the limit."""

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return self.run(name, function, *arguments)

        return call


def compile_with_steps(text: str, file: str) -> CodeType:
    """Compile ``text``; the code calls ``STEP`` in every round of a loop and in every call of a function.

    Raises
    ------
    SyntaxError
        When it is not Python.
    """
    tree = ast.fix_missing_locations(_Steps().visit(ast.parse(text, file)))
    code: CodeType = compile(tree, file, "exec")
    return code


class _Steps(ast.NodeTransformer):
    """Puts calls of ``STEP`` where code can be repeated: into loops, comprehensions and functions."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        # STEP returns None.
        step = ast.Call(ast.Name(STEP, ast.Load()), [], [])
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body.insert(0 if ast.get_docstring(node) is None else 1, ast.Expr(step))
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            node.body.insert(0, ast.Expr(step))
        elif isinstance(node, ast.Lambda):
            node.body = ast.BoolOp(ast.Or(), [step, node.body])
        elif isinstance(node, ast.comprehension):
            node.ifs.insert(0, ast.UnaryOp(ast.Not(), step))
        return node
