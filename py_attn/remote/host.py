"""The host of the kernel: its event loop, its running cell, and how messages arrive while a cell waits.

While a cell awaits an answer from the page, the host must be able to deliver that answer:

- ipykernel ≥ 7.4 delivers comm messages while an asynchronous cell waits; with JupyterLab ≥ 4.4 they may
  come in a subshell's thread.
- marimo and older ipykernels deliver them only after the cell. While a coroutine waits inside
  :meth:`Host.waiting`, their queues are searched for messages to widgets, which are delivered at once;
  everything else stays in order.
- A Pyodide kernel computes in its own worker and waits for no page.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds between two searches of a queue.
_POLL_SECONDS = 0.005

Poll = Callable[[], Awaitable[None]]


class Host:
    """Jupyter, marimo, Pyodide, or none of them."""

    def __init__(self) -> None:
        self._waiting = 0
        self._polling: asyncio.Task[None] | None = None

    def running_loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop in which cells run, or None where there is none (a script)."""
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            return None

    def in_browser(self) -> bool:
        """Whether this Python runs in a browser (Pyodide)."""
        return sys.platform == "emscripten"

    def running_cell(self) -> tuple[str, str]:
        """The ids of the notebook cell that runs now and of this run; "" where they are not known."""
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython else None
        kernel = getattr(shell, "kernel", None)
        try:
            parent = kernel.get_parent("shell")  # type: ignore[union-attr]
            return str(parent["metadata"].get("cellId") or ""), str(parent["header"]["msg_id"])
        except (AttributeError, TypeError, KeyError):  # no kernel, or not ipykernel
            return "", ""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let messages arrive while a coroutine waits inside."""
        poll = _find_queue()
        if poll is None:
            yield
            return
        self._waiting += 1
        if self._polling is None or self._polling.done():
            self._polling = asyncio.get_running_loop().create_task(self._run(poll))
        try:
            yield
        finally:
            self._waiting -= 1

    async def _run(self, poll: Poll) -> None:
        while self._waiting:
            await poll()
            await asyncio.sleep(_POLL_SECONDS)


def _find_queue() -> Poll | None:
    if "marimo" in sys.modules and (poll := _marimo_queue()):
        return poll
    if "ipykernel" in sys.modules:
        return _ipykernel_queue()
    return None


def _marimo_queue() -> Poll | None:
    """Search marimo's second queue of messages to widgets, where they are before their turn in the first."""
    from marimo._plugins.ui._impl.anywidget.init import WIDGET_COMM_MANAGER
    from marimo._runtime.commands import ModelCommand, ModelCustomMessage
    from marimo._runtime.context import safe_get_context

    kernel = getattr(safe_get_context(), "_kernel", None)
    enqueue: Any = getattr(kernel, "enqueue_control_request", None)
    code = getattr(enqueue, "__code__", None)
    if code is None or "set_ui_element_queue" not in code.co_freevars:
        return None
    queue = enqueue.__closure__[code.co_freevars.index("set_ui_element_queue")].cell_contents

    async def poll() -> None:
        while not queue.empty():
            command = queue.get_nowait()
            # The first queue delivers the message a second time, which receivers ignore.
            if isinstance(command, ModelCommand) and isinstance(command.message, ModelCustomMessage):
                WIDGET_COMM_MANAGER.receive_comm_message(command)

    return poll


def _ipykernel_queue() -> Poll | None:
    """Search the message queue of ipykernel < 7, which a running cell blocks."""
    from ipykernel.kernelbase import Kernel

    if not Kernel.initialized():
        return None
    kernel: Any = Kernel.instance()
    queue: Any = getattr(kernel, "msg_queue", None)
    if queue is None:
        return None

    async def poll() -> None:
        kept = []
        while not queue.empty():
            entry = queue.get_nowait()  # (order, handler, arguments)
            message = _read(kernel, *entry[-1])
            if message is None or message["header"]["msg_type"] not in ("comm_msg", "comm_close"):
                kept.append(entry)
                continue
            parent, ident = kernel.get_parent("shell"), kernel._parent_ident.get("shell", b"")
            try:
                await kernel.dispatch_shell(*entry[-1])
            finally:
                kernel.set_parent(ident, parent, "shell")
        for entry in kept:
            queue.put_nowait(entry)

    return poll


def _read(kernel: Any, frames: Any = None, *_: Any) -> dict[str, Any] | None:
    """The message in some frames, or None when there is none."""
    try:
        _, rest = kernel.session.feed_identities(frames, copy=False)
        message: dict[str, Any] = kernel.session.deserialize(rest, content=False, copy=False)
    except Exception:
        return None
    return message
