"""What a model computed for one text, in a format that the page and the sample file share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

#: Where the arrays live: :class:`py_attn.gpu.tensor.Tensor` or ``numpy.ndarray``.
ArrayT = TypeVar("ArrayT")


@dataclass(frozen=True)
class LayerTrace(Generic[ArrayT]):
    """One layer's attention; T tokens, H heads, D head dim, float32.

    Attributes
    ----------
    query, key, value, out
        [1, H, T, D]; tensors may be views.
    lse
        [1, H, T], the natural log of each row's sum of exponentials.
    """

    query: ArrayT
    key: ArrayT
    value: ArrayT
    out: ArrayT
    lse: ArrayT


@dataclass(frozen=True)
class Trace(Generic[ArrayT]):
    """What a model computed for one text.

    Attributes
    ----------
    text : str
    tokens : list[str]
        T tokens, [CLS] and [SEP] among them.
    ids : list[int]
        Their numbers in the vocabulary.
    truncated : bool
        Whether the end of the text was cut off: it had more tokens than the model has positions.
    layers : list[LayerTrace]
        First layer first.
    embedding
        [width], of length 1.
    """

    text: str
    tokens: list[str]
    ids: list[int]
    truncated: bool
    layers: list[LayerTrace[ArrayT]]
    embedding: ArrayT
