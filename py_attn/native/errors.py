"""What WebGPU reports natively: exceptions of calls, kept until somebody waits, and messages about a text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from wgpu import GPUError, GPUInternalError, GPUOutOfMemoryError

from py_attn.gpu.bridge import BridgeError, ShaderMessage

T = TypeVar("T")

#: Where the compiler, naga, points at: the name of the text or "wgsl", then line and column.
_PLACE = re.compile(r"┌─ [^\n]*?:(\d+):(\d+)\n")
#: Its first sentence, and the one behind "=", which says more about what the first calls invalid.
_SENTENCE = re.compile(r"^\s*Shader (?:'.*?' parsing|validation) error: (.+)$", re.MULTILINE)
_REASON = re.compile(r"^\s*= (?!note: )(.+)$", re.MULTILINE)
_MARKED = re.compile(r"^\s*│\s+\^+ (.+)$", re.MULTILINE)
_HEAD = re.compile(r"^Validation Error\s+Caused by:\s+(?:In wgpu\w+(?:, label = '.*?')?\s+)?")
_LOST = re.compile(r"device (?:with .* )?is (?:lost|destroyed)|device lost", re.IGNORECASE)


def reads_lost(message: str) -> bool:
    """Whether a message says that the device is gone."""
    return _LOST.search(message) is not None


def kind_of(error: GPUError) -> str:
    """The kind of a :class:`BridgeError` for an exception of wgpu's."""
    # wgpu 0.32 reports a lack of memory as an error of validation.
    if isinstance(error, GPUOutOfMemoryError) or "not enough memory" in str(error).lower():
        return "out-of-memory"
    return "internal" if isinstance(error, GPUInternalError) else "validation"


def words_of(error: Exception) -> str:
    """WebGPU's own words, in one line."""
    return " ".join(_HEAD.sub("", str(error)).split())


def compiler_message(error: GPUError) -> ShaderMessage:
    """What the compiler objects to, and where: the first place that it names is the closest."""
    text = str(error)
    sentence, place = _SENTENCE.search(text), _PLACE.search(text)
    if not sentence:
        return ShaderMessage("error", words_of(error))
    reason = _REASON.search(text) or _MARKED.search(text)
    words = sentence[1] + (f": {reason[1]}" if reason else "")
    line, column = (int(place[1]), int(place[2])) if place else (0, 0)
    return ShaderMessage("error", words, line, column)


class Errors:
    """The errors since somebody last asked.

    Attributes
    ----------
    lost : str
        Why the device is gone, "" while it lives.
    """

    def __init__(self) -> None:
        self.lost = ""
        self._found: list[BridgeError] = []

    def add(self, kind: str, label: str, message: str, line: int = 0) -> None:
        """Keep an error for the next :meth:`take`."""
        self._found.append(BridgeError(kind, label, message, line))

    def take(self) -> list[BridgeError]:
        """The errors since the last call, in order."""
        found, self._found = self._found, []
        return found

    def guarded(self, label: str, work: Callable[[], T]) -> T | None:
        """What ``work`` gives; None where WebGPU refuses it, which is kept as an error of ``label``."""
        try:
            return work()
        except GPUError as error:
            self.report(label, error)
            return None

    def report(self, label: str, error: GPUError) -> None:
        """Keep an exception of wgpu's, unless it only says that the device is gone."""
        message = words_of(error)
        if self.lost or reads_lost(message):
            self.lost = self.lost or message
        else:
            self.add(kind_of(error), label, message)
