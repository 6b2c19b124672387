"""Weights and images from our kernels: only the requested window, coloured on the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import py_attn as pa
from py_attn.colormaps import Pixels
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.config import Variant
from py_attn.kernels.attention.forward import attention
from py_attn.kernels.attention.weights import attention_weights
from py_attn.viewer.engines.engine import Engine, Style, Window, in_chunks, objective_gradient
from py_attn.viewer.sources.source import Array, Layer, Masking

#: Weights of several heads that are on the device at once while their mean is taken: 64 MiB.
MEAN_CHUNK = 1 << 24
#: About half a minute of a software adapter on two cores.
SOFTWARE_FLOP = 4e10
#: Up to so many keys the naive kernel compiles and runs sooner than a tiled one compiles.
FEW_KEYS = 128


@dataclass
class Uploaded:
    """A layer on the device, with the LSE of its rows and the masking as the kernels' keyword arguments."""

    query: Tensor
    key: Tensor
    value: Tensor
    lse: Tensor
    keywords: dict[str, Any]
    masking: Masking
    sinks: Array | None = None
    gradient: Tensor | None = None


class GPUEngine(Engine):
    """:func:`py_attn.attention_weights` on one device."""

    name = "webgpu"

    def __init__(self, device: pa.Device) -> None:
        self.device = device

    @property
    def most_weights(self) -> int:
        """A software adapter computes some ten million weights a second."""
        return 1 << 26 if self.device.info.software else 1 << 31

    def check(self, heads: int, length: int, head_dim: int) -> None:
        """Raise ValueError for inputs that would keep a software adapter busy for minutes."""
        work = 4.0 * heads * length**2 * head_dim
        if self.device.info.software and work > SOFTWARE_FLOP:
            raise ValueError(
                f"length: {heads} heads of {length:,} × {length:,} with head dim {head_dim} would keep this "
                "software adapter busy for minutes; make fewer heads, a smaller head dim or a shorter input"
            )

    def upload(self, layer: Layer, masking: Masking) -> Uploaded:
        """The layer on the device; uploaded, and its LSE computed, the first time.

        Kept with the layer: the tensors; and the LSE and keywords twice, without a visitor's score_mod and
        mask_mod and with those that were used last.
        """
        masking = layer.masked(masking)
        slot = (self, "edited" if masking.mods else "own")
        kept: Uploaded | None = layer.kept.get(slot)
        if kept is None or (masking.mods and kept.masking is not masking):
            if self not in layer.kept:
                layer.kept[self] = [self._tensor(x) for x in (layer.query, layer.key, layer.value)]
            query, key, value = layer.kept[self]
            keywords: dict[str, Any] = {
                name: self.device.tensor(given) if isinstance(given, np.ndarray) else given
                for name, given in masking.keywords().items()
                if name != "sinks"  # for weights they are in the LSE
            }
            if isinstance(layer.lse, Tensor) and not masking.mods:
                lse = layer.lse
            else:
                _, lse = attention(
                    query,
                    key,
                    value,
                    return_lse=True,
                    sinks=masking.sinks,
                    variant=self._variant(key.shape[2]),
                    **keywords,
                )
            kept = layer.kept[slot] = Uploaded(query, key, value, lse, keywords, masking, masking.sinks)
        return kept

    def _variant(self, keys: int) -> Variant:
        """For few keys the kernel that compiles soonest, as a visitor waits for that and not for its run."""
        return "naive" if keys <= FEW_KEYS and not self.device.info.software else "auto"

    def _tensor(self, x: Any) -> Tensor:
        return x if isinstance(x, Tensor) else self.device.tensor(x)

    async def weights(
        self, layer: Layer, masking: Masking, window: Window, style: Style | None = None
    ) -> Array:
        """Probabilities, or what else ``style.show`` selects, float32 [heads, rows, columns], pooled."""
        style = style or Style()
        if style.show == "weights":
            return await self._read(*self._needed(layer, masking, window), style)
        uploaded = self.upload(layer, masking)
        more: dict[str, Any] = {}
        if style.show == "gradient":
            more = {"value": uploaded.value, "grad_out": await self._gradient(uploaded)}
        return await self._read(uploaded, window, style, **more)

    async def _painted(
        self, layer: Layer, masking: Masking, window: Window, style: Style, maxima: Array
    ) -> Pixels:
        if maxima.min() != maxima.max():  # the kernel has one maximum for all heads
            return await super()._painted(layer, masking, window, style, maxima)
        colors: dict[str, Any] = {
            "colormap": style.colormap,
            "color_scale": style.scale,
            "color_max": float(maxima[0]),
        }
        uploaded, window = self._needed(layer, masking, window)
        words = await self._read(uploaded, window, style, **colors)
        return np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, 4)

    def _needed(self, layer: Layer, masking: Masking, window: Window) -> tuple[Uploaded, Window]:
        """What a window is read from, and its place there: the layer, or a row of it alone."""
        masking = layer.masked(masking)
        if self._is_only_row(layer, masking, window):
            return self._row(layer, masking, window)
        return self.upload(layer, masking), window

    def _is_only_row(self, layer: Layer, masking: Masking, window: Window) -> bool:
        """Whether a single row is asked for, of a causal layer whose LSE nobody has computed yet."""
        return (
            window.rows.stop - window.rows.start == 1
            and masking.causal
            and masking.valid is None
            and not masking.mods
            and layer.lse is None
            and (self, "own") not in layer.kept
            and all(isinstance(x, Tensor) for x in (layer.query, layer.key, layer.value))
        )

    def _row(self, layer: Layer, masking: Masking, window: Window) -> tuple[Uploaded, Window]:
        """A row as a layer of its own, so that the LSE of no other row is computed.

        A text that grows becomes another source with every token, and mostly only its newest row is shown.
        """
        row = window.rows.start
        keywords: dict[str, Any] = {
            "causal": True,
            "window": masking.window,
            "softcap": masking.softcap,
            # The row is the last of the keys that count.
            "kv_lengths": self.device.tensor(np.array([row + 1], np.int32)),
        }
        if masking.bias is not None:
            bias = masking.bias if masking.bias.shape[-2] == 1 else masking.bias[..., row : row + 1, :]
            keywords["mask"] = self.device.tensor(np.ascontiguousarray(bias))
        query = layer.query[:, :, row : row + 1]
        sinks = masking.sinks
        _, lse = attention(query, layer.key, layer.value, return_lse=True, sinks=sinks, **keywords)
        uploaded = Uploaded(query, layer.key, layer.value, lse, keywords, masking, sinks)
        return uploaded, window._replace(rows=slice(0, 1))

    async def _gradient(self, uploaded: Uploaded) -> Tensor:
        """:func:`objective_gradient` of a layer's output; computed the first time."""
        if uploaded.gradient is None:
            out = attention(
                uploaded.query, uploaded.key, uploaded.value, sinks=uploaded.sinks, **uploaded.keywords
            )
            # A sum of squares may be more than float16 holds.
            found = (await out.numpy()).astype(np.float32)
            uploaded.gradient = self.device.tensor(objective_gradient(found))
        return uploaded.gradient

    async def mean(self, layer: Layer, masking: Masking, window: Window, style: Style | None = None) -> Array:
        """The mean over the window's heads: float32 [rows, columns]; it is taken on the device."""
        from py_attn.kernels.nn.linear import linear  # not needed when a page starts

        style, masking = style or Style(), layer.masked(masking)
        if style.show != "weights":
            return await super().mean(layer, masking, window, style)
        if self._is_only_row(layer, masking, window):
            uploaded, window = self._row(layer, masking, window)
        else:
            uploaded = self.upload(layer, masking)
        heads = len(window.heads)
        each = self.device.tensor(np.full((1, heads), 1 / heads, np.float32))
        means = []
        for part in in_chunks(window, MEAN_CHUNK):
            found = self._compute(uploaded, part, style)
            _, _, rows, columns = found.shape
            mean = linear(each, found.reshape(heads, rows * columns))
            means.append(mean.reshape(rows, columns))
        return np.concatenate([await mean.numpy() for mean in means])

    async def product(self, left: Array, right: Array) -> Array:
        """The matrix product of two square matrices, in float32."""
        from py_attn.kernels.nn.linear import linear

        given = [self.device.tensor(np.ascontiguousarray(x, np.float32)) for x in (left, right)]
        found: Array = await linear(*given).numpy()
        return found

    async def _read(self, uploaded: Uploaded, window: Window, style: Style, **more: Any) -> Array:
        array: Array = (await self._compute(uploaded, window, style, **more).numpy())[0]
        return array

    def _compute(self, uploaded: Uploaded, window: Window, style: Style, **more: Any) -> Tensor:
        """What :func:`py_attn.attention_weights` gives for a window."""
        return attention_weights(
            uploaded.query,
            uploaded.key,
            uploaded.lse,
            heads=window.heads,
            rows=window.rows,
            columns=window.columns,
            size=window.size,
            pool=style.pool,
            **uploaded.keywords,
            **more,
        )
