"""The browser pages that show views of this kernel, and the device that they share."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import py_attn as pa
from py_attn.errors import WebGPUUnavailableError
from py_attn.gpu import bridge_remote
from py_attn.gpu.bridge_remote import RemotePage
from py_attn.widget import _host

if TYPE_CHECKING:
    from py_attn.widget.view import AttentionView

#: Names this process to pages, which may show views of several.
KERNEL = uuid.uuid4().hex

#: How long ``request_device`` waits for a view that was made to be shown.
SHOWN_SECONDS = 30.0


class Pages:
    """Who is there."""

    def __init__(self) -> None:
        self._pages: dict[str, RemotePage] = {}
        self._views: dict[str, list[AttentionView]] = {}
        self._arrivals: set[asyncio.Future[None]] = set()

    def attach(self, view: AttentionView, name: str, reason: str) -> RemotePage:
        """A view is there in a page; may be said again."""
        page = self._pages.get(name)
        if page is None or page.gone:
            page = self._pages[name] = RemotePage(
                name,
                lambda message, buffers: self._send(name, message, buffers),
                reason=reason,
                waiting=_host.waiting,
                kernel=KERNEL,
            )
        page.reason = reason
        views = self._views.setdefault(name, [])
        if view not in views:
            views.append(view)
        for other in [v for v in views if not v.reachable]:
            other.close()  # marimo closes the connections of a cell that runs again, and tells nobody
        for arrival in self._arrivals:
            if not arrival.done():
                arrival.set_result(None)
        return page

    def detach(self, view: AttentionView, name: str | None = None) -> None:
        """A view is gone from a page, or from all; a page without views is gone too."""
        for page_name in [name] if name is not None else list(self._views):
            views = self._views.get(page_name, [])
            if view not in views:
                continue
            views.remove(view)
            if not views:
                self._views.pop(page_name)
                page = self._pages.pop(page_name, None)
                if page:
                    page.close("the last view in the browser page was closed")

    def get(self, name: str) -> RemotePage | None:
        """The page of this name, when a view is there in it."""
        return self._pages.get(name)

    def _send(self, name: str, message: dict[str, Any], buffers: list[Any]) -> None:
        # The newest first: an older one may be closed by its host, which need not tell.
        for view in reversed(self._views.get(name, [])):
            if view.reachable:
                view.send(message, buffers)
                return
        page = self._pages.get(name)
        if page:
            page.close("no view is left in the browser page")

    def _best(self) -> RemotePage | None:
        """A page to compute on: one with a device, else the last to come that may have one."""
        alive = [page for page in self._pages.values() if not page.gone]
        able = [page for page in alive if not page.reason]
        with_device = [page for page in able if page.device is not None and not page.device.lost]
        return next(iter(with_device + able[::-1] + alive[::-1]), None)

    async def find(self) -> RemotePage:
        """A page to compute on; waits for a view that was made to be shown.

        Raises
        ------
        WebGPUUnavailableError
            When none is shown.
        """
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals.add(arrival)
        try:
            with _host.waiting():
                if self._best() is None:
                    await asyncio.wait({arrival}, timeout=SHOWN_SECONDS)
        finally:
            self._arrivals.discard(arrival)
        page = self._best()
        if page is None:
            raise WebGPUUnavailableError(
                "no view is shown in a browser now: make an AttentionView the last line of a cell, run it, "
                "and ask again in the next cell"
            )
        return page


pages = Pages()
_own: pa.Device | None = None


async def acquire(page: RemotePage | None) -> pa.Device:
    """The device that views share: the page's, or in Pyodide this Python's own.

    Raises
    ------
    WebGPUUnavailableError
        Saying why there is none.
    """
    global _own
    if _host.in_browser():
        if _own is None or _own.lost:
            _own = await pa.request_device()
        return _own
    return await (page or await pages.find()).request_device()


def announce() -> None:
    """A view was made, so a page may come: cells that ask for a device get that page's."""
    if not _host.in_browser():
        bridge_remote.provide(pages.find)
