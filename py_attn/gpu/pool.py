"""Freed buffers that are kept for the next tensor of their size."""

from __future__ import annotations

from collections.abc import Set


class BufferPool:
    """Handles by size. Unlike a new WebGPU buffer, which the browser clears, one from here has old contents.

    Attributes
    ----------
    nbytes : int
        Bytes of all buffers that are kept.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        # Sizes by handle, the oldest first, and handles by size in the same order.
        self._sizes: dict[int, int] = {}
        self._handles: dict[int, list[int]] = {}

    @property
    def handles(self) -> Set[int]:
        """The buffers that are kept at the moment."""
        return self._sizes.keys()

    def put(self, handle: int, size: int) -> None:
        """Keep a buffer."""
        self._sizes[handle] = size
        self._handles.setdefault(size, []).append(handle)
        self.nbytes += size

    def take(self, size: int) -> int | None:
        """The buffer of this size that was put last, if there is one."""
        handles = self._handles.get(size)
        if not handles:
            return None
        handle = handles.pop()
        del self._sizes[handle]
        self.nbytes -= size
        return handle

    def shrink(self, nbytes: int) -> list[int]:
        """Remove the oldest buffers until at most ``nbytes`` are kept, and return their handles."""
        gone = []
        while self.nbytes > nbytes:
            handle = next(iter(self._sizes))
            size = self._sizes.pop(handle)
            self._handles[size].remove(handle)
            if not self._handles[size]:
                del self._handles[size]
            self.nbytes -= size
            gone.append(handle)
        return gone
