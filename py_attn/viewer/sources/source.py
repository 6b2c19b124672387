"""What is looked at: queries, keys and values of some layers, and which keys a query may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from py_attn.gpu.tensor import Tensor

if TYPE_CHECKING:
    from py_attn.viewer.sources.mods import Mods

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Masking:
    """The keyword arguments of an attention call that decide which keys a query sees, and how scores change.

    Attributes
    ----------
    causal : bool
    window : tuple of int or None, optional
        Keys before and after the position.
    softcap : float, optional
    valid : int, optional
        Keys from this one on are padding.
    bias : array, optional
        Boolean or float32, broadcastable to [1, H, S, S].
    mods : Mods, optional
        A visitor's score_mod and mask_mod.
    sinks : array, optional
        A logit for each head that takes part in the softmax without a key, float32 [H].
    by_layer : bool
        Whether layers differ in all this but ``mods``; then :attr:`Layer.masking` holds what applies to one.
    """

    causal: bool = False
    window: tuple[int | None, int | None] | None = None
    softcap: float | None = None
    valid: int | None = None
    bias: Array | None = None
    mods: Mods | None = None
    sinks: Array | None = None
    by_layer: bool = False

    def keywords(self) -> dict[str, Any]:
        """The arguments as :func:`py_attn.attention` takes them."""
        given = {
            "causal": "top-left" if self.causal else False,
            "window": self.window,
            "softcap": self.softcap,
            "mask": self.bias,
            "kv_lengths": None if self.valid is None else np.array([self.valid], np.int32),
            "sinks": self.sinks,
        }
        mods = self.mods.functions if self.mods else {}
        return mods | {
            name: value for name, value in given.items() if value is not None and value is not False
        }

    def head_keywords(self, head: int, rows: npt.NDArray[np.intp], keys: int) -> dict[str, Any]:
        """The same for :mod:`py_attn.reference` called with one head and some rows of the query."""
        bias = self.rows(rows, keys)
        mods = self.mods.on_arrays(head, rows) if self.mods else {}
        return mods | {
            "mask": bias if bias is None or bias.shape[1] == 1 else bias[:, head : head + 1],
            "softcap": self.softcap,
            "sinks": None if self.sinks is None else self.sinks[head : head + 1],
        }

    def rows(self, rows: npt.NDArray[np.intp], keys: int) -> Array | None:
        """What to add to the scores of some rows: [1, H or 1, rows, keys] float32, or None for nothing.

        It is computed independently of the kernels, for functions that take a mask and nothing else.
        """
        query = np.asarray(rows)[:, None]
        key = np.arange(keys)[None, :]
        seen = np.ones((len(rows), keys), np.bool_)
        if self.causal:
            seen &= key <= query
        if self.window is not None:
            # Without causality the queries are the last of the valid positions, as with kv_lengths.
            position = query if self.causal or self.valid is None else query + self.valid - keys
            before, after = self.window
            if before is not None:
                seen &= key >= position - before
            if after is not None:
                seen &= key <= position + after
        if self.valid is not None:
            seen &= key < self.valid
        if self.bias is None:
            return None if seen.all() else _hidden(seen)[None, None]
        bias = self.bias if self.bias.shape[-2] == 1 else self.bias[..., rows, :]
        return _hidden(seen) + (_hidden(bias) if bias.dtype == np.bool_ else bias)


def _hidden(seen: Array) -> Array:
    return np.where(seen, np.float32(0), np.float32(-np.inf))


@dataclass
class Layer:
    """Query, key and value [1, H, S, D] of one layer: numpy arrays, or tensors on a device."""

    query: Any
    key: Any
    value: Any
    lse: Any = None
    #: What an engine keeps with the layer; the keys are the engine, or begin with it.
    kept: dict[object, Any] = field(default_factory=dict, repr=False)
    #: What applies to this layer, where the layers of a source differ.
    masking: Masking | None = None

    def masked(self, masking: Masking) -> Masking:
        """What applies to this layer of a source with ``masking``; the same object for the same argument."""
        if not masking.by_layer or self.masking is None:
            return masking
        if masking.mods is None:
            return self.masking
        known: Masking | None = self.kept.get("masked")
        if known is None or known.mods is not masking.mods:
            known = self.kept["masked"] = replace(self.masking, mods=masking.mods)
        return known

    async def host(self) -> tuple[Array, Array, Array]:
        """Query, key and value as numpy arrays."""
        query, key, value = [
            await x.numpy() if isinstance(x, Tensor) else x for x in (self.query, self.key, self.value)
        ]
        return query, key, value


@dataclass
class Source:
    """Something to look at.

    Attributes
    ----------
    kind : str
        "sample", "text", "synthetic", "written", "tensors" or "weights".
    title : str
    tokens : list of str
    layers : sequence of Layer
    masking : Masking
    note : str
        A note to the visitor, "" for none.
    special : frozenset of int, optional
        Positions of special tokens; None where only their texts can tell.
    base : Source, optional
        What this source is derived from; None for one that stands for itself.
    """

    kind: str
    title: str
    tokens: Sequence[str]
    layers: Sequence[Layer]
    masking: Masking = field(default_factory=Masking)
    note: str = ""
    special: frozenset[int] | None = None
    base: Source | None = None

    def forget(self) -> None:
        """Let go of what engines keep with the layers; it is uploaded again when it is needed."""
        for layer in getattr(self.layers, "made", self.layers):
            layer.kept.clear()

    @property
    def heads(self) -> int:
        return int(self.layers[0].query.shape[1])

    @property
    def kv_heads(self) -> int:
        return int(self.layers[0].key.shape[1])

    @property
    def length(self) -> int:
        return int(self.layers[0].query.shape[2])

    @property
    def head_dim(self) -> int:
        return int(self.layers[0].query.shape[3])

    @property
    def edited(self) -> list[str]:
        """Which of the visitor's score_mod and mask_mod apply."""
        mods = self.masking.mods
        return list(mods.functions) if mods else []

    def describe(self) -> dict[str, Any]:
        """What a front end needs for its layout."""
        return {
            "kind": self.kind,
            "title": self.title,
            "tokens": list(self.tokens),
            "layers": len(self.layers),
            "heads": self.heads,
            "kvHeads": self.kv_heads,
            "length": self.length,
            "headDim": self.head_dim,
            "note": self.note,
            "causal": self.masking.causal,
        }
