"""The device: tensors are made on it, and calls of kernels run on it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from py_attn.arguments import check_int, check_real
from py_attn.errors import DeviceLostError, WebGPUUnavailableError
from py_attn.gpu import binding
from py_attn.gpu.binding import BoundBuffer, Workgroups
from py_attn.gpu.bridge import (
    AdapterInfo,
    Bridge,
    DeviceBridge,
    File,
    Progress,
    ShaderMessage,
    check_range,
)
from py_attn.gpu.dtypes import DType, check_dtype, default_dtype, encode
from py_attn.gpu.kernel import KeptPlan, NewTensor, Plan, PlanCache, Recording
from py_attn.gpu.memory import Memory
from py_attn.gpu.program import Program, record
from py_attn.gpu.queue import Queue
from py_attn.gpu.replacing import Replacement, Rewrite
from py_attn.gpu.shader import Shader
from py_attn.gpu.tensor import Dense, Storage, Tensor, contiguous_strides, dense
from py_attn.gpu.tuning import Measured, Tuner

if TYPE_CHECKING:
    from py_attn.gpu.timing import Timer

#: A file is uploaded in parts of this size; between two of them a task can be cancelled.
_PART_BYTES = 4 << 20

#: The layouts of tensors that plans make; a plan is run often.
_planned = functools.lru_cache(maxsize=1024)(dense)

_default: Device | None = None


async def request_device(bridge: Bridge) -> Device:
    """Request a device from ``bridge``; it also becomes :func:`default_device`.

    Raises
    ------
    WebGPUUnavailableError
        Saying why there is no WebGPU and what to do.
    """
    device = Device(await bridge.request_device(), bridge)
    await device.tuner.load()
    return make_default(device)


def make_default(device: Device) -> Device:
    """Make ``device`` the one that :func:`default_device` returns."""
    global _default
    _default = device
    return device


def default_device() -> Device:
    """The device of the last :func:`request_device`.

    Raises
    ------
    WebGPUUnavailableError
        When none was requested yet.
    DeviceLostError
        When it was lost.
    """
    if _default is None:
        raise WebGPUUnavailableError("no device yet: call `device = await pa.request_device()` first")
    _default.check_alive()
    return _default


class Device:
    """A WebGPU device. Made by :func:`request_device`.

    Kernel calls are recorded and return at once. They are sent on in batches, the first of which is a single
    dispatch, always in the order in which they were made; reading back and :meth:`synchronize` send the rest.

    Attributes
    ----------
    info : AdapterInfo
    queue : Queue
        Recorded work, and the errors that come back.
    plans : PlanCache
        The plans of earlier calls, for all kernels.
    tuner : Tuner
    poison_outputs : bool
        Fill every new output with NaN before its kernel runs, so that an element nobody writes shows.
    """

    def __init__(self, raw: DeviceBridge, bridge: Bridge) -> None:
        self.info: AdapterInfo = raw.info
        self.poison_outputs = False
        self._bridge = raw
        self._assets = bridge
        self._memory = Memory(raw)
        self.queue = Queue(raw, self._memory)
        self.plans = PlanCache()
        self.tuner = Tuner(self.queue, bridge)
        self._cached: dict[Hashable, Tensor] = {}
        self._rewrite: Rewrite | None = None

    def __repr__(self) -> str:
        return f"Device({self.info}{', lost' if self.lost else ''})"

    @property
    def autotune(self) -> bool:
        """Whether kernels that have a choice of tiles go by what :meth:`tune` measured on this adapter.

        New shape buckets are then measured in idle time, for two seconds in all, not on software adapters.
        False: by the static table alone.
        """
        return self.tuner.enabled

    @autotune.setter
    def autotune(self, enabled: bool) -> None:
        self.tuner.enabled = enabled

    @property
    def calls(self) -> int:
        """Dispatches made so far."""
        return self.queue.recorded

    # memory

    def tensor(self, array: object, dtype: str | None = None, *, name: str = "array") -> Tensor:
        """Upload an array.

        Parameters
        ----------
        array : array_like
            Any shape; float64 becomes float32, int64 int32 unless ``dtype`` says otherwise.
        dtype : str, optional
            "float32", "float16", "bfloat16", "int32", "uint32" or "bool" (one byte each).

        Raises
        ------
        TypeError, ValueError
            When the array holds no numbers, does not fit the dtype, or is larger than the device allows.
        """
        self.check_alive()
        if isinstance(array, Tensor):
            raise TypeError(f"{name}: expected an array, got a Tensor")
        try:
            values = np.asarray(array)
        except (ValueError, TypeError) as error:
            raise TypeError(f"{name}: expected an array ({error})") from None
        kind = default_dtype(values, name) if dtype is None else check_dtype(dtype)
        carried = encode(values, kind, name)
        storage = Storage(self, self.queue, *self._memory.take(carried.nbytes, name))
        result = Tensor(storage, kind, carried.shape, contiguous_strides(carried.shape))
        if carried.nbytes:
            try:
                self.queue.write(storage.handle, carried.reshape(-1).view(np.uint8))
            except BaseException:
                storage.free()
                raise
        return result

    async def upload_file(
        self, file: File, begin: int = 0, end: int | None = None, *, progress: Progress | None = None
    ) -> Tensor:
        """Put a part of a file into a tensor, without a copy of all of it in Python's memory.

        Parameters
        ----------
        file : File
            From :meth:`open_asset` or :func:`py_attn.models.files.open_file`.
        begin, end : int
            The part's first byte and the one past its last, both multiples of 4; the whole file unless given.
        progress : callable, optional
            Called as ``progress(loaded, total)`` in bytes.

        Returns
        -------
        Tensor
            uint32 [(end - begin) / 4]. Where the upload fails or is cancelled, nothing stays on the device.

        Raises
        ------
        ValueError
            When the file has no such bytes, or the device allows no tensor of this size.
        OSError
            When the file cannot be read.
        DeviceLostError, GPUOutOfMemoryError
            From the device.
        """
        self.check_alive()
        first, last = check_int("begin", begin), check_int("end", file.size if end is None else end)
        check_range(file.size, first, last)
        for name, value in (("begin", first), ("end", last)):
            if value % 4:
                raise ValueError(f"{name}: expected a multiple of 4, got {value}")
        total = last - first
        storage = Storage(self, self.queue, *self._memory.take(total, "file"))
        try:
            for start in range(first, last, _PART_BYTES):
                stop = min(start + _PART_BYTES, last)
                self.queue.write_file(storage.handle, start - first, file, start, stop)
                if progress:
                    progress(stop - first, total)
                await asyncio.sleep(0)
                self.check_alive()
            await self.synchronize()
        except BaseException:
            storage.free()
            raise
        return Tensor(storage, check_dtype("uint32"), (total // 4,), (1,))

    def empty(self, shape: Sequence[int], dtype: str = "float32", *, pitch: int | None = None) -> Tensor:
        """A tensor whose elements a kernel is about to write.

        Parameters
        ----------
        shape : sequence of int
        pitch : int, optional
            Elements from one innermost row to the next where that is more than the row's length.
        """
        self.check_alive()
        return self._allocate(dense(shape, dtype, pitch))

    def _allocate(self, layout: Dense) -> Tensor:
        kind, shape, strides, nbytes = layout
        storage = Storage(self, self.queue, *self._memory.take(nbytes, "tensor"))
        if self.poison_outputs and nbytes:
            self.queue.write(storage.handle, np.full(-(-nbytes // 4) * 4, 0xFF, np.uint8))
        return Tensor(storage, kind, shape, strides)

    def cached(self, key: Hashable, make: Callable[[], object]) -> Tensor:
        """A small constant tensor (a colour table, a list of heads) that lives as long as the device."""
        found = self._cached.get(key)
        if found is None or self._memory.is_suspect(found.storage("cached").handle):
            found = self._cached[key] = self.tensor(make())
        return found

    def memory_allocated(self) -> int:
        """Bytes in the buffers of live tensors."""
        return self._memory.allocated

    # work

    def release_memory(self) -> None:
        """Destroy the buffers of dropped tensors, which are kept for new tensors of their sizes."""
        self._memory.release()
        self.flush()

    @property
    def lacks(self) -> int:
        """How many buffers could not be made so far, as there was no room for them."""
        return self._memory.lacks

    def run(
        self, plan: Plan, given: Mapping[str, Tensor | None], kept: KeptPlan | None = None
    ) -> dict[str, Tensor]:
        """Record a plan's launches on the tensors of one call.

        Parameters
        ----------
        plan : Plan
        given : mapping
            The call's tensors by the names that the plan uses; Nones, and others, are passed over.
        kept : KeptPlan, optional
            Where the plan is kept: then so are the recordings of it, for calls with the same buffers.

        Returns
        -------
        dict
            ``given``, without Nones, with the results of the plan.

        Raises
        ------
        ValueError
            When a tensor was destroyed or is of another device, or would be read while it is written.
        DeviceLostError
            When the device is gone.
        """
        self.check_alive()
        tensors: dict[str, Tensor] = {}
        # What the words of the plan's launches depend on: the pipelines and the buffers of the call.
        key = [self.queue.pipelines.generation]
        for name, tensor in given.items():
            if tensor is not None:
                storage = tensor._storage
                if not storage.alive or storage.device is not self:
                    tensor.storage(name)
                    raise ValueError(f"{name}: the tensor is on another device ({tensor.device}) than {self}")
                tensors[name] = tensor
                key.append(storage.handle)
        if self._rewrite is not None:
            plan, kept = self._rewrite(plan), None
        if self.poison_outputs or plan.constants or self.queue.is_recording:
            kept = None
        for new in plan.makes:
            if not new.is_scratch:
                made = tensors[new.name] = self._make(new)
                key.append(made._storage.handle)
        recording = kept.recording(tuple(key)) if kept is not None else None
        # Scratch that nobody has taken since then can be written again.
        if recording is not None and self._memory.keeps(recording.scratch):
            self.queue.end_run(recording.recorder)
            return tensors
        recording = self._record(plan, tensors)
        # In a recording that is used again no dispatch is the first one of its pipeline.
        if kept is not None and not any(each.compiled for each in recording.recorder.dispatches):
            kept.keep(tuple(key), recording)
        return tensors

    def _record(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Recording:
        """Record a plan's launches with scratch, which others may use as soon as they are recorded."""
        named = dict(tensors)
        for constant in plan.constants:
            named[constant.name] = self.cached(constant.key, constant.make)
        scratch = {new.name: self._make(new) for new in plan.makes if new.is_scratch}
        named.update(scratch)
        run = self.queue.begin_run()
        limits = self.info.limits
        for number, (shader, params, workgroups, names) in enumerate(plan.launches):
            bound = [binding.bind(named[name], name, limits) for name in names]
            self.queue.add(shader, params, bound, workgroups, run, is_main=number == plan.main)
        self.queue.end_run(run)
        return Recording(run, frozenset(each._storage.handle for each in scratch.values()))

    def _make(self, new: NewTensor) -> Tensor:
        _, shape, dtype, pitch, row_parts, _ = new
        if row_parts is None:
            return self._allocate(_planned(shape, dtype, pitch))
        # Room for each row's maximum and sum too, which the caller does not see.
        whole = self._allocate(_planned((3, *shape), dtype, None))
        whole._storage.row_parts = row_parts
        first: Tensor = whole[0]
        return first

    def dispatch(
        self,
        shader: Shader,
        params: bytes,
        buffers: Sequence[BoundBuffer],
        workgroups: tuple[int, int, int],
    ) -> None:
        """Record one dispatch of a shader of your own; buffers in the order of its bindings.

        Raises
        ------
        ValueError
            When the shader needs more buffers than the device binds at a time, or would read and write
            the same one.
        DeviceLostError
            When the device is gone.
        """
        self.check_alive()
        binding.check_buffer_count(shader.label, len(buffers), self.info.limits)
        run = self.queue.begin_run()
        self.queue.add(shader, params, buffers, workgroups, run)
        self.queue.end_run(run)

    @contextmanager
    def rewriting(self, rewrite: Rewrite) -> Iterator[None]:
        """Pass every plan that runs inside through ``rewrite``, a function from plan to plan.

        Raises
        ------
        RuntimeError
            When plans are being rewritten already.
        """
        if self._rewrite is not None:
            raise RuntimeError("rewriting: plans are being rewritten already")
        self._rewrite = rewrite
        try:
            yield
        finally:
            self._rewrite = None

    @contextmanager
    def replacing(self, label: str, shader: Shader, workgroups: Workgroups | None = None) -> Iterator[None]:
        """Run a shader of your own wherever a call inside would run the one called ``label``.

        It gets the same buffers, params and grid::

            mine = from_text(changed, "attention", "mine", params=..., bindings=..., header=False)
            with device.replacing("attention/tiled", mine):
                out = pa.attention(query, key, value, variant="tiled")

        Parameters
        ----------
        label : str
            Kernel and variant, as timings and errors call it: ``timing.shader.label``.
        shader : Shader
            See :func:`py_attn.gpu.shader.from_text`.
        workgroups : int or tuple of int, optional
            How many workgroups run, or how many along x, y and z; as were planned unless given.

        Raises
        ------
        ValueError
            When the shader declares other params or buffers than the one it replaces, when there are more
            workgroups than the device allows, or when nothing inside ran that one.
        """
        rewrite = Replacement(label, shader, workgroups, self.info.limits)
        with self.rewriting(rewrite):
            yield
        if not rewrite.used:
            raise ValueError(f"replacing: nothing ran {label}, {rewrite.seen}")

    async def check_wgsl(self, wgsl: str) -> list[ShaderMessage]:
        """Everything the browser's WGSL compiler says about a text: errors, warnings and notes.

        Nothing is raised for a text that does not compile.
        """
        self.check_alive()
        return list(await self._bridge.check_shader(wgsl))

    def bind(self, tensor: Tensor, name: str) -> BoundBuffer:
        """How a shader of your own sees ``tensor``: see :func:`py_attn.gpu.binding.bind`.

        Raises
        ------
        ValueError
            When the tensor was destroyed, or the view spans more than a binding may hold.
        """
        tensor.storage(name)
        return binding.bind(tensor, name, self.info.limits)

    def grid(self, workgroups: Workgroups, name: str) -> tuple[int, int, int]:
        """The sizes of a grid of so many workgroups: see :func:`py_attn.gpu.binding.grid`."""
        return binding.grid(workgroups, name, self.info.limits)

    def flush(self) -> None:
        """Send recorded work on to the GPU without waiting for it."""
        self.queue.flush()

    @contextmanager
    def record(self) -> Iterator[Program]:
        """Record what is called inside into a :class:`Program` instead of running it."""
        with record(self.queue) as program:
            yield program

    @contextmanager
    def timer(self) -> Iterator[Timer]:
        """Time every dispatch made inside: ``with device.timer() as timer: …; await timer.results()``."""
        from py_attn.gpu.timing import Timer  # a start does not need it

        with Timer(self.queue).running() as timer:
            yield timer

    async def synchronize(self) -> None:
        """Wait until everything recorded so far is done, and raise what failed."""
        await self.queue.synchronize()

    async def tune(self, seconds: float = 2.0) -> list[Measured]:
        """Measure which tiles are the fastest for the shape buckets that were called so far.

        Later calls of these buckets go by it, on later visits too: the browser keeps what was measured
        for this adapter. Buckets that the time does not suffice for are left for the next time.

        Parameters
        ----------
        seconds : float
            How long it may take.
        """
        self.check_alive()
        self.flush()
        return await self.tuner.tune(check_real("seconds", seconds))

    def clear_pipelines(self) -> None:
        """Forget the compiled pipelines, so that the next call compiles again."""
        self.queue.clear_pipelines()

    async def fetch_asset(self, name: str, progress: Progress | None = None) -> Any:
        """The bytes of a file of the site by its name in the manifest; see :class:`Bridge`."""
        return await self._assets.fetch_asset(name, progress)

    async def open_asset(self, name: str, progress: Progress | None = None) -> File:
        """A file of the site by its name in the manifest, to be read in parts; see :class:`Bridge`."""
        return await self._assets.open_asset(name, progress)

    # life

    @property
    def lost(self) -> bool:
        """Whether the device is gone."""
        return self.queue.lost

    def check_alive(self) -> None:
        """Raise :class:`DeviceLostError` when the device is gone."""
        self.queue.check_alive()

    def destroy(self) -> None:
        """Give the device up; its tensors cannot be used any more."""
        self.flush()
        self._bridge.destroy()


def as_tensor(name: str, value: object, device: Device, dtype: str | None = None) -> Tensor:
    """``value`` if it is a tensor of ``device``, else uploaded.

    Raises
    ------
    TypeError, ValueError, DeviceLostError
        When it is neither tensor nor array, lives on another or a lost device, or was destroyed.
    """
    if not isinstance(value, Tensor):
        return device.tensor(value, None if dtype is None else check_dtype(dtype).name, name=name)
    value.storage(name)
    if value.device is not device:
        raise ValueError(f"{name}: the tensor is on another device ({value.device}) than {device}")
    return value


def device_of(*values: object) -> Device | None:
    """The device of the first tensor among ``values``."""
    for value in values:
        if isinstance(value, Tensor):
            if value.device.lost:
                raise DeviceLostError("the tensor's device was lost; request a new one and upload again")
            found: Device = value.device
            return found
    return None


__all__ = ["DType", "Device", "as_tensor", "default_device", "device_of", "request_device"]
