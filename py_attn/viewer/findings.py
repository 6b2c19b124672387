"""What each head of a source does: labels with scores, entropy and sparsity, and groups of like heads."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np

from py_attn.findings.likeness import head_distances, head_groups
from py_attn.findings.scores import HeadScores, row_sums, scores_of
from py_attn.findings.tokens import identities, key_sets, kinds
from py_attn.gpu.tensor import Tensor
from py_attn.viewer.engines.engine import Engine, Style, Window
from py_attn.viewer.engines.gpu import GPUEngine
from py_attn.viewer.sources.derived import DerivedSource
from py_attn.viewer.sources.given import GivenLayer
from py_attn.viewer.sources.source import Array, Layer, Source
from py_attn.viewer.viewer import Viewer

#: Weights of all heads that are looked at: by numpy or a software adapter (half a second), and by a GPU.
MAX_SLOW_WEIGHTS, MAX_WEIGHTS = 1 << 21, 1 << 28
#: Weights of one head that are looked at, and weights that lie in memory at once.
MAX_HEAD_WEIGHTS, CHUNK = 1 << 21, 1 << 22
#: So many rows are looked at in any case.
FEWEST_ROWS = 16
#: Comparing all pairs of more heads than this would take seconds.
MAX_COMPARED_HEADS = 512


@dataclass(frozen=True)
class Rows:
    """The rows of a source that are looked at, and what is known about their keys.

    Attributes
    ----------
    part : slice
    causal : bool
        Whether no query sees a later key.
    visible : array
        bool [r, n], or [H, r, n] where it depends on the head: which keys a query sees.
    sets : dict
        See :func:`py_attn.findings.tokens.key_sets`.
    """

    part: slice
    causal: bool
    visible: Array
    sets: dict[str, Array]

    @property
    def count(self) -> int:
        return int(self.visible.shape[-2])


@dataclass(frozen=True)
class Findings:
    """What was found, for all heads of all layers in order.

    Attributes
    ----------
    scores : HeadScores
    groups, order : array
        See :func:`py_attn.findings.head_groups`; empty where there are too many heads to compare.
    step : int
        1, or n where only every n-th row was looked at.
    """

    scores: HeadScores
    groups: Array
    order: Array
    step: int


async def find(viewer: Viewer) -> Findings | None:
    """Look at all heads of the source that is open; None if another one was opened meanwhile."""
    source, _ = viewer.layer(0)
    engine = viewer.engine
    rows = choose_rows(source, software=_is_slow(engine))
    total = len(source.layers) * source.heads
    look = _Look(engine, source, rows, _tokens_on_gpu(engine, source))
    compare = total <= MAX_COMPARED_HEADS
    cells = 24 if total <= 128 else 16
    sums, maps = [], []
    for layer in source.layers:
        # Both are recorded before the first is waited for. Other calls get their turn between layers.
        waits = [look.sums(layer), *([look.pooled(layer, cells)] if compare else [])]
        of_layer, *picture = await asyncio.gather(*waits)
        if viewer.source is not source:
            return None
        sums.append(of_layer)
        maps += picture
    scores = scores_of(np.stack(sums), rows.visible, rows.sets)
    groups = order = np.zeros(0, np.int64)
    if compare:
        groups, order = head_groups(head_distances(np.concatenate(maps)))
    return Findings(scores, groups, order, rows.part.step)


def _is_slow(engine: Engine) -> bool:
    return not isinstance(engine, GPUEngine) or engine.device.info.software


def choose_rows(source: Source, *, software: bool) -> Rows:
    """All rows, or, of many weights, every n-th one; n is odd, so that no pattern of twos is missed."""
    n, heads = source.length, len(source.layers) * source.heads
    budget = min((MAX_SLOW_WEIGHTS if software else MAX_WEIGHTS) // heads, MAX_HEAD_WEIGHTS)
    count = min(n, max(FEWEST_ROWS, budget // n))
    step = -(-n // count)
    step += step > 1 and step % 2 == 0
    part = slice(step // 2, n, step)
    rows = np.arange(n)[part]
    visible = _visible(source, rows)
    causal = not (visible & (np.arange(n) > rows[:, None])).any()
    return Rows(part, causal, visible, key_sets(source.tokens, rows, causal=causal))


def _visible(source: Source, rows: Array) -> Array:
    """Which keys a query sees, by the source's masking and the visitor's mask_mod; [r, n] or [H, r, n].

    Of given weights nothing is known but the weights: where none of them is at a later key, they are causal.
    A group of positions sees another one where any of its positions sees any of those.
    """
    if isinstance(source, DerivedSource):
        starts, stops = source.groups.starts, source.groups.stops
        counts = (stops - starts)[rows]
        positions = np.concatenate([np.arange(starts[row], stops[row]) for row in rows])
        by_position = _any_in(_visible(source.base, positions), starts, stops)
        ends = counts.cumsum()
        return _any_in(by_position.swapaxes(-1, -2), ends - counts, ends).swapaxes(-1, -2)
    n = source.length
    later = np.arange(n) > rows[:, None]
    if isinstance(source.layers[0], GivenLayer):
        given = (layer.weights for layer in source.layers if isinstance(layer, GivenLayer))
        causal = not any((weights[:, rows] * later).any() for weights in given)
        return ~later if causal else np.ones_like(later)
    added = source.masking.rows(rows, n)
    visible: Array = np.ones((1, *later.shape), np.bool_) if added is None else np.isfinite(added[0])
    mods = source.masking.mods
    if mods and "mask_mod" in mods.plain:
        at = np.meshgrid([0], [0], np.arange(len(rows)), np.arange(n), indexing="ij")
        seen = [mods.on_arrays(head, rows)["mask_mod"](*at)[0, 0] for head in range(source.heads)]
        visible = visible & np.stack(seen)
    return visible[0] if len(visible) == 1 else visible


def _any_in(values: Array, starts: Array, stops: Array) -> Array:
    """Whether any value along the last axis is true in each range."""
    before = np.concatenate([np.zeros((*values.shape[:-1], 1), np.int64), values.cumsum(-1)], axis=-1)
    found: Array = before[..., stops] > before[..., starts]
    return found


def _tokens_on_gpu(engine: Engine, source: Source) -> tuple[Tensor, Tensor] | None:
    if not isinstance(engine, GPUEngine):
        return None
    return engine.device.tensor(kinds(source.tokens)), engine.device.tensor(identities(source.tokens))


@dataclass(frozen=True)
class _Look:
    """What looks at the layers of a source, one after the other."""

    engine: Engine
    source: Source
    rows: Rows
    tokens: tuple[Tensor, Tensor] | None

    async def sums(self, layer: Layer) -> Array:
        """The sums of the rows of a layer's heads, [H, r, sums]; a part of the heads at a time."""
        heads = list(range(self.source.heads))
        at_once = max(1, CHUNK // (self.rows.count * self.source.length))
        columns = slice(0, self.source.length)
        found = []
        for first in range(0, len(heads), at_once):
            part = Window(heads[first : first + at_once], self.rows.part, columns)
            found.append(await self._sums(layer, part))
        return np.concatenate(found)

    async def _sums(self, layer: Layer, part: Window) -> Array:
        rows, masking = self.rows, self.source.masking
        if not isinstance(self.engine, GPUEngine) or self.tokens is None:
            return row_sums(await self.engine.weights(layer, masking, part), rows.sets)
        from py_attn.kernels.attention.weights import attention_weights
        from py_attn.kernels.maps.row_sums import row_sums as row_sums_on_gpu

        given = self.engine.upload(layer, masking)
        weights = attention_weights(
            given.query, given.key, given.lse, heads=part.heads, rows=part.rows, **given.keywords
        )
        begin, step = rows.part.start, rows.part.step
        sums = row_sums_on_gpu(weights, *self.tokens, row_begin=begin, row_step=step, causal=rows.causal)
        array: Array = (await sums.numpy())[0]
        return array

    async def pooled(self, layer: Layer, cells: int) -> Array:
        """A layer's maps [H, h, w], pooled to at most ``cells`` a side."""
        n = self.source.length
        size = min(cells, self.rows.count), min(cells, n)
        part = Window(list(range(self.source.heads)), self.rows.part, slice(0, n), size)
        return await self.engine.weights(layer, self.source.masking, part, Style(pool="mean"))
