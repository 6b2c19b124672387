"""A small file to try without owning one: made-up heads that do what heads of language models do."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from py_attn.viewer.sources.saving import HOLDS
from py_attn.viewer.sources.source import Array

_TEXT = "A rose is a rose is a rose , said the poet . A poet is a poet is a poet , said the rose ."
TOKENS = _TEXT.split()
LAYERS, HEADS = 2, 4


def example_file(holds: str) -> bytes:
    """The bytes of an ``.npz`` file of 2 layers with 4 causal heads over 26 tokens.

    The heads of the first layer attend to the previous token, to the first one, to the same word, and to
    whatever there is; those of the second to what followed the same word earlier ("induction", Olsson et al.,
    arXiv 2209.11895), to the end of the sentence before, to themselves, and to the last few.

    Parameters
    ----------
    holds
        "queries": ``query``, ``key`` and ``value`` [2, 1, 4, 26, 26]; or "attentions": the weights
        [2, 1, 4, 26, 26] that they give.

    Raises
    ------
    ValueError
        When `holds` is neither.
    """
    if holds not in HOLDS:
        raise ValueError(f"holds: expected one of {', '.join(HOLDS)}, got {holds!r}")
    scores = _scores()
    length = len(TOKENS)
    arrays: dict[str, Any] = {"tokens": np.array(TOKENS)}
    if holds == "attentions":
        hidden = np.where(np.tri(length, dtype=bool), scores, -np.inf)
        weights = np.exp(hidden - hidden.max(-1, keepdims=True))
        arrays["attentions"] = (weights / weights.sum(-1, keepdims=True)).astype(np.float32)
    else:
        # With the unit vectors as keys, a query holds its scores.
        unit = np.broadcast_to(np.eye(length, dtype=np.float32), scores.shape)
        arrays |= {"query": scores, "key": unit, "value": unit}
        arrays |= {"causal": np.array(True), "scale": np.array(1.0)}
    title = f"Example: {LAYERS} layers of {HEADS} made-up heads, as {holds}"
    file = io.BytesIO()
    np.savez_compressed(file, title=np.array(title), **arrays)
    return file.getvalue()


def _scores() -> Array:
    """Scores [2, 1, 4, S, S] with some noise."""
    words = np.array([token.lower() for token in TOKENS])
    query, key = np.indices((len(words), len(words)))
    same = words[:, None] == words[None, :]
    followed = np.zeros_like(same)
    followed[:, 1:] = same[:, :-1]
    heads = [
        key == query - 1,
        key == 0,
        same & (key < query),
        np.zeros_like(same),
        followed & (key < query),
        (words == ".")[None, :] & (key < query),
        key == query,
        query - key < 4,
    ]
    noise = np.random.default_rng(0).standard_normal((LAYERS, 1, HEADS, *same.shape))
    strength = np.stack(heads).reshape(noise.shape) * 5.0
    return (strength + 0.5 * noise).astype(np.float32)
