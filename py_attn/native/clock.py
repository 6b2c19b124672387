"""Times of submitted dispatches: the GPU's timestamps and the wall clock."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import wgpu
from wgpu.backends.wgpu_native import lib

from py_attn.gpu.bridge import RawTiming
from py_attn.native.errors import Errors
from py_attn.native.waiting import Fences, Waits

#: Passes of one query set: WebGPU allows 4,096 queries in each.
_PASSES = 2048


class Clock:
    """Times ``count`` compute passes by the wall clock, and by timestamps where the device has them."""

    def __init__(self, device: wgpu.GPUDevice, errors: Errors, fences: Fences, count: int) -> None:
        self._device = device
        self._fences = fences
        self._count = count
        self._submitted = [0.0] * count
        self._ended: dict[int, float] = {}
        self._queries: list[wgpu.GPUQuerySet] = []
        if count and "timestamp-query" in device.features:
            counts = [2 * min(_PASSES, count - first) for first in range(0, count, _PASSES)]
            self._queries = errors.guarded("timestamps", lambda: [self._query_set(n) for n in counts]) or []

    def _query_set(self, count: int) -> wgpu.GPUQuerySet:
        kind: Any = wgpu.QueryType.timestamp
        return self._device.create_query_set(type=kind, count=count)

    def writes(self, index: int) -> Any:
        """Where a pass writes its timestamps."""
        if not self._queries:
            return None
        queries, first = self._queries[index // _PASSES], 2 * (index % _PASSES)
        begin, end = "beginning_of_pass_write_index", "end_of_pass_write_index"
        return {"query_set": queries, begin: first, end: first + 1}

    def submitted(self, index: int, at: float) -> None:
        """Note when a pass was submitted, by ``time.perf_counter()``, and watch for its end."""
        self._submitted[index] = at
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # `read` sees the end then
        self._fences.promise().then(lambda _: self._ended.setdefault(index, time.perf_counter()))

    async def read(self, waits: Waits) -> list[RawTiming]:
        """Wait for all passes; a wall time begins no earlier than the pass before ended."""
        gpu_us: list[float | None] = [None] * self._count
        if self._queries:
            gpu_us = list(await self._read_timestamps(waits))
        elif self._count:
            await waits.until(self._fences.promise)
        now = time.perf_counter()
        timings, before = [], 0.0
        for index, begun in enumerate(self._submitted):
            ended = self._ended.get(index, now)
            timings.append(RawTiming(gpu_us[index], (ended - max(begun, before)) * 1e6))
            before = ended
        return timings

    async def _read_timestamps(self, waits: Waits) -> list[float]:
        size, make = 16 * self._count, self._device.create_buffer
        resolved = make(size=size, usage=wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC)
        staging = make(size=size, usage=wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
        encoder = self._device.create_command_encoder()
        for number, queries in enumerate(self._queries):
            encoder.resolve_query_set(queries, 0, queries.count, resolved, 16 * _PASSES * number)
        encoder.copy_buffer_to_buffer(resolved, 0, staging, 0, size)
        self._device.queue.submit([encoder.finish()])
        try:
            await waits.until(lambda: staging.map_async(wgpu.MapMode.READ))
            ticks = np.frombuffer(staging.read_mapped(), np.uint64).reshape(-1, 2)
        finally:
            staging.destroy()
        # wgpu counts in the clock's own ticks, where the browser counts in nanoseconds.
        period_ns = lib.wgpuQueueGetTimestampPeriod(self._device.queue._internal)
        spans = (ticks[:, 1] - ticks[:, 0]).astype(np.int64)
        return [float(us) for us in spans * period_ns / 1e3]
