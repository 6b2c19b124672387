"""Means over heads and layers, and attention rollout, as the maps of an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from py_attn.viewer.engines.engine import Engine, Over, Style, Window
from py_attn.viewer.engines.pooling import pool_as
from py_attn.viewer.sources.mods import Mods
from py_attn.viewer.sources.source import Array, Layer, Masking, Source

#: A rollout multiplies matrices of this length at most, one for each layer.
MAX_ROLLOUT_LENGTH = 2048
#: Multiplications and additions in the matrix products of a rollout without a GPU that is fast at them.
MAX_ROLLOUT_FLOP = 2e10
#: Bytes of rollouts that are kept, of as many layers as fit, but of at least one.
_KEPT_BYTES = 64 << 20
_ROWS_AT_ONCE = 64


class OverLayer(Layer):
    """Layers whose heads are taken together: a layer with one map.

    Attributes
    ----------
    layers : list of Layer
        Those whose heads count; for a rollout all from the first one to that in focus.
    heads : int
        Of each of them.
    length : int
    rollout : bool
        Whether the map is the rollout, and not the mean.
    """

    def __init__(self, layers: Sequence[Layer], heads: int, length: int, *, rollout: bool = False) -> None:
        super().__init__(None, None, None)
        self.layers = list(layers)
        self.heads = heads
        self.length = length
        self.rollout = rollout

    async def host(self) -> tuple[Array, Array, Array]:
        """Raises ValueError: several heads have no common query, key and value."""
        raise ValueError("layer: a map of several heads has no queries, keys and values of its own")


def over_layer(source: Source, layer: int, over: Over) -> OverLayer:
    """The layer whose only map is what ``over`` names, in a source token by token."""
    layers = {"layer": slice(layer, layer + 1), "all": slice(None), "rollout": slice(layer + 1)}
    if over not in layers:
        raise ValueError(f"over: expected head, layer, all or rollout, got {over!r}")
    return OverLayer(source.layers[layers[over]], source.heads, source.length, rollout=over == "rollout")


@dataclass
class _Kept:
    """The rollouts up to some layers, with the score_mod that applied."""

    mods: Mods | None
    upto: dict[int, Array] = field(default_factory=dict)
    #: The picture, the row and the margins are asked for at once, and one of them computes.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class OverEngine(Engine):
    """Maps of several heads, from the weights that another engine computes.

    Parameters
    ----------
    base : Engine
    """

    def __init__(self, base: Engine) -> None:
        self.base = base
        self.name = base.name

    @property
    def most_weights(self) -> int:
        """As of the base."""
        return self.base.most_weights

    def check(self, heads: int, length: int, head_dim: int) -> None:
        """As of the base."""
        self.base.check(heads, length, head_dim)

    async def weights(
        self, layer: Layer, masking: Masking, window: Window, style: Style | None = None
    ) -> Array:
        """The means, or the rollout, float32 [1, rows, columns], pooled to the window's size.

        Raises
        ------
        ValueError
            When it would take too many weights, or for the rollout of gradients.
        """
        assert isinstance(layer, OverLayer)
        style = style or Style()
        if layer.rollout:
            if style.show != "weights":
                raise ValueError(f"show: expected weights for the rollout, got {style.show!r}")
            found = (await self._rollout(layer, masking))[window.rows, window.columns].astype(np.float32)
        else:
            found = await self._mean(layer, masking, window, style)
        return pool_as(found[None], window.size, style.pool, signed=style.show == "gradient")

    async def _mean(self, layer: OverLayer, masking: Masking, window: Window, style: Style) -> Array:
        whole = window._replace(heads=list(range(layer.heads)), size=None)
        rows = len(range(layer.length)[window.rows])
        self._check_count(layer, rows, window.columns.stop - window.columns.start)
        count, total = len(layer.layers), None
        # Rows of all layers are recorded before the first is waited for; maps would take too much memory.
        at_once = count if rows * count <= _ROWS_AT_ONCE else 1
        for start in range(0, count, at_once):
            some = layer.layers[start : start + at_once]
            for mean in await asyncio.gather(*(self.base.mean(x, masking, whole, style) for x in some)):
                total = mean if total is None else total + mean
        assert total is not None
        return total / np.float32(count)

    def _check_count(self, layer: OverLayer, rows: int, columns: int) -> None:
        maps = layer.heads * len(layer.layers)
        if maps * rows * columns > self.most_weights:
            raise ValueError(
                f"over: {maps} maps of {rows:,} × {columns:,} weights are too many to take together here; "
                "zoom in, or choose fewer heads or a shorter text"
            )

    async def _rollout(self, layer: OverLayer, masking: Masking) -> Array:
        """The rollout [S, S] up to the last of the layers; kept with the first one.

        Attention rollout (Abnar and Zuidema, arXiv 2005.00928): the mean W of each layer's heads and the
        residual connection count half each, A = (W + I) / 2 with rows that sum to 1, and the layers are
        multiplied: R = A_n ... A_2 A_1.
        """
        slot = (self.base, "rollout", "edited" if masking.mods else "own")
        kept: _Kept | None = layer.layers[0].kept.get(slot)
        if kept is None or kept.mods is not masking.mods:
            kept = layer.layers[0].kept[slot] = _Kept(masking.mods)
        async with kept.lock:
            return await self._rolled_out(layer, masking, kept.upto)

    async def _rolled_out(self, layer: OverLayer, masking: Masking, upto: dict[int, Array]) -> Array:
        last = len(layer.layers) - 1
        if last in upto:
            return upto[last]
        known = max((index for index in upto if index < last), default=-1)
        self._check_rollout(layer, last - known)
        found = upto.get(known)
        everything = slice(0, layer.length)
        part = Window(list(range(layer.heads)), everything, everything)
        for each in layer.layers[known + 1 :]:
            step = _with_residual(await self.base.mean(each, masking, part))
            found = step if found is None else await self.base.product(step, found)
        assert found is not None
        while upto and (len(upto) + 1) * found.nbytes > _KEPT_BYTES:
            del upto[next(iter(upto))]
        upto[last] = found
        return found

    def _check_rollout(self, layer: OverLayer, layers: int) -> None:
        length = layer.length
        work = 2.0 * layers * length**3
        slow = self.most_weights < 1 << 30 and work > MAX_ROLLOUT_FLOP
        if slow or length > MAX_ROLLOUT_LENGTH:
            why = "would take minutes here" if slow else f"needs at most {MAX_ROLLOUT_LENGTH:,} tokens"
            raise ValueError(
                f"over: the rollout up to layer {len(layer.layers) - 1} with {length:,} tokens {why}; "
                "choose an earlier layer or a shorter text"
            )
        self._check_count(layer, length, length)


def _with_residual(mean: Array) -> Array:
    """(W + I) / 2 with rows that sum to 1, also where a row of W attends to nothing."""
    both = 0.5 * mean.astype(np.float64)
    both[np.diag_indices_from(both)] += 0.5
    result: Array = both / both.sum(axis=-1, keepdims=True)
    return result
