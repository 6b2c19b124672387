"""Caches of every dtype compared at one decoding step: memory, time, and the error of the output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

import py_attn as pa
from py_attn import reference
from py_attn.gpu.dtypes import round_to
from py_attn.viewer.methods import method
from py_attn.viewer.panels.kernel import read_timer, spread
from py_attn.viewer.sources.source import Array
from py_attn.viewer.viewer import Viewer

if TYPE_CHECKING:
    from py_attn.viewer.sources.mods import Mods

DTYPES = ("float32", "float16", "turboquant4", "turboquant3", "turboquant2")
REPEATS = 3


@method()
async def decode_cache(
    viewer: Viewer, layer: int, position: int, head: int, capacity: int, dtype: str
) -> dict[str, Any]:
    """One decoding step over a cache of some dtype; see :func:`try_cache`."""
    source, chosen = viewer.base_layer(layer)
    if not 0 <= head < source.heads:
        raise ValueError(f"head: expected 0 to {source.heads - 1}, got {head}")
    return await try_cache(
        viewer.device, await chosen.host(), dtype, position, head, capacity,
        source.masking.softcap, source.masking.mods,
    )  # fmt: skip


class _Result(NamedTuple):
    """The step over one cache; ``out`` is [Hq, Dv], ``weights`` [length]."""

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
        None computes the same in numpy, untimed.
    arrays : tuple of array
        A layer's query, key and value.
    dtype : str
        One of :data:`DTYPES`.
    head : int
        The head whose weights are compared.

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
    step = _Step(query, key, value, first, head, capacity, softcap, mods)
    exact, exact_weights = step.in_numpy(np.float64)
    result = await _on_device(device, step, dtype) if device else _in_numpy(step, dtype)
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


class _Step(NamedTuple):
    """A query [1, Hq, 1, D], all keys and values up to it, and the first position that the cache holds."""

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


async def _on_device(device: pa.Device, step: _Step, dtype: str) -> _Result:
    query, key, value, mods = step.query, step.key, step.value, step.mods
    cache = pa.KVCache(
        1, key.shape[1], step.capacity, key.shape[3],
        value_head_dim=value.shape[3], dtype=dtype, device=device,
    )  # fmt: skip
    cache.append(key, value)
    row = device.tensor(query)
    keywords: dict[str, Any] = {"softcap": step.softcap} | (mods.functions if mods else {})
    out, lse = pa.decode_attention(row, cache, return_lse=True, **keywords)  # compiles
    timed = []
    for _ in range(REPEATS):
        with device.timer() as timer:
            pa.decode_attention(row, cache, return_lse=True, **keywords)
        timed.append(await read_timer(timer, "decode_split"))
    # A key is quantised alone, so these are the very keys that the cache holds.
    newest = key[:, :, step.first :]
    keys = (
        pa.turboquant.dequantize(pa.turboquant.quantize(newest, int(dtype[-1])))
        if dtype.startswith("turboquant")
        else device.tensor(newest, dtype)
    )
    if mods:
        keywords |= mods.on_device_at(device, key.shape[2] - 1, step.first)
    weights = pa.attention_weights(row, keys, lse, heads=step.head, **keywords)
    result = _Result(
        (await out.numpy())[0, :, 0],
        (await weights.numpy())[0, 0, 0],
        cache.nbytes,
        [each.dispatch_us for each in timed],
        timed[-1].clock,
    )
    cache.destroy()
    return result


def _in_numpy(step: _Step, dtype: str) -> _Result:
    key, value = (rounded(x, dtype) for x in (step.key, step.value))
    if dtype.startswith("turboquant"):
        from py_attn.kernels.quantization.turboquant import Format  # a start does not need it

        row_bytes = [4 * Format(int(dtype[-1]), x.shape[3]).words for x in (key, value)]
    else:
        row_bytes = [np.dtype(dtype).itemsize * (x.shape[3] + -x.shape[3] % 4) for x in (key, value)]
    out, weights = step._replace(key=key, value=value).in_numpy(np.float32)
    return _Result(out, weights, sum(row_bytes) * key.shape[1] * step.capacity, [], "none")


def rounded(x: Array, dtype: str) -> Array:
    """Keys or values [..., D] as a cache of ``dtype`` gives them back, float32."""
    if dtype.startswith("turboquant"):
        from py_attn import turboquant_reference  # a start does not need it

        return np.asarray(turboquant_reference.roundtrip(x, int(dtype[-1]), np.float32), np.float32)
    return np.asarray(round_to(x, dtype), np.float32)
