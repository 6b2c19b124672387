"""Devices from wgpu; files and notes from this computer."""

from __future__ import annotations

import asyncio
from typing import Any

from py_attn.gpu.bridge import File, Progress
from py_attn.models.files import PathFile
from py_attn.native import adapter, files
from py_attn.native.device import NativeDeviceBridge


class NativeBridge:
    """What :func:`py_attn.request_device` takes in plain Python; every request makes a device of its own."""

    async def request_device(self) -> NativeDeviceBridge:
        device, info = await adapter.request_device()
        return NativeDeviceBridge(device, info)

    async def fetch_asset(self, name: str, progress: Progress | None = None) -> Any:
        """A model's file, from this computer or downloaded; see :func:`py_attn.native.files.locate`."""
        path = await files.locate(name, progress)
        data = await asyncio.to_thread(path.read_bytes)
        if progress:
            progress(len(data), len(data))
        return memoryview(data)

    async def open_asset(self, name: str, progress: Progress | None = None) -> File:
        """Like :meth:`fetch_asset`, for files of which nothing is read yet."""
        file = PathFile(await files.locate(name, progress))
        if progress:
            progress(file.size, file.size)
        return file

    async def load_note(self, name: str) -> str:
        return files.load_note(name)

    async def save_note(self, name: str, text: str) -> None:
        files.save_note(name, text)
