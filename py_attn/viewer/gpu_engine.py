"""Weights and pictures from our kernels: only the window that is asked for, coloured on the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import py_attn as pa
from py_attn.colormaps import Pixels
from py_attn.gpu.tensor import Tensor
from py_attn.viewer.engines import Style
from py_attn.viewer.source import Array, Layer, Masking

#: About half a minute of a software adapter on two cores.
SOFTWARE_FLOP = 4e10


@dataclass(frozen=True)
class Uploaded:
    """A layer on the device, with the LSE of its rows and the masking in the kernels' words."""

    query: Tensor
    key: Tensor
    value: Tensor
    lse: Tensor
    keywords: dict[str, Any]


class GPUEngine:
    """:func:`py_attn.attention_weights` on one device."""

    name = "webgpu"

    def __init__(self, device: pa.Device) -> None:
        self.device = device

    def check(self, heads: int, length: int, head_dim: int) -> None:
        """Raise ValueError for what would keep a software adapter busy for minutes."""
        work = 4.0 * heads * length**2 * head_dim
        if self.device.info.software and work > SOFTWARE_FLOP:
            raise ValueError(
                f"length: {heads} heads of {length:,} × {length:,} with head dim {head_dim} would keep this "
                "software adapter busy for minutes; make fewer heads, a smaller head dim or a shorter input"
            )

    def upload(self, layer: Layer, masking: Masking) -> Uploaded:
        """The layer on the device; uploaded, and its LSE computed, the first time."""
        kept: Uploaded | None = layer.kept.get(self)
        if kept is None:
            query, key, value = (self._tensor(x) for x in (layer.query, layer.key, layer.value))
            keywords: dict[str, Any] = {
                name: self.device.tensor(given) if isinstance(given, np.ndarray) else given
                for name, given in masking.keywords().items()
            }
            if isinstance(layer.lse, Tensor):
                lse = layer.lse
            else:
                _, lse = pa.attention(query, key, value, return_lse=True, **keywords)
            kept = layer.kept[self] = Uploaded(query, key, value, lse, keywords)
        return kept

    def _tensor(self, x: Any) -> Tensor:
        return x if isinstance(x, Tensor) else self.device.tensor(x)

    async def weights(
        self, layer: Layer, masking: Masking, heads: list[int], rows: slice, columns: slice
    ) -> Array:
        """Probabilities [heads, rows, columns], float32."""
        on = self.upload(layer, masking)
        tensor = pa.attention_weights(
            on.query, on.key, on.lse, rows=rows, columns=columns, heads=heads, **on.keywords
        )
        array: Array = (await tensor.numpy())[0]
        return array

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
        on = self.upload(layer, masking)
        tensor = pa.attention_weights(
            on.query,
            on.key,
            on.lse,
            rows=rows,
            columns=columns,
            heads=heads,
            size=size,
            pool=style.pool,
            colormap=style.colormap,
            color_scale=style.scale,
            **on.keywords,
        )
        words: Array = await tensor.numpy()
        return np.ascontiguousarray(words[0]).view(np.uint8).reshape(*words.shape[1:], 4)
