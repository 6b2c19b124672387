"""Programs as lists of dispatches: decoded from words, bound to buffers, written into compute passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import wgpu

from py_attn.gpu.bridge import PARAMS_ALIGNMENT
from py_attn.native.errors import Errors

_HEADER_WORDS = 6
_BINDING_WORDS = 3
_MOST_BIND_GROUPS = 512
_MOST_PARAMS_GROUPS = 4096


class Pipeline(NamedTuple):
    """A compute pipeline; ``compute`` is None where its text did not compile, which was reported."""

    compute: wgpu.GPUComputePipeline | None
    layout: wgpu.GPUBindGroupLayout
    access: str
    label: str
    made_us: float


class Dispatch(NamedTuple):
    """One dispatch of a program; ``group`` is None where its buffers were refused, which was reported."""

    pipeline: Pipeline
    group: wgpu.GPUBindGroup | None
    offset: int
    size: int
    grid: tuple[int, int, int]


class Bindings:
    """Bind groups and their layouts: group 0 holds storage buffers, group 1 the params of a dispatch.

    All params lie in one buffer. Bind groups are kept, since calls in a row mostly have the same.
    """

    def __init__(self, device: wgpu.GPUDevice, errors: Errors) -> None:
        self._device = device
        self._errors = errors
        self._layouts: dict[str, tuple[wgpu.GPUBindGroupLayout, wgpu.GPUPipelineLayout]] = {}
        self._groups: dict[tuple[str, bytes], wgpu.GPUBindGroup | None] = {}
        self._params_groups: dict[tuple[int, int], wgpu.GPUBindGroup] = {}
        self._params_layout = self._layout("params", ["uniform"])
        self._params = self._make_params(1 << 14)

    def _layout(self, label: str, types: Sequence[str]) -> wgpu.GPUBindGroupLayout:
        entries: list[Any] = [
            {"binding": n, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for n, kind in enumerate(types)
        ]
        return self._device.create_bind_group_layout(label=label, entries=entries)

    def layouts(self, access: str) -> tuple[wgpu.GPUBindGroupLayout, wgpu.GPUPipelineLayout]:
        """The layouts of pipelines whose buffers are read ("r") or written ("w")."""
        found = self._layouts.get(access)
        if found is None:
            group = self._layout(access, ["storage" if a == "w" else "read-only-storage" for a in access])
            both = [group, self._params_layout]
            found = self._layouts[access] = (
                group,
                self._device.create_pipeline_layout(bind_group_layouts=both),
            )
        return found

    def storage(
        self, pipeline: Pipeline, words: np.ndarray[Any, np.dtype[np.uint32]], find: Callable[[int], Any]
    ) -> wgpu.GPUBindGroup | None:
        """The group of a dispatch's buffers; ``words`` are handle, byte offset and byte size of each."""
        key = (pipeline.access, words.tobytes())
        if key in self._groups:
            return self._groups[key]

        def make() -> wgpu.GPUBindGroup:
            entries: list[Any] = [
                {"binding": n, "resource": {"buffer": find(handle), "offset": offset, "size": size}}
                for n, (handle, offset, size) in enumerate(words.reshape(-1, _BINDING_WORDS).tolist())
            ]
            return self._device.create_bind_group(layout=pipeline.layout, entries=entries)

        group = self._errors.guarded(pipeline.label, make)
        if len(self._groups) >= _MOST_BIND_GROUPS:
            self._groups.clear()
        if group is not None:
            self._groups[key] = group
        return group

    def forget_buffers(self) -> None:
        """Forget the groups, one of whose buffers was destroyed."""
        self._groups.clear()

    def params(self, offset: int, size: int) -> wgpu.GPUBindGroup:
        """The group of a part of the params."""
        group = self._params_groups.get((offset, size))
        if group is None:
            entry: Any = {"binding": 0, "resource": {"buffer": self._params, "offset": offset, "size": size}}
            group = self._device.create_bind_group(layout=self._params_layout, entries=[entry])
            if len(self._params_groups) >= _MOST_PARAMS_GROUPS:
                self._params_groups.clear()
            self._params_groups[offset, size] = group
        return group

    def write_params(self, data: Any) -> None:
        """Set the params of what is submitted next; the queue orders this after every earlier submission."""
        size = memoryview(data).nbytes
        if size > self._params.size:
            self._params = self._make_params(2 * size)
            self._params_groups.clear()
        self._device.queue.write_buffer(self._params, 0, data)

    def _make_params(self, size: int) -> wgpu.GPUBuffer:
        usage = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
        return self._device.create_buffer(label="params", size=size, usage=usage)


def decode(
    words: Any, pipelines: Mapping[int, Pipeline], bindings: Bindings, find: Callable[[int], Any]
) -> list[Dispatch]:
    """The dispatches of a stream of u32 words; its records are described in :mod:`py_attn.gpu.bridge`."""
    stream = np.frombuffer(words, np.uint32)
    dispatches = []
    at = offset = 0
    while at < stream.size:
        handle, size, x, y, z, count = stream[at : at + _HEADER_WORDS].tolist()
        begin = at + _HEADER_WORDS
        at = begin + _BINDING_WORDS * count
        pipeline = pipelines.get(handle)
        if pipeline is None:
            raise ValueError(f"no pipeline {handle}")
        group = bindings.storage(pipeline, stream[begin:at], find)
        dispatches.append(Dispatch(pipeline, group, offset, size, (x, y, z)))
        offset += -(-size // PARAMS_ALIGNMENT) * PARAMS_ALIGNMENT
    return dispatches


def encode(
    encoder: wgpu.GPUCommandEncoder,
    dispatches: Sequence[Dispatch],
    bindings: Bindings,
    times: int = 1,
    timestamps: Any = None,
) -> None:
    """Write all dispatches, ``times`` times over, into one compute pass."""
    compute_pass = encoder.begin_compute_pass(timestamp_writes=timestamps)
    rows = [(d.pipeline.compute, d.group, bindings.params(d.offset, d.size), d.grid) for d in dispatches]
    for _ in range(times):
        for pipeline, group, params, grid in rows:
            compute_pass.set_pipeline(pipeline)
            compute_pass.set_bind_group(0, group)
            compute_pass.set_bind_group(1, params)
            compute_pass.dispatch_workgroups(*grid)
    compute_pass.end()
