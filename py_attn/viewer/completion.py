"""Names that can follow what is typed in the console, from the objects that there are."""

from __future__ import annotations

import builtins
import inspect
import keyword
import re
from collections.abc import Mapping
from typing import Any

import py_attn as pa

MAX_NAMES = 300
_MAX_DETAIL = 120
_MAX_TEXT = 100_000
_CHAIN = re.compile(r"(?:^|[^\w.)\]\"'])((?:[^\W\d]\w*\.)*)([^\W\d]\w*)?$")
_MISSING = object()


Option = dict[str, str]


def completions(namespace: Mapping[str, Any], text: str, position: int) -> dict[str, Any]:
    """Names that can stand at a position of a text; see :func:`py_attn.viewer.panels.console.complete`."""
    found = _CHAIN.search(text[max(0, position - 1000) : position]) if len(text) <= _MAX_TEXT else None
    if not found:
        return {"from": position, "options": []}
    owner, prefix = found[1], found[2] or ""
    options = _attributes(namespace, owner[:-1], prefix) if owner else _names(namespace, prefix)
    return {"from": position - len(prefix), "options": options[:MAX_NAMES]}


def _names(here: Mapping[str, Any], prefix: str) -> list[Option]:
    if not prefix:
        return []
    mine = [_option(name, here[name]) for name in sorted(here) if _shows(name, prefix)]
    words = [_word(name) for name in keyword.kwlist if name.startswith(prefix)]
    others = [name for name in dir(builtins) if _shows(name, prefix) and name not in here]
    return mine + words + [_option(name, getattr(builtins, name)) for name in others]


def _attributes(here: Mapping[str, Any], chain: str, prefix: str) -> list[Option]:
    first, *rest = chain.split(".")
    value = here.get(first, _MISSING)
    for name in rest:
        value = _plain_attribute(value, name)
    if value is _MISSING:
        return []
    return [
        _option(name, _plain_attribute(value, name))
        for name in sorted(set(_dir(value)))
        if _shows(name, prefix)
    ]


def _plain_attribute(value: Any, name: str) -> Any:
    """An attribute that is there without running any code, else the descriptor or ``_MISSING``."""
    if value is pa or value is pa.models:
        return getattr(value, name, _MISSING)  # it may be imported only now, but that code is ours
    if inspect.ismodule(value):
        return vars(value).get(name, _MISSING)
    try:
        found = inspect.getattr_static(value, name)
    except (AttributeError, TypeError):
        return _MISSING
    return found.__func__ if isinstance(found, staticmethod | classmethod) else found


def _dir(value: Any) -> list[str]:
    names = vars(value) if inspect.ismodule(value) else object.__dir__(value)
    if isinstance(value, type):
        names = type.__dir__(value)
    shown = getattr(value, "__all__", None) if inspect.ismodule(value) else None
    return [name for name in (shown or names) if isinstance(name, str)]


def _shows(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and (not name.startswith("_") or prefix.startswith("_"))


def _word(name: str) -> Option:
    return {"label": name, "type": "keyword", "detail": ""}


def _option(name: str, value: Any) -> Option:
    if inspect.ismodule(value):
        return {"label": name, "type": "namespace", "detail": ""}
    if isinstance(value, property) or value is _MISSING:
        return {"label": name, "type": "property", "detail": ""}
    kind = "class" if isinstance(value, type) else "function" if callable(value) else "variable"
    return {
        "label": name,
        "type": kind,
        "detail": _signature(value) if callable(value) else _described(value),
    }


def _signature(value: Any) -> str:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    shown = ", ".join(_parameter(one) for one in parameters if one.name != "self")
    return _short(f"({shown})")


def _parameter(one: inspect.Parameter) -> str:
    stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    return f"{stars}{one.name}{'' if one.default is one.empty else '='}"


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    return _short(f"{kind} {list(shape)}" if isinstance(shape, tuple) else kind)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_DETAIL else f"{text[: _MAX_DETAIL - 1]}…"
