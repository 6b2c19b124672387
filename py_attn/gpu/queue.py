"""The queue of a device: pending work, its batches and submissions, and the errors that come back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from py_attn.errors import DeviceLostError
from py_attn.gpu.binding import BoundBuffer, check_aliases
from py_attn.gpu.bridge import BridgeError, DeviceBridge, File
from py_attn.gpu.memory import Memory
from py_attn.gpu.pipelines import Pipelines
from py_attn.gpu.recorder import Dispatch, Recorder
from py_attn.gpu.shader import Shader
from py_attn.gpu.tensor import Storage

#: Dispatches that were submitted with clocks, behind the ticket that their times come by.
Timed = list[tuple[int, Sequence[Dispatch]]]

# Recorded work is sent in batches: the first dispatch alone, so that an idle GPU starts at once, then twice
# as many each time up to this many, so that a dispatch costs little CPU time and the GPU does not wait.
_MAX_BATCH = 16


class Queue:
    """Work of one device, in the order of the calls.

    Attributes
    ----------
    bridge : DeviceBridge
    pipelines : Pipelines
    recorded : int
        Dispatches recorded so far.
    """

    def __init__(self, bridge: DeviceBridge, memory: Memory) -> None:
        self.bridge = bridge
        self.pipelines = Pipelines(bridge)
        self.recorded = 0
        self._memory = memory
        self._pending = Recorder()
        self._recording: Recorder | None = None
        self._timed: Timed | None = None
        self._batch = 1
        # Errors that came while a program waited for its own.
        self._unseen: list[BridgeError] = []
        # Each error comes to one wait only. Those that all who wait must know of: see `_waiting`.
        self._waits: list[list[BridgeError]] = []
        # The last buffer that could not be made. What follows from it may be told later than it is, and to
        # another wait; a wait without errors ends it.
        self._lack: BridgeError | None = None

    # Life

    @property
    def lost(self) -> bool:
        """Whether the device is gone."""
        return bool(self.bridge.lost())

    def check_alive(self) -> None:
        """Raise :class:`DeviceLostError` when the device is gone."""
        reason = self.bridge.lost()
        if reason:
            raise DeviceLostError(f"the device was lost ({reason}); request a new one and upload again")

    # Recording

    def begin_run(self) -> Recorder:
        """A recorder for the launches of one plan; they become pending work by :meth:`end_run`."""
        return Recorder(keep=self.is_recording)

    def add(
        self,
        shader: Shader,
        params: bytes,
        buffers: Sequence[BoundBuffer],
        workgroups: tuple[int, int, int],
        run: Recorder,
        *,
        is_main: bool = True,
    ) -> None:
        """Add one dispatch to a run; buffers in the order of the shader's bindings.

        Raises
        ------
        ValueError
            When the shader would read and write the same buffer.
        """
        check_aliases(shader, buffers)
        pipeline, compiled = self.pipelines.find(shader)
        begins_run = not run.dispatches
        run.add(Dispatch(shader, workgroups, pipeline, compiled, begins_run, is_main), params, buffers)

    def end_run(self, run: Recorder) -> None:
        """Record all dispatches of a run, and send them on where the batch is full."""
        self.recorded += len(run.dispatches)
        if self._recording is not None:
            self._recording.extend(run)
            return
        self._pending.extend(run)
        if len(self._pending.dispatches) >= self._batch or self._timed is not None:
            self._batch = min(2 * self._batch, _MAX_BATCH)
            self.flush()

    @property
    def is_recording(self) -> bool:
        """Whether calls go into a program at the moment."""
        return self._recording is not None

    @contextmanager
    def record(self) -> Iterator[Recorder]:
        """Keep what is called inside in a recorder of its own instead of running it.

        Raises
        ------
        RuntimeError
            When something is being recorded already.
        """
        if self._recording is not None:
            raise RuntimeError("record: a program is being recorded already")
        self.check_alive()
        self.flush()
        self._recording = Recorder(keep=True)
        try:
            yield self._recording
        finally:
            self._recording = None

    @contextmanager
    def time(self, timed: Timed) -> Iterator[None]:
        """Submit what is called inside with clocks, dispatch by dispatch, and note it in ``timed``.

        Raises
        ------
        RuntimeError
            When something is being timed already.
        """
        if self._timed is not None:
            raise RuntimeError("timer: dispatches are being timed already")
        self.check_alive()
        self.flush()
        self._timed = timed
        try:
            yield
            self.flush()
        finally:
            self._timed = None

    # Sending

    def flush(self) -> None:
        """Send recorded work to the GPU without waiting for it."""
        recorder = self._pending
        if recorder.dispatches:
            self._pending = Recorder()
            if not self.lost:
                self._send(recorder)
        self._memory.destroy_doomed()

    def _send(self, recorder: Recorder) -> None:
        if self._timed is None:
            self.bridge.run_program(recorder.words, recorder.params)
            return
        program = self.bridge.create_program(recorder.words)
        self.submit(program, recorder)
        self.bridge.destroy_program(program)

    def submit(self, program: int, recorder: Recorder, times: int = 1) -> None:
        """Run a program that the bridge holds, and time each run where dispatches are being timed."""
        if self._timed is None:
            self.bridge.submit_program(program, recorder.params, times)
            return
        for _ in range(times):
            ticket = self.bridge.submit_timed(program, recorder.params)
            self._timed.append((ticket, tuple(recorder.dispatches)))

    # Memory, in the order of the work

    def write(self, handle: int, data: npt.NDArray[np.uint8], offset: int = 0) -> None:
        """Fill a buffer from a byte on. That takes effect at once, so recorded work is sent first."""
        self.flush()
        self._memory.write(handle, data, offset)

    def write_file(self, handle: int, offset: int, file: File, begin: int, end: int) -> None:
        """Fill a part of a buffer from a file; like :meth:`write`, in the order of the work."""
        self.flush()
        self.bridge.write_file(handle, offset, file, begin, end)

    def release(self, storage: Storage) -> None:
        """Give a tensor's buffer back."""
        self._memory.give_back(storage.handle, storage.nbytes)
        if not self._pending.dispatches:
            self._memory.destroy_doomed()

    async def read(
        self, storage: Storage, offset: int, out: npt.NDArray[np.uint8], *, check: bool = True
    ) -> None:
        """Fill ``out`` from the buffer's bytes at ``offset``; with ``check`` raise what failed before.

        Raises
        ------
        PyAttnError
            When anything recorded before failed on the GPU.
        """
        self.flush()
        size = min(out.size, storage.nbytes - offset)
        with self._waiting() as lacks:
            try:
                await self.bridge.read_buffer(storage.handle, offset, out[:size])
            finally:
                if check:
                    await self.raise_errors(lacks)

    # Waiting

    async def synchronize(self) -> None:
        """Wait until everything recorded so far is done, and raise what failed."""
        self.check_alive()
        self.flush()
        with self._waiting() as lacks:
            await self.raise_errors(lacks)

    @contextmanager
    def _waiting(self) -> Iterator[list[BridgeError]]:
        """A list of buffers that could not be made meanwhile: what is waited for may have needed them."""
        lacks: list[BridgeError] = []
        self._waits.append(lacks)
        try:
            yield lacks
        finally:
            self._waits = [each for each in self._waits if each is not lacks]

    async def raise_errors(self, lacks: Sequence[BridgeError] = ()) -> None:
        """Wait for all submitted work and raise the first error that nobody has seen, else of ``lacks``."""
        found = await self._synchronize()
        # The GPU is idle now, so the next dispatch is sent alone again.
        self._batch = 1
        errors, self._unseen = [*self._unseen, *found] or [*lacks], []
        if self._lack and errors and all(error.kind == "validation" for error in errors):
            errors.insert(0, self._lack)
        if errors:
            # Uses of a broken pipeline or buffer fail too, and may be reported before it.
            first = min(errors, key=lambda error: error.kind not in ("shader", "out-of-memory"))
            raise self.pipelines.exception(first, len(errors) - 1)
        self.check_alive()

    async def _synchronize(self) -> Sequence[BridgeError]:
        made = self._memory.unconfirmed
        errors = await self.bridge.synchronize()
        lacking = self._memory.confirm(made, errors)
        for lacks in self._waits:
            lacks += lacking
        if lacking or not errors:
            self._lack = lacking[0] if lacking else None
        if not self._pending.dispatches:
            self._memory.destroy_doomed()
        return errors

    async def take_errors(self, dispatches: Sequence[Dispatch]) -> list[BridgeError]:
        """Wait, and return the errors that these dispatches made; others are kept for who waits for them."""
        labels = {dispatch.shader.label for dispatch in dispatches}
        mine = []
        for error in await self._synchronize():
            if error.label.split(" #")[0] not in labels:
                self._unseen.append(error)
                continue
            mine.append(error)
            if error.kind == "shader":
                self.pipelines.forget(error)
        return mine

    def clear_pipelines(self) -> None:
        """Forget the compiled pipelines, so that the next call compiles again."""
        self.flush()
        self.pipelines.clear()
