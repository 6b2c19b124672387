"""Decoding position by position with a KV cache: its splits, and what each contributes to the output."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import py_attn as pa
from py_attn import reference
from py_attn.viewer.sources.source import Array

if TYPE_CHECKING:
    from py_attn.viewer.sources.mods import Mods

#: "auto" would take one split for so short a cache, and there would be nothing to combine.
DEFAULT_SPLITS = 4


class _Step(NamedTuple):
    """The result of one position; arrays are [Hq, …]."""

    out: Array
    lse: Array
    partial_out: Array
    partial_lse: Array
    weights: Array
    nbytes: int


class Decode:
    """A layer's queries, one by one, over a cache of its keys and values; causal, whatever the source is.

    Parameters
    ----------
    device : Device or None
        None computes the same in numpy.
    arrays : tuple of array
        A layer's query, key and value as numpy arrays.
    capacity : int
        Of the cache; when it is full each new position replaces the oldest one.
    softcap : float, optional
    mods : Mods, optional
        A visitor's score_mod and mask_mod.
    """

    def __init__(
        self,
        device: pa.Device | None,
        arrays: tuple[Array, Array, Array],
        capacity: int,
        softcap: float | None = None,
        mods: Mods | None = None,
    ) -> None:
        query, key, _ = arrays
        if not 1 <= capacity <= query.shape[2]:
            raise ValueError(f"capacity: expected 1 to {query.shape[2]}, got {capacity}")
        self._arrays = arrays
        self._softcap = softcap
        self._mods = mods
        self._cache = (
            pa.KVCache(1, key.shape[1], capacity, key.shape[3], device=device) if device is not None else None
        )
        self._appended = 0
        self.capacity = capacity

    async def step(self, position: int, head: int, splits: int = DEFAULT_SPLITS) -> dict[str, Any]:
        """Fill the cache up to ``position`` and attend from there.

        A later position appends the keys and values up to it; for an earlier one a new cache is filled.

        Returns
        -------
        dict
            ``first``: oldest position held; ``length``, ``capacity``, ``nbytes`` of the cache; ``weights``
            float32 [length] of ``head``; ``splits``: per split {"start", "stop", "lse", "factor"} with factor
            exp(lse of the split - lse); ``lse``; ``combined``: largest difference between the splits combined
            here in numpy and the kernels' output; ``error``: largest difference to float64.
        """
        length = self._arrays[0].shape[2]
        if not 0 <= position < length:
            raise ValueError(f"position: expected 0 to {length - 1}, got {position}")
        if splits < 1:
            raise ValueError(f"splits: expected 1 or more, got {splits}")
        first = max(0, position + 1 - self.capacity)
        held = position + 1 - first
        splits = min(splits, held)
        step = await (
            self._on_device(position, first, splits)
            if self._cache
            else self._in_numpy(position, first, splits)
        )
        query, key, value = self._arrays
        exact = reference.decode_attention(
            query[:, :, position : position + 1],
            key[:, :, : position + 1],
            value[:, :, : position + 1],
            capacity=self.capacity,
            softcap=self._softcap,
            **(self._mods.plain if self._mods else {}),
        )[0, :, 0]
        seen = np.where(np.isneginf(step.lse), np.float32(0), step.lse)
        factors = np.exp(step.partial_lse - seen[:, None])
        combined = (factors[..., None] * step.partial_out).sum(axis=1)
        per_split = math.ceil(held / splits)
        return {
            "position": position,
            "first": first,
            "length": held,
            "capacity": self.capacity,
            "nbytes": step.nbytes,
            "weights": np.ascontiguousarray(step.weights[head], np.float32),
            "lse": float(step.lse[head]),
            "splits": [
                {
                    "start": min(first + s * per_split, position + 1),
                    "stop": min(first + (s + 1) * per_split, position + 1),
                    "lse": float(step.partial_lse[head, s]),
                    "factor": float(factors[head, s]),
                }
                for s in range(splits)
            ],
            "combined": float(np.abs(combined - step.out).max()),
            "error": float(np.abs(step.out - exact).max()),
        }

    async def _on_device(self, position: int, first: int, splits: int) -> _Step:
        cache = self._cache
        assert cache is not None
        query, key, value = self._arrays
        if position + 1 < self._appended:
            cache.clear()
            self._appended = 0
        if position + 1 > self._appended:
            new = slice(self._appended, position + 1)
            cache.append(key[:, :, new], value[:, :, new])
            self._appended = position + 1
        row = cache.device.tensor(query[:, :, position : position + 1])
        mods = self._mods
        keywords: dict[str, Any] = {"softcap": self._softcap} | (mods.functions if mods else {})
        out, lse = pa.decode_attention(row, cache, splits=splits, return_lse=True, **keywords)
        partial_out, partial_lse = pa.decode_partials(row, cache, splits=splits, **keywords)
        # Row 0 here is `position` and column 0 is `first`, whereas a cache counts from the first append.
        if mods:
            keywords |= mods.on_device_at(cache.device, position, first)
        weights = pa.attention_weights(row, key[:, :, first : position + 1], lse, **keywords)
        return _Step(
            (await out.numpy())[0, :, 0],
            (await lse.numpy())[0, :, 0],
            (await partial_out.numpy())[0, :, 0],
            (await partial_lse.numpy())[0, :, 0],
            (await weights.numpy())[0, :, 0],
            cache.nbytes,
        )

    async def _in_numpy(self, position: int, first: int, splits: int) -> _Step:
        query, key, value = self._arrays
        row = query[:, :, position : position + 1]
        held = position + 1 - first
        mods = self._mods

        def attend(start: int, stop: int) -> tuple[Array, Array]:
            part = slice(first + start, first + stop)
            if start >= stop:
                heads = row.shape[1]
                return np.zeros((heads, value.shape[3]), np.float32), np.full(heads, -np.inf, np.float32)
            out, lse = reference.attention(
                row,
                key[:, :, part],
                value[:, :, part],
                softcap=self._softcap,
                **(mods.at(position, first + start) if mods else {}),
                return_lse=True,
                compute_dtype=np.float32,
            )
            return out[0, :, 0], lse[0, :, 0]

        per_split = math.ceil(held / splits)
        parts = [attend(s * per_split, min(held, (s + 1) * per_split)) for s in range(splits)]
        out, lse = attend(0, held)
        weights = reference.attention_weights(
            row,
            key[:, :, first : position + 1],
            softcap=self._softcap,
            **(mods.at(position, first) if mods else {}),
            compute_dtype=np.float32,
        )
        return _Step(
            out,
            lse,
            np.stack([part for part, _ in parts], axis=1),
            np.stack([part for _, part in parts], axis=1),
            weights[0, :, 0],
            4 * self.capacity * key.shape[1] * (key.shape[3] + value.shape[3]),
        )
