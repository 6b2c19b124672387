"""One decoding step over a cache of any dtype: what it takes, how long, and what the dtype changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

import py_attn as pa
from py_attn import reference, turboquant_reference
from py_attn.gpu.dtypes import round_to
from py_attn.kernels.quantization.turboquant import Format
from py_attn.viewer.measure import spread
from py_attn.viewer.mods import Mods
from py_attn.viewer.source import Array

DTYPES = ("float32", "float16", "turboquant4", "turboquant3", "turboquant2")
REPEATS = 3


@dataclass
class _Result:
    """What one cache gives; ``out`` is [Hq, Dv], ``weights`` [length]."""

    out: Array
    weights: Array
    nbytes: int
    times: list[float]
    clock: str


async def try_cache(
    device: pa.Device | None,
    arrays: tuple[Array, Array, Array],
    dtype: str,
    position: int,
    head: int,
    capacity: int,
    softcap: float | None = None,
    mods: Mods | None = None,
) -> dict[str, Any]:
    """The step at ``position`` over a cache of ``dtype`` with room for ``capacity`` positions.

    Parameters
    ----------
    device : Device or None
        None computes the same in numpy; there is no time then.
    arrays : tuple of array
        A layer's query, key and value.
    dtype : str
        One of :data:`DTYPES`.
    head : int
        Whose row of the map is compared.

    Returns
    -------
    dict
        ``first``, ``length``: positions held; ``nbytes`` of the cache; ``error``: the output's largest
        difference to float64 over all heads; ``relative``: that difference's length over the output's;
        ``weights``: float32 [length] of the head; ``change``: their largest difference to float64;
        ``time`` in microseconds (median of all dispatches together) or None, and its ``clock``.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype: expected one of {', '.join(DTYPES)}, got {dtype!r}")
    length = arrays[0].shape[2]
    if not 0 <= position < length:
        raise ValueError(f"position: expected 0 to {length - 1}, got {position}")
    if not 1 <= capacity <= length:
        raise ValueError(f"capacity: expected 1 to {length}, got {capacity}")
    first = max(0, position + 1 - capacity)
    query = arrays[0][:, :, position : position + 1]
    key, value = (x[:, :, : position + 1] for x in arrays[1:])
    held = _Held(query, key, value, first, head, capacity, softcap, mods)
    exact, exact_weights = held.in_numpy(np.float64)
    result = await _on_device(device, held, dtype) if device else _in_numpy(held, dtype)
    difference = result.out - exact
    return {
        "dtype": dtype,
        "position": position,
        "first": first,
        "length": position + 1 - first,
        "nbytes": result.nbytes,
        "error": float(np.abs(difference).max()),
        "relative": float(np.linalg.norm(difference) / (np.linalg.norm(exact) or 1.0)),
        "weights": np.ascontiguousarray(result.weights, np.float32),
        "change": float(np.abs(result.weights - exact_weights).max()),
        "time": spread(result.times)["median"] if result.times else None,
        "clock": result.clock,
    }


@dataclass
class _Held:
    """What is decoded: a query [1, Hq, 1, D], all keys and values so far, and which of them a cache holds."""

    query: Array
    key: Array
    value: Array
    first: int
    head: int
    capacity: int
    softcap: float | None
    mods: Mods | None

    def in_numpy(self, dtype: npt.DTypeLike) -> tuple[Array, Array]:
        """The output [Hq, Dv] and the head's weights."""
        mods = self.mods
        out = reference.decode_attention(
            self.query,
            self.key,
            self.value,
            capacity=self.capacity,
            softcap=self.softcap,
            **(mods.plain if mods else {}),
            compute_dtype=dtype,
        )
        weights = reference.attention_weights(
            self.query,
            self.key[:, :, self.first :],
            softcap=self.softcap,
            **(mods.at(self.key.shape[2] - 1, self.first) if mods else {}),
            compute_dtype=dtype,
        )
        return out[0, :, 0], weights[0, self.head, 0]


async def _on_device(device: pa.Device, held: _Held, dtype: str) -> _Result:
    query, key, value, mods = held.query, held.key, held.value, held.mods
    cache = pa.KVCache(
        1, key.shape[1], held.capacity, key.shape[3],
        value_head_dim=value.shape[3], dtype=dtype, device=device,
    )  # fmt: skip
    cache.append(key, value)
    row = device.tensor(query)
    keywords: dict[str, Any] = {"softcap": held.softcap} | (mods.functions if mods else {})
    out, lse = pa.decode_attention(row, cache, return_lse=True, **keywords)  # compiles
    times = []
    clock = "gpu"
    for _ in range(REPEATS):
        with device.timer() as timer:
            pa.decode_attention(row, cache, return_lse=True, **keywords)
        dispatches = await timer.results()
        if any(each.gpu_us is None for each in dispatches):
            clock = "wall"
        times.append(sum(each.wall_us if each.gpu_us is None else each.gpu_us for each in dispatches))
    # A quantised key is the same wherever it goes, so these are the keys that the cache holds.
    newest = key[:, :, held.first :]
    keys = (
        pa.turboquant.dequantize(pa.turboquant.quantize(newest, int(dtype[-1])))
        if dtype.startswith("turboquant")
        else device.tensor(newest, dtype)
    )
    if mods:
        keywords |= mods.on_device_at(device, key.shape[2] - 1, held.first)
    weights = pa.attention_weights(row, keys, lse, heads=held.head, **keywords)
    result = _Result(
        (await out.numpy())[0, :, 0], (await weights.numpy())[0, 0, 0], cache.nbytes, times, clock
    )
    cache.destroy()
    return result


def _in_numpy(held: _Held, dtype: str) -> _Result:
    key, value = held.key, held.value
    if dtype.startswith("turboquant"):
        bits = int(dtype[-1])
        key, value = (turboquant_reference.roundtrip(x, bits, np.float32) for x in (key, value))
        row_bytes = [4 * Format(bits, x.shape[3]).words for x in (key, value)]
    else:
        key, value = (np.asarray(round_to(x, dtype), np.float32) for x in (key, value))
        row_bytes = [np.dtype(dtype).itemsize * (x.shape[3] + -x.shape[3] % 4) for x in (key, value)]
    out, weights = replace(held, key=key, value=value).in_numpy(np.float32)
    return _Result(out, weights, sum(row_bytes) * key.shape[1] * held.capacity, [], "none")
