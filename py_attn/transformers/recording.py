"""What is kept of each attention layer while a model runs: queries and keys in half precision, and rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn.transformers.patterns import HIDDEN_BELOW, MaskRows, Pattern, Sides, find_pattern

Array = npt.NDArray[Any]

#: Largest elements of tensors that float16 holds with a relative error of about 1/2000 of the largest one.
_SMALLEST, _LARGEST = 2.0**-6, 65_000.0


@dataclass(frozen=True)
class StackLayer:
    """One attention layer of a model, after it has run.

    Attributes
    ----------
    name : str
        The module's name in the model; from its second call in a forward pass on with the call's number,
        as in "encoder.attention (call 2)".
    query, key : array
        [B, H, S, D] and [B, Hkv, Sk, D] float16 (float32 where numbers are beyond float16's range), after
        positional encoding; queries are multiplied by the model's scale times sqrt(D), so that the scale
        that is left is 1/sqrt(D).
    value : array, optional
        [B, Hkv, Sk, Dv], where values were asked for.
    softcap : float, optional
    sinks : array, optional
        A logit of each head, float32 [H].
    pieces : list of Piece
        The rules of each call that brought queries.
    """

    name: str
    query: Array
    key: Array
    value: Array | None
    softcap: float | None
    sinks: Array | None
    pieces: list[Piece]

    def rules(self, batch: int) -> tuple[bool, Sides | None, Array | None]:
        """Whether an element of the batch is causal, its window, and its mask [1, 1 or H, 1 or S, Sk]."""
        return assemble(self.pieces, self.query.shape[2], self.key.shape[2], batch)


@dataclass(frozen=True)
class Stack:
    """Layers of one kind: the self-attention of an encoder or a decoder, or cross-attention.

    Attributes
    ----------
    name : str
    cross : bool
        Whether queries and keys are of different sequences.
    layers : list of StackLayer
    """

    name: str
    cross: bool
    layers: list[StackLayer]


@dataclass(frozen=True, eq=False)
class Piece:
    """The rules of queries ``first`` to ``first + count`` for the keys from ``first_key`` on.

    ``rule`` is a pattern, or a mask [B, 1 or H, count, keys].
    """

    first: int
    count: int
    first_key: int
    keys: int
    rule: Pattern | Array


def assemble(
    pieces: list[Piece], queries: int, keys: int, batch: int
) -> tuple[bool, Sides | None, Array | None]:
    """The rules of all pieces as one: causal, window, and a mask [1, 1 or H, 1 or S, Sk] or None."""
    first = pieces[0].rule
    alike = [
        piece.rule
        for piece in pieces
        if isinstance(piece.rule, Pattern)
        and isinstance(first, Pattern)
        and (piece.rule.causal, piece.rule.window) == (first.causal, first.window)
    ]
    if isinstance(first, Pattern) and len(alike) == len(pieces):
        visible = np.zeros(keys, np.bool_)
        for piece, rule in zip(pieces, alike, strict=True):
            part = slice(piece.first_key, piece.first_key + piece.keys)
            visible[part] |= True if rule.visible is None else _of(rule.visible, batch)
        return first.causal, first.window, None if visible.all() else visible[None, None, None, :]
    return False, None, _whole(pieces, queries, keys, batch)[None]


def _of(array: Array, batch: int) -> Array:
    found: Array = array[batch if len(array) > 1 else 0]
    return found


def _whole(pieces: list[Piece], queries: int, keys: int, batch: int) -> Array:
    """The mask [1 or H, S, Sk] that pieces of different kinds amount to."""
    given = [_of(piece.rule, batch) for piece in pieces if not isinstance(piece.rule, Pattern)]
    adds = any(mask.dtype != np.bool_ for mask in given)
    heads = max((len(mask) for mask in given), default=1)
    whole: Array = np.full(
        (heads, queries, keys), -np.inf if adds else False, np.float32 if adds else np.bool_
    )
    for piece in pieces:
        rows = slice(piece.first, piece.first + piece.count)
        columns = slice(piece.first_key, piece.first_key + piece.keys)
        if isinstance(piece.rule, Pattern):
            seen = piece.rule.seen(np.arange(queries)[rows], np.arange(keys)[columns])
            mask = seen if piece.rule.visible is None else seen & _of(piece.rule.visible, batch)
        else:
            mask = _of(piece.rule, batch)
        if adds and mask.dtype == np.bool_:
            mask = np.where(mask, np.float32(0), np.float32(-np.inf))
        whole[:, rows, columns] = mask
    return whole


@dataclass(frozen=True)
class Call:
    """A call of an attention function: torch tensors [B, H, S, D], and what changes its scores.

    ``causal`` says what the function does where it gets no mask.
    """

    query: Any
    key: Any
    value: Any
    mask: Any
    bias: Any
    causal: bool
    window: int | None
    softcap: float | None
    sinks: Any
    scale: float


@dataclass
class Recording:
    """What is kept of one layer while its model runs.

    A call whose keys are more than its queries continues a text whose beginning is in a cache; any other one
    begins anew.
    """

    name: str
    number: int  # of the call within a forward pass, from 0
    cross: bool
    queries: list[Array] = field(default_factory=list)
    keys: list[Array] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    length: int = 0
    softcap: float | None = None
    sinks: Array | None = None
    problem: str = ""

    def add(self, call: Call, rules: Rules, *, values: bool, follows: bool) -> None:
        """Keep a call.

        ``follows`` says whether the self-attention before a cross-attention continued a text.
        """
        count, keys = call.query.shape[2], call.key.shape[2]
        if self.cross:
            first, begin, end = self.length if follows else 0, 0, keys
        else:
            first, begin, end = self._place(call, count, keys)
        if first == 0:
            self._begin()
        elif first < 0 and not self.problem:
            self.problem = "it continued a text whose beginning was read before the capture began"
        if self.problem:
            return
        self._cut(first)
        self._check_cache(call, first, begin, end - count)
        dim = call.query.shape[3]
        self.queries.append(half(call.query, call.scale * dim**0.5))
        if not self.cross or first == 0:
            new = slice(0, end) if self.cross else slice(end - count, end)
            self.keys.append(half(call.key[:, :, new]))
            if values:
                self.values.append(half(call.value[:, :, new]))
        first_key = 0 if self.cross else first + count - (end - begin)
        rule = rules.of(call, first, first_key, slice(begin, end), cross=self.cross)
        self.pieces.append(Piece(first, count, first_key, end - begin, rule))
        self.length = first + count
        self.softcap = call.softcap
        self.sinks = None if call.sinks is None else as_numpy(call.sinks).reshape(-1)

    def finish(self) -> StackLayer:
        """The layer as it is now."""
        query, key = np.concatenate(self.queries, axis=2), np.concatenate(self.keys, axis=2)
        value = np.concatenate(self.values, axis=2) if self.values else None
        name = f"{self.name} (call {self.number + 1})" if self.number else self.name
        return StackLayer(name, query, key, value, self.softcap, self.sinks, list(self.pieces))

    def _place(self, call: Call, count: int, keys: int) -> tuple[int, int, int]:
        """The position of the first query (-1: unknown), and the range of the keys that are filled."""
        if keys == count:
            return 0, 0, keys
        if keys > self.length + count:
            # A static cache has room for keys that are still to come, and the mask hides it.
            if call.mask is None:
                return (0, 0, count) if call.causal and count > 1 else (-1, 0, keys)
            position = _last_seen(call.mask)
            return (position, 0, position + count) if position <= self.length else (-1, 0, keys)
        if call.window is None and keys < self.length + count:
            return keys - count, 0, keys  # the cache was cropped
        return self.length, 0, keys

    def _begin(self) -> None:
        for kept in (self.queries, self.keys, self.values, self.pieces):
            kept.clear()
        self.length, self.problem = 0, ""

    def _cut(self, first: int) -> None:
        """Forget what was read from position ``first`` on."""
        if self.cross or first >= self.length:
            return
        for kept in (self.queries, self.keys, self.values):
            if kept:
                kept[:] = [np.concatenate(kept, axis=2)[:, :, :first]]
        cut = [piece for piece in self.pieces if piece.first < first]
        self.pieces[:] = [_shortened(piece, first - piece.first) for piece in cut]
        self.length = first

    def _check_cache(self, call: Call, first: int, begin: int, before: int) -> None:
        """Note where the newest of the earlier keys are not those that were captured."""
        if not self.keys or first == 0:
            return
        if call.query.shape[0] != self.queries[-1].shape[0]:
            self.problem = "the batch changed its size while the text went on"
        elif not self.cross and before > begin:
            newest = half(call.key[:, :, before - 1])
            if not np.array_equal(newest, self.keys[-1][:, :, -1].astype(newest.dtype)):
                self.problem = (
                    "the cache changed keys that were captured before, as beam search and quantised caches do"
                )


def _last_seen(mask: Any) -> int:
    """The last key that the first query sees: under a causal mask, its position."""
    row = as_numpy(mask[:, :, 0] if mask.ndim == 4 else mask[:, None])
    seen = row if row.dtype == np.bool_ else row > HIDDEN_BELOW
    return int(np.flatnonzero(seen.any(axis=(0, 1)))[-1])


def _shortened(piece: Piece, count: int) -> Piece:
    if count >= piece.count:
        return piece
    rule = piece.rule if isinstance(piece.rule, Pattern) else piece.rule[:, :, :count]
    dropped = piece.count - count
    if isinstance(rule, Pattern):
        visible = None if rule.visible is None else rule.visible[:, :-dropped]
        rule = Pattern(rule.causal, rule.window, visible)
    else:
        rule = rule[..., :-dropped]
    return Piece(piece.first, count, piece.first_key, piece.keys - dropped, rule)


class Rules:
    """The rules of calls; those of a mask that many layers share are found once."""

    def __init__(self) -> None:
        self._known: list[tuple[Any, Any, Pattern | Array]] = []

    def of(self, call: Call, first: int, first_key: int, filled: slice, *, cross: bool) -> Pattern | Array:
        """What a call's queries, from position ``first`` on, see of the keys ``filled``."""
        causal = call.causal and not cross
        window = None if call.window is None else (call.window - 1, None if causal else call.window - 1)
        if call.mask is None and call.bias is None:
            return Pattern(causal, window if causal else None)
        if call.mask is not None and call.mask.ndim == 2:
            visible = as_numpy(call.mask[:, filled]) > 0
            return Pattern(causal, window, None if visible.all() else visible)
        tensors = (call.mask, call.bias)
        facts = (first, first_key, filled.start, filled.stop, call.window, causal, *map(_identity, tensors))
        for known, _, rule in self._known:
            if known == facts:
                return rule
        rule = find_pattern(_rows(call, first, first_key, filled), call.window, causal=not cross)
        # The tensors are kept too: another one may get a freed one's address.
        self._known = [*self._known[-3:], (facts, tensors, rule)]
        return rule


def _identity(tensor: Any) -> Any:
    if tensor is None:
        return None
    return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor._version


def _rows(call: Call, first: int, first_key: int, filled: slice) -> MaskRows:
    """The mask and the positional bias of a call as one mask."""
    count = call.query.shape[2]
    queries, keys = (
        np.arange(first, first + count),
        np.arange(first_key, first_key + filled.stop - filled.start),
    )
    given = [x[..., filled] for x in (call.mask, call.bias) if x is not None]
    batch, heads = (max(x.shape[axis] for x in given) for axis in (0, 1))
    causal = call.mask is None and call.causal and count > 1

    def part(tensor: Any, rows: slice) -> Array:
        return as_numpy(tensor[:, :, rows] if tensor.shape[2] > 1 else tensor)

    def read(rows: slice) -> Array:
        shape = (batch, heads, rows.stop - rows.start, len(keys))
        found: Array = np.broadcast_to(part(given[0], rows), shape)
        if call.bias is None:
            return found
        found = np.broadcast_to(part(call.bias[..., filled], rows), shape)
        if call.mask is not None:
            mask = part(call.mask[..., filled], rows)
            found = np.where(mask, found, -np.inf) if mask.dtype == np.bool_ else found + mask
        if causal:
            found = np.where(keys[None, :] <= queries[rows, None], found, -np.inf)
        return found

    return MaskRows(read, (batch, heads, count, len(keys)), queries, keys)


def as_numpy(tensor: Any) -> Array:
    """A torch tensor as an array: bool, or float32."""
    found = tensor.detach()
    found = found if "bool" in str(found.dtype) else found.float()
    array: Array = found.cpu().numpy()
    return array


def half(tensor: Any, factor: float = 1.0) -> Array:
    """A copy of a torch tensor times a factor: in float16, or in float32 where float16 loses too much.

    That is so beyond its largest number, and where all numbers are near its smallest ones.
    """
    found = tensor.detach().float()
    exact = found * factor if abs(factor - 1) > 1e-7 else found
    largest = float(exact.abs().max())
    fits = largest == 0 or _SMALLEST <= largest <= _LARGEST
    array: Array = np.array((exact.half() if fits else exact).cpu().numpy())
    return array
