"""Turns a conversation into one text by a model's own chat template.

The template comes from the model's file. Jinja2 runs it in a sandbox in which it can neither change the
messages nor reach Python's insides, with the settings for which Hugging Face's templates are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment


def render(template: str, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True) -> str:
    """The text of a conversation.

    Parameters
    ----------
    template : str
        A Jinja2 template that reads ``messages`` and ``add_generation_prompt``.
    messages : sequence of mappings
        Each with the strings "role" ("system", "user" or "assistant" in most templates) and "content".
    add_generation_prompt : bool
        Whether the text ends with the beginning of an answer.

    Raises
    ------
    TypeError
        A message is no mapping, or its role or content is no string.
    ValueError
        There are no messages, a message lacks its role or content, or the template fails.
    """
    _check(messages)
    try:
        environment = _environment()
        return environment.from_string(template).render(
            messages=messages, add_generation_prompt=add_generation_prompt
        )
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"chat template: line {error.lineno}: {error.message}") from None
    except Exception as error:  # a template may divide by zero, add a number to a string, …
        raise ValueError(f"chat template: {type(error).__name__}: {error}") from error


def _check(messages: Any) -> None:
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
        raise TypeError(f"messages: expected a list of messages, got {type(messages).__name__}")
    if not messages:
        raise ValueError("messages: expected at least one message, got none")
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TypeError(f"messages[{number}]: expected a dict, got {type(message).__name__}")
        for key in ("role", "content"):
            if key not in message:
                raise ValueError(
                    f'messages[{number}]: expected the keys "role" and "content", {key!r} is missing'
                )
            if not isinstance(message[key], str):
                raise TypeError(
                    f"messages[{number}][{key!r}]: expected a string, got {type(message[key]).__name__}"
                )


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    environment.globals["raise_exception"] = raise_exception
    return environment
