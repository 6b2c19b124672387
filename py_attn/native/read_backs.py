"""The buffers through which results are read back."""

from __future__ import annotations

import wgpu

# As web/src/gpu/read-backs.js: larger ones are not kept, and all kept ones have at most so many bytes.
_MOST_OF_ONE = 16 << 20
_MOST_OF_ALL = 32 << 20
_LEAST = 4 << 10


class ReadBacks:
    """Keeps buffers for the next read-back: drivers take long to make and to free one that can be mapped."""

    def __init__(self, device: wgpu.GPUDevice) -> None:
        self._device = device
        # Neither mapped nor in use, the one that was used last at the end.
        self._kept: list[wgpu.GPUBuffer] = []

    def take(self, nbytes: int) -> wgpu.GPUBuffer:
        """A buffer of at least ``nbytes`` that can be mapped."""
        # Few sizes, each a power of two, so that a kept one often fits.
        room = nbytes if nbytes > _MOST_OF_ONE else max(_LEAST, 1 << (nbytes - 1).bit_length())
        for number, kept in enumerate(self._kept):
            if kept.size == room:
                return self._kept.pop(number)
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        return self._device.create_buffer(label=f"read-back of {nbytes} bytes", size=room, usage=usage)

    def release(self, buffer: wgpu.GPUBuffer) -> None:
        """Keep a mapped buffer for later, or destroy it."""
        if buffer.size > _MOST_OF_ONE:
            buffer.destroy()
            return
        buffer.unmap()
        self._kept.append(buffer)
        while sum(kept.size for kept in self._kept) > _MOST_OF_ALL:
            self._kept.pop(0).destroy()
