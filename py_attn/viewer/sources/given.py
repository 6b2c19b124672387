"""Weights that were computed elsewhere: shown as they are, without a GPU."""

from __future__ import annotations

from py_attn.viewer.sources.source import Array, Layer, Source


class GivenLayer(Layer):
    """One layer's probabilities [H, S, S]; there are no queries, keys and values."""

    def __init__(self, weights: Array) -> None:
        super().__init__(None, None, None)
        self.weights = weights

    async def host(self) -> tuple[Array, Array, Array]:
        """Raises ValueError: weights were given, but not what they were computed from."""
        raise ValueError(
            "layer: only weights were given, without the query, key and value that a kernel needs"
        )


class GivenSource(Source):
    """A source whose weights are given."""

    def _first(self) -> Array:
        layer = self.layers[0]
        assert isinstance(layer, GivenLayer)
        return layer.weights

    @property
    def heads(self) -> int:
        return int(self._first().shape[0])

    @property
    def kv_heads(self) -> int:
        return self.heads

    @property
    def length(self) -> int:
        return int(self._first().shape[1])

    @property
    def head_dim(self) -> int:
        return 0
