"""Keys and values of the positions so far, for decoding one position at a time."""

from __future__ import annotations

import functools
from typing import Any

from py_attn.arguments import check_head_dim, check_positive
from py_attn.gpu.device import Device, default_device
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, Shader, render
from py_attn.gpu.tensor import Tensor
from py_attn.kernels._inputs import Operand, float_tensor, operand, output_type, pad4, shape_of

CACHE_DTYPES = ("float32", "float16", "bfloat16")
_WORKGROUP = 64
_PARAMS = ParamsLayout(
    source_strides="vec4<u32>",
    source_first="u32",
    batch="u32",
    heads="u32",
    count="u32",
    first_slot="u32",
    capacity="u32",
)


class KVCache:
    """A cache of keys and values on the GPU. Once it is full the oldest entries make room (a ring).

    Parameters
    ----------
    batch, kv_heads, capacity, head_dim : int
        Capacity in positions; head_dim from 1 to 512.
    value_head_dim : int, optional
        head_dim unless given.
    dtype : str or (str, str)
        "float32", "float16" or "bfloat16"; a pair gives keys and values one each.

    Attributes
    ----------
    length : int
        Positions held, at most ``capacity``.
    keys, values : Tensor
        The storage [B, Hkv, capacity, D]; position n lies in slot (start + n) mod capacity.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.
    """

    def __init__(
        self,
        batch: int,
        kv_heads: int,
        capacity: int,
        head_dim: int,
        *,
        value_head_dim: int | None = None,
        dtype: str | tuple[str, str] = "float32",
        device: Device | None = None,
    ) -> None:
        self.batch = check_positive("batch", batch)
        self.kv_heads = check_positive("kv_heads", kv_heads)
        self.capacity = check_positive("capacity", capacity)
        self.head_dim = check_positive("head_dim", head_dim)
        self.value_head_dim = (
            self.head_dim if value_head_dim is None else check_positive("value_head_dim", value_head_dim)
        )
        check_head_dim("head_dim", self.head_dim)
        check_head_dim("value_head_dim", self.value_head_dim)
        self.dtype = _check_dtypes(dtype)
        self.device = device or default_device()
        self.keys, self.values = (
            self.device.empty((batch, kv_heads, capacity, dim), kind, pitch=pad4(dim))
            for dim, kind in zip((self.head_dim, self.value_head_dim), self.dtype, strict=True)
        )
        self.start = 0
        self.length = 0

    def __repr__(self) -> str:
        return (
            f"KVCache(batch={self.batch}, kv_heads={self.kv_heads}, length={self.length} of {self.capacity}, "
            f"head_dim={self.head_dim}, value_head_dim={self.value_head_dim}, dtype={self.dtype})"
        )

    @property
    def nbytes(self) -> int:
        """Bytes of GPU memory that keys and values take, padding included."""
        return self.keys._storage.nbytes + self.values._storage.nbytes

    def append(self, key: Any, value: Any) -> None:
        """Add S positions behind those held.

        Parameters
        ----------
        key : Tensor or array_like
            [B, Hkv, S, D], S >= 1; any float dtype, stored in the cache's.
        value : Tensor or array_like
            [B, Hkv, S, Dv].

        Raises
        ------
        ValueError, TypeError
            For another batch, head count, head dim or dtype, or tensors of another device.
        """
        self.keys.storage("cache")
        count = self._check_shape("key", key, self.head_dim)
        if self._check_shape("value", value, self.value_head_dim) != count:
            raise ValueError(
                f"value: expected the key's {count} positions, got {list(shape_of('value', value))}"
            )
        kept = min(count, self.capacity)
        end = (self.start + self.length) % self.capacity
        first_slot = (end + count - kept) % self.capacity
        tensors = [float_tensor(n, x, self.device) for n, x in (("key", key), ("value", value))]
        for tensor, storage in zip(tensors, (self.keys, self.values), strict=True):
            self._write(operand("source", tensor[:, :, count - kept :]), storage, kept, first_slot)
        total = self.length + count
        self.length = min(total, self.capacity)
        if total > self.capacity:
            self.start = (first_slot + kept) % self.capacity

    def clear(self) -> None:
        """Forget all positions; the memory stays."""
        self.start = self.length = 0

    def destroy(self) -> None:
        """Free the memory."""
        self.keys.destroy()
        self.values.destroy()

    def _check_shape(self, name: str, value: object, dim: int) -> int:
        shape = shape_of(name, value)
        if len(shape) != 4 or shape[:2] != (self.batch, self.kv_heads) or shape[3] != dim or shape[2] < 1:
            raise ValueError(
                f"{name}: expected [{self.batch}, {self.kv_heads}, S >= 1, {dim}] for this cache, got {list(shape)}"
            )
        return shape[2]

    def _write(self, source: Operand, cache: Tensor, count: int, first_slot: int) -> None:
        bound = self.device.bind(source.tensor, "key")
        target = self.device.bind(cache, "cache")
        shader = _append_shader(
            source.binding, source.tensor.dtype, source.packed, cache.dtype, cache.shape[3]
        )
        params = _PARAMS.pack(
            source_strides=source.strides,
            source_first=bound.first,
            batch=self.batch,
            heads=self.kv_heads,
            count=count,
            first_slot=first_slot,
            capacity=self.capacity,
        )
        work = self.batch * self.kv_heads * count * pad4(cache.shape[3]) // 4
        grid = self.device.grid(-(-work // _WORKGROUP), "key")
        self.device.dispatch(shader, params, [bound, target], grid)


def _check_dtypes(dtype: object) -> tuple[str, str]:
    pair = dtype if isinstance(dtype, (tuple, list)) else (dtype, dtype)
    if len(pair) != 2:
        raise ValueError(f"dtype: expected one dtype or a pair for keys and values, got {dtype!r}")
    for kind in pair:
        if kind not in CACHE_DTYPES:
            raise ValueError(f"dtype: expected one of {', '.join(CACHE_DTYPES)}, got {kind!r}")
    return str(pair[0]), str(pair[1])


@functools.lru_cache(maxsize=64)
def _append_shader(source: Binding, dtype: str, packed: bool, cache_dtype: str, dim: int) -> Shader:
    return render(
        "cache_append.wgsl",
        "cache_append",
        f"{dtype}-{cache_dtype}",
        params=_PARAMS,
        bindings=(source, Binding("cache", output_type(cache_dtype), writes=True)),
        constants={
            "source_dtype": dtype,
            "source_packed": packed,
            "cache_dtype": cache_dtype,
            "dtypes": (dtype, cache_dtype),
            "D": dim,
            "D4": pad4(dim) // 4,
            "WORKGROUP": _WORKGROUP,
        },
    )
