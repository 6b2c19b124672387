"""Waits for the GPU that leave the event loop free, and that end when the device does."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import wgpu

from py_attn.errors import DeviceLostError


class Poller:
    """Asks a device in a thread of its own whether work is done, for as long as somebody waits.

    It takes the place of wgpu's own, which waits inside of the library: every other call, such as a
    submission, would wait there as well until the GPU is idle.
    """

    #: Seconds between two questions: at first short, as most kernels take well below a millisecond.
    _PAUSES = (20e-6,) * 100 + (200e-6,) * 100

    def __init__(self, device: wgpu.GPUDevice, ended: Callable[[str], None]) -> None:
        # A device that nobody holds any more ends its poller; `ended` is a method of who holds it.
        self._device = weakref.ref(device)
        self._ended = weakref.WeakMethod(ended)
        self._open: set[_Token] = set()
        self._wake = threading.Event()
        self._stopped = False
        # wgpu-py calls these two.
        earlier, device._poller = device._poller, self
        earlier.stop()
        threading.Thread(target=self._run, name="py_attn polls wgpu", daemon=True).start()

    def get_token(self) -> _Token:
        """Poll until the token's ``set_done`` is called."""
        token = _Token(self._open)
        self._wake.set()
        return token

    def stop(self) -> None:
        """Poll no more: wgpu's device is being destroyed, whoever asked for it."""
        self._stopped = True
        if (ended := self._ended()) is not None:
            ended("destroyed")
        self._open.clear()
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped:
            self._wake.wait()
            self._wake.clear()
            pauses = itertools.chain(self._PAUSES, itertools.repeat(1e-3))
            while self._open and not self._stopped:
                if (device := self._device()) is not None:
                    device._poll()
                del device
                time.sleep(next(pauses))


class _Token:
    """One wait for the device."""

    def __init__(self, waiting: set[_Token]) -> None:
        self._waiting = waiting
        waiting.add(self)

    def set_done(self) -> None:
        """Note that the wait is over."""
        self._waiting.discard(self)


class Fences:
    """Promises that are kept once everything submitted before is done.

    Each maps a few bytes that are copied behind the other work: wgpu 0.32 cannot call its own
    ``on_submitted_work_done_async``.
    """

    def __init__(self, device: wgpu.GPUDevice) -> None:
        self._device = device
        self._source = device.create_buffer(label="fence", size=4, usage=wgpu.BufferUsage.COPY_SRC)
        self._idle: list[wgpu.GPUBuffer] = []

    def promise(self) -> Any:
        """A promise for all work that was submitted up to now."""
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        buffer = self._idle.pop() if self._idle else self._device.create_buffer(size=4, usage=usage)
        encoder = self._device.create_command_encoder()
        encoder.copy_buffer_to_buffer(self._source, 0, buffer, 0, 4)
        self._device.queue.submit([encoder.finish()])

        def free(_: object) -> None:
            buffer.unmap()
            self._idle.append(buffer)

        promise = buffer.map_async(wgpu.MapMode.READ)
        promise.then(free)
        return promise


class Waits:
    """The waits of one device, in whichever event loops they are.

    wgpu polls the device in a thread of its own while a promise is open; the thread wakes the event loop.
    """

    def __init__(self) -> None:
        self._open: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()
        self._lock = threading.Lock()
        self._ended = ""

    async def until(self, begin: Callable[[], Any]) -> None:
        """Wait for the promise that ``begin`` gives.

        Raises
        ------
        DeviceLostError
            When the device ends before.
        Exception
            What the promise was rejected with.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        entry = (loop, future)
        with self._lock:
            if self._ended:
                raise DeviceLostError(self._ended)
            self._open.add(entry)

        followed = None
        try:
            followed = loop.create_task(_follow(begin(), future))
            await future
        finally:
            if followed is not None:
                followed.cancel()
            with self._lock:
                self._open.discard(entry)

    def end(self, reason: str) -> None:
        """Raise :class:`DeviceLostError` in every wait, and in those that come."""
        with self._lock:
            self._ended = reason
            waiting = list(self._open)
        for loop, future in waiting:
            # A loop that was closed has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_fail, future, reason)


def _fail(future: asyncio.Future[None], reason: str) -> None:
    if not future.done():
        future.set_exception(DeviceLostError(reason))


async def _follow(promise: Any, future: asyncio.Future[None]) -> None:
    """Settle a future as the promise is settled.

    Not by callbacks: wgpu 0.32 keeps a promise's callback for errors for ever where there was none.
    """
    try:
        await promise
    except Exception as error:
        if not future.done():
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(None)
