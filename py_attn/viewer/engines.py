"""Two ways to get weights and pictures of them: our kernels, and numpy where there is no WebGPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from py_attn import reference
from py_attn.colormaps import Pixels, paint, paint_signed
from py_attn.viewer.pooling import pool
from py_attn.viewer.source import Array, Layer, Masking

#: numpy in WebAssembly needs seconds for more than this.
MAX_REFERENCE_LENGTH = 2048

#: A picture pooled from more weights than this (4,096²) looks at four rows for each of its own.
MAX_POOLED_WEIGHTS = 1 << 24


Show = Literal["weights", "gradient"]


@dataclass(frozen=True)
class Style:
    """What a map shows, and how: the colour map, its scale, and how several weights share a pixel.

    ``show`` is "weights"; or "gradient" for each weight times the gradient of half the squared length of
    its row's output with respect to it, divided by that squared length. These are the links' shares of the
    output: a row's sum is 1, and a link whose value points against the output counts below zero. (Values
    matter beside weights: Kobayashi et al., arXiv 2004.10102.)
    """

    show: Show = "weights"
    colormap: str = "rocket"
    scale: Literal["linear", "sqrt", "log"] = "sqrt"
    pool: Literal["max", "mean"] = "max"

    def __post_init__(self) -> None:
        check_show(self.show)


def check_show(show: str) -> None:
    """Raise ValueError unless ``show`` is one of :class:`Style`'s."""
    if show not in ("weights", "gradient"):
        raise ValueError(f"show: expected weights or gradient, got {show!r}")


def objective_gradient(out: Array) -> Array:
    """The gradient of half the squared length of each row [..., D], divided by that squared length."""
    square = (out * out).sum(axis=-1, keepdims=True)
    gradient: Array = out / np.where(square == 0, np.ones_like(square), square)
    return gradient


def paint_pooled(values: Array, size: tuple[int, int] | None, style: Style) -> Pixels:
    """Weights or gradients pooled to ``size`` cells and coloured."""
    signed = style.show == "gradient"
    if size:
        values = pool(values, size, "furthest" if signed and style.pool == "max" else style.pool)
    if signed:
        return paint_signed(values, style.colormap, style.scale)
    return paint(values, style.colormap, style.scale)


def row_step(rows: slice, columns: slice, cells: int) -> int:
    """1; or n, to look at every n-th row, where ``cells`` rows of a picture stand for too many weights."""
    count = rows.stop - rows.start
    weights = count * (columns.stop - columns.start)
    return 1 if weights <= MAX_POOLED_WEIGHTS else max(1, count // (4 * cells))


class Engine(Protocol):
    """Where weights come from."""

    name: str

    def check(self, heads: int, length: int, head_dim: int) -> None:
        """Raise ValueError for an input that would take minutes."""
        ...

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
        ...

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
        """The same as pixels [heads, height, width, 4]; ``size`` pools to so many cells."""
        ...


class ReferenceEngine:
    """numpy, in float32 and row by row: slow, and right."""

    name = "numpy"

    def check(self, heads: int, length: int, head_dim: int) -> None:
        """Raise ValueError beyond :data:`MAX_REFERENCE_LENGTH`."""
        if length > MAX_REFERENCE_LENGTH:
            raise ValueError(
                f"length: the numpy reference goes up to {MAX_REFERENCE_LENGTH:,} here, got {length:,}"
            )

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
        group = layer.query.shape[1] // layer.key.shape[1]
        found: list[npt.NDArray[Any]] = []
        for head in heads:
            kv = slice(head // group, head // group + 1)
            query, key, value = layer.query[:, head : head + 1, rows], layer.key[:, kv], layer.value[:, kv]
            keywords = masking.head_keywords(head, np.arange(layer.query.shape[2])[rows], key.shape[2])
            keywords["compute_dtype"] = np.float32
            if show == "gradient":
                out = reference.attention(query, key, value, **keywords)
                keywords.update(value=value, grad_out=objective_gradient(out))
            found.append(reference.attention_weights(query, key, **keywords)[0, 0, :, columns])
        return np.stack(found)

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
