"""What is recorded of a sequence of dispatches, as it crosses the bridge."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from py_attn.gpu.binding import BoundBuffer
from py_attn.gpu.bridge import PARAMS_ALIGNMENT
from py_attn.gpu.shader import Shader
from py_attn.gpu.tensor import Storage


class Dispatch(NamedTuple):
    """One recorded dispatch.

    Attributes
    ----------
    shader : Shader
    workgroups : (int, int, int)
    pipeline : int
        Handle of the compiled shader.
    compiled : bool
        Whether the pipeline was made for this dispatch.
    begins_run : bool
        Whether it is the first dispatch of a plan's run, or of a shader's own; the others follow it.
    is_main : bool
        Whether this dispatch names the run in timings.
    """

    shader: Shader
    workgroups: tuple[int, int, int]
    pipeline: int
    compiled: bool
    begins_run: bool
    is_main: bool


class Recorder:
    """The word stream and the params block of a sequence of dispatches.

    Neither depends on what comes before, so that one recorder's can be appended to another's. With ``keep``
    it holds on to the buffers too, for a program that is submitted later.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self._keep = keep
        self.words = array("I")
        self.params = bytearray()
        self.dispatches: list[Dispatch] = []
        self.storages: dict[int, Storage] = {}

    def add(self, dispatch: Dispatch, params: bytes, buffers: Sequence[BoundBuffer]) -> None:
        """Append one dispatch."""
        words = [dispatch.pipeline, len(params), *dispatch.workgroups, len(buffers)]
        for storage, offset, size, _ in buffers:
            words += (storage.handle, offset, size)
        self.words.extend(words)
        if self._keep:
            self.storages.update((buffer.storage.handle, buffer.storage) for buffer in buffers)
        self.params += params + bytes(-len(params) % PARAMS_ALIGNMENT)
        self.dispatches.append(dispatch)

    def extend(self, other: Recorder) -> None:
        """Append all dispatches of ``other``, which holds on to its buffers where this one does."""
        self.words += other.words
        self.params += other.params
        self.dispatches += other.dispatches
        if self._keep:
            self.storages |= other.storages
