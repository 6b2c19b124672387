"""Findings: what each head does, by labels that have a score. The modules that compute are imported late."""

from __future__ import annotations

from typing import Any

import numpy as np

from py_attn.viewer.methods import method
from py_attn.viewer.viewer import Viewer


@method(notebook=True)
async def labels(viewer: Viewer) -> list[dict[str, str]]:
    """The labels that a head may get: ``name``, ``title``, ``description`` and ``synonyms``."""
    from py_attn.findings import LABELS

    return [
        {name: getattr(label, name) for name in ("name", "title", "description", "synonyms")}
        for label in LABELS
    ]


@method(notebook=True)
async def heads(viewer: Viewer) -> dict[str, Any] | None:
    """What each head of the source does; None where another source was opened meanwhile.

    Returns
    -------
    dict
        For all heads of all layers, in order: ``shown``, a list of label and score, the highest score first;
        ``scores`` float32 [layers·heads·labels], NaN where there is none, in the order of :func:`labels`;
        ``entropy`` (bits) and ``sparsity`` float32 [layers·heads]; ``groups`` and ``order`` int32
        [layers·heads], see :func:`py_attn.findings.head_groups`, empty for too many heads. And ``rows``, how
        many rows each label's score is a mean over; ``step``, 1, or n where every n-th row was looked at.
    """
    from py_attn.viewer.findings import find

    found = await find(viewer)
    if found is None:
        return None
    scores = found.scores
    stacked = np.stack([scores.labels[name] for name in scores.labels], axis=-1)
    return {
        "shown": [
            [{"name": name, "score": score} for name, score in scores.shown(*head)]
            for head in np.ndindex(*scores.entropy.shape)
        ],
        "scores": stacked.astype(np.float32).reshape(-1),
        "entropy": scores.entropy.astype(np.float32).reshape(-1),
        "sparsity": scores.sparsity.astype(np.float32).reshape(-1),
        "groups": found.groups.astype(np.int32),
        "order": found.order.astype(np.int32),
        "rows": scores.rows,
        "step": found.step,
    }
