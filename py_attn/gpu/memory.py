"""A device's buffers: those of live tensors, those kept for the next tensor, and those to be destroyed."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
import numpy.typing as npt

from py_attn.gpu.bridge import BridgeError, DeviceBridge
from py_attn.gpu.pool import BufferPool

# Freed buffers are kept for the next tensor of their size: this many bytes, or as many as live tensors held,
# with the freed one, so that a result dropped at once serves the next call however large it is.
_POOL_BYTES = 64 << 20


class Memory:
    """Buffers by their handles.

    Attributes
    ----------
    allocated : int
        Bytes in the buffers of live tensors.
    lacks : int
        How many buffers could not be made so far.
    """

    def __init__(self, bridge: DeviceBridge) -> None:
        self.allocated = 0
        self.lacks = 0
        self._bridge = bridge
        self._pool = BufferPool()
        self._doomed: list[int] = []
        # WebGPU says later whether there was room for a buffer. Labels of buffers of which it has not said so
        # yet, and the buffers among which one has failed: these are not used again.
        self._unconfirmed: dict[int, str] = {}
        self._suspect: set[int] = set()

    def take(self, nbytes: int, name: str) -> tuple[int, int]:
        """A buffer of at least ``nbytes``: its handle and its size.

        Raises
        ------
        ValueError
            When the device allows no buffer of this size.
        """
        size = max(16, -(-nbytes // 16) * 16)
        handle = self._pool.take(size)
        if handle is None:
            allowed = self._bridge.info.limits["maxBufferSize"]
            if size > allowed:
                raise ValueError(
                    f"{name}: {size:,} bytes asked for one buffer, this device allows {allowed:,} "
                    "(maxBufferSize)"
                )
            label = f"{name} of {size:,} bytes"
            handle = self._bridge.create_buffer(size, label)
            self._unconfirmed[handle] = label
        self.allocated += size
        return handle, size

    def give_back(self, handle: int, size: int) -> None:
        """Keep a buffer for the next tensor of its size; those kept the longest go where there are too many.

        Recorded work may still use the buffer. Later work may take it at once, since the queue keeps the
        order and an upload sends recorded work first; a buffer is destroyed only in :meth:`destroy_doomed`.
        """
        live = self.allocated
        self.allocated -= size
        if handle in self._suspect:
            self._doomed.append(handle)
        elif not self._bridge.lost():
            self._pool.put(handle, size)
            if self._pool.nbytes > _POOL_BYTES:
                self._doomed += self._pool.shrink(max(_POOL_BYTES, live))

    def destroy_doomed(self) -> None:
        """Destroy buffers that are not kept, once recorded work that may use them has been sent."""
        if not self._doomed:
            return
        doomed, self._doomed = self._doomed, []
        self._suspect.difference_update(doomed)
        for handle in doomed:
            self._unconfirmed.pop(handle, None)
        if not self._bridge.lost():
            for handle in doomed:
                self._bridge.destroy_buffer(handle)

    def keeps(self, handles: Set[int]) -> bool:
        """Whether all these buffers are kept, so that nobody else uses their contents."""
        return handles <= self._pool.handles

    @property
    def kept(self) -> int:
        """Bytes in buffers that are kept for the next tensor of their size."""
        return self._pool.nbytes

    def release(self) -> None:
        """Keep no buffers; like all others they are destroyed in :meth:`destroy_doomed`."""
        self._doomed += self._pool.shrink(0)

    def is_suspect(self, handle: int) -> bool:
        """Whether there may have been no room for the buffer, so that it is not used again."""
        return handle in self._suspect

    @property
    def unconfirmed(self) -> frozenset[int]:
        """The buffers of which it is not known yet whether there was room for them."""
        return frozenset(self._unconfirmed)

    def confirm(self, buffers: frozenset[int], errors: Sequence[BridgeError]) -> list[BridgeError]:
        """Learn the errors that came until after these buffers were made, and maybe some that are newer.

        If a buffer could not be made, none of those unconfirmed is used again, and kept ones make room.

        Returns
        -------
        list of BridgeError
            Those that say that a buffer could not be made.
        """
        labels = set(self._unconfirmed.values())
        lacks = [error for error in errors if error.kind == "out-of-memory" or error.label in labels]
        self.lacks += len(lacks)
        if any(error.kind != "shader" for error in errors):
            self._suspect |= {*self._unconfirmed, *buffers}
            self.release()
        for handle in buffers:
            self._unconfirmed.pop(handle, None)
        return lacks

    def write(self, handle: int, data: npt.NDArray[np.uint8], offset: int = 0) -> None:
        """Fill a buffer from byte ``offset`` (a multiple of 4) on; this takes effect at once."""
        whole = data.size // 4 * 4
        if whole:
            self._bridge.write_buffer(handle, offset, data[:whole])
        if whole < data.size:
            tail = np.zeros(4, np.uint8)
            tail[: data.size - whole] = data[whole:]
            self._bridge.write_buffer(handle, offset + whole, tail)
