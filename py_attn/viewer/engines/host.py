"""Engines without a GPU: numpy computes the weights, or they were given."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn import reference
from py_attn.viewer.engines.engine import Engine, Style, Window, objective_gradient
from py_attn.viewer.engines.pooling import pool_as
from py_attn.viewer.sources.given import GivenLayer
from py_attn.viewer.sources.source import Array, Layer, Masking

#: numpy in WebAssembly needs seconds for more than this.
MAX_REFERENCE_LENGTH = 2048


class _HostEngine(Engine):
    """An engine whose weights are numpy arrays from the start."""

    async def weights(
        self, layer: Layer, masking: Masking, window: Window, style: Style | None = None
    ) -> Array:
        """Probabilities, or what else ``style.show`` selects, float32 [heads, rows, columns], pooled."""
        style = style or Style()
        found = self._whole(layer, masking, window, style)
        return pool_as(found, window.size, style.pool, signed=style.show == "gradient")

    @abstractmethod
    def _whole(self, layer: Layer, masking: Masking, window: Window, style: Style) -> Array:
        """The same, not pooled."""


class ReferenceEngine(_HostEngine):
    """numpy, in float32 and head by head: slow but simple."""

    name = "numpy"
    most_weights = 1 << 25

    def check(self, heads: int, length: int, head_dim: int) -> None:
        """Raise ValueError beyond :data:`MAX_REFERENCE_LENGTH`."""
        if length > MAX_REFERENCE_LENGTH:
            raise ValueError(
                f"length: expected at most {MAX_REFERENCE_LENGTH:,} without a GPU, got {length:,}"
            )

    def _whole(self, layer: Layer, masking: Masking, window: Window, style: Style) -> Array:
        group = layer.query.shape[1] // layer.key.shape[1]
        rows = np.arange(layer.query.shape[2])[window.rows]
        masking = layer.masked(masking)
        found: list[npt.NDArray[Any]] = []
        for head in window.heads:
            kv = slice(head // group, head // group + 1)
            query = layer.query[:, head : head + 1, window.rows]
            key, value = layer.key[:, kv], layer.value[:, kv]
            keywords = masking.head_keywords(head, rows, key.shape[2])
            keywords["compute_dtype"] = np.float32
            if style.show == "gradient":
                out = reference.attention(query, key, value, **keywords)
                keywords.update(value=value, grad_out=objective_gradient(out))
            found.append(reference.attention_weights(query, key, **keywords)[0, 0, :, window.columns])
        return np.stack(found)


class GivenEngine(_HostEngine):
    """Looks weights up instead of computing them."""

    name = "given"
    most_weights = 1 << 28

    def check(self, heads: int, length: int, head_dim: int) -> None:
        """Accept any input: looking weights up never takes long."""

    def _whole(self, layer: Layer, masking: Masking, window: Window, style: Style) -> Array:
        assert isinstance(layer, GivenLayer)
        if style.show != "weights":
            raise ValueError(f"show: expected weights, as only these are given, got {style.show!r}")
        found = layer.weights[window.heads, window.rows, window.columns]
        return np.ascontiguousarray(found, np.float32)
