"""Programs as lists of dispatches: decoded from words, bound to buffers, written into compute passes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import wgpu

from py_attn.gpu.bridge import PARAMS_ALIGNMENT
from py_attn.native.errors import Errors

_HEADER_WORDS = 6
_BINDING_WORDS = 3
_MOST_BIND_GROUPS = 4096
#: By the letters of ``access`` (:meth:`py_attn.gpu.bridge.DeviceBridge.create_pipeline`), and of params.
_TYPES = {"r": "read-only-storage", "w": "storage", "u": "uniform"}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


class Layout(NamedTuple):
    """What pipelines bind.

    Attributes
    ----------
    letters : str
        One for each binding of group 0, ending in "u" if the params are the last of them.
    groups : list of wgpu.GPUBindGroupLayout
    pipeline : wgpu.GPUPipelineLayout
    """

    letters: str
    groups: list[wgpu.GPUBindGroupLayout]
    pipeline: wgpu.GPUPipelineLayout


class Pipeline(NamedTuple):
    """A compute pipeline; ``compute`` is None where its text did not compile, which was reported."""

    compute: wgpu.GPUComputePipeline | None
    layout: Layout
    label: str
    made_us: float


class Dispatch(NamedTuple):
    """One dispatch of a program.

    Attributes
    ----------
    pipeline : Pipeline
    buffers : bytes
        (handle, byte offset, byte size) of each storage buffer, words of 32 bits.
    offset, size : int
        Its part of the params, in bytes.
    grid : (int, int, int)
        Workgroups.
    """

    pipeline: Pipeline
    buffers: bytes
    offset: int
    size: int
    grid: tuple[int, int, int]


class Bindings:
    """Bind groups and their layouts: group 0 holds a dispatch's storage buffers and then its params.

    A text may declare its params in group 1 instead. All params lie in one buffer. Bind groups are kept,
    since calls in a row mostly have the same.
    """

    def __init__(self, device: wgpu.GPUDevice, errors: Errors, find: Callable[[int], wgpu.GPUBuffer]) -> None:
        self._device = device
        self._errors = errors
        self._find = find
        self._layouts: dict[str, Layout] = {}
        self._groups: dict[tuple[str, bytes, int, int], list[wgpu.GPUBindGroup]] = {}
        self._params_layout = self._make_group_layout("u")
        self._params = self._make_params(1 << 14)

    def _make_group_layout(self, letters: str) -> wgpu.GPUBindGroupLayout:
        entries: list[Any] = [
            {"binding": n, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": _TYPES[letter]}}
            for n, letter in enumerate(letters)
        ]
        return self._device.create_bind_group_layout(label=letters, entries=entries)

    def layout(self, wgsl: str, access: str) -> Layout:
        """What pipelines of a text bind whose buffers are read ("r") or written ("w")."""
        behind = _has_params_behind(len(access), wgsl)
        letters = access + "u" if behind else access
        if letters not in self._layouts:
            groups = [self._make_group_layout(letters), *([] if behind else [self._params_layout])]
            pipeline = self._device.create_pipeline_layout(bind_group_layouts=groups)
            self._layouts[letters] = Layout(letters, groups, pipeline)
        return self._layouts[letters]

    def groups(self, dispatch: Dispatch) -> list[wgpu.GPUBindGroup] | None:
        """The bind groups of a dispatch; None where its buffers were refused, which was reported."""
        pipeline = dispatch.pipeline
        key = (pipeline.layout.letters, dispatch.buffers, dispatch.offset, dispatch.size)
        if key in self._groups:
            return self._groups[key]
        groups = self._errors.guarded(pipeline.label, lambda: self._make_groups(dispatch))
        if groups is not None:
            if len(self._groups) >= _MOST_BIND_GROUPS:
                self._groups.clear()
            self._groups[key] = groups
        return groups

    def _make_groups(self, dispatch: Dispatch) -> list[wgpu.GPUBindGroup]:
        words = np.frombuffer(dispatch.buffers, np.uint32).reshape(-1, _BINDING_WORDS).tolist()
        buffers: list[Any] = [
            {"buffer": self._find(handle), "offset": offset, "size": size} for handle, offset, size in words
        ]
        params: Any = {"buffer": self._params, "offset": dispatch.offset, "size": dispatch.size}
        layouts = dispatch.pipeline.layout.groups
        resources = [[*buffers, params]] if len(layouts) == 1 else [buffers, [params]]
        return [
            self._device.create_bind_group(
                layout=layout, entries=[{"binding": n, "resource": each} for n, each in enumerate(bound)]
            )
            for layout, bound in zip(layouts, resources, strict=True)
        ]

    def forget_buffers(self) -> None:
        """Forget the groups, one of whose buffers was destroyed."""
        self._groups.clear()

    def write_params(self, data: Any) -> None:
        """Set the params of what is submitted next; the queue orders this after every earlier submission."""
        size = memoryview(data).nbytes
        if size > self._params.size:
            self._params = self._make_params(2 * size)
            self._groups.clear()
        self._device.queue.write_buffer(self._params, 0, data)

    def _make_params(self, size: int) -> wgpu.GPUBuffer:
        usage = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
        return self._device.create_buffer(label="params", size=size, usage=usage)


def _has_params_behind(buffers: int, wgsl: str) -> bool:
    """Whether a text declares its params in group 0, behind so many buffers."""
    group, binding = r"@group\s*\(\s*0[iu]?\s*\)", rf"@binding\s*\(\s*{buffers}[iu]?\s*\)"
    declaration = rf"(?:{group}\s*{binding}|{binding}\s*{group})\s*var\s*<\s*uniform\s*>"
    return re.search(declaration, _COMMENT.sub(" ", wgsl)) is not None


def decode(words: Any, pipelines: Mapping[int, Pipeline]) -> list[Dispatch]:
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
        dispatches.append(Dispatch(pipeline, stream[begin:at].tobytes(), offset, size, (x, y, z)))
        offset += -(-size // PARAMS_ALIGNMENT) * PARAMS_ALIGNMENT
    return dispatches


def encode(
    encoder: wgpu.GPUCommandEncoder,
    dispatches: Sequence[tuple[Dispatch, Sequence[wgpu.GPUBindGroup]]],
    times: int = 1,
    timestamps: Any = None,
) -> None:
    """Write all dispatches, each with its bind groups, ``times`` times over into one compute pass."""
    compute_pass = encoder.begin_compute_pass(timestamp_writes=timestamps)
    for _ in range(times):
        for dispatch, groups in dispatches:
            compute_pass.set_pipeline(dispatch.pipeline.compute)
            for number, group in enumerate(groups):
                compute_pass.set_bind_group(number, group)
            compute_pass.dispatch_workgroups(*dispatch.grid)
    compute_pass.end()
