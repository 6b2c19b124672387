"""What each head of a source does: labels with scores, entropy and sparsity, and groups of like heads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from py_attn.findings.likeness import head_distances, head_groups
from py_attn.findings.scores import SUMS, HeadScores, row_sums, scores_of
from py_attn.findings.tokens import identities, key_sets, kinds
from py_attn.gpu.tensor import Tensor
from py_attn.viewer.engines.engine import Engine, Style, Window
from py_attn.viewer.engines.gpu import GPUEngine
from py_attn.viewer.sources.given import GivenLayer
from py_attn.viewer.sources.source import Array, Layer, Source
from py_attn.viewer.viewer import Viewer

#: Weights of all heads together that are looked at: by numpy or a software adapter (about a second), and by a GPU.
MAX_SLOW_WEIGHTS, MAX_WEIGHTS = 1 << 23, 1 << 28
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
    cells = 24 if total <= 128 else 16
    sums, maps = [], []
    tokens: tuple[Tensor, Tensor] | None = None
    if isinstance(engine, GPUEngine):
        words = kinds(source.tokens), identities(source.tokens)
        tokens = engine.device.tensor(words[0]), engine.device.tensor(words[1])
    for layer in source.layers:
        # Both are recorded before the first is waited for; between layers the page's other calls get their turn.
        of_layer, picture = await asyncio.gather(
            _layer_sums(engine, source, layer, rows, tokens),
            _pooled(engine, source, layer, rows, cells, total),
        )
        if viewer.source is not source:
            return None
        sums.append(of_layer)
        maps.append(picture)
    scores = scores_of(np.stack(sums), rows.visible, rows.sets)
    groups = order = np.zeros(0, np.int64)
    if total <= MAX_COMPARED_HEADS:
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
    """
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


async def _layer_sums(
    engine: Engine, source: Source, layer: Layer, rows: Rows, tokens: tuple[Tensor, Tensor] | None
) -> Array:
    """The sums of the rows of a layer's heads, [H, r, len(SUMS)]; a part of the heads at a time."""
    heads = list(range(source.heads))
    at_once = max(1, CHUNK // (rows.count * source.length))
    found = []
    for first in range(0, source.heads, at_once):
        part = Window(heads[first : first + at_once], rows.part, slice(0, source.length))
        found.append(await _sums(engine, source, layer, part, rows, tokens))
    return np.concatenate(found)


async def _sums(
    engine: Engine,
    source: Source,
    layer: Layer,
    part: Window,
    rows: Rows,
    tokens: tuple[Tensor, Tensor] | None,
) -> Array:
    if not isinstance(engine, GPUEngine) or tokens is None:
        return row_sums(await engine.weights(layer, source.masking, part), rows.sets)
    from py_attn.kernels.attention.weights import attention_weights
    from py_attn.kernels.maps.row_sums import row_sums as row_sums_on_gpu

    uploaded = engine.upload(layer, source.masking)
    weights = attention_weights(
        uploaded.query, uploaded.key, uploaded.lse, heads=part.heads, rows=part.rows, **uploaded.keywords
    )
    sums = row_sums_on_gpu(
        weights, *tokens, row_begin=rows.part.start, row_step=rows.part.step, causal=rows.causal
    )
    array: Array = (await sums.numpy())[0]
    return array


async def _pooled(
    engine: Engine, source: Source, layer: Layer, rows: Rows, cells: int, total: int
) -> Array | None:
    """A layer's maps, pooled for comparing them: [H, h, w]."""
    if total > MAX_COMPARED_HEADS:
        return None
    n = source.length
    size = min(cells, rows.count), min(cells, n)
    part = Window(list(range(source.heads)), rows.part, slice(0, n), size)
    return await engine.weights(layer, source.masking, part, Style(pool="mean"))
