"""The device: what is made on it, and the queue of recorded work."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn.arguments import check_int, check_real
from py_attn.errors import DeviceLostError, WebGPUUnavailableError
from py_attn.gpu.bridge import AdapterInfo, Bridge, BridgeError, DeviceBridge, Progress, RawTiming
from py_attn.gpu.dtypes import DType, check_dtype, default_dtype, encode
from py_attn.gpu.memory import Memory
from py_attn.gpu.pipelines import Pipelines
from py_attn.gpu.program import BoundBuffer, Dispatch, Program, Recorder
from py_attn.gpu.shader import Shader
from py_attn.gpu.tensor import Storage, Tensor, byte_span, contiguous_strides
from py_attn.gpu.timing import Timer
from py_attn.gpu.tuning import Measured, Tuner, split_errors

# Recorded work is sent on in batches: the first dispatch alone, so that an idle GPU starts at once, then
# twice as many each time up to this many, so that a dispatch costs little and the GPU is not kept waiting.
_MOST_DISPATCHES = 16
# So many forms of calls are known at a time; a sequence that grows has a new one at every step.
_MOST_FORMS = 512

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
    poison_outputs : bool
        Fill every new output with NaN before its kernel runs, so that an element nobody writes shows.
    autotune : bool
        Whether kernels that have a choice of tiles go by what :meth:`tune` measured on this adapter, and
        whether new classes of shapes are measured while nothing else happens: two seconds in all, not on
        software adapters. False: by the static table alone.
    calls : int
        Dispatches made so far.
    """

    def __init__(self, raw: DeviceBridge, bridge: Bridge) -> None:
        self.info: AdapterInfo = raw.info
        self.poison_outputs = False
        self.autotune = True
        self.calls = 0
        self.tuner = Tuner(self, bridge)
        self._bridge = raw
        self._assets = bridge
        self._pending = Recorder()
        self._recording: Recorder | None = None
        self._timer: Timer | None = None
        self._batch = 1
        self._memory = Memory(raw)
        self._pipelines = Pipelines(raw)
        self._cached: dict[Hashable, Tensor] = {}
        self._known: dict[Hashable, Any] = {}
        # Errors that were seen while somebody else waited for theirs.
        self._unseen: list[BridgeError] = []

    def __repr__(self) -> str:
        return f"Device({self.info}{', lost' if self.lost else ''})"

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
        storage = Storage(self, *self._memory.take(carried.nbytes, name))
        result = Tensor(storage, kind, carried.shape, contiguous_strides(carried.shape))
        if carried.nbytes:
            try:
                self._write(storage.handle, carried.reshape(-1).view(np.uint8))
            except BaseException:
                storage.free()
                raise
        return result

    def empty(self, shape: Sequence[int], dtype: str = "float32", *, pitch: int | None = None) -> Tensor:
        """A tensor whose elements a kernel is about to write.

        Parameters
        ----------
        shape : sequence of int
        pitch : int, optional
            Elements from one innermost row to the next where that is more than the row's length.
        """
        self.check_alive()
        kind = check_dtype(dtype)
        sizes = tuple(shape)
        if not {int}.issuperset(map(type, sizes)):
            sizes = tuple(check_int("shape", n) for n in shape)
        if min(sizes, default=0) < 0:
            raise ValueError(f"shape: expected lengths >= 0, got {list(sizes)}")
        padded = (*sizes[:-1], pitch) if pitch is not None else sizes
        strides = contiguous_strides(padded)
        total = math.prod(padded)
        storage = Storage(self, *self._memory.take(total * kind.itemsize, "tensor"))
        if self.poison_outputs and total:
            self._write(storage.handle, np.full(-(-total * kind.itemsize // 4) * 4, 0xFF, np.uint8))
        return Tensor(storage, kind, sizes, strides)

    def cached(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """A small constant tensor (a colour table, a list of heads) that lives as long as the device."""
        if key not in self._cached:
            self._cached[key] = make()
        return self._cached[key]

    def known(self, form: Hashable) -> Any:
        """What :meth:`remember` was given for calls of this form, or None."""
        return self._known.get(form)

    def remember(self, form: Hashable, checked: object) -> None:
        """Keep what was found out about all calls of a form; it must not hold on to any tensor."""
        if len(self._known) >= _MOST_FORMS:
            self._known.clear()
        self._known[form] = checked

    def memory_allocated(self) -> int:
        """Bytes in the buffers of live tensors."""
        return self._memory.allocated

    def _release(self, storage: Storage) -> None:
        self._memory.give_back(storage.handle, storage.nbytes)
        if not self._pending.dispatches:
            self._memory.destroy_doomed()

    def _write(self, handle: int, data: npt.NDArray[np.uint8]) -> None:
        # A write takes effect at once, so what was recorded before must be on its way.
        self.flush()
        self._memory.write(handle, data)

    async def _read(self, storage: Storage, offset: int, out: npt.NDArray[np.uint8]) -> None:
        self.flush()
        size = min(out.size, storage.nbytes - offset)
        try:
            await self._bridge.read_buffer(storage.handle, offset, out[:size])
        finally:
            await self._raise_errors()

    # work

    def bind(self, tensor: Tensor, name: str) -> BoundBuffer:
        """How a kernel's binding sees ``tensor``: the whole buffer, or the part that the view spans.

        Raises
        ------
        ValueError
            When the view spans more than a binding may hold.
        """
        # Whether the device is still there is asked once a dispatch, not for each of its buffers.
        storage = tensor._storage if tensor.lives_on(self) else tensor.storage(name)
        allowed = self.info.limits["maxStorageBufferBindingSize"]
        if storage.nbytes <= allowed:
            return BoundBuffer(storage, 0, storage.nbytes, tensor.offset)
        align = self.info.limits["minStorageBufferOffsetAlignment"]
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

    def grid(self, workgroups: int, name: str) -> tuple[int, int, int]:
        """Spread ``workgroups`` over x and y so that neither exceeds the device's limit.

        A shader finds its number as ``workgroup_id.x + workgroup_id.y * num_workgroups.x`` and
        leaves when that is past the last one.
        """
        limit = self.info.limits["maxComputeWorkgroupsPerDimension"]
        if workgroups <= limit:
            return workgroups, 1, 1
        rows = -(-workgroups // limit)
        if rows > limit:
            raise ValueError(f"{name}: {workgroups:,} workgroups needed, this device allows {limit**2:,}")
        return -(-workgroups // rows), rows, 1

    def dispatch(
        self,
        shader: Shader,
        params: bytes,
        buffers: Sequence[BoundBuffer],
        workgroups: tuple[int, int, int],
    ) -> None:
        """Record one dispatch of ``shader``; buffers in the order of its bindings.

        Raises
        ------
        ValueError
            When the shader needs more buffers than the device binds at a time, or would read and write
            the same one.
        DeviceLostError
            When the device is gone.
        """
        self.check_alive()
        self.calls += 1
        allowed = self.info.limits["maxStorageBuffersPerShaderStage"]
        if len(buffers) > allowed:
            raise ValueError(
                f"{shader.label}: {len(buffers)} buffers needed, this device binds {allowed} at a time "
                "(maxStorageBuffersPerShaderStage)"
            )
        pipeline, compiled = self._pipelines.find(shader)
        if len({buffer.storage for buffer in buffers}) < len(buffers):
            _check_aliases(shader, buffers)
        recorder = self._recording or self._pending
        recorder.add(Dispatch(shader, workgroups, pipeline, compiled), params, buffers)
        if self._recording is None and (self._timer or len(self._pending.dispatches) >= self._batch):
            self._batch = min(2 * self._batch, _MOST_DISPATCHES)
            self.flush()

    def flush(self) -> None:
        """Send recorded work on to the GPU without waiting for it."""
        recorder = self._pending
        if recorder.dispatches:
            self._pending = Recorder()
            if not self.lost:
                self._run(recorder)
        self._memory.destroy_doomed()

    def _run(self, recorder: Recorder) -> None:
        if not self._timer:
            self._bridge.run_program(recorder.words, recorder.params)
            return
        program = self._bridge.create_program(recorder.words)
        self._submit(program, recorder)
        self._bridge.destroy_program(program)

    def _submit(self, program: int, recorder: Recorder) -> None:
        if self._timer:
            ticket = self._bridge.submit_timed(program, recorder.params)
            self._timer._add(ticket, recorder.dispatches)
        else:
            self._bridge.submit_program(program, recorder.params)

    @contextmanager
    def record(self) -> Iterator[Program]:
        """Record what is called inside into a :class:`Program` instead of running it."""
        if self._recording is not None:
            raise RuntimeError("record: a program is being recorded already")
        self.check_alive()
        self.flush()
        recorder = self._recording = Recorder(keep=True)
        program = Program(self, recorder)
        try:
            yield program
        finally:
            self._recording = None
        program._decode()

    @contextmanager
    def timer(self) -> Iterator[Timer]:
        """Time every dispatch made inside: ``with device.timer() as timer: …; await timer.results()``."""
        if self._timer is not None:
            raise RuntimeError("timer: dispatches are being timed already")
        self.check_alive()
        self.flush()
        timer = self._timer = Timer(self)
        try:
            yield timer
            self.flush()
        finally:
            self._timer = None

    async def synchronize(self) -> None:
        """Wait until everything recorded so far is done, and raise what failed."""
        self.check_alive()
        self.flush()
        await self._raise_errors()

    @property
    def is_recording(self) -> bool:
        """Whether calls go into a program at the moment."""
        return self._recording is not None

    async def tune(self, seconds: float = 2.0) -> list[Measured]:
        """Measure which tiles are the fastest for the classes of shapes that were called so far.

        Later calls of these classes go by it, on later visits too: the browser keeps what was measured
        for this adapter. Classes that the time does not suffice for are left for the next time.

        Parameters
        ----------
        seconds : float
            How long it may take.
        """
        self.check_alive()
        self.flush()
        return await self.tuner.tune(check_real("seconds", seconds))

    async def time_apart(self, program: Program, leads: int = 0) -> tuple[RawTiming, list[BridgeError]]:
        """Time ``program``, right behind ``leads`` runs of it, and give the errors it made.

        Those of others are kept for who waits for them.
        """
        clock = await program._clock(leads)
        mine, others = split_errors(program, await self._bridge.synchronize())
        self._unseen += others
        for error in mine:
            if error.kind == "shader":
                self._pipelines.forget(error)
        return clock, mine

    def clear_pipelines(self) -> None:
        """Forget the compiled pipelines, so that the next call compiles again."""
        self.flush()
        self._pipelines.clear()

    async def fetch_asset(self, name: str, progress: Progress | None = None) -> Any:
        """The bytes of a file of the site by its name in the manifest; see :class:`Bridge`."""
        return await self._assets.fetch_asset(name, progress)

    # life

    @property
    def lost(self) -> bool:
        """Whether the device is gone."""
        return bool(self._bridge.lost())

    def check_alive(self) -> None:
        """Raise :class:`DeviceLostError` when the device is gone."""
        reason = self._bridge.lost()
        if reason:
            raise DeviceLostError(f"the device was lost ({reason}); request a new one and upload again")

    def destroy(self) -> None:
        """Give the device up; its tensors cannot be used any more."""
        self.flush()
        self._bridge.destroy()

    async def _raise_errors(self) -> None:
        found = await self._bridge.synchronize()
        # The GPU has nothing to do now.
        self._batch = 1
        errors, self._unseen = [*self._unseen, *found], []
        if errors:
            # What uses a broken pipeline fails too, and may be reported before it.
            first = next((error for error in errors if error.kind == "shader"), errors[0])
            raise self._pipelines.exception(first, len(errors) - 1)
        self.check_alive()


def _check_aliases(shader: Shader, buffers: Sequence[BoundBuffer]) -> None:
    # That there are as many buffers as bindings is WebGPU's to check.
    bound = list(zip(buffers, shader.bindings, strict=False))
    written = {buffer.storage for buffer, binding in bound if binding.writes}
    for buffer, binding in bound:
        if not binding.writes and buffer.storage in written:
            raise ValueError(f"{binding.name}: the tensor would be read while it is written; copy it first")


__all__ = ["DType", "Device", "default_device", "request_device"]
