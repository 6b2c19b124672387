"""The bridge to the page's JavaScript (``web/src/bridge.js``) from Python in Pyodide."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from pathlib import Path
from typing import Any

import js
from pyodide.code import run_js
from pyodide.ffi import JsException, create_once_callable, create_proxy

from py_attn.errors import DeviceLostError, WebGPUUnavailableError
from py_attn.gpu.bridge import AdapterInfo, BridgeError, File, Progress, RawTiming, ShaderMessage, check_range

#: Streams of words that are remembered at a time, among them those of programs that the page keeps.
_MOST_STREAMS = 256


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


class _Answer(asyncio.Future[Any]):
    """What JavaScript answers, for one task to await; the task goes on within JavaScript's call.

    A task that awaits a promise goes on one turn of the event loop later, which is a sixth of the time of a
    small call that is waited for (bench/NOTES.md).

    Parameters
    ----------
    ask : callable
        Gets what JavaScript is to call once: with a result and '', or with None and an error's text.
    late : callable, optional
        Gets the result if the task was cancelled meanwhile.
    """

    def __init__(self, ask: Callable[[Any], None], late: Callable[[Any], None] = lambda result: None) -> None:
        super().__init__()
        self._resume: Callable[[], object] | None = None
        self._late = late
        # As the event loop does for its own callbacks, so that a task may go on to wait synchronously.
        ask(create_once_callable(self._tell, _may_syncify=True))

    def add_done_callback(self, fn: Callable[[Any], object], *, context: Context | None = None) -> None:
        self._resume = partial(context.run if context else copy_context().run, fn, self)

    def cancel(self, msg: object = None) -> bool:
        if not super().cancel(msg):
            return False
        if self._resume:
            self.get_loop().call_soon(self._resume)
        return True

    def _tell(self, result: Any, error: str) -> None:
        if self.done():
            if not error:
                self._late(result)
            return
        if error:
            self.set_exception(DeviceLostError(error))
        else:
            self.set_result(result)
        if self._resume is None:
            return
        if asyncio.current_task(self.get_loop()):
            # Another task is waiting synchronously, within its own step.
            self.get_loop().call_soon(self._resume)
        else:
            self._resume()


class PyodideDeviceBridge:
    """One ``GPUDevice`` behind integer handles.

    What crosses to JavaScript costs time, above all buffers of bytes. So a stream of words that comes to
    :meth:`run_program` a second time becomes a program that the page keeps, and from then on comes by its
    number. Params cross only where they differ from those that the program was submitted with before. What
    is kept this way is bounded in number, and goes when a buffer or a pipeline is destroyed and when the
    device is lost.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.info = AdapterInfo.from_plain(json.loads(raw.info()))
        # Bound once: looking an attribute up on a JS proxy costs as much as a small call.
        self.create_buffer = raw.createBuffer
        self.write_buffer = raw.writeBuffer
        self.create_pipeline = raw.createPipeline
        self.create_program = raw.createProgram
        self.destroy = raw.destroy
        self._destroy_buffer = raw.destroyBuffer
        self._destroy_pipeline = raw.destroyPipeline
        self._run_program = raw.runProgram
        self._submit_program = raw.submitProgram
        self._destroy_program = raw.destroyProgram
        self._submit_timed = raw.submitTimed
        self._answer = raw.answer
        self._is_settled = raw.isSettled
        self._take_errors = raw.takeErrors
        # The program of each stream of words, 0 where the words came only once so far.
        self._streams: dict[bytes, int] = {}
        # What each program was last submitted with.
        self._sent: dict[int, bytes] = {}
        # Whether the last wait had something to wait for, so that the page's events had their turn.
        self._has_waited = False
        self._lost = ""
        raw.onLost(create_once_callable(_teller(self)))

    def lost(self) -> str:
        return self._lost

    def _end(self, reason: str) -> None:
        self._lost = reason
        self._forget_streams()
        self._sent.clear()

    # Memory and pipelines: the page's programs hold on to those that they use.

    def destroy_buffer(self, buffer: int) -> None:
        self._forget_streams()
        self._destroy_buffer(buffer)

    def destroy_pipeline(self, pipeline: int) -> None:
        self._forget_streams()
        self._destroy_pipeline(pipeline)

    def write_file(self, buffer: int, offset: int, file: File, begin: int, end: int) -> None:
        if isinstance(file, PageFile):
            check_range(file.size, begin, end)
            self._raw.writeAsset(buffer, offset, file.raw, begin, end)
        else:
            self.write_buffer(buffer, offset, file.read(begin, end))

    async def read_buffer(self, buffer: int, offset: int, out: Any) -> None:
        size = memoryview(out).nbytes
        try:
            staging = await _Answer(
                lambda told: self._answer("readBuffer", told, buffer, offset, size),
                late=lambda staging: staging.release(),
            )
        except DeviceLostError as error:
            raise DeviceLostError(f"reading back failed: {error}") from None
        self._has_waited = True
        try:
            # The mapped range is copied once, straight into the array's memory.
            staging.bytes.assign_to(out)
        finally:
            staging.release()

    def run_program(self, words: Any, params: Any) -> None:
        stream = bytes(words)
        program = self._streams.get(stream)
        if program is None:
            if len(self._streams) >= _MOST_STREAMS:
                self._forget_streams()
            self._streams[stream] = 0
            self._run_program(words, params)
            return
        if not program:
            program = self._streams[stream] = self.create_program(words)
        self.submit_program(program, params)

    def _forget_streams(self) -> None:
        for program in filter(None, self._streams.values()):
            self.destroy_program(program)
        self._streams.clear()

    def submit_program(self, program: int, params: Any, times: int = 1) -> None:
        if self._sent.get(program) == params:
            self._submit_program(program, None, times)
        else:
            self._submit_program(program, params, times)
            self._sent[program] = bytes(params)

    def submit_timed(self, program: int, params: Any, together: bool = False, times: int = 1) -> int:
        ticket: int = self._submit_timed(program, params, together, times)
        self._sent[program] = bytes(params)
        return ticket

    def destroy_program(self, program: int) -> None:
        self._sent.pop(program, None)
        self._destroy_program(program)

    async def check_shader(self, wgsl: str) -> Sequence[ShaderMessage]:
        return [ShaderMessage(**message) for message in json.loads(await self._raw.checkShader(wgsl))]

    async def compile_us(self, pipeline: int) -> float:
        return float(await self._raw.compileTime(pipeline))

    async def timings(self, ticket: int) -> Sequence[RawTiming]:
        rows = json.loads(await self._raw.timings(ticket))
        return [RawTiming(gpu, wall) for gpu, wall in rows]

    async def synchronize(self) -> Sequence[BridgeError]:
        # Errors are taken at the end only, so that a wait that is cancelled leaves them to the next. A task
        # that is shielded from being cancelled would go through the event loop four times.
        if self._is_settled():
            if not self._has_waited:
                # A loop that waits for an idle device must let the page's events have their turn.
                await asyncio.sleep(0)
            self._has_waited = False
            return []
        await _Answer(lambda told: self._answer("settle", told))
        self._has_waited = True
        text = self._take_errors()
        return [BridgeError(**error) for error in json.loads(text)] if text else []


def _teller(bridge: PyodideDeviceBridge) -> Callable[[str], None]:
    """What JavaScript calls when the device is lost. It does not keep the bridge alive."""
    found = weakref.ref(bridge)

    def tell(reason: str) -> None:
        if (alive := found()) is not None:
            alive._end(reason)

    return tell


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
