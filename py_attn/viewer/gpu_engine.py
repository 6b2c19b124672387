"""Weights and pictures from our kernels: only the window that is asked for, coloured on the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import py_attn as pa
from py_attn.colormaps import Pixels
from py_attn.gpu.tensor import Tensor
from py_attn.viewer.engines import Show, Style, objective_gradient, paint_pooled
from py_attn.viewer.source import Array, Layer, Masking

#: About half a minute of a software adapter on two cores.
SOFTWARE_FLOP = 4e10


@dataclass
class Uploaded:
    """A layer on the device, with the LSE of its rows and the masking in the kernels' words."""

    query: Tensor
    key: Tensor
    value: Tensor
    lse: Tensor
    keywords: dict[str, Any]
    masking: Masking
    gradient: Tensor | None = None


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
        """The layer on the device; uploaded, and its LSE computed, the first time.

        Kept with the layer: the tensors, and the rest once as the source is and once as it was last edited.
        """
        slot = (self, "edited" if masking.mods else "own")
        kept: Uploaded | None = layer.kept.get(slot)
        if kept is None or (masking.mods and kept.masking is not masking):
            if self not in layer.kept:
                layer.kept[self] = [self._tensor(x) for x in (layer.query, layer.key, layer.value)]
            query, key, value = layer.kept[self]
            keywords: dict[str, Any] = {
                name: self.device.tensor(given) if isinstance(given, np.ndarray) else given
                for name, given in masking.keywords().items()
            }
            if isinstance(layer.lse, Tensor) and not masking.mods:
                lse = layer.lse
            else:
                _, lse = pa.attention(query, key, value, return_lse=True, **keywords)
            kept = layer.kept[slot] = Uploaded(query, key, value, lse, keywords, masking)
        return kept

    async def gradient_of(self, on: Uploaded) -> Tensor:
        """:func:`objective_gradient` of a layer's output; computed the first time."""
        if on.gradient is None:
            out = await pa.attention(on.query, on.key, on.value, **on.keywords).numpy()
            on.gradient = self.device.tensor(objective_gradient(out))
        return on.gradient

    def _tensor(self, x: Any) -> Tensor:
        return x if isinstance(x, Tensor) else self.device.tensor(x)

    async def weights(
        self,
        layer: Layer,
        masking: Masking,
        heads: list[int],
        rows: slice,
        columns: slice,
        show: Show = "weights",
    ) -> Array:
        """Probabilities, or what else ``show`` asks for, [heads, rows, columns], float32."""
        on = self.upload(layer, masking)
        tensor = await self._part(on, show, rows=rows, columns=columns, heads=heads)
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
        """The same as pixels [heads, height, width, 4]; numpy colours gradients, which have signs."""
        on = self.upload(layer, masking)
        part: dict[str, Any] = {"rows": rows, "columns": columns, "heads": heads, "size": size}
        if style.show == "gradient":
            tensor = await self._part(on, "gradient", pool=style.pool, **part)
            return paint_pooled((await tensor.numpy())[0], None, style)
        colors = {"colormap": style.colormap, "color_scale": style.scale}
        tensor = await self._part(on, "weights", pool=style.pool, **part, **colors)
        words: Array = await tensor.numpy()
        return np.ascontiguousarray(words[0]).view(np.uint8).reshape(*words.shape[1:], 4)

    async def _part(self, on: Uploaded, show: Show, **part: Any) -> Tensor:
        if show == "gradient":
            part.update(value=on.value, grad_out=await self.gradient_of(on))
        return pa.attention_weights(on.query, on.key, on.lse, **part, **on.keywords)
