"""Reading: word pieces merged into words, special tokens hidden; sums and entropies of rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from py_attn.viewer.engines.engine import Over, Window, in_chunks
from py_attn.viewer.methods import method
from py_attn.viewer.sources.reading import Reading
from py_attn.viewer.viewer import Viewer

#: Sums over columns need all weights of a map.
MAX_MARGINS_LENGTH = 4096


@method(notebook=True)
async def read_as(viewer: Viewer, words: bool = False, special: Any = "show") -> dict[str, Any]:
    """Read the tokens of this source, and of those that are opened later, in another way.

    Parameters
    ----------
    words : bool
        Merge the pieces of a word: attention to it is the sum over its pieces, from it the mean over them.
    special : str
        "show"; "hide" to leave out the rows and columns of special tokens; "renormalise" to divide what is
        left of each row by its sum, too.

    Returns
    -------
    dict
        As of the methods that open a source: the source as it is read now.
    """
    if special not in ("show", "hide", "renormalise"):
        raise ValueError(f"special: expected show, hide or renormalise, got {special!r}")
    reading = Reading(bool(words), special)
    viewer.reading = None if reading == Reading() else reading
    base = viewer.base
    if base is None:
        raise ValueError("nothing is open yet")
    viewer.show(base)
    return viewer.describe()


@method(notebook=True)
async def margins(viewer: Viewer, layer: int, head: int, over: Over = "head") -> dict[str, Any]:
    """Sums of a map's rows and columns, and the entropy of its rows.

    Returns
    -------
    dict
        float32 [length] each: ``rowSum``; ``columnSum``, the attention that a key receives from all queries;
        ``entropy`` of each row in bits: -sum p log2 p of its weights divided by their sum; 0 where one key
        has all of the weight, and for a row without weights.

    Raises
    ------
    ValueError
        For more than :data:`MAX_MARGINS_LENGTH` tokens.
    """
    source, _ = viewer.layer(layer)
    if source.length > MAX_MARGINS_LENGTH:
        raise ValueError(
            f"margins: expected at most {MAX_MARGINS_LENGTH:,} tokens, got {source.length:,}; the sums over "
            "columns need every weight of the map"
        )
    engine, chosen, head = viewer.map(layer, head, over)
    everything = slice(0, source.length)
    columns = np.zeros(source.length)
    rows, entropy = [], []
    for part in in_chunks(Window([head], everything, everything)):
        found = (await engine.weights(chosen, source.masking, part))[0].astype(np.float64)
        columns += found.sum(axis=0)
        rows.append(found.sum(axis=1))
        entropy.append(_entropy(found, rows[-1]))
    return {
        "rowSum": np.concatenate(rows).astype(np.float32),
        "columnSum": columns.astype(np.float32),
        "entropy": np.concatenate(entropy).astype(np.float32),
    }


def _entropy(weights: Any, sums: Any) -> Any:
    shares = weights / np.where(sums == 0, 1, sums)[:, None]
    logs = np.log2(np.where(shares > 0, shares, 1))
    return np.maximum(0, -(shares * logs).sum(axis=1))
