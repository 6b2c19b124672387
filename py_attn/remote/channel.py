"""Messages to one browser page, and waiting for its answers.

A :class:`Channel` does not depend on the host that transports its messages: it is given a function that sends
them, and :meth:`Channel.receive` is called with those that arrive.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from py_attn.errors import DeviceLostError
from py_attn.remote.protocol import pack, unpack

Send = Callable[[dict[str, Any], list[Any]], None]


class Channel:
    """The connection to a page that executes the operations that it receives.

    Parameters
    ----------
    name : str
        The page's id.
    send : callable
        Takes a message and its buffers.
    waiting : callable, optional
        A context manager inside which messages arrive, for hosts that deliver none while a cell runs.

    Attributes
    ----------
    gone : str
        Why the page cannot be reached any more; "" while it can.
    on_lost : dict
        What to call with the reason when a device is lost, by the device's id.
    """

    #: Seconds between two pings to a page that is waited for, and how many of them may stay unanswered.
    ping_seconds = 2.5
    max_missed_pings = 6

    def __init__(
        self,
        name: str,
        send: Send,
        *,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.name = name
        self.gone = ""
        self.on_lost: dict[str, Callable[[str], None]] = {}
        self._send = send
        self._waiting = waiting
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._missed_pings = 0
        self._next_ping = 0.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}{', gone' if self.gone else ''})"

    def send(self, message: dict[str, Any], arrays: Any = None) -> None:
        """Send a message to this page, together with ``arrays``: a dict whose values may hold arrays."""
        if self.gone:
            return
        buffers: list[Any] = []
        packed = {} if arrays is None else pack(arrays, buffers)
        self._send({**message, **packed, "page": self.name}, buffers)

    def receive(self, message: dict[str, Any], buffers: Sequence[Any]) -> None:
        """Take a message from the page; may be called from any thread."""
        self._missed_pings = 0
        kind = message.get("kind")
        if kind == "bridge-answer":
            future = self._pending.get(message["id"])
            if future is None:
                return
            if "error" in message:
                _settle(future, error=DeviceLostError(str(message["error"])))
            else:
                _settle(future, unpack(message.get("result"), buffers))
        elif kind == "lost" and (on_lost := self.on_lost.pop(message["device"], None)):
            on_lost(str(message.get("reason") or "lost"))

    def close(self, reason: str) -> None:
        """Note that the page is gone; whoever waits for an answer gets :class:`DeviceLostError`."""
        self.gone = self.gone or reason
        for future in list(self._pending.values()):
            _settle(future, error=DeviceLostError(self.gone))

    def expect(self) -> tuple[int, asyncio.Future[Any]]:
        """An id to put into a message, and the future that receives its answer."""
        number = next(self._ids)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        return number, future

    async def answer(self, number: int, future: asyncio.Future[Any]) -> Any:
        """Wait for an answer, and meanwhile send pings to find out whether the page is still there.

        Raises
        ------
        DeviceLostError
            When the page answers with an error, or does not answer any more.
        """
        self._missed_pings = 0
        try:
            with self._waiting():
                while not future.done():
                    if self.gone:
                        raise DeviceLostError(self.gone)
                    done, _ = await asyncio.wait({future}, timeout=self.ping_seconds)
                    if not done:
                        self._ping(number)
            return future.result()
        finally:
            self._pending.pop(number, None)

    def _ping(self, number: int) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._next_ping:  # somebody else who waits has just sent one
            return
        self._next_ping = now + 0.9 * self.ping_seconds
        # Pings are counted instead of seconds, because a kernel that was busy could not receive answers.
        self._missed_pings += 1
        if self._missed_pings <= self.max_missed_pings:
            self.send({"kind": "ping", "id": number})
            return
        seconds = round(self.ping_seconds * self.max_missed_pings)
        self.close(
            f"the browser page that computes has not answered for {seconds} s: its tab was closed, or the "
            "connection to it was lost"
        )


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
