"""What a language model has written so far, as a source: its queries, keys and values, a layer at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from py_attn.models.cache_options import is_held
from py_attn.viewer.sources.source import Layer, Masking, Source

#: Characters of the text that become the source's title.
TITLE_LENGTH = 60


class WrittenLayers(Sequence[Layer]):
    """The layers of a model, each made when it is first looked at.

    A quantised cache is widened for that, so the layers that nobody looks at cost nothing.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._made: dict[int, Layer] = {}

    def __len__(self) -> int:
        return int(self._model.layers)

    @overload
    def __getitem__(self, index: int) -> Layer: ...
    @overload
    def __getitem__(self, index: slice) -> list[Layer]: ...
    def __getitem__(self, index: int | slice) -> Layer | list[Layer]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        if index not in self._made:
            self._made[index] = Layer(*self._model.layer_tensors(index))
        return self._made[index]

    @property
    def made(self) -> tuple[Layer, ...]:
        """The layers that someone has looked at."""
        return tuple(self._made.values())

    def __iter__(self) -> Iterator[Layer]:
        return (self[i] for i in range(len(self)))


def written_source(model: Any, texts: Sequence[str]) -> Source:
    """The text that a model holds as a source.

    Parameters
    ----------
    model : SmolLM2
    texts : sequence of str
        The text of each token. The newest one may not have been through the model yet; then it is left out.
    """
    layers = WrittenLayers(model)
    length = int(layers[0].query.shape[2])
    tokens = list(texts[:length])
    title = "".join(tokens).strip()
    if len(title) > TITLE_LENGTH:
        title = title[:TITLE_LENGTH].rstrip() + "…"
    special = frozenset(i for i, number in enumerate(model.tokens[:length]) if number in model.special_ids)
    return Source("written", title, tokens, layers, _masking(model, length), special=special)


def _masking(model: Any, length: int) -> Masking:
    """Causal; of a ring, a query sees the newest keys and those that the ring never drops."""
    options = model.cache_options
    if not options.ring or length <= options.context:
        return Masking(causal=True)
    newest = options.context - options.sink_tokens
    if not options.sink_tokens:
        return Masking(causal=True, window=(newest - 1, None))
    query, key = np.arange(length)[:, None], np.arange(length)[None, :]
    seen = is_held(query, key, options.context, options.sink_tokens)
    return Masking(causal=True, bias=seen[None, None])
