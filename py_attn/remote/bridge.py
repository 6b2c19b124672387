"""A page's GPU behind the protocols of :mod:`py_attn.gpu.bridge`.

Commands are gathered and sent together, in the order in which they were made; only what reads back waits.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np

from py_attn.errors import DeviceLostError, WebGPUUnavailableError
from py_attn.gpu.bridge import AdapterInfo, BridgeError, File, Progress, RawTiming, ShaderMessage
from py_attn.models.files import PathFile, find
from py_attn.remote.channel import Channel


class RemoteDeviceBridge:
    """One ``GPUDevice`` of a page.

    Parameters
    ----------
    channel : Channel
        To the page.
    kernel : str
        The first part of the device's id: a page frees the devices of a kernel that has no views in it.
    """

    #: Gathered commands are sent once their arrays hold this many bytes, and larger transfers are divided
    #: into parts of this size: servers between kernel and browser refuse messages above some 10 MB.
    chunk_bytes = 4 << 20

    def __init__(self, channel: Channel, kernel: str) -> None:
        self.info: AdapterInfo
        self.name = f"{kernel}:{uuid.uuid4().hex}"
        self._reason = ""
        self._channel = channel
        self._handles = itertools.count(1)
        self._ops: list[dict[str, Any]] = []
        self._nbytes = 0
        self._scheduled = False
        # What waits were told of after they had been cancelled.
        self._late: list[BridgeError] = []
        self._lock = threading.RLock()  # a tensor may be garbage-collected in any thread, at any time
        channel.on_lost[self.name] = self._note_loss

    async def connect(self) -> None:
        """Have the page request the device."""
        try:
            self.info = AdapterInfo.from_plain(await self._ask("request_device"))
        except DeviceLostError:
            self._channel.on_lost.pop(self.name, None)
            raise

    def lost(self) -> str:
        """Why the device was lost, or "" while it works."""
        return self._reason or self._channel.gone

    def _note_loss(self, reason: str) -> None:
        self._reason = self._reason or reason

    # sending

    def _tell(self, op: str, *args: Any, number: int | None = None, nbytes: int = 0) -> None:
        command: dict[str, Any] = {"op": op, "args": args}
        if number is not None:
            command["id"] = number
        with self._lock:
            self._ops.append(command)
            self._nbytes += nbytes
            full = self._nbytes >= self.chunk_bytes
            schedule = not (full or number is not None or self._scheduled)
            self._scheduled = self._scheduled or schedule
        if schedule:
            try:
                asyncio.get_running_loop().call_soon(self._flush)
            except RuntimeError:  # no loop in this thread will send them later
                self._flush()
        elif full or number is not None:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            ops, self._ops = self._ops, []
            self._nbytes, self._scheduled = 0, False
            if ops:
                self._channel.send({"kind": "bridge", "device": self.name}, {"ops": ops})

    async def _ask(self, op: str, *args: Any) -> Any:
        if reason := self.lost():
            raise DeviceLostError(reason)
        number, future = self._channel.expect()
        self._tell(op, *args, number=number)
        return await self._channel.answer(number, future)

    def _make(self, op: str, *args: Any, nbytes: int = 0) -> int:
        handle = next(self._handles)
        self._tell(op, handle, *args, nbytes=nbytes)
        return handle

    # buffers

    def create_buffer(self, size: int, label: str) -> int:
        return self._make("create_buffer", size, label)

    def destroy_buffer(self, buffer: int) -> None:
        self._tell("destroy_buffer", buffer)

    def write_buffer(self, buffer: int, offset: int, data: Any) -> None:
        view = memoryview(data).cast("B")
        for start in range(0, view.nbytes, self.chunk_bytes):
            # The caller may change its array before this is sent.
            part = bytes(view[start : start + self.chunk_bytes])
            self._tell("write_buffer", buffer, offset + start, part, nbytes=len(part))

    def write_file(self, buffer: int, offset: int, file: File, begin: int, end: int) -> None:
        for start in range(begin, end, self.chunk_bytes):
            part = file.read(start, min(start + self.chunk_bytes, end))
            self._tell("write_buffer", buffer, offset + start - begin, part, nbytes=len(part))

    async def read_buffer(self, buffer: int, offset: int, out: Any) -> None:
        view = memoryview(out).cast("B")
        parts = []
        for start in range(0, view.nbytes, self.chunk_bytes):
            if reason := self.lost():
                raise DeviceLostError(f"reading back failed: {reason}")
            size = min(self.chunk_bytes, view.nbytes - start)
            number, future = self._channel.expect()
            self._tell("read_buffer", buffer, offset + start, size, number=number)
            parts.append((start, size, number, future))
        for start, size, number, future in parts:
            data = await self._channel.answer(number, future)
            if data.nbytes != size:
                raise DeviceLostError(f"reading back failed: expected {size} bytes, got {data.nbytes}")
            view[start : start + size] = memoryview(data)

    # pipelines

    def create_pipeline(self, label: str, wgsl: str, access: str) -> int:
        return self._make("create_pipeline", label, wgsl, access)

    def destroy_pipeline(self, pipeline: int) -> None:
        self._tell("destroy_pipeline", pipeline)

    async def check_shader(self, wgsl: str) -> Sequence[ShaderMessage]:
        return [ShaderMessage(**message) for message in await self._ask("check_shader", wgsl)]

    async def compile_us(self, pipeline: int) -> float:
        return float(await self._ask("compile_us", pipeline))

    # programs

    def run_program(self, words: Any, params: Any) -> None:
        program = self.create_program(words)
        self.submit_program(program, params)
        self.destroy_program(program)

    def create_program(self, words: Any) -> int:
        array = np.array(words, np.uint32)
        return self._make("create_program", array, nbytes=array.nbytes)

    def submit_program(self, program: int, params: Any, times: int = 1) -> None:
        self._tell("submit_program", program, bytes(params), times, nbytes=len(params))

    def submit_timed(self, program: int, params: Any, together: bool = False, times: int = 1) -> int:
        return self._make("submit_timed", program, bytes(params), together, times, nbytes=len(params))

    def destroy_program(self, program: int) -> None:
        self._tell("destroy_program", program)

    async def timings(self, ticket: int) -> Sequence[RawTiming]:
        return [RawTiming(gpu, wall) for gpu, wall in await self._ask("timings", ticket)]

    # lifetime

    async def synchronize(self) -> Sequence[BridgeError]:
        if self.lost():
            return []
        told = asyncio.ensure_future(self._ask("synchronize"))
        try:
            answer = await asyncio.shield(told)
        except asyncio.CancelledError:
            told.add_done_callback(self._keep)
            raise
        late, self._late = self._late, []
        return [*late, *_errors(answer)]

    def _keep(self, told: asyncio.Future[Any]) -> None:
        if not told.cancelled() and told.exception() is None:
            self._late += _errors(told.result())

    def destroy(self) -> None:
        if not self.lost():
            self._tell("destroy")
            self._flush()
        self._note_loss("destroyed")
        self._channel.on_lost.pop(self.name, None)


def _errors(answer: Sequence[dict[str, Any]]) -> list[BridgeError]:
    return [BridgeError(**error) for error in answer]


class RemoteBridge:
    """Requests devices from a page; a model's files come from this computer."""

    def __init__(self, channel: Channel, kernel: str) -> None:
        self._channel = channel
        self._kernel = kernel

    async def request_device(self) -> RemoteDeviceBridge:
        """Request a new device from the page.

        Raises
        ------
        WebGPUUnavailableError
            With the page's reason.
        """
        raw = RemoteDeviceBridge(self._channel, self._kernel)
        try:
            await raw.connect()
        except DeviceLostError as error:
            raise WebGPUUnavailableError(str(error)) from None
        return raw

    async def fetch_asset(self, name: str, progress: Progress | None = None) -> Any:
        """A model's file, from this computer."""
        data = find(name).read_bytes()
        if progress:
            progress(len(data), len(data))
        return memoryview(data)

    async def open_asset(self, name: str, progress: Progress | None = None) -> File:
        """A model's file, from this computer; nothing of it is read yet."""
        file = PathFile(find(name))
        if progress:
            progress(file.size, file.size)
        return file

    async def load_note(self, name: str) -> str:
        """Return "": the tuner's results are kept only as long as this process runs."""
        return ""

    async def save_note(self, name: str, text: str) -> None:
        """Do nothing; see :meth:`load_note`."""
