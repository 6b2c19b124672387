"""The views of this process, the browser pages that show them, and the device that they share."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from py_attn.errors import WebGPUUnavailableError
from py_attn.gpu import device as gpu_device
from py_attn.gpu.device import Device
from py_attn.remote.host import Host
from py_attn.remote.page import RemotePage
from py_attn.remote.protocol import pack, unpack

Acquire = Callable[[], Awaitable[Device]]


class View(Protocol):
    """What a link serves: a widget in the notebook."""

    @property
    def reachable(self) -> bool:
        """Whether messages may still be sent to a front end."""
        ...

    def send(self, content: Any, buffers: Any = None) -> None:
        """Send a message to the front ends in all pages."""
        ...

    async def answer(
        self, method: str, payload: dict[str, Any], acquire: Acquire, progress: Callable[..., None]
    ) -> Any:
        """What a front end's call of a method returns; ``acquire`` gets the device that views share."""
        ...

    def take_traits(self, traits: Mapping[str, Any]) -> None:
        """Take new values of traits from a front end."""
        ...

    def release(self) -> None:
        """Free what only a displayed view needs."""
        ...

    def close(self) -> None:
        """Close the view and its link."""
        ...


class Link:
    """The kernel's end of the connection to one view's front ends (the other end: ``web/src/embed/link.js``).

    Attributes
    ----------
    loop : asyncio.AbstractEventLoop or None
        The one in which the view was made; without one no messages are handled.
    cell, run : str
        The notebook cell that made the view, and which run of it; "" where that is not known.
    mounted : dict of str to int
        By each page that holds the view's model: how many times the page shows it now.
    closed : bool
        Whether :meth:`close` was called; messages are ignored from then on.
    """

    def __init__(self, session: Session, view: View) -> None:
        self.session = session
        self.view = view
        self.loop = session.host.running_loop()
        self.cell, self.run = session.host.running_cell()
        self.mounted: dict[str, int] = {}
        self.closed = False
        self._last_call: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def displayed(self) -> bool:
        """Whether some page shows the view now."""
        return any(
            count and (page := self.session.page(name)) is not None and not page.gone
            for name, count in self.mounted.items()
        )

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until it is done or the link is closed."""
        assert self.loop is not None
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Leave all pages, and stop what was started."""
        self.closed = True
        for task in list(self._tasks):
            task.cancel()
        self.session.close(self)

    def receive(self, message: Any, buffers: Sequence[Any]) -> None:
        """Take a front end's message, in whichever thread the host delivers it."""
        if self.closed or not isinstance(message, dict) or "page" not in message:
            return
        page = self.session.page(message["page"])
        if page is not None and message.get("kind") in ("bridge-answer", "lost", "pong"):
            page.receive(message, buffers)
        elif self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._handle, message, buffers)

    def _handle(self, message: dict[str, Any], buffers: Sequence[Any]) -> None:
        if self.closed:
            return
        kind, name = message.get("kind"), message["page"]
        if kind == "hello":
            self.session.attach(self, name, "" if message.get("webgpu") else str(message.get("reason", "")))
            self.view.send({"kind": "welcome", "page": name, "kernel": self.session.kernel})
            self.session.close_earlier_runs(self)
        elif kind == "views":
            self.mounted[name] = int(message["count"])
            if not self.displayed:
                self.view.release()
            self.session.close_earlier_runs(self)
        elif kind == "set":
            self.view.take_traits(message["traits"])
        elif kind == "call":
            self._handle_call(message, buffers)
        elif kind == "closed":
            self.session.detach(self, name)

    def _handle_call(self, message: dict[str, Any], buffers: Sequence[Any]) -> None:
        name = message["page"]
        if message["id"] <= self._last_call.get(name, 0):
            return  # some hosts deliver a message twice, see py_attn.remote.host
        self._last_call[name] = message["id"]
        page = self.session.page(name)
        if page is None or page.gone:
            page = self.session.attach(self, name, "")
        self.start(self._answer(page, message, buffers))

    async def _answer(self, page: RemotePage, message: dict[str, Any], buffers: Sequence[Any]) -> None:
        address = {"page": page.name, "id": message["id"]}

        def progress(*news: Any) -> None:
            self.view.send({"kind": "progress", **address, "news": news})

        reply: dict[str, Any] = {"kind": "answer", **address}
        out: list[Any] = []
        try:
            payload = unpack(message.get("payload") or {}, buffers)
            given = {name: value for name, value in payload.items() if value is not None}
            result = await self.view.answer(
                message["method"], given, lambda: self.session.device(page), progress
            )
            reply["result"] = pack(result, out)
        except Exception as error:
            reply["error"] = {"type": type(error).__name__, "message": str(error)}
        if self.view.reachable:
            self.view.send(reply, out)


class Session:
    """Everything that this process knows about its views and about the browsers that show them.

    Parameters
    ----------
    host : Host, optional
        Jupyter, marimo or Pyodide, in which the kernel runs.

    Attributes
    ----------
    kernel : str
        The id of this process: a page may show views of several.
    links : list of Link
        The links of all open views, in the order in which the views were made.
    had_views : bool
        Whether a view was ever made.
    """

    #: How long :meth:`shared_device` waits for a page to show a view that was made.
    shown_seconds = 30.0

    def __init__(self, host: Host | None = None) -> None:
        self.kernel = uuid.uuid4().hex
        self.host = host or Host()
        self.links: list[Link] = []
        self.had_views = False
        self._pages: dict[str, RemotePage] = {}
        self._arrivals: set[asyncio.Future[None]] = set()
        self._own_device: Device | None = None

    # views

    def open(self, view: View) -> Link:
        """The link of a new view."""
        link = Link(self, view)
        self.links.append(link)
        self.had_views = True
        return link

    def close(self, link: Link) -> None:
        """Forget the link of a view that was closed."""
        for name in list(link.mounted):
            self.detach(link, name)
        if link in self.links:
            self.links.remove(link)

    def close_earlier_runs(self, link: Link) -> None:
        """Close the views that earlier runs of this view's cell made and that no page shows any more."""
        if not link.cell:
            return
        of_cell = [other for other in self.links if other.cell == link.cell]
        for other in of_cell:
            if other.run != of_cell[-1].run and not other.displayed:
                other.view.close()

    # pages

    def page(self, name: str) -> RemotePage | None:
        """The page of this id, while it holds a view's model."""
        return self._pages.get(name)

    def attach(self, link: Link, name: str, reason: str) -> RemotePage:
        """Note that a page holds a view's model, and why the page has no WebGPU; may be repeated."""
        page = self._pages.get(name)
        if page is None or page.gone:
            page = self._pages[name] = RemotePage(
                name,
                lambda message, buffers: self._send(name, message, buffers),
                kernel=self.kernel,
                waiting=self.host.waiting,
            )
        page.reason = reason
        link.mounted.setdefault(name, 0)
        for other in self._links_in(name):
            if not other.view.reachable:
                # marimo closes the connections of a cell that runs again, and does not tell the kernel.
                other.view.close()
        for arrival in self._arrivals:
            if not arrival.done():
                arrival.set_result(None)
        return page

    def detach(self, link: Link, name: str) -> None:
        """Note that a view's model left a page; a page that holds none any more is gone."""
        link.mounted.pop(name, None)
        if not self._links_in(name) and (page := self._pages.pop(name, None)):
            page.close("the last view in the browser page was closed")

    def _links_in(self, page: str) -> list[Link]:
        return [link for link in self.links if page in link.mounted]

    def _send(self, name: str, message: dict[str, Any], buffers: list[Any]) -> None:
        # The newest first: the host may have closed an older one without notice.
        for link in reversed(self._links_in(name)):
            if link.view.reachable:
                link.view.send(message, buffers)
                return
        if page := self._pages.get(name):
            page.close("no view is left in the browser page")

    # the device

    async def device(self, page: RemotePage) -> Device:
        """The device for a view in ``page``: the page's, or in a Pyodide kernel the kernel's own.

        Raises
        ------
        WebGPUUnavailableError
            Saying why there is none.
        """
        if not self.host.in_browser():
            return await page.request_device()
        if self._own_device is None or self._own_device.lost:
            from py_attn.gpu.bridge_pyodide import PyodideBridge

            self._own_device = await gpu_device.request_device(PyodideBridge())
        return self._own_device

    async def shared_device(self) -> Device:
        """The device of a page that shows a view, for the cells of the notebook.

        Raises
        ------
        WebGPUUnavailableError
            When no view is shown, its page does not answer, or has no WebGPU.
        """
        if not self.had_views:
            raise WebGPUUnavailableError(
                "this Python has no navigator.gpu: `pip install py-attn[native]` reaches this computer's "
                "graphics card without a browser. Otherwise py_attn reaches WebGPU from Pyodide in a "
                "browser, or in a notebook through a view that is shown there "
                "(py_attn.widget.AttentionView); py_attn.reference computes without it"
            )
        return await (await self._find_page()).request_device()

    async def _find_page(self) -> RemotePage:
        """A page that can compute; waits until a page shows one of the views."""
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals.add(arrival)
        try:
            with self.host.waiting():
                if self._best_page() is None:
                    await asyncio.wait({arrival}, timeout=self.shown_seconds)
        finally:
            self._arrivals.discard(arrival)
        page = self._best_page()
        if page is None:
            raise WebGPUUnavailableError(
                "no view is shown in a browser now: make an AttentionView the last line of a cell, run it, "
                "and ask again in the next cell"
            )
        return page

    def _best_page(self) -> RemotePage | None:
        """A page with a device, else the newest page that may have one, else any page."""
        alive = [page for page in self._pages.values() if not page.gone]
        able = [page for page in alive if not page.reason]
        with_device = [page for page in able if page.device is not None and not page.device.lost]
        return next(iter(with_device + able[::-1] + alive[::-1]), None)


#: The session of this process.
current = Session()
