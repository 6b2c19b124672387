"""Two ways to get weights and pictures of them: our kernels, and numpy where there is no WebGPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from py_attn import reference
from py_attn.colormaps import Pixels, paint
from py_attn.viewer.pooling import pool
from py_attn.viewer.source import Array, Layer, Masking

#: numpy in WebAssembly needs seconds for more than this.
MAX_REFERENCE_LENGTH = 2048

#: A picture pooled from more weights than this (4,096²) looks at four rows for each of its own.
MAX_POOLED_WEIGHTS = 1 << 24


@dataclass(frozen=True)
class Style:
    """How weights become pixels: the colour map, its scale, and how several weights share a pixel."""

    colormap: str = "rocket"
    scale: Literal["linear", "sqrt", "log"] = "sqrt"
    pool: Literal["max", "mean"] = "max"


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
        self, layer: Layer, masking: Masking, heads: list[int], rows: slice, columns: slice
    ) -> Array:
        """Probabilities [heads, rows, columns], float32."""
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
        self, layer: Layer, masking: Masking, heads: list[int], rows: slice, columns: slice
    ) -> Array:
        """Probabilities [heads, rows, columns], float32."""
        group = layer.query.shape[1] // layer.key.shape[1]
        bias = masking.rows(np.arange(layer.query.shape[2])[rows], layer.key.shape[2])
        found: list[npt.NDArray[Any]] = []
        for head in heads:
            mask = None if bias is None else bias[:, head : head + 1] if bias.shape[1] > 1 else bias
            found.append(
                reference.attention_weights(
                    layer.query[:, head : head + 1, rows],
                    layer.key[:, head // group : head // group + 1],
                    mask=mask,
                    softcap=masking.softcap,
                    compute_dtype=np.float32,
                )[0, 0, :, columns]
            )
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
        weights = await self.weights(layer, masking, heads, rows, columns)
        return paint(pool(weights, size, style.pool) if size else weights, style.colormap, style.scale)
