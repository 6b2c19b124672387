"""The bridge to the page's JavaScript (``web/src/bridge.js``) from Python in Pyodide."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import js
from pyodide.code import run_js
from pyodide.ffi import JsException, create_proxy

from py_attn.errors import DeviceLostError, WebGPUUnavailableError
from py_attn.gpu.bridge import AdapterInfo, BridgeError, File, Progress, RawTiming, ShaderMessage, check_range


class PageFile:
    """A file of the site whose bytes are an ArrayBuffer in JavaScript, outside of Python's heap."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    @property
    def size(self) -> int:
        return int(self.raw.size)

    def read(self, begin: int, end: int) -> bytes:
        check_range(self.size, begin, end)
        data: bytes = self.raw.read(begin, end).to_bytes()
        return data

    def close(self) -> None:
        self.raw.close()


class PyodideDeviceBridge:
    """One ``GPUDevice`` behind integer handles."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.info = AdapterInfo.from_plain(json.loads(raw.info()))
        # Bound once: looking an attribute up on a JS proxy costs as much as a small call.
        self.create_buffer = raw.createBuffer
        self.destroy_buffer = raw.destroyBuffer
        self.write_buffer = raw.writeBuffer
        self.create_pipeline = raw.createPipeline
        self.destroy_pipeline = raw.destroyPipeline
        self.run_program = raw.runProgram
        self.create_program = raw.createProgram
        self.submit_program = raw.submitProgram
        self.destroy_program = raw.destroyProgram
        self.submit_timed = raw.submitTimed
        self.lost = raw.lost
        self.destroy = raw.destroy

    def write_file(self, buffer: int, offset: int, file: File, begin: int, end: int) -> None:
        if isinstance(file, PageFile):
            check_range(file.size, begin, end)
            self._raw.writeAsset(buffer, offset, file.raw, begin, end)
        else:
            self.write_buffer(buffer, offset, file.read(begin, end))

    async def read_buffer(self, buffer: int, offset: int, out: Any) -> None:
        try:
            staging = await self._raw.readBuffer(buffer, offset, memoryview(out).nbytes)
        except JsException as error:
            raise DeviceLostError(f"reading back failed: {error.message}") from None
        try:
            # The mapped range is copied once, straight into the array's memory.
            staging.bytes.assign_to(out)
        finally:
            staging.release()

    async def check_shader(self, wgsl: str) -> Sequence[ShaderMessage]:
        return [ShaderMessage(**message) for message in json.loads(await self._raw.checkShader(wgsl))]

    async def compile_us(self, pipeline: int) -> float:
        return float(await self._raw.compileTime(pipeline))

    async def timings(self, ticket: int) -> Sequence[RawTiming]:
        rows = json.loads(await self._raw.timings(ticket))
        return [RawTiming(gpu, wall) for gpu, wall in rows]

    async def synchronize(self) -> Sequence[BridgeError]:
        return [BridgeError(**error) for error in json.loads(await self._raw.synchronize())]


def _own_bridge() -> Any:
    """The bridge that the wheel carries, for a Pyodide that is not the page's: JupyterLite's, or a bare one.

    Raises
    ------
    WebGPUUnavailableError
        When it is not in this installation.
    """
    source = Path(__file__).parent.parent / "widget" / "static" / "bridge.js"
    if not source.is_file():
        raise WebGPUUnavailableError(f"{source.name} is missing here: install py-attn from its wheel")
    # It defines `bridge`, here as a name of a function's body (vite.config.js).
    body = source.read_text(encoding="utf-8")
    no_files = "(name) => Promise.reject(new Error(`${name}: no page is here to fetch it from`))"
    return run_js(f"(() => {{ {body}\nreturn bridge.createBridge({{ fetchAsset: {no_files} }}); }})()")


class PyodideBridge:
    """The worker's global ``pyAttnBridge``; made here where no page has put it there."""

    def __init__(self) -> None:
        if not hasattr(js, "pyAttnBridge"):
            js.pyAttnBridge = _own_bridge()
        self._raw = js.pyAttnBridge

    async def request_device(self) -> PyodideDeviceBridge:
        try:
            return PyodideDeviceBridge(await self._raw.requestDevice())
        except JsException as error:
            raise WebGPUUnavailableError(str(error.message)) from None

    async def fetch_asset(self, name: str, progress: Progress | None = None) -> Any:
        return (await self._get(self._raw.fetchAsset, name, progress)).to_memoryview()

    async def open_asset(self, name: str, progress: Progress | None = None) -> PageFile:
        return PageFile(await self._get(self._raw.openAsset, name, progress))

    async def _get(self, ask: Any, name: str, progress: Progress | None) -> Any:
        """Have JavaScript download a file of the site."""
        proxy = create_proxy(progress) if progress else None
        try:
            return await ask(name, proxy)
        except JsException as error:
            if error.name == "AbortError":
                raise asyncio.CancelledError(f"{name}: download cancelled") from None
            raise OSError(str(error.message)) from None
        finally:
            if proxy:
                proxy.destroy()

    async def load_note(self, name: str) -> str:
        return str(await self._raw.loadNote(name))

    async def save_note(self, name: str, text: str) -> None:
        await self._raw.saveNote(name, text)
