"""Keys and values of the positions so far, for decoding one position at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from py_attn.arguments import check_bool, check_head_dim, check_int, check_positive
from py_attn.gpu.device import Device, default_device
from py_attn.gpu.kernel import Described, Launch, Plan
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.checks import check_lengths, float_tensor, integer_tensor, shape_of
from py_attn.kernels.decode.append import launch_advance, launch_write
from py_attn.kernels.decode.formats import (
    DTYPES,
    FLOATS,
    Integers,
    check_dtypes,
    check_scales,
    codes_of,
    integers_of,
)
from py_attn.kernels.decode.tiled_codes import keeps_tiles
from py_attn.kernels.operands import pad4
from py_attn.kernels.quantization import turboquant
from py_attn.kernels.rotary import Rotary, check_keyword, tables_of


class KVCache:
    """A cache of keys and values on the GPU. Once it is full the oldest entries make room (a ring).

    With ``sink_tokens`` the first entries stay for good and the others are the ring: StreamingLLM's cache
    (arXiv 2309.17453), whose decoding sees the first tokens and the newest ones.

    A position is the number of an entry since the first append (or the last :meth:`clear`), whatever was
    dropped since; the newest is ``total`` - 1. Causality and ``window`` compare positions, and a
    ``score_mod`` gets them. What is stored is not touched: keys with rotary embeddings keep those of the
    caller, who for StreamingLLM's own scheme rotates by the number of the entry within the cache.

    Parameters
    ----------
    batch, kv_heads, capacity, head_dim : int
        Capacity in positions; head_dim from 1 to 576.
    value_head_dim : int, optional
        head_dim unless given.
    dtype : str or (str, str)
        "float32", "float16", "bfloat16"; "int8"; "q8_0" or "q4_0", ggml's blocks of 32 integers of 8 or 4
        bits with a float16 scale each; "turboquant1" … "turboquant4", which keep that many bits a number
        (:mod:`py_attn.turboquant`); or "uniform4", which rotates as these do and rounds to 16 levels at equal
        distances. A pair gives keys and values one each.
    qjl : bool
        Spend one of a quantised key's bits on its residual, see :func:`py_attn.turboquant.quantize`.
    k_scale, v_scale : float or array_like, optional
        Of int8 keys and values: what an integer is multiplied with, a number above 0, [Hkv] or [B, Hkv].
        A number x is stored as x / scale, rounded to the nearest integer from -128 to 127.
    sink_tokens : int
        How many of the first entries are never overwritten, from 0 to capacity - 1. They stay visible
        whatever the window.
    ragged : bool
        Give each batch element a length of its own, which lies on the GPU in ``totals``. Appends and decodes
        read it there, so recorded ones that are submitted again go on where the cache then ends.

    Attributes
    ----------
    total : int
        Positions appended so far. Of a ragged cache ``total``, ``length`` and ``start`` are not known here:
        they raise ``ValueError``.
    totals : Tensor
        Of a ragged cache the positions appended to each batch element so far, [B] int32.
    length : int
        Entries held: total, or ``capacity`` where that is less.
    start : int
        How far the ring is turned.
    keys, values : Tensor
        The storage [B, Hkv, capacity, D], of uint32 words where it holds integers or codes; with
        :attr:`tiled` it is of uint32 words [B, Hkv, ⌈capacity / 128⌉, 2176] instead. In order of
        positions the first ``sink_tokens`` entries lie in the first slots, entry n in slot start + n,
        from past the end back to the first slot of the ring.
    tiled : bool
        Whether codes lie in tiles of 128 entries (shaders/lib/code_tiles.wgsl): "turboquant4" or "uniform4"
        keys and values of head dim 128, without ``qjl``, where an adapter has subgroup matrices of 8-bit
        integers.
    scales : Tensor or None
        With int8 keys or values float32 [B, Hkv, 2]: of each head the keys' and the values', 1 where there is
        none.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.
    """

    #: Whether codes may lie in tiles, where the adapter multiplies these.
    _may_tile = True

    def __init__(
        self,
        batch: int,
        kv_heads: int,
        capacity: int,
        head_dim: int,
        *,
        value_head_dim: int | None = None,
        dtype: str | tuple[str, str] = "float32",
        qjl: bool = False,
        k_scale: Any = None,
        v_scale: Any = None,
        sink_tokens: int = 0,
        ragged: bool = False,
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
        self.dtype = check_dtypes(dtype, DTYPES)
        self.sink_tokens = check_int("sink_tokens", sink_tokens)
        if not 0 <= self.sink_tokens < self.capacity:
            raise ValueError(
                f"sink_tokens: expected 0 to {self.capacity - 1}, so that the capacity has room for new "
                f"entries too, got {self.sink_tokens}"
            )
        self.device = device or default_device()
        scales = check_scales(k_scale, v_scale, self.dtype, self.batch, self.kv_heads)
        self.key_format = codes_of(self.dtype[0], self.head_dim, qjl)
        self.value_format = codes_of(self.dtype[1], self.value_head_dim, False)
        self.tiled = self._may_tile and keeps_tiles(self.key_format, self.value_format, self.device.info)
        if self.key_format and self.tiled:
            self.key_format = self.value_format = replace(self.key_format, tiled=True)
        self.key_integers = integers_of(self.dtype[0], self.head_dim)
        self.value_integers = integers_of(self.dtype[1], self.value_head_dim)
        self.keys = self._empty(self.head_dim, self.dtype[0], self.key_format or self.key_integers)
        self.values = self._empty(
            self.value_head_dim, self.dtype[1], self.value_format or self.value_integers
        )
        self.scales = None if scales is None else self.device.tensor(scales, name="scales")
        self.ragged = check_bool("ragged", ragged)
        self._totals = self.device.tensor([0] * self.batch, "int32", name="totals") if ragged else None
        self._total = 0

    def _empty(self, dim: int, dtype: str, form: turboquant.Format | Integers | None) -> Tensor:
        if form:
            *outer, rows = self._rows
            return self.device.empty((*outer, *form.shape(rows)), "uint32")
        return self.device.empty((*self._rows, dim), dtype, pitch=pad4(dim))

    @property
    def _rows(self) -> tuple[int, int, int]:
        """The first axes of the storage."""
        return self.batch, self.kv_heads, self.capacity

    def __repr__(self) -> str:
        length = (
            f"ragged, capacity={self.capacity}" if self.ragged else f"length={self.length} of {self.capacity}"
        )
        return (
            f"KVCache(batch={self.batch}, kv_heads={self.kv_heads}, {length}, "
            f"head_dim={self.head_dim}, value_head_dim={self.value_head_dim}, dtype={self.dtype})"
        )

    @property
    def total(self) -> int:
        """Positions appended so far."""
        if self.ragged:
            raise ValueError(
                "cache: each batch element of a ragged cache has a length of its own; await "
                "cache.totals.numpy() reads how many positions were appended to each"
            )
        return self._total

    @total.setter
    def total(self, total: int) -> None:
        self.set_total(total)

    @property
    def totals(self) -> Tensor:
        """Positions appended to each batch element of a ragged cache so far, [B] int32."""
        if self._totals is None:
            raise ValueError("cache: expected a ragged one, made with ragged=True; of others total is known")
        return self._totals

    @property
    def length(self) -> int:
        """Entries held."""
        return min(self.total, self.capacity)

    @property
    def start(self) -> int:
        """How far the ring is turned."""
        return (self.total - self.length) % (self.capacity - self.sink_tokens)

    @property
    def storage_description(self) -> Described:
        """What of :attr:`description` never changes."""
        sizes = self.batch, self.kv_heads, self.capacity, self.head_dim, self.value_head_dim
        qjl = bool(self.key_format and self.key_format.qjl)
        return Described((*sizes, *self.dtype, qjl, self.sink_tokens, self.ragged, self.tiled))

    @property
    def description(self) -> Described:
        """All that the plan of a decode depends on: plain values, no contents."""
        return Described((*self.storage_description, None if self.ragged else self._total))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What calls read and write of it, by the names that their plans use."""
        found = {"cache keys": self.keys, "cache values": self.values}
        if self.scales is not None:
            found["scales"] = self.scales
        return found if self._totals is None else {**found, "totals": self._totals}

    @property
    def nbytes(self) -> int:
        """Bytes of GPU memory that keys and values take, with scales and padding."""
        return self.keys._storage.nbytes + self.values._storage.nbytes

    def append(
        self,
        key: Any,
        value: Any,
        *,
        lengths: Any = None,
        rotary: Any = None,
        rotary_interleaved: bool = False,
    ) -> None:
        """Add S positions behind those held.

        Parameters
        ----------
        key : Tensor or array_like
            [B, Hkv, S, D], S >= 1; any float dtype, stored in the cache's. Of a tensor a vector of TurboQuant
            or a block of 32 with NaN or an infinity becomes all NaN; int8 has 0 for NaN, and saturates.
        value : Tensor or array_like
            [B, Hkv, S, Dv].
        lengths : Tensor or array_like of int, optional
            [B]; for a ragged cache, how many of the S positions of each batch element are new, from 0 to S.
            Those behind them are padding and are not kept. S unless given.
        rotary : (cos, sin), optional
            Give the keys rotary position embeddings as they are written, by tables [max_positions,
            rotary_dim / 2] as of :func:`py_attn.rotary`. A key turns as its position says, which counts from
            the first append, also in a ring and for each batch element of a ragged cache.
        rotary_interleaved : bool
            Which numbers are pairs, as ``interleaved`` of :func:`py_attn.rotary`.

        Raises
        ------
        ValueError, TypeError
            For another batch, head count, head dim or dtype, tensors of another device, an array with NaN or
            infinities that would be quantised, ``lengths`` for a cache that is not ragged, or a position that
            the tables do not have. Of a ragged cache only the GPU knows the positions: a key at one that the
            tables do not have becomes NaN.
        """
        count = self.check_new(key, value)
        if lengths is not None:
            if not self.ragged:
                raise ValueError(
                    "lengths: expected None for a cache that is not ragged; make it with ragged=True"
                )
            check_lengths(lengths, self.batch, count, "lengths")
        tables = tables_of(rotary)
        end = self._known_end(count, lengths)
        turn = check_keyword(tables, rotary_interleaved, self.head_dim, end)
        if self.ragged:
            self._append_ragged(key, value, lengths, tables, turn, count)
            return
        given = {name: float_tensor(name, x, self.device) for name, x in (("key", key), ("value", value))}
        if turn:
            turn.upload(tables, self.device)
        for name in given:
            for begin, end in self._staying(count):
                whole = (begin, end) == (0, count)
                tensors = {**self.tensors, name: given[name] if whole else given[name][:, :, begin:end]}
                tensors |= tables if turn else {}
                launched = self.launch_write(name, tensors, self.total + begin, turn)
                self.device.run(Plan((), (launched,)), tensors)
        self._total += count

    def _known_end(self, count: int, lengths: Any) -> int:
        """The fewest positions that there are after an append, as far as it is known here."""
        if not self.ragged:
            return self.total + count
        if lengths is None:
            return count
        return 0 if isinstance(lengths, Tensor) else int(np.max(lengths, initial=0))

    def _append_ragged(
        self,
        key: Any,
        value: Any,
        lengths: Any,
        tables: Mapping[str, Any],
        turn: Rotary | None,
        count: int,
    ) -> None:
        """As :meth:`append`, behind the positions that ``totals`` says each batch element has."""
        tensors = {"key": key, "value": value, "counts": lengths, **tables, **self.tensors}

        def make() -> Planned:
            given: dict[str, Tensor] = {name: x for name, x in tensors.items() if x is not None}
            given |= {name: float_tensor(name, given[name], self.device) for name in ("key", "value")}
            if lengths is not None:
                given["counts"] = integer_tensor("lengths", lengths, self.device)
            if turn:
                turn.upload(given, self.device)
            launches = (
                self.launch_write("key", given, turn=turn),
                self.launch_write("value", given),
                self._launch_advance(given, count),
            )
            return Planned(self.device, Plan((), launches), given)

        interleaved = turn is not None and turn.interleaved
        run_call("append_ragged", tensors, (self.storage_description, interleaved), make)

    def launch_write(
        self, name: str, tensors: Mapping[str, Tensor], first_position: int = 0, turn: Rotary | None = None
    ) -> Launch:
        """Plan writing the new "key" or "value" from ``first_position`` on: see :func:`launch_write`."""
        is_key = name == "key"
        key_form, value_form = self.key_format or self.key_integers, self.value_format or self.value_integers
        return launch_write(
            name,
            tensors,
            key_form if is_key else value_form,
            turn=turn if is_key else None,
            capacity=self.capacity,
            kept=self.sink_tokens,
            first_slot=self.slot(first_position),
            first_position=first_position,
        )

    def _launch_advance(self, tensors: Mapping[str, Tensor], count: int) -> Launch:
        return launch_advance(
            tensors,
            self.device.info.limits,
            batch=self.batch,
            heads=self.kv_heads,
            count=count,
            capacity=self.capacity,
            kept=self.sink_tokens,
        )

    def check_new(self, key: object, value: object) -> int:
        """The number of positions in ``key`` and ``value``, checked as by :meth:`append`."""
        self.keys.storage("cache")
        count = self._check_shape("key", key, self.head_dim)
        if self._check_shape("value", value, self.value_head_dim) != count:
            raise ValueError(
                f"value: expected the key's {count} positions, got {list(shape_of('value', value))}"
            )
        for name, x, dtype in (("key", key, self.dtype[0]), ("value", value, self.dtype[1])):
            if dtype not in FLOATS:
                turboquant.check_finite(name, x)
        return count

    def _staying(self, count: int) -> list[tuple[int, int]]:
        """Which of ``count`` new rows are held afterwards: the sink tokens among them, and the newest."""
        kept = min(count, max(0, self.sink_tokens - self.total))
        newest = max(kept, count - (self.capacity - self.sink_tokens))
        parts = [(0, count)] if kept == newest else [(0, kept), (newest, count)]
        return [(begin, end) for begin, end in parts if begin < end]

    def slot(self, position: int) -> int:
        """Where the entry of a position lies."""
        first = self.sink_tokens
        return position if position < first else first + (position - first) % (self.capacity - first)

    def set_total(self, total: int) -> None:
        """Say how many positions were appended in all, where recorded steps did it.

        :func:`py_attn.kernels.decode.step.append_step` appends at a position that only the GPU knows, and
        leaves ``total`` as it is. Once the steps are submitted, this makes the appended positions known here,
        so that :meth:`append` goes on behind them and ``decode_attention`` sees them. A smaller number than
        before takes the newest positions back. Entries that these have overwritten, which only happens beyond
        the capacity, do not come back.

        Raises
        ------
        ValueError, TypeError
            When ``total`` is no integer of at least 0.
        """
        count = check_int("total", total)
        if count < 0:
            raise ValueError(f"total: expected at least 0, got {count}")
        if self.ragged:
            raise ValueError("total: expected a cache that is not ragged")
        self._total = count

    def clear(self) -> None:
        """Forget all positions; the memory stays."""
        self._total = 0
        if self._totals is not None:
            self._totals.destroy()
            self._totals = self.device.tensor([0] * self.batch, "int32", name="totals")

    def destroy(self) -> None:
        """Free the memory."""
        for tensor in self.tensors.values():
            tensor.destroy()

    def _check_shape(self, name: str, value: object, dim: int) -> int:
        shape = shape_of(name, value)
        if len(shape) != 4 or shape[:2] != (self.batch, self.kv_heads) or shape[3] != dim or shape[2] < 1:
            raise ValueError(
                f"{name}: expected [{self.batch}, {self.kv_heads}, S >= 1, {dim}] for this cache, "
                f"got {list(shape)}"
            )
        return shape[2]


def check_cache(cache: object) -> KVCache:
    """Return ``cache`` if it is one.

    Raises
    ------
    TypeError, ValueError
        When it is none, or was destroyed.
    """
    if not isinstance(cache, KVCache):
        raise TypeError(f"cache: expected a KVCache, got {type(cache).__name__}")
    cache.keys.storage("cache")
    return cache
