"""The methods that a front end may call on a viewer: one table, filled by a decorator.

The page's worker, the notebook widget, the build and the tests all read this table.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

#: Takes a Viewer and the method's arguments; plain data and arrays go in and come out.
Function = Callable[..., Coroutine[Any, Any, Any]]
_F = TypeVar("_F", bound=Function)


class Method(NamedTuple):
    """A method that a front end may call.

    Attributes
    ----------
    function : coroutine function
    start : dict or None
        For a method that the page calls by itself once its sample is open: arguments with which the build
        makes the same call, to find the modules that a start imports.
    early : bool
        The method needs no other modules than a start imports, so the page may call it before the other
        modules are there. Every method with ``start`` is early.
    after : str
        While the page starts, this method waits for the first answer of that one; "" for none.
    notebook : bool
        The notebook widget's front end may call it too. Never a method that runs Python source text: a
        published notebook is seen by strangers.
    """

    function: Function
    start: dict[str, Any] | None
    early: bool
    after: str
    notebook: bool

    @property
    def reports_progress(self) -> bool:
        """Whether the function takes a callback ``progress``."""
        return "progress" in self.function.__annotations__


#: All methods by their names.
METHODS: dict[str, Method] = {}


def method(
    *, start: dict[str, Any] | None = None, early: bool = False, after: str = "", notebook: bool = False
) -> Callable[[_F], _F]:
    """Put a coroutine function into :data:`METHODS`; arguments as for :class:`Method`."""

    def register(function: _F) -> _F:
        METHODS[function.__name__] = Method(function, start, early or start is not None, after, notebook)
        return function

    return register


def early_methods() -> dict[str, str]:
    """Each method that may be called before the rest of Python is there, with the one it waits for."""
    return {name: each.after for name, each in METHODS.items() if each.early}
