"""Snapshots of a view: pictures of the last map, for saved notebooks and for where no JavaScript runs.

The traits that hold them are called ``still``, ``still_text`` and ``still_id``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from py_attn.remote.session import Link
from py_attn.widget import _export
from py_attn.widget._traits import ViewTraits

#: Pixels of a snapshot's longer side, and how many seconds without a change pass before a new one is made.
SNAPSHOT_CELLS = 512
SNAPSHOT_SECONDS = 0.7
#: Up to this many tokens numpy computes a first snapshot before a browser shows the view.
_FIRST_SNAPSHOT_LENGTH = 768


class Snapshots:
    """Keeps the snapshot of a view up to date."""

    def __init__(self, view: ViewTraits, link: Link) -> None:
        self._view = view
        self._link = link
        self._timer: asyncio.TimerHandle | None = None
        self._display_id = ""

    def draw_first(self) -> None:
        """Make a snapshot before any browser shows the view, if that is quick."""
        viewer = self._view._viewer
        if not viewer.given and viewer.source.length > _FIRST_SNAPSHOT_LENGTH:
            return
        # With numpy or given weights nothing is awaited, so the coroutine ends at its first step.
        work = self._picture()
        try:
            work.send(None)
        except StopIteration as done:
            self._set(done.value)
        except Exception:
            work.close()

    def draw_later(self) -> None:
        """Make a new snapshot once nothing has changed for a while; may be called from any thread."""
        if self._link.loop is not None and not self._link.closed:
            self._link.loop.call_soon_threadsafe(self._schedule)

    def cancel(self) -> None:
        """Make no more snapshots."""
        if self._timer is not None:
            self._timer.cancel()

    def bundle(self) -> dict[str, str]:
        """The snapshot as an output of a notebook cell, by MIME type."""
        view = self._view
        length = view._viewer.source.length
        return _export.snapshot_bundle(view.still_id, view.still, view.title, view.still_text, length)

    def show(self) -> None:
        """Display the snapshot below the running cell, and update it where it was displayed before."""
        if self._display_id:
            self._update_display()
        self._display_id = self._view.still_id
        display(self.bundle(), display_id=self._display_id)

    def _schedule(self) -> None:
        self.cancel()
        loop = self._link.loop
        assert loop is not None
        self._timer = loop.call_later(SNAPSHOT_SECONDS, lambda: self._link.start(self._draw()))

    async def _draw(self) -> None:
        if not self._link.displayed or not self._link.view.reachable:
            return
        try:
            picture = await self._picture()
        except Exception:  # the view itself shows what went wrong
            return
        self._set(picture)

    def _picture(self) -> Coroutine[Any, Any, _export.Pixels]:
        view = self._view
        return _export.picture(view._viewer, view.coloring, SNAPSHOT_CELLS, view.layer, view.head)

    def _set(self, picture: _export.Pixels) -> None:
        view = self._view
        with view.hold_sync():
            view.still = _export.png(picture)
            view.still_text = _export.caption(view._viewer.source, view.layer, view.head)
        if self._display_id:
            self._update_display()

    def _update_display(self) -> None:
        display(self.bundle(), display_id=self._display_id, update=True)


def display(bundle: dict[str, Any], **options: Any) -> None:
    """Show an output in the running cell, given by MIME type."""
    from IPython.display import display

    show: Any = display
    show(bundle, raw=True, **options)
