"""One device of wgpu's behind integer handles, as :mod:`py_attn.gpu.bridge` asks for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import wgpu

from py_attn.errors import DeviceLostError
from py_attn.gpu.bridge import AdapterInfo, BridgeError, File, RawTiming, ShaderMessage
from py_attn.native.clock import Clock
from py_attn.native.compiler import compile_text, make_pipeline
from py_attn.native.errors import Errors, words_of
from py_attn.native.programs import Bindings, Dispatch, Pipeline, decode, encode
from py_attn.native.read_backs import ReadBacks
from py_attn.native.waiting import Fences, Poller, Waits

T = TypeVar("T")

_STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


class NativeDeviceBridge:
    """One ``GPUDevice`` of wgpu's.

    wgpu raises errors where the browser reports them later. They are kept until :meth:`synchronize` all the
    same, so that programs see the same errors at the same places.
    """

    def __init__(self, device: wgpu.GPUDevice, info: AdapterInfo) -> None:
        self.info = info
        self._device = device
        self._errors = Errors()
        self._waits = Waits()
        Poller(device, self._end)
        self._fences = Fences(device)
        self._bindings = Bindings(device, self._errors, self._buffer)
        self._read_backs = ReadBacks(device)
        self._buffers: dict[int, wgpu.GPUBuffer | None] = {}
        self._pipelines: dict[int, Pipeline] = {}
        self._programs: dict[int, list[Dispatch]] = {}
        self._timings: dict[int, Clock] = {}
        self._next = 1
        # Counts what was handed to the queue, and how much of it is known to be done.
        self._submitted = 0
        self._submitted_at = 0.0  # when the last submission began, by time.perf_counter()
        self._done = 0

    def lost(self) -> str:
        return self._errors.lost

    def destroy(self) -> None:
        self._end("destroyed")
        self._device.destroy()

    def _end(self, reason: str) -> None:
        self._errors.lost = self._errors.lost or reason
        self._waits.end(self._errors.lost)

    # Buffers

    def create_buffer(self, size: int, label: str) -> int:
        make = self._device.create_buffer
        buffer = self._errors.guarded(label, lambda: make(label=label, size=size, usage=_STORAGE))
        return self._keep(self._buffers, buffer)

    def destroy_buffer(self, buffer: int) -> None:
        found = self._buffers.pop(buffer, None)
        if found is not None:
            found.destroy()
        self._bindings.forget_buffers()

    def write_buffer(self, buffer: int, offset: int, data: Any) -> None:
        self._submitted += 1
        write = self._device.queue.write_buffer
        self._errors.guarded("upload", lambda: write(self._buffer(buffer), offset, data))

    def write_file(self, buffer: int, offset: int, file: File, begin: int, end: int) -> None:
        self.write_buffer(buffer, offset, file.read(begin, end))

    async def read_buffer(self, buffer: int, offset: int, out: Any) -> None:
        view = memoryview(out).cast("B")
        if not view.nbytes:
            return
        label = f"read-back of {view.nbytes} bytes"

        def copy() -> wgpu.GPUBuffer:
            taken = self._read_backs.take(view.nbytes)
            encoder = self._device.create_command_encoder()
            encoder.copy_buffer_to_buffer(self._buffer(buffer), offset, taken, 0, view.nbytes)
            self._submit(encoder)
            return taken

        staging = self._errors.guarded(label, copy)
        if staging is None:
            self._raise_lost()
            return  # synchronize tells of the error
        submitted = self._submitted
        try:
            await self._wait(lambda: staging.map_async(wgpu.MapMode.READ, 0, view.nbytes))
            self._done = max(self._done, submitted)
            view[:] = staging.read_mapped(0, view.nbytes, copy=False)
        except BaseException:
            # A wait that was cancelled leaves it mapped, or about to be.
            with contextlib.suppress(wgpu.GPUError):
                staging.destroy()
            raise
        self._read_backs.release(staging)

    # Pipelines

    def create_pipeline(self, label: str, wgsl: str, access: str) -> int:
        made = make_pipeline(self._device, self._errors, self._bindings, label, wgsl, access)
        return self._keep(self._pipelines, made)

    def destroy_pipeline(self, pipeline: int) -> None:
        self._pipelines.pop(pipeline, None)

    async def check_shader(self, wgsl: str) -> Sequence[ShaderMessage]:
        made = compile_text(self._device, "checked", wgsl)
        return [made] if isinstance(made, ShaderMessage) else []

    async def compile_us(self, pipeline: int) -> float:
        found = self._pipelines.get(pipeline)
        return found.made_us if found else 0.0

    # Programs

    def create_program(self, words: Any) -> int:
        return self._keep(self._programs, self._decode(words))

    def run_program(self, words: Any, params: Any) -> None:
        self._run(self._decode(words), params, 1)

    def submit_program(self, program: int, params: Any, times: int = 1) -> None:
        self._run(self._program(program), params, times)

    def destroy_program(self, program: int) -> None:
        self._programs.pop(program, None)

    def submit_timed(self, program: int, params: Any, together: bool = False, times: int = 1) -> int:
        dispatches = self._program(program)
        passes = [dispatches] if together else [[dispatch] for dispatch in dispatches]
        self._write_params(params)
        clock = Clock(self._device, self._errors, self._fences, len(passes))
        for index, timed in enumerate(passes):
            self._encode(timed, times, clock.writes(index))
            # not the time now: the GPU may have begun, or ended, before this thread goes on
            clock.submitted(index, self._submitted_at)
        return self._keep(self._timings, clock)

    async def timings(self, ticket: int) -> Sequence[RawTiming]:
        return await self._timings.pop(ticket).read(self._waits)

    async def synchronize(self) -> Sequence[BridgeError]:
        submitted = self._submitted
        if submitted > self._done and not self._errors.lost:
            with contextlib.suppress(DeviceLostError):
                await self._wait(self._fences.promise)
                self._done = max(self._done, submitted)
        return self._errors.take()

    # Inside

    def _decode(self, words: Any) -> list[Dispatch]:
        return decode(words, self._pipelines)

    def _run(self, dispatches: list[Dispatch], params: Any, times: int) -> None:
        self._write_params(params)
        self._encode(dispatches, times, None)

    def _write_params(self, params: Any) -> None:
        if memoryview(params).nbytes:
            self._errors.guarded("params", lambda: self._bindings.write_params(params))

    def _encode(self, dispatches: list[Dispatch], times: int, timestamps: Any) -> None:
        label = dispatches[0].pipeline.label if dispatches else "program"
        bound = []
        for dispatch in dispatches:
            groups = self._bindings.groups(dispatch) if dispatch.pipeline.compute is not None else None
            if groups is None:
                broken = dispatch.pipeline.label
                self._errors.add("validation", broken, "not run, as its shader or its buffers were refused")
                return
            bound.append((dispatch, groups))

        def submit() -> None:
            encoder = self._device.create_command_encoder()
            encode(encoder, bound, times, timestamps)
            self._submit(encoder)

        self._errors.guarded(label, submit)

    def _submit(self, encoder: wgpu.GPUCommandEncoder) -> None:
        commands = encoder.finish()
        self._submitted_at = time.perf_counter()
        self._device.queue.submit([commands])
        self._submitted += 1

    async def _wait(self, begin: Callable[[], Any]) -> None:
        """Wait for a promise of wgpu's; its failure is the device's loss."""
        try:
            await self._waits.until(begin)
        except DeviceLostError:
            raise
        except (RuntimeError, wgpu.GPUError) as error:
            self._errors.lost = self._errors.lost or words_of(error)
            self._raise_lost()

    def _raise_lost(self) -> None:
        if self._errors.lost:
            raise DeviceLostError(f"reading back failed: {self._errors.lost}")

    def _buffer(self, handle: int) -> wgpu.GPUBuffer:
        buffer = self._buffers[handle]
        if buffer is None:
            raise wgpu.GPUValidationError("this buffer could not be made")
        return buffer

    def _program(self, handle: int) -> list[Dispatch]:
        found = self._programs.get(handle)
        if found is None:
            raise ValueError(f"no program {handle}")
        return found

    def _keep(self, table: dict[int, T], value: T) -> int:
        handle = self._next
        self._next += 1
        table[handle] = value
        return handle
