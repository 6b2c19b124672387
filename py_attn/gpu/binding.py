"""How tensors are bound and workgroups spread within an adapter's limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from py_attn.gpu.shader import Shader
from py_attn.gpu.tensor import Storage, Tensor, byte_span

Limits = Mapping[str, int]
#: A number of workgroups, or how many there are along x, y and z.
Workgroups = int | tuple[int, int, int]


class BoundBuffer(NamedTuple):
    """The range of a buffer that one dispatch binds; ``first`` is the view's first element within it."""

    storage: Storage
    offset: int
    size: int
    first: int


def bind(tensor: Tensor, name: str, limits: Limits) -> BoundBuffer:
    """The whole buffer of ``tensor``, or the part that the view spans where a binding may hold no more.

    Raises
    ------
    ValueError
        When the view spans more bytes than a binding may hold.
    """
    bound: BoundBuffer | None = tensor._bound
    if bound is None:
        bound = tensor._bound = _find_range(tensor, name, limits)
    return bound


def _find_range(tensor: Tensor, name: str, limits: Limits) -> BoundBuffer:
    storage = tensor._storage
    allowed = limits["maxStorageBufferBindingSize"]
    if storage.nbytes <= allowed:
        return BoundBuffer(storage, 0, storage.nbytes, tensor.offset)
    align = limits["minStorageBufferOffsetAlignment"]
    first, last = byte_span(tensor) if tensor.size else (0, 4)
    begin = first // align * align
    size = -(-(last - begin) // 16) * 16
    if size > allowed:
        raise ValueError(
            f"{name}: the view spans {size:,} bytes, this device binds {allowed:,} at most "
            "(maxStorageBufferBindingSize); pass it in parts"
        )
    size = min(size, storage.nbytes - begin)
    return BoundBuffer(storage, begin, size, (first - begin) // tensor.kind.itemsize)


def fits_in_grid(sizes: tuple[int, ...], limits: Limits) -> bool:
    """Whether the device runs so many workgroups along each of x, y and z."""
    return max(sizes) <= limits["maxComputeWorkgroupsPerDimension"]


def grid(workgroups: Workgroups, name: str, limits: Limits) -> tuple[int, int, int]:
    """The sizes of a grid: three as they are given, or a number spread over x and y within their limit.

    Where it is a number, a shader finds that of its own workgroup as
    ``workgroup_id.x + workgroup_id.y * num_workgroups.x`` and returns when that is past the last one.

    Raises
    ------
    ValueError
        When the workgroups are more than x and y hold, or one of three sizes is more than the device allows.
    """
    limit = limits["maxComputeWorkgroupsPerDimension"]
    if isinstance(workgroups, tuple):
        if len(workgroups) != 3 or not fits_in_grid(workgroups, limits):
            raise ValueError(
                f"{name}: expected a number of workgroups, or how many there are along x, y and z, of which "
                f"this device allows {limit:,} each, got {workgroups}"
            )
        return workgroups
    if workgroups <= limit:
        return workgroups, 1, 1
    rows = -(-workgroups // limit)
    if rows > limit:
        raise ValueError(f"{name}: {workgroups:,} workgroups needed, this device allows {limit**2:,}")
    return -(-workgroups // rows), rows, 1


def most_invocations(limits: Limits) -> int:
    """How many invocations a workgroup along x may have; by default 256, in compatibility mode 128."""
    return min(limits["maxComputeInvocationsPerWorkgroup"], limits["maxComputeWorkgroupSizeX"])


def check_buffer_count(label: str, count: int, limits: Limits) -> None:
    """Raise :class:`ValueError` when a shader needs more buffers than the device binds at a time."""
    allowed = limits["maxStorageBuffersPerShaderStage"]
    if count > allowed:
        raise ValueError(
            f"{label}: {count} buffers needed, this device binds {allowed} at a time "
            "(maxStorageBuffersPerShaderStage)"
        )


def check_aliases(shader: Shader, buffers: Sequence[BoundBuffer]) -> None:
    """Raise :class:`ValueError` when ``shader`` would read a buffer that it also writes."""
    storages = [buffer[0] for buffer in buffers]
    if len(set(storages)) == len(storages):
        return
    # A shader of the caller's own may come with too few buffers or too many, which WebGPU reports.
    written = [storages[n] for n in shader.written if n < len(storages)]
    if sum(map(storages.count, written)) == len(written):
        return
    for storage, binding in zip(storages, shader.bindings, strict=False):
        if not binding.writes and storage in written:
            raise ValueError(f"{binding.name}: the tensor would be read while it is written; copy it first")
