"""One workload at a time: its inputs on the GPU, its calls, its float64 reference on sampled rows."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import py_attn as pa
from bench.numbers import block, filled
from bench.workloads import Workload
from py_attn.gpu.device import Device
from py_attn.kernels.attention.config import Config, config_for_tile, configure
from py_attn.kernels.attention.options import resolve
from py_attn.kernels.attention.tiles import Tile

Array = npt.NDArray[Any]
#: Inputs of this many bytes in all are assumed not to stay in any cache.
_COLD_BYTES = 192 << 20
_MOST_SETS = 12
_MOST_SETS_SOFTWARE = 3
_SAMPLED_ROWS = 48
# Of gradients: heads, the rows of a head up to which all of them are compared, and a part of the queries.
_SAMPLED_HEADS = 3
_MOST_ROWS = 512
_QUERIES_AT_ONCE = 256
#: Seeds of query, key, value and output gradient; a set of inputs adds a multiple of 16.
SEEDS = {"query": 1, "key": 2, "value": 3, "grad": 4}


@dataclass
class Options:
    """Options in the page's address.

    Attributes
    ----------
    variant : str
        "" for the workload's own.
    splits : int or None
    tile : dict
        Fields to replace in the tile that attention would choose.
    """

    variant: str = ""
    splits: int | None = None
    tile: dict[str, Any] = field(default_factory=dict)


@dataclass
class Check:
    """Sampled results: ``got`` by the kernel, ``exact`` in float64, and those of numpy in float32."""

    got: list[Array] = field(default_factory=list)
    exact: list[Array] = field(default_factory=list)
    single: list[Array] = field(default_factory=list)


class Run:
    """A workload's inputs and calls on one device.

    Attributes
    ----------
    sets : int
        The number of sets of inputs among which calls take turns.
    """

    def __init__(self, device: Device, workload: Workload, options: Options) -> None:
        self.device = device
        self.workload = workload
        self.variant: str | Config = options.variant or workload.variant
        self.options = options
        most = _MOST_SETS_SOFTWARE if device.info.software else _MOST_SETS
        self.sets = max(1, min(most, math.ceil(_COLD_BYTES / self.bytes_per_set())))
        self.inputs = [self._make(n) for n in range(self.sets)]
        if options.tile and workload.kind == "attention":
            self.variant = self._with_tile(options.tile)

    # Shapes

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each input."""
        w = self.workload
        query = (w.batch, w.heads, w.queries, w.head_dim)
        key = (w.batch, w.kv_heads, w.keys, w.head_dim)
        if w.lengths:
            query = key = (sum(w.sequences), w.heads, w.head_dim)
        found = {"query": query, "key": key, "value": key}
        return found | {"grad": query} if w.kind == "backward" else found

    def bytes_per_set(self) -> float:
        """The bytes that one call reads, roughly."""
        if self.workload.kind == "decode":
            return self.workload.cache_bytes
        return 4.0 * sum(math.prod(shape) for shape in self.shapes().values())

    # Inputs and calls

    def _make(self, number: int) -> dict[str, Any]:
        w = self.workload
        made: dict[str, Any] = {
            name: filled(self.device, SEEDS[name] + 16 * number, shape)
            for name, shape in self.shapes().items()
        }
        if w.kind == "decode":
            cache = pa.KVCache(w.batch, w.kv_heads, w.keys, w.head_dim, dtype=w.dtype)
            cache.append(made.pop("key"), made.pop("value"))
            made["cache"] = cache
        elif w.dtype != "float32":
            half = pa.KVCache(w.batch, w.heads, w.queries, w.head_dim, dtype=w.dtype)
            half.append(made["query"], made["query"])
            made["query"] = half.keys
            both = pa.KVCache(w.batch, w.kv_heads, w.keys, w.head_dim, dtype=w.dtype)
            both.append(made["key"], made["value"])
            made["key"], made["value"] = both.keys, both.values
        if w.lengths:
            made["cu"] = np.cumsum([0, *w.sequences]).astype(np.int32)
        if w.kind == "backward":
            made["out"], made["lse"] = self._forward(made, return_lse=True)
        return made

    def _forward(self, given: dict[str, Any], **options: Any) -> Any:
        tensors, causal = (given["query"], given["key"], given["value"]), self.workload.causal
        if self.workload.lengths:
            return pa.varlen_attention(*tensors, given["cu"], given["cu"], causal=causal, **options)
        return pa.attention(*tensors, causal=causal, **options)

    def _with_tile(self, fields: dict[str, Any]) -> Config:
        """The configuration by the static tables, with these fields of its tile replaced."""
        given, info = self.inputs[0], self.device.info
        call = resolve(given["query"], given["key"], given["value"], causal=self.workload.causal)
        config = configure(call.options, info, self.variant)
        if config.tile is None:
            return config
        tile = dataclasses.replace(config.tile, **fields)
        if isinstance(tile, Tile):
            return config_for_tile(call.options, info, config.variant, tile)
        return dataclasses.replace(config, tile=tile)

    def call(self, n: int) -> Any:
        """The n-th call, as a user would write it."""
        w, given = self.workload, self.inputs[n % self.sets]
        if w.kind == "decode":
            splits = "auto" if self.options.splits is None else self.options.splits
            return pa.decode_attention(given["query"], given["cache"], splits=splits)
        if w.kind == "backward":
            tensors = [given[name] for name in ("grad", "query", "key", "value", "out", "lse")]
            if w.lengths:
                return pa.varlen_attention_backward(*tensors, given["cu"], given["cu"], causal=w.causal)
            return pa.attention_backward(*tensors, causal=w.causal)
        return self._forward(given, variant=self.variant)

    def naive(self, n: int) -> Any:
        """The same by the textbook kernel ("naive"), where there is one."""
        kept, self.variant = self.variant, "naive"
        try:
            return self.call(n)
        finally:
            self.variant = kept

    @property
    def has_naive(self) -> bool:
        """Whether :meth:`naive` is another kernel."""
        return self.workload.kind in ("attention", "varlen") and self.variant != "naive"

    def destroy(self) -> None:
        """Free the inputs."""
        for given in self.inputs:
            for value in given.values():
                if hasattr(value, "destroy"):
                    value.destroy()
        self.inputs = []

    # The reference

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Sampled output rows: (batch, head, query), or (sequence, head, query within it)."""
        w = self.workload
        if w.kind == "decode":
            yield from ((head % w.batch, head, 0) for head in range(w.heads))
            return
        for n in range(_SAMPLED_ROWS):
            b, h = (n * 7) % w.batch, (n * 5) % w.heads
            length = w.sequences[b] if w.lengths else w.queries
            # First and last rows, and others spread over the middle.
            yield b, h, (0, length - 1, (n * 379) % length)[n % 3]

    def first(self, b: int) -> int:
        """The index at which sequence ``b`` of a varlen workload begins."""
        return sum(self.workload.sequences[:b])

    def part(self, name: str, b: int, h: int, rows: slice | int) -> Array:
        """Rows of one head of an input of the first set, as float32 (or as the storage holds them)."""
        w, shape = self.workload, self.shapes()[name]
        if w.lengths:
            first = self.first(b)
            if isinstance(rows, int):
                return block(SEEDS[name], shape, first + rows, h)
            return block(SEEDS[name], shape, slice(first, first + w.sequences[b]), h)
        values = block(SEEDS[name], shape, b, h, rows)
        if w.dtype == "float16" and not (w.kind == "decode" and name == "query"):
            values = values.astype(np.float16).astype(np.float32)
        return values

    def exact_rows(self, compute: npt.DTypeLike) -> list[Array]:
        """The reference's sampled rows, in this precision."""
        w, found = self.workload, []
        for b, h, i in self.rows():
            kv = h // (w.heads // w.kv_heads)
            query = self.part("query", b, h, i)
            length = w.sequences[b] if w.lengths else w.keys
            queries = w.sequences[b] if w.lengths else w.queries
            shown = slice(0, i + length - queries + 1 if w.causal else length)
            key, value = self.part("key", b, kv, shown), self.part("value", b, kv, shown)
            key, value = key[shown], value[shown]
            found.append(
                pa.reference.attention(
                    query[None, None, None], key[None, None], value[None, None], compute_dtype=compute
                )[0, 0, 0]
            )
        return found

    async def check(self) -> Check:
        """Run once with poisoned outputs, and compare rows with the reference.

        Raises
        ------
        AssertionError
            When any element of the whole output is not finite.
        """
        self.device.poison_outputs = True
        try:
            result = self.call(0)
        finally:
            self.device.poison_outputs = False
        results = result if isinstance(result, tuple) else (result,)
        arrays = [await tensor.numpy() for tensor in results]
        for array in arrays:
            bad = np.count_nonzero(~np.isfinite(array))
            assert not bad, f"{self.workload.name}: {bad:,} of {array.size:,} outputs are not finite"
        if self.workload.kind == "backward":
            return self._check_gradients(arrays)
        (out,) = arrays
        found = Check(exact=self.exact_rows(np.float64), single=self.exact_rows(np.float32))
        for b, h, i in self.rows():
            found.got.append(out[self.first(b) + i, h] if self.workload.lengths else out[b, h, i])
        return found

    def _check_gradients(self, arrays: list[Array]) -> Check:
        """Rows of the three gradients of a few heads, all of them where they are not many."""
        found, w = Check(), self.workload
        heads = itertools.cycle(range(1, w.heads)) if w.heads > 1 else itertools.repeat(0)
        for b, h in itertools.islice(zip(range(w.batch), heads, strict=False), _SAMPLED_HEADS):
            length = w.sequences[b] if w.lengths else w.queries
            step = max(1, length // _SAMPLED_ROWS) if length > _MOST_ROWS else 1
            rows = np.unique([*range(0, length, step), length - 1])
            inputs = [self.part(name, b, h, slice(None)) for name in ("query", "key", "value", "grad")]
            for compute, into in ((np.float64, found.exact), (np.float32, found.single)):
                into += gradient_rows(*(x.astype(compute) for x in inputs), rows, causal=w.causal)
            at = self.first(b) + rows if w.lengths else rows
            found.got += [array[at, h] if w.lengths else array[b, h, at] for array in arrays]
        return found


def gradient_rows(
    query: Array, key: Array, value: Array, grad: Array, rows: Array, *, causal: bool
) -> list[Array]:
    """These rows of the gradients of one head's query, key and value, each [rows, D], in the inputs' dtype.

    It goes through the queries in parts, so that no matrix of all scores has to fit into memory.
    """
    scale = query.dtype.type(1 / math.sqrt(query.shape[1]))
    d_query, d_key, d_value = (np.zeros((len(rows), x.shape[1]), x.dtype) for x in (query, key, value))
    for begin in range(0, len(query), _QUERIES_AT_ONCE):
        part = slice(begin, begin + _QUERIES_AT_ONCE)
        q, g = query[part], grad[part]
        scores = (q * scale) @ key.T
        if causal:
            hidden = np.arange(len(key)) > np.arange(begin, begin + len(q))[:, None] + len(key) - len(query)
            scores[hidden] = -np.inf
        p, _ = pa.reference.softmax(scores)
        dp = g @ value.T
        ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True))
        here = (rows >= begin) & (rows < begin + len(q))
        d_query[here] = ds[rows[here] - begin] @ key * scale
        d_key += ds[:, rows].T @ q * scale
        d_value += p[:, rows].T @ g
    return [d_query, d_key, d_value]
