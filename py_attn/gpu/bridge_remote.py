"""The bridge from Python anywhere to a browser elsewhere: a notebook's kernel computes on its viewer's GPU.

It knows messages, not what carries them: a :class:`RemotePage` is given a function that sends, and is
told what came back. Commands are gathered and sent together; only what reads back waits. The messages
are described in :mod:`py_attn.widget._protocol`.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from py_attn.errors import DeviceLostError, WebGPUUnavailableError
from py_attn.gpu.bridge import AdapterInfo, BridgeError, Progress, RawTiming
from py_attn.gpu.wire import pack, unpack

if TYPE_CHECKING:
    from py_attn.gpu.device import Device

Send = Callable[[dict[str, Any], list[Any]], None]

#: Seconds between two questions whether the page still lives, and how many may stay unanswered.
PING_SECONDS = 2.5
PATIENCE = 6

#: Gathered commands are sent once their arrays hold this many bytes; larger transfers go in such parts,
#: as servers between kernel and browser refuse messages above some 10 MB.
CHUNK_BYTES = 4 << 20


class RemotePage:
    """A page that executes what it is sent.

    Parameters
    ----------
    name : str
        The page's id.
    send : callable
        Takes a message and its buffers.
    reason : str
        Why the page has no WebGPU; "" when it may have it.
    kernel : str
        Names this process; a page frees the devices of a kernel that has no views there any more.
    waiting : callable, optional
        A context manager that lets messages arrive while a coroutine waits, for hosts that deliver
        none while a cell runs.

    Attributes
    ----------
    gone : str
        Why the page cannot be reached any more; "" while it can.
    """

    def __init__(
        self,
        name: str,
        send: Send,
        *,
        reason: str = "",
        kernel: str = "kernel",
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.name = name
        self.reason = reason
        self.kernel = kernel
        self.gone = ""
        self.device: Device | None = None
        self._send = send
        self._waiting = waiting
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._devices: dict[str, RemoteDeviceBridge] = {}
        self._missed = 0
        self._requesting: asyncio.Lock | None = None

    def __repr__(self) -> str:
        return f"RemotePage({self.name}{', gone' if self.gone else ''})"

    async def request_device(self) -> Device:
        """The page's device; the same one as long as it lives.

        Raises
        ------
        WebGPUUnavailableError
            When the page has none to give, or is gone.
        """
        from py_attn.gpu.device import Device

        self._requesting = self._requesting or asyncio.Lock()
        async with self._requesting:
            if self.device is None or self.device.lost:
                bridge = RemoteBridge(self)
                self.device = Device(await bridge.request_device(), bridge)
            return self.device

    # messages

    def send(self, message: dict[str, Any], arrays: Any = None) -> None:
        """Send a message to this page; ``arrays`` may hold arrays, and goes into it."""
        if self.gone:
            return
        buffers: list[Any] = []
        packed = {} if arrays is None else pack(arrays, buffers)
        self._send({**message, **packed, "page": self.name}, buffers)

    def receive(self, message: dict[str, Any], buffers: Sequence[Any]) -> None:
        """Take a message of the page's; may be called from any thread."""
        self._missed = 0
        kind = message.get("kind")
        if kind == "bridge-answer":
            future = self._pending.get(message["id"])
            if future is None:
                return
            if "error" in message:
                error = DeviceLostError(str(message["error"]))
                _settle(future, error=error)
            else:
                _settle(future, unpack(message.get("result"), buffers))
        elif kind == "lost" and (device := self._devices.get(message["device"])):
            device.reason = device.reason or str(message.get("reason") or "lost")
        elif kind == "closed":
            self.close("the notebook's page was closed")

    def close(self, reason: str) -> None:
        """The page is gone: whoever waits for it is told so."""
        self.gone = self.gone or reason
        for future in list(self._pending.values()):
            _settle(future, error=DeviceLostError(self.gone))

    def expect(self) -> tuple[int, asyncio.Future[Any]]:
        """An id to put into a message, and what its answer will come in."""
        number = next(self._ids)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        return number, future

    async def answer(self, number: int, future: asyncio.Future[Any]) -> Any:
        """Wait for an answer, asking now and then whether the page is still there.

        Raises
        ------
        DeviceLostError
            When the page said no, or says nothing any more.
        """
        self._missed = 0
        try:
            with self._waiting():
                while not future.done():
                    if self.gone:
                        raise DeviceLostError(self.gone)
                    done, _ = await asyncio.wait({future}, timeout=PING_SECONDS)
                    if done:
                        break
                    # Counted, not timed: a kernel that was busy elsewhere has not listened.
                    self._missed += 1
                    if self._missed > PATIENCE:
                        seconds = round(PING_SECONDS * PATIENCE)
                        self.close(
                            f"the browser page that computes has not answered for {seconds} s: its tab was "
                            "closed, or the connection to it was lost"
                        )
                    else:
                        self.send({"kind": "ping", "id": number})
            return future.result()
        finally:
            self._pending.pop(number, None)


def _settle(future: asyncio.Future[Any], value: Any = None, error: Exception | None = None) -> None:
    def settle() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
            future.exception()  # nobody may be waiting any more

    loop = future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)


class RemoteDeviceBridge:
    """One ``GPUDevice`` of a page; commands are gathered and sent in the order in which they were made."""

    def __init__(self, page: RemotePage) -> None:
        self.info: AdapterInfo
        self.reason = ""
        self._page = page
        self._name = f"{page.kernel}:{uuid.uuid4().hex}"
        self._handles = itertools.count(1)
        self._ops: list[dict[str, Any]] = []
        self._nbytes = 0
        self._scheduled = False
        self._lock = threading.RLock()  # a tensor may be collected in any thread, and at any time
        page._devices[self._name] = self

    async def connect(self) -> None:
        """Have the page ask for a device."""
        self.info = AdapterInfo.from_plain(await self._ask("request_device"))

    def lost(self) -> str:
        """Why the device was lost, or "" while it lives."""
        return self.reason or self._page.gone

    # sending

    def _tell(self, op: str, *args: Any, number: int | None = None, nbytes: int = 0) -> None:
        command: dict[str, Any] = {"op": op, "args": args}
        if number is not None:
            command["id"] = number
        with self._lock:
            self._ops.append(command)
            self._nbytes += nbytes
            full = self._nbytes >= CHUNK_BYTES
            schedule = not (full or number is not None or self._scheduled)
            self._scheduled = self._scheduled or schedule
        if schedule:
            try:
                asyncio.get_running_loop().call_soon(self._flush)
            except RuntimeError:  # no loop in this thread: nothing gathers
                self._flush()
        elif full or number is not None:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            ops, self._ops = self._ops, []
            self._nbytes, self._scheduled = 0, False
            if ops:
                self._page.send({"kind": "bridge", "device": self._name}, {"ops": ops})

    async def _ask(self, op: str, *args: Any) -> Any:
        if reason := self.lost():
            raise DeviceLostError(reason)
        number, future = self._page.expect()
        self._tell(op, *args, number=number)
        return await self._page.answer(number, future)

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
        for start in range(0, view.nbytes, CHUNK_BYTES):
            # The caller may change its array before this is sent.
            part = bytes(view[start : start + CHUNK_BYTES])
            self._tell("write_buffer", buffer, offset + start, part, nbytes=len(part))

    async def read_buffer(self, buffer: int, offset: int, out: Any) -> None:
        view = memoryview(out).cast("B")
        parts = []
        for start in range(0, view.nbytes, CHUNK_BYTES):
            if reason := self.lost():
                raise DeviceLostError(f"reading back failed: {reason}")
            size = min(CHUNK_BYTES, view.nbytes - start)
            number, future = self._page.expect()
            self._tell("read_buffer", buffer, offset + start, size, number=number)
            parts.append((start, size, number, future))
        for start, size, number, future in parts:
            data = await self._page.answer(number, future)
            if data.nbytes != size:
                raise DeviceLostError(f"reading back failed: {size} bytes expected, {data.nbytes} came")
            view[start : start + size] = memoryview(data)

    # pipelines

    def create_pipeline(self, label: str, wgsl: str, access: str) -> int:
        return self._make("create_pipeline", label, wgsl, access)

    def destroy_pipeline(self, pipeline: int) -> None:
        self._tell("destroy_pipeline", pipeline)

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

    def submit_program(self, program: int, params: Any) -> None:
        self._tell("submit_program", program, bytes(params), nbytes=len(params))

    def submit_timed(self, program: int, params: Any, together: bool = False) -> int:
        return self._make("submit_timed", program, bytes(params), together, nbytes=len(params))

    def destroy_program(self, program: int) -> None:
        self._tell("destroy_program", program)

    async def timings(self, ticket: int) -> Sequence[RawTiming]:
        return [RawTiming(gpu, wall) for gpu, wall in await self._ask("timings", ticket)]

    # life

    async def synchronize(self) -> Sequence[BridgeError]:
        if self.lost():
            return []
        return [BridgeError(**error) for error in await self._ask("synchronize")]

    def destroy(self) -> None:
        if not self.lost():
            self._tell("destroy")
            self._flush()
        self.reason = self.reason or "destroyed"
        self._page._devices.pop(self._name, None)


class RemoteBridge:
    """A page as the place where devices come from; the site's files come from this computer."""

    def __init__(self, page: RemotePage) -> None:
        self._page = page

    async def request_device(self) -> RemoteDeviceBridge:
        """A new device of the page.

        Raises
        ------
        WebGPUUnavailableError
            In the page's words.
        """
        if self._page.reason:
            raise WebGPUUnavailableError(self._page.reason)
        raw = RemoteDeviceBridge(self._page)
        try:
            await raw.connect()
        except DeviceLostError as error:
            self._page._devices.pop(raw._name, None)
            raise WebGPUUnavailableError(str(error)) from None
        return raw

    async def fetch_asset(self, name: str, progress: Progress | None = None) -> Any:
        """A model's file, from this computer."""
        from py_attn.models.files import find

        data = find(name).read_bytes()
        if progress:
            progress(len(data), len(data))
        return memoryview(data)

    async def load_note(self, name: str) -> str:
        """Nothing: what is measured lasts as long as the kernel does."""
        return ""

    async def save_note(self, name: str, text: str) -> None:
        """Kept nowhere."""


#: How a kernel without a GPU finds a page; set by what shows views.
_provider: Callable[[], Awaitable[RemotePage]] | None = None


def provide(provider: Callable[[], Awaitable[RemotePage]] | None) -> None:
    """Let ``request_device`` find pages through ``provider``."""
    global _provider
    _provider = provider


async def shared_device() -> Device:
    """The device of the page that shows a view; all views and cells share it.

    Raises
    ------
    WebGPUUnavailableError
        When no view was shown, its page does not answer, or has no WebGPU.
    """
    if _provider is None:
        raise WebGPUUnavailableError(
            "this Python has no navigator.gpu: py_attn reaches WebGPU from Pyodide in a browser, or in a "
            "notebook through a view that is shown there (py_attn.widget.AttentionView); "
            "py_attn.reference computes without it"
        )
    return await (await _provider()).request_device()
