"""A device's buffers: those of live tensors, those kept for the next tensor, and those to be destroyed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from py_attn.gpu.bridge import DeviceBridge
from py_attn.gpu.pool import BufferPool

# Freed buffers are kept for the next tensor of their size: this many bytes, or as many as live tensors hold,
# so that a result dropped at once serves the next call however large it is.
_POOL_BYTES = 64 << 20


class Memory:
    """Buffers by their handles.

    Attributes
    ----------
    allocated : int
        Bytes in the buffers of live tensors.
    """

    def __init__(self, bridge: DeviceBridge) -> None:
        self.allocated = 0
        self._bridge = bridge
        self._pool = BufferPool()
        self._doomed: list[int] = []

    def take(self, nbytes: int, name: str) -> tuple[int, int]:
        """A buffer of at least ``nbytes``: its handle and its size.

        Raises
        ------
        ValueError
            When the device allows no buffer of this size.
        """
        size = max(16, -(-nbytes // 16) * 16)
        allowed = self._bridge.info.limits["maxBufferSize"]
        if size > allowed:
            raise ValueError(
                f"{name}: {size:,} bytes asked for one buffer, this device allows {allowed:,} (maxBufferSize)"
            )
        handle = self._pool.take(size)
        if handle is None:
            handle = self._bridge.create_buffer(size, f"{name} of {size:,} bytes")
        self.allocated += size
        return handle, size

    def give_back(self, handle: int, size: int) -> None:
        """Keep a buffer for the next tensor of its size; those kept the longest go where there are too many.

        Recorded work may still use the buffer. Later work may take it at once, since the queue keeps the
        order and an upload sends recorded work first; a buffer is destroyed only in :meth:`destroy_doomed`.
        """
        self.allocated -= size
        if not self._bridge.lost():
            self._pool.put(handle, size)
            self._doomed += self._pool.shrink(max(_POOL_BYTES, self.allocated))

    def destroy_doomed(self) -> None:
        """Destroy buffers that are not kept, once recorded work that may use them has been sent."""
        if not self._doomed:
            return
        doomed, self._doomed = self._doomed, []
        if not self._bridge.lost():
            for handle in doomed:
                self._bridge.destroy_buffer(handle)

    def write(self, handle: int, data: npt.NDArray[np.uint8], offset: int = 0) -> None:
        """Fill a buffer from byte ``offset`` (a multiple of 4) on; this takes effect at once."""
        whole = data.size // 4 * 4
        if whole:
            self._bridge.write_buffer(handle, offset, data[:whole])
        if whole < data.size:
            tail = np.zeros(4, np.uint8)
            tail[: data.size - whole] = data[whole:]
            self._bridge.write_buffer(handle, offset + whole, tail)
