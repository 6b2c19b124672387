"""What is being looked at: queries, keys and values of some layers, and who may see whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Masking:
    """The keyword arguments of an attention call that decide who may see whom.

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
    """

    causal: bool = False
    window: tuple[int | None, int | None] | None = None
    softcap: float | None = None
    valid: int | None = None
    bias: Array | None = None

    def keywords(self) -> dict[str, Any]:
        """The arguments as :func:`py_attn.attention` takes them."""
        given = {
            "causal": "top-left" if self.causal else False,
            "window": self.window,
            "softcap": self.softcap,
            "mask": self.bias,
            "kv_lengths": None if self.valid is None else np.array([self.valid], np.int32),
        }
        return {name: value for name, value in given.items() if value is not None and value is not False}

    def rows(self, rows: slice, keys: int) -> Array | None:
        """What to add to the scores of some rows: [1, H or 1, rows, keys] float32, or None for nothing.

        Written out independently of the kernels, for those that take a mask and nothing else.
        """
        query = np.arange(rows.start, rows.stop)[:, None]
        key = np.arange(keys)[None, :]
        seen = np.ones((rows.stop - rows.start, keys), np.bool_)
        # With padding, positions count from the end of what is valid (as kv_lengths means it).
        shift = 0 if self.causal or self.valid is None else self.valid - keys
        if self.causal:
            seen &= key <= query
        if self.window is not None:
            before, after = self.window
            if before is not None:
                seen &= key >= query + shift - before
            if after is not None:
                seen &= key <= query + shift + after
        if self.valid is not None:
            seen &= key < self.valid
        added = np.where(seen, np.float32(0), np.float32(-np.inf))[None, None]
        if self.bias is not None:
            bias = self.bias if self.bias.shape[-2] == 1 else self.bias[..., rows, :]
            added = added + (
                np.where(bias, np.float32(0), np.float32(-np.inf)) if bias.dtype == np.bool_ else bias
            )
        return added if not seen.all() or self.bias is not None else None


@dataclass
class Layer:
    """Query, key and value [1, H, S, D] of one layer: numpy arrays, or tensors on a device."""

    query: Any
    key: Any
    value: Any
    lse: Any = None
    #: What an engine keeps with the layer (uploaded tensors, row sums), and for whom.
    kept: dict[object, Any] = field(default_factory=dict, repr=False)


@dataclass
class Source:
    """Something to look at.

    Attributes
    ----------
    kind : str
        "sample", "text" or "synthetic".
    title : str
    tokens : list of str
    layers : list of Layer
    masking : Masking
    note : str
        What the visitor should know about it, "" for nothing.
    """

    kind: str
    title: str
    tokens: Sequence[str]
    layers: list[Layer]
    masking: Masking = field(default_factory=Masking)
    note: str = ""

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

    def describe(self) -> dict[str, Any]:
        """What a front end needs to lay itself out."""
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
        }
