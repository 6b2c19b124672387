"""One decoding step over a cache of any dtype: what it takes, how long, and what the dtype changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import py_attn as pa
from py_attn import reference, turboquant_reference
from py_attn.gpu.dtypes import round_to
from py_attn.kernels.turboquant import Format
from py_attn.viewer.measure import spread
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
    key, value = (x[:, :, first : position + 1] for x in arrays[1:])
    held = (query, key, value)
    exact = reference.decode_attention(query, key, value, softcap=softcap)[0, :, 0]
    exact_weights = _row(query, key, head, softcap, np.float64)
    result = (
        await _on_device(device, held, dtype, head, capacity, softcap)
        if device
        else _in_numpy(held, dtype, head, capacity, softcap)
    )
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


async def _on_device(
    device: pa.Device, held: tuple[Array, ...], dtype: str, head: int, capacity: int, softcap: float | None
) -> _Result:
    query, key, value = held
    cache = pa.KVCache(
        1, key.shape[1], capacity, key.shape[3], value_head_dim=value.shape[3], dtype=dtype, device=device
    )
    cache.append(key, value)
    row = device.tensor(query)
    keywords: dict[str, Any] = {"softcap": softcap, "return_lse": True}
    out, lse = pa.decode_attention(row, cache, **keywords)  # compiles
    times = []
    clock = "gpu"
    for _ in range(REPEATS):
        with device.timer() as timer:
            pa.decode_attention(row, cache, **keywords)
        dispatches = await timer.results()
        if any(each.gpu_us is None for each in dispatches):
            clock = "wall"
        times.append(sum(each.wall_us if each.gpu_us is None else each.gpu_us for each in dispatches))
    # A quantised key is the same wherever it goes, so these are the keys that the cache holds.
    keys = (
        pa.turboquant.dequantize(pa.turboquant.quantize(key, int(dtype[-1])))
        if dtype.startswith("turboquant")
        else device.tensor(key, dtype)
    )
    weights = pa.attention_weights(row, keys, lse, heads=head, softcap=softcap)
    result = _Result(
        (await out.numpy())[0, :, 0], (await weights.numpy())[0, 0, 0], cache.nbytes, times, clock
    )
    cache.destroy()
    return result


def _in_numpy(
    held: tuple[Array, ...], dtype: str, head: int, capacity: int, softcap: float | None
) -> _Result:
    query, key, value = held
    if dtype.startswith("turboquant"):
        bits = int(dtype[-1])
        key, value = (turboquant_reference.roundtrip(x, bits, np.float32) for x in (key, value))
        row_bytes = [4 * Format(bits, x.shape[3]).words for x in (key, value)]
    else:
        key, value = (np.asarray(round_to(x, dtype), np.float32) for x in (key, value))
        row_bytes = [np.dtype(dtype).itemsize * (x.shape[3] + -x.shape[3] % 4) for x in (key, value)]
    out = reference.decode_attention(query, key, value, softcap=softcap, compute_dtype=np.float32)
    weights = _row(query, key, head, softcap, np.float32)
    return _Result(out[0, :, 0], weights, sum(row_bytes) * key.shape[1] * capacity, [], "none")


def _row(query: Array, key: Array, head: int, softcap: float | None, dtype: Any) -> Array:
    kv = head * key.shape[1] // query.shape[1]
    row = reference.attention_weights(
        query[:, head : head + 1], key[:, kv : kv + 1], softcap=softcap, compute_dtype=dtype
    )
    weights: Array = row[0, 0, 0]
    return weights
