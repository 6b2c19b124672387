"""A browser page that shows views, and the device that all of them share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from py_attn.errors import WebGPUUnavailableError
from py_attn.gpu.device import Device
from py_attn.remote.bridge import RemoteBridge
from py_attn.remote.channel import Channel, Send


class RemotePage(Channel):
    """A page that may have a GPU.

    Parameters
    ----------
    name, send, waiting
        As for :class:`Channel`.
    kernel : str
        The id of this process.

    Attributes
    ----------
    reason : str
        Why the page has no WebGPU; "" when it may have it.
    device : Device or None
        What :meth:`request_device` returned last.
    """

    def __init__(
        self,
        name: str,
        send: Send,
        *,
        kernel: str = "kernel",
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(name, send, waiting=waiting)
        self.reason = ""
        self.device: Device | None = None
        self._bridge = RemoteBridge(self, kernel)
        self._requesting = asyncio.Lock()

    async def request_device(self) -> Device:
        """The page's device: the same one until it is lost.

        Raises
        ------
        WebGPUUnavailableError
            When the page has no WebGPU, or is gone.
        """
        async with self._requesting:
            if self.device is None or self.device.lost:
                if self.reason:
                    raise WebGPUUnavailableError(self.reason)
                self.device = Device(await self._bridge.request_device(), self._bridge)
            return self.device
