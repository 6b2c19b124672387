"""The interface of engines, which compute the weights of a window of a map, and an image of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from py_attn.colormaps import Pixels, paint, paint_signed
from py_attn.viewer.sources.source import Array, Layer, Masking

#: An image pooled from more weights than this (4,096²) looks at four rows for each of its own.
MAX_POOLED_WEIGHTS = 1 << 24
#: The largest weight is taken from an image of this many rows and columns.
_CELLS_OF_LARGEST = 64

Show = Literal["weights", "gradient"]
#: Whose map is shown: a head's; the mean over a layer's heads, or over all heads; or the attention rollout
#: up to a layer.
Over = Literal["head", "layer", "all", "rollout"]


@dataclass(frozen=True)
class Style:
    """What a map shows, and how: the colour map, its scale, and how several weights share a pixel.

    ``show`` is "weights"; or "gradient" for each weight times the gradient of half the squared length of
    its row's output with respect to it, divided by that squared length. These are the keys' shares of the
    output: a row's sum is 1, and a key whose value points against the output counts below zero. (Values
    matter beside weights: Kobayashi et al., arXiv 2004.10102.)

    ``range`` is "unit" for colours that span 0 to 1, or "map" for 0 to the largest weight of the head's map
    (:meth:`Engine.largest`).
    """

    show: Show = "weights"
    colormap: str = "rocket"
    scale: Literal["linear", "sqrt", "log"] = "sqrt"
    pool: Literal["max", "mean"] = "max"
    range: Literal["unit", "map"] = "unit"

    def __post_init__(self) -> None:
        if self.show not in ("weights", "gradient"):
            raise ValueError(f"show: expected weights or gradient, got {self.show!r}")
        if self.range not in ("unit", "map"):
            raise ValueError(f"range: expected unit or map, got {self.range!r}")


class Window(NamedTuple):
    """A part of a layer's maps.

    Attributes
    ----------
    heads : list of int
    rows, columns : slice
        Queries and keys.
    size : tuple of int, optional
        (height, width) to pool the part to; None keeps a cell for each weight.
    """

    heads: list[int]
    rows: slice
    columns: slice
    size: tuple[int, int] | None = None


class Engine(ABC):
    """Where weights come from.

    Attributes
    ----------
    name : str
        As the front end shows it.
    """

    name: str

    @property
    @abstractmethod
    def most_weights(self) -> int:
        """How many weights may be asked for at once: what takes a few seconds."""

    @abstractmethod
    def check(self, heads: int, length: int, head_dim: int) -> None:
        """Raise ValueError for an input that would take minutes."""

    @abstractmethod
    async def weights(
        self, layer: Layer, masking: Masking, window: Window, style: Style | None = None
    ) -> Array:
        """Probabilities, or what else ``style.show`` selects, float32 [heads, rows, columns], pooled to the
        window's size according to ``style.pool``.
        """

    async def mean(self, layer: Layer, masking: Masking, window: Window, style: Style | None = None) -> Array:
        """The mean over the window's heads: float32 [rows, columns]; the window has no size."""
        parts = [
            (await self.weights(layer, masking, part, style)).mean(axis=0, dtype=np.float64)
            for part in in_chunks(window)
        ]
        return np.concatenate(parts).astype(np.float32)

    async def product(self, left: Array, right: Array) -> Array:
        """The matrix product of two square matrices."""
        found: Array = left.astype(np.float64) @ right.astype(np.float64)
        return found

    async def image(
        self, layer: Layer, masking: Masking, window: Window, style: Style, maxima: Array | None = None
    ) -> Pixels:
        """The same as pixels [heads, height, width, 4].

        ``maxima`` [heads] are the weights that get the last colour, or for gradients the distances from 0
        that get the first and the last; 1 by default.
        """
        if maxima is None:
            maxima = np.ones(len(window.heads), np.float32)
        if style.show == "gradient":
            # Gradients have signs, and the kernels have no colours for negative numbers.
            values = await self.weights(layer, masking, window, style)
            return paint_signed(values / maxima[:, None, None], style.colormap, style.scale)
        return await self._painted(layer, masking, window, style, maxima)

    async def _painted(
        self, layer: Layer, masking: Masking, window: Window, style: Style, maxima: Array
    ) -> Pixels:
        """The weights in colours; the GPU's engine overrides this and colours them on the GPU."""
        values = await self.weights(layer, masking, window, style)
        return paint(values / maxima[:, None, None], style.colormap, style.scale)

    async def largest(
        self, layer: Layer, masking: Masking, heads: list[int], length: int, show: Show = "weights"
    ) -> Array:
        """The largest weight of each head's map, or a gradient's largest distance from 0: float32 [heads].

        Of a map of more than :data:`MAX_POOLED_WEIGHTS` weights it is the largest of the rows that
        :func:`row_step` selects. A map of zeros has 1, so that its colours are those of zeros. The numbers
        are kept with the layer until the masking is another.
        """
        slot = (self, "largest", show)
        kept: tuple[Masking, dict[int, float]] | None = layer.kept.get(slot)
        if kept is None or kept[0] is not masking:
            kept = layer.kept[slot] = (masking, {})
        known = kept[1]
        missing = [head for head in heads if head not in known]
        if missing:
            cells = min(length, _CELLS_OF_LARGEST)
            step = largest_step(length)
            size = (cells, cells) if cells < length else None
            window = Window(missing, slice(0, length, step), slice(0, length), size)
            found = np.abs(await self.weights(layer, masking, window, Style(show)))
            # fmax passes over the NaN of rows that see nothing.
            most = np.fmax.reduce(found.reshape(len(missing), -1), axis=1, initial=0)
            known |= {head: float(value) or 1.0 for head, value in zip(missing, most, strict=True)}
        return np.array([known[head] for head in heads], np.float32)


def in_chunks(window: Window, most: int = 1 << 22) -> Iterator[Window]:
    """The window in parts of some of its rows, each of at most ``most`` weights, or of one row."""
    rows = window.rows
    step = rows.step or 1
    count = max(1, most // (len(window.heads) * (window.columns.stop - window.columns.start)))
    for start in range(rows.start, rows.stop, count * step):
        stop = min(rows.stop, start + count * step)
        yield window._replace(rows=slice(start, stop, rows.step))


def objective_gradient(out: Array) -> Array:
    """The gradient of half the squared length of each row [..., D], divided by that squared length."""
    square = (out * out).sum(axis=-1, keepdims=True)
    gradient: Array = out / np.where(square == 0, np.ones_like(square), square)
    return gradient


def row_step(rows: slice, columns: slice, height: int) -> int:
    """1; or n, to compute only every n-th row, where an image of ``height`` rows covers too many weights."""
    count = rows.stop - rows.start
    weights = count * (columns.stop - columns.start)
    return 1 if weights <= MAX_POOLED_WEIGHTS else max(1, count // (4 * height))


def largest_step(length: int) -> int:
    """1; or n, where :meth:`Engine.largest` computes only every n-th row."""
    return row_step(slice(0, length), slice(0, length), min(length, _CELLS_OF_LARGEST))
