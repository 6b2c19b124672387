"""Weights that somebody else computed: shown as they are, without a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from py_attn.colormaps import Pixels
from py_attn.viewer.engines import Show, Style, paint_pooled
from py_attn.viewer.source import Array, Layer, Masking, Source


class GivenLayer(Layer):
    """One layer's probabilities [H, S, S]; there are no queries, keys and values."""

    def __init__(self, weights: Array) -> None:
        super().__init__(None, None, None)
        self.weights = weights

    async def host(self) -> tuple[Array, Array, Array]:
        """Raises ValueError: given weights came without what they were computed from."""
        raise ValueError("layer: these weights were given without query, key and value; nothing can be run")


@dataclass
class GivenSource(Source):
    """Something to look at whose weights are given."""

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


class GivenEngine:
    """Looks weights up instead of computing them."""

    name = "given"

    def check(self, heads: int, length: int, head_dim: int) -> None:
        """Nothing takes long here."""

    async def weights(
        self,
        layer: Layer,
        masking: Masking,
        heads: list[int],
        rows: slice,
        columns: slice,
        show: Show = "weights",
    ) -> Array:
        """Probabilities [heads, rows, columns], float32."""
        assert isinstance(layer, GivenLayer)
        if show != "weights":
            raise ValueError(f"show: expected weights where only these are given, got {show!r}")
        return np.ascontiguousarray(layer.weights[heads, rows, columns], np.float32)

    async def image(
        self,
        layer: Layer,
        masking: Masking,
        heads: list[int],
        rows: slice,
        columns: slice,
        size: tuple[int, int] | None,
        style: Style,
    ) -> Pixels:
        """The same as pixels [heads, height, width, 4]."""
        return paint_pooled(await self.weights(layer, masking, heads, rows, columns, style.show), size, style)
