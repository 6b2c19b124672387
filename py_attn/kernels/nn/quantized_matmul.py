"""How a product of a quantised matrix with many tokens is tiled: ``shaders/nn/quantized_matmul.wgsl``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py_attn.gpu.binding import most_invocations
from py_attn.gpu.bridge import AdapterInfo
from py_attn.kernels.nn.quantized import BLOCK

# Fewer tokens are multiplied by nn/quantized_linear.wgsl.
_FEWEST_TOKENS = 16
# So many workgroups, or more, keep a large GPU busy.
_MANY_TILES = 100


@dataclass(frozen=True, slots=True)
class MatmulConfig:
    """What one product is compiled with; the head of ``quantized_matmul.wgsl`` says what the numbers mean.

    Attributes
    ----------
    tile_tokens, tile_rows : int
        Tokens and rows of the matrix that a workgroup computes.
    tokens_each, rows_each : int
        Those that an invocation computes, multiples of 4 that divide the tile's.
    slices : int
        Invocations that share them, a power of two up to 32.
    unrolled : bool
        Whether the loop over a block is written out.
    """

    tile_tokens: int
    tile_rows: int
    tokens_each: int
    rows_each: int
    slices: int
    unrolled: bool = True

    @property
    def label(self) -> str:
        """The variant's name in timings and errors."""
        slices = f" /{self.slices}" if self.slices > 1 else ""
        return f"{self.tile_tokens}x{self.tile_rows}, {self.tokens_each}x{self.rows_each}{slices}"

    @property
    def workgroup(self) -> int:
        """Invocations of a workgroup."""
        tile = self.tile_tokens // self.tokens_each * (self.tile_rows // self.rows_each)
        return tile * self.slices

    def workgroup_memory(self) -> int:
        """Bytes."""
        stage = BLOCK * (self.tile_tokens // 4 + 1 + self.tile_rows // 4 + 1)
        sums = self.tile_tokens * self.tile_rows // 4 if self.slices > 1 else 0
        return 16 * max(stage, sums) + 4 * 8 * self.tile_tokens

    def workgroups(self, rows: int, count: int) -> int:
        """Workgroups for a matrix of so many rows and ``count`` tokens."""
        return -(-rows // self.tile_rows) * -(-count // self.tile_tokens)

    def constants(self) -> dict[str, Any]:
        """The template's variables."""
        return {
            "TILE_TOKENS": self.tile_tokens,
            "TILE_ROWS": self.tile_rows,
            "TOKENS_EACH": self.tokens_each,
            "ROWS_EACH": self.rows_each,
            "SLICES": self.slices,
            "WORKGROUP": self.workgroup,
            "unrolled": self.unrolled,
        }

    def fits(self, info: AdapterInfo) -> bool:
        """Whether the adapter can run it."""
        memory = info.limits["maxComputeWorkgroupStorageSize"]
        return self.workgroup_memory() <= memory and self.workgroup <= most_invocations(info.limits)


#: From the fastest for large products to the one with the most workgroups for small ones.
TILES = (
    MatmulConfig(64, 64, 8, 4, 2),
    MatmulConfig(32, 32, 8, 4, 4),
    MatmulConfig(16, 32, 4, 4, 4),
)


def configure_matmul(info: AdapterInfo, rows: int, count: int) -> MatmulConfig | None:
    """The tile for a matrix of so many rows and ``count`` tokens, by static rules; None for few tokens."""
    if info.software or count < _FEWEST_TOKENS:
        return None
    fitting = [tile for tile in TILES if tile.fits(info)]
    large = (tile for tile in fitting if tile.workgroups(rows, count) >= _MANY_TILES)
    return next(large, fitting[-1] if fitting else None)
