"""Arrays in GPU memory, and views of them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from types import EllipsisType, TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from py_attn.arguments import check_int
from py_attn.gpu.dtypes import DType, check_dtype, decode, encode

Index = int | slice | EllipsisType | None


class RowParts(NamedTuple):
    """What lies behind the LSEs of a buffer (``kernels/lse.py``).

    Attributes
    ----------
    distance : int
        Elements from the LSE of a row to its row_max, and from there to its row_sum.
    natural : bool
        Whether row_max is in natural units; else in units of log2.
    """

    distance: int
    natural: bool


class Owner(Protocol):
    """What a tensor asks of the queue of its device."""

    def check_alive(self) -> None:
        """Raise :class:`DeviceLostError` when the device is gone."""
        ...

    def release(self, storage: Storage) -> None:
        """Take the buffer back."""
        ...

    def write(self, handle: int, data: npt.NDArray[np.uint8], offset: int = 0) -> None:
        """Fill a buffer from a byte on, after everything recorded before."""
        ...

    async def read(
        self, storage: Storage, offset: int, out: npt.NDArray[np.uint8], *, check: bool = True
    ) -> None:
        """Fill ``out`` from the buffer's bytes at ``offset``; with ``check`` raise what failed before."""
        ...

    async def synchronize(self) -> None:
        """Wait until everything recorded so far is done, and raise what failed."""
        ...


class Storage:
    """One buffer; freed when the last tensor on it goes, or when one of them is destroyed.

    Attributes
    ----------
    device : Device
    owner : Owner
        Its queue.
    handle : int
        The buffer's, on the far side of the bridge.
    nbytes : int
    alive : bool
    row_parts : RowParts or None
        Of an LSE that a kernel wrote.
    """

    def __init__(self, device: Any, owner: Owner, handle: int, nbytes: int) -> None:
        self.device = device
        self.owner = owner
        self.handle = handle
        self.nbytes = nbytes
        self.alive = True
        self.row_parts: RowParts | None = None

    def free(self) -> None:
        if self.alive:
            self.alive = False
            self.owner.release(self)

    def __del__(self) -> None:
        if getattr(self, "alive", False):
            self.free()


class Tensor:
    """A strided view of a GPU buffer. Made by :meth:`Device.tensor`, by kernels, and by slicing.

    Attributes
    ----------
    shape : tuple of int
    strides : tuple of int
        In elements.
    offset : int
        Element at which the view begins in its buffer.
    dtype : str
        "float32", "float16", "bfloat16", "int32", "uint32" or "bool".
    """

    # `_bound` is what py_attn.gpu.binding.bind found, which is the same for every dispatch.
    __slots__ = ("_bound", "_description", "_storage", "kind", "offset", "shape", "strides")

    def __init__(
        self, storage: Storage, kind: DType, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
    ) -> None:
        self._bound: Any = None
        self._description: Hashable = None
        self._storage = storage
        self.kind = kind
        self.shape = shape
        self.strides = strides
        self.offset = offset

    @property
    def dtype(self) -> str:
        return self.kind.name

    @property
    def device(self) -> Any:
        """The :class:`py_attn.gpu.device.Device` it lies on."""
        return self._storage.device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the view's elements, without padding between them."""
        return self.size * self.kind.itemsize

    @property
    def destroyed(self) -> bool:
        return not self._storage.alive

    @property
    def is_contiguous(self) -> bool:
        return self.strides == contiguous_strides(self.shape)

    @property
    def description(self) -> Hashable:
        """Everything of a tensor that a plan depends on: all but the buffer itself and its contents."""
        if self._description is None:
            storage = self._storage
            sizes = self.shape, self.strides, self.offset, storage.nbytes
            self._description = self.kind.name, *sizes, storage.row_parts
        return self._description

    def __repr__(self) -> str:
        state = ", destroyed" if self.destroyed else ""
        return f"Tensor(shape={list(self.shape)}, dtype={self.dtype}{state})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def storage(self, name: str = "tensor") -> Storage:
        """The buffer, after checking that it can still be used.

        Raises
        ------
        ValueError
            When the tensor was destroyed.
        DeviceLostError
            When its device is gone.
        """
        if not self._storage.alive:
            raise ValueError(f"{name}: the tensor was destroyed")
        self._storage.owner.check_alive()
        return self._storage

    def __getitem__(self, index: Any) -> Any:
        """A view by ints, slices with positive steps, ``...`` and ``None``; nothing is copied.

        Inside a ``score_mod`` or ``mask_mod``, indices may be traced; then it is a lookup in the kernel.
        """
        self.storage()
        items: list[Index] = list(index) if isinstance(index, tuple) else [index]
        traced = next((item for item in items if hasattr(item, "gather_from")), None)
        if traced is not None:
            return traced.gather_from(self, tuple(items))
        given = sum(item is not None and item is not Ellipsis for item in items)
        if given > self.ndim:
            raise IndexError(f"too many indices: {given} for shape {list(self.shape)}")
        if sum(item is Ellipsis for item in items) > 1:
            raise IndexError("an index can have only one ...")
        if Ellipsis not in [item for item in items if item is Ellipsis]:
            items.append(Ellipsis)
        at = next(i for i, item in enumerate(items) if item is Ellipsis)
        items[at : at + 1] = [slice(None)] * (self.ndim - given)
        shape: list[int] = []
        strides: list[int] = []
        offset, axis = self.offset, 0
        for item in items:
            if item is None:
                shape.append(1)
                strides.append(0)
                continue
            length, stride = self.shape[axis], self.strides[axis]
            if isinstance(item, slice):
                start, stop, step = item.indices(length)
                if step < 1:
                    raise ValueError(f"index: expected slices with a positive step, got {item}")
                count = max(0, -(-(stop - start) // step))
                offset += start * stride if count else 0
                shape.append(count)
                strides.append(stride * step)
            else:
                position = check_int("index", item)
                if not -length <= position < length:
                    raise IndexError(f"index {position} is out of range for axis {axis} of length {length}")
                offset += (position % length) * stride
            axis += 1
        return Tensor(self._storage, self.kind, tuple(shape), tuple(strides), offset)

    def transpose(self, *axes: int | Sequence[int]) -> Tensor:
        """A view with its axes in another order, given one by one or as a tuple; without any, reversed."""
        self.storage()
        order = [check_int("axes", axis) for axis in _unpack(axes)] if axes else list(range(self.ndim))[::-1]
        normal = [axis + self.ndim if axis < 0 else axis for axis in order]
        if sorted(normal) != list(range(self.ndim)):
            raise ValueError(f"axes: expected a permutation of {self.ndim} axes, got {tuple(axes)}")
        return Tensor(
            self._storage,
            self.kind,
            tuple(self.shape[a] for a in normal),
            tuple(self.strides[a] for a in normal),
            self.offset,
        )

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """A view of another shape, its lengths one by one or as a tuple; no element is moved.

        Raises
        ------
        ValueError
            When the sizes differ, or the view's strides allow no such shape without a copy.
        """
        self.storage()
        target = [check_int("shape", n) for n in _unpack(shape)]
        if target.count(-1) == 1:
            known = -math.prod(target)
            target[target.index(-1)] = self.size // known if known else 0
        if any(n < 0 for n in target) or math.prod(target) != self.size:
            raise ValueError(f"shape: cannot see {list(self.shape)} as {list(shape)}")
        strides = _strides_for(self.shape, self.strides, target)
        if strides is None:
            raise ValueError(
                f"shape: {list(self.shape)} with strides {list(self.strides)} "
                f"does not become {target} without a copy"
            )
        return Tensor(self._storage, self.kind, tuple(target), strides, self.offset)

    def write(self, array: object) -> None:
        """Replace the elements by those of an array, after everything that was called before.

        Parameters
        ----------
        array : array_like
            Of the tensor's shape, converted to its dtype.

        Raises
        ------
        ValueError
            For another shape; for a view with gaps, or of elements smaller than 4 bytes; when the tensor was
            destroyed.
        TypeError
            When the array holds no numbers.
        """
        storage = self.storage()
        if not self.is_contiguous or self.kind.itemsize != 4:
            raise ValueError(
                f"tensor: expected contiguous elements of 4 bytes to write to, got {self.dtype} "
                f"{list(self.shape)} with strides {list(self.strides)}"
            )
        carried = encode(np.asarray(array), self.kind, "array")
        if carried.shape != self.shape:
            raise ValueError(f"array: expected shape {list(self.shape)}, got {list(carried.shape)}")
        if self.size:
            storage.owner.write(storage.handle, carried.reshape(-1).view(np.uint8), 4 * self.offset)

    async def numpy(self, *, check: bool = True) -> npt.NDArray[Any]:
        """Read the tensor back; bfloat16 comes back as float32.

        Parameters
        ----------
        check : bool
            Also wait for everything that was called since, and raise what failed. Otherwise a failure is
            raised by the next read that checks.

        Raises
        ------
        ValueError
            When the tensor was destroyed.
        PyAttnError
            When anything recorded before failed on the GPU.
        """
        storage = self.storage()
        if self.size == 0:
            await storage.owner.synchronize()
            return decode(np.empty(self.shape, self.kind.carrier), self.kind)
        first, last = byte_span(self)
        first = first // 4 * 4
        raw = np.empty(-(-(last - first) // 4) * 4, np.uint8)
        await storage.owner.read(storage, first, raw, check=check)
        elements = raw[: (raw.size // self.kind.itemsize) * self.kind.itemsize].view(self.kind.carrier)
        begin = self.offset - first // self.kind.itemsize
        if self.is_contiguous and self.kind.name != "bfloat16":
            return elements[begin : begin + self.size].reshape(self.shape)
        strided = np.lib.stride_tricks.as_strided(
            elements[begin:], self.shape, [s * self.kind.itemsize for s in self.strides], writeable=False
        )
        # numpy.ascontiguousarray would give a tensor without dimensions one.
        return decode(np.array(strided, order="C"), self.kind)

    def destroy(self) -> None:
        """Free the buffer now; every view of it is destroyed with it. A second call does nothing."""
        self._storage.free()

    def __enter__(self) -> Tensor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()


def _unpack(given: tuple[Any, ...]) -> Sequence[Any]:
    """Numbers that came one by one, or as one tuple."""
    return given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


class Dense(NamedTuple):
    """How the elements of a new tensor lie in its buffer: dtype, shape, strides, and the bytes of all."""

    kind: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int


def dense(shape: Sequence[int], dtype: str, pitch: int | None = None) -> Dense:
    """The layout of a new tensor whose rows are ``pitch`` elements apart, or as long as they are.

    Raises
    ------
    ValueError, TypeError
        For an unknown dtype, or a shape of anything but integers of at least 0.
    """
    kind = check_dtype(dtype)
    sizes = tuple(shape)
    if not {int}.issuperset(map(type, sizes)):
        sizes = tuple(check_int("shape", n) for n in shape)
    if min(sizes, default=0) < 0:
        raise ValueError(f"shape: expected lengths >= 0, got {list(sizes)}")
    padded = (*sizes[:-1], pitch) if pitch is not None else sizes
    return Dense(kind, sizes, contiguous_strides(padded), math.prod(padded) * kind.itemsize)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def byte_span(tensor: Tensor) -> tuple[int, int]:
    """First byte of a non-empty view and the one past its last."""
    last = tensor.offset + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True))
    return tensor.offset * tensor.kind.itemsize, (last + 1) * tensor.kind.itemsize


def _strides_for(
    shape: Sequence[int], strides: Sequence[int], target: Sequence[int]
) -> tuple[int, ...] | None:
    """Strides that see ``shape`` as ``target``, or None when that needs a copy."""
    if math.prod(shape) == 0:
        return contiguous_strides(target)
    # Axes that lie one behind the other merge into one run; each target axis must divide a run.
    runs: list[list[int]] = []
    for length, stride in zip(shape, strides, strict=True):
        if length == 1:
            continue
        if runs and runs[-1][1] == length * stride:
            runs[-1] = [runs[-1][0] * length, stride]
        else:
            runs.append([length, stride])
    result: list[int] = []
    for length in reversed(target):
        if length == 1:
            result.append(0)
            continue
        if not runs or runs[-1][0] % length:
            return None
        result.append(runs[-1][1])
        runs[-1] = [runs[-1][0] // length, runs[-1][1] * length]
        if runs[-1][0] == 1:
            runs.pop()
    return tuple(reversed(result))
