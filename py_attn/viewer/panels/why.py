"""Why this number? Every step from a query and a key to their attention weight, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn.gpu.tensor import Tensor
from py_attn.viewer.engines.engine import Window
from py_attn.viewer.methods import method
from py_attn.viewer.sources.given import GivenSource
from py_attn.viewer.sources.source import Layer, Masking
from py_attn.viewer.viewer import Viewer

Array = npt.NDArray[np.float64]


@method(notebook=True)
async def explain(viewer: Viewer, layer: int, head: int, query: int, key: int) -> dict[str, Any]:
    """The steps from query · key to one weight, computed by numpy in float64 from the layer's arrays.

    Parameters
    ----------
    layer, head : int
    query, key : int
        Row and column of the map.

    Returns
    -------
    dict
        ``query``, ``key``, ``products``: float32 [D], by dimension.

        ``kvHead``: whose key it is, of grouped heads; ``dot``: the sum of products; ``scale``; ``scaled``;
        ``softcap``; ``capped``; ``modded``: the score after the visitor's score_mod; ``bias``: what the masks
        add (-inf hides the key). Those that do not apply are None. A head's attention sink counts in
        ``rowMax`` and ``rowSum``.

        ``hiddenBy``: which rules hide the key, in words; ``score``; ``rowMax``; ``exp``: exp(score - rowMax);
        ``rowSum``; ``visible``: how many keys the query sees; ``weight``: in float64; ``computed``: what the
        map shows.

    Raises
    ------
    ValueError
        For weights that were given, or words; both have no queries and keys.
    """
    source, chosen = viewer.layer(layer)
    if isinstance(source, GivenSource):
        raise ValueError(
            "Only the weights were given, not the queries and keys that they were computed from."
        )
    if source.base is not None:
        raise ValueError(
            "Words, and texts without special tokens, have no query and key of their own. "
            "Show all tokens to see how a weight comes about."
        )
    indices = (("head", head, source.heads), ("query", query, source.length), ("key", key, source.length))
    for name, index, count in indices:
        if not 0 <= index < count:
            raise ValueError(f"{name}: expected 0 to {count - 1}, got {index}")
    kv_head = head // (source.heads // source.kv_heads)
    q, keys = await _read(chosen, head, kv_head, query)
    steps = row_scores(q, keys, source.masking, head, query)
    sink = -np.inf if source.masking.sinks is None else float(source.masking.sinks[head])
    row_max = max(steps.row_max, sink)
    exps = np.exp(steps.scores - row_max) if np.isfinite(row_max) else np.zeros_like(steps.scores)
    row_sum = float(exps.sum()) + (float(np.exp(sink - row_max)) if np.isfinite(sink) else 0.0)
    cell = Window([head], slice(query, query + 1), slice(key, key + 1))
    computed = await viewer.engine.weights(chosen, source.masking, cell)
    products = q * keys[key]
    return {
        "query": q.astype(np.float32),
        "key": keys[key].astype(np.float32),
        "products": products.astype(np.float32),
        "kvHead": None if source.heads == source.kv_heads else kv_head,
        "dot": float(products.sum()),
        "scale": float(len(q) ** -0.5),
        "scaled": float(steps.scaled[key]),
        "softcap": source.masking.softcap,
        "capped": None if source.masking.softcap is None else float(steps.capped[key]),
        "bias": None if steps.bias is None else float(steps.bias[key]),
        "modded": None if steps.modded is None else float(steps.modded[key]),
        "hiddenBy": hidden_by(source.masking, head, query, key, steps),
        "score": float(steps.scores[key]),
        "rowMax": row_max,
        "exp": float(exps[key]),
        "rowSum": row_sum,
        "visible": int(np.isfinite(steps.scores).sum()),
        "weight": float(exps[key] / row_sum) if row_sum else 0.0,
        "computed": float(computed[0, 0, 0]),
    }


async def _read(layer: Layer, head: int, kv_head: int, query: int) -> tuple[Array, Array]:
    """One query [D] and all keys [S, D] of a head in float64; of tensors only these are read."""
    parts = layer.query[:, head : head + 1, query : query + 1], layer.key[:, kv_head : kv_head + 1]
    found = [await each.numpy() if isinstance(each, Tensor) else each for each in parts]
    q, keys = (np.asarray(each[0, 0], np.float64) for each in found)
    return q[0], keys


class RowScores:
    """The scores of one query, step by step: arrays [S] in float64; None for a step that does not apply."""

    def __init__(self, scaled: Array, capped: Array, bias: Array | None, modded: Array | None) -> None:
        self.scaled, self.capped, self.bias, self.modded = scaled, capped, bias, modded
        #: Where a mask_mod lets the query see the key.
        self.allowed = np.ones(len(scaled), np.bool_)

    @property
    def scores(self) -> Array:
        """What the softmax takes; -inf hides a key."""
        before = self.capped if self.modded is None else self.modded
        if self.bias is None:
            return np.where(self.allowed, before, -np.inf)
        return np.where(self.allowed & ~np.isneginf(self.bias), before + self.bias, -np.inf)

    @property
    def row_max(self) -> float:
        """The largest score."""
        return float(self.scores.max())


def row_scores(q: Array, keys: Array, masking: Masking, head: int, query: int) -> RowScores:
    """The scores of a query [D] against the keys [S, D] of its head, as :func:`py_attn.attention` forms them:
    scale, softcap, the visitor's functions, then the masks.
    """
    rows, count = np.array([query]), len(keys)
    scaled = keys @ q * len(q) ** -0.5
    cap = masking.softcap
    capped = cap * np.tanh(scaled / cap) if cap else scaled
    added = masking.rows(rows, count)
    bias = None if added is None else np.asarray(added[0, head if added.shape[1] > 1 else 0, 0], np.float64)
    steps = RowScores(scaled, capped, bias, None)
    functions = masking.mods.on_arrays(head, rows) if masking.mods else {}
    at = [np.zeros((1, 1, 1, count), np.int64)] * 3 + [np.arange(count)[None, None, None, :]]
    if "score_mod" in functions:
        given = capped[None, None, None, :]
        changed = np.broadcast_to(functions["score_mod"](given, *at), given.shape)
        steps.modded = np.asarray(changed[0, 0, 0], np.float64)
    if "mask_mod" in functions:
        steps.allowed = np.broadcast_to(np.asarray(functions["mask_mod"](*at), bool), (1, 1, 1, count))[
            0, 0, 0
        ]
    return steps


def hidden_by(masking: Masking, head: int, query: int, key: int, steps: RowScores) -> list[str]:
    """Which rules hide a key from a query, in words."""
    found = []
    if masking.causal and key > query:
        found.append("causal masking: the key comes after the query")
    if masking.valid is not None and key >= masking.valid:
        found.append(f"padding: only the first {masking.valid:,} keys count")
    if masking.window is not None:
        alone = Masking(causal=masking.causal, window=masking.window, valid=masking.valid)
        seen = alone.rows(np.array([query]), len(steps.scores))
        without = Masking(causal=masking.causal, valid=masking.valid).rows(
            np.array([query]), len(steps.scores)
        )
        hidden = seen is not None and np.isneginf(seen[0, 0, 0, key])
        if hidden and not (without is not None and np.isneginf(without[0, 0, 0, key])):
            found.append("the window: the key is too far from the query")
    if masking.bias is not None:
        own = masking.bias[0, head if masking.bias.shape[1] > 1 else 0]
        value = own[query if own.shape[0] > 1 else 0, key]
        if (value.dtype == np.bool_ and not value) or (value.dtype != np.bool_ and np.isneginf(value)):
            found.append("the mask")
    if not steps.allowed[key]:
        found.append("your mask_mod")
    if steps.modded is not None and np.isneginf(steps.modded[key]) and not found:
        found.append("your score_mod, which gives minus infinity")
    return found
