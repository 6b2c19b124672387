"""What is open as an ``.npz`` file that :mod:`py_attn.viewer.sources.files` reads again."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from py_attn.viewer.engines.engine import Engine, Window
from py_attn.viewer.sources.given import GivenSource
from py_attn.viewer.sources.source import Array, Masking, Source

#: The largest file that is made: beside it, Python holds the arrays and a copy of them.
MAX_SAVED_BYTES = 1 << 28
#: Weights that are computed at once: one buffer of every GPU can hold them.
_AT_ONCE = 1 << 24
HOLDS = ("queries", "attentions")


async def save(source: Source | None, engine: Engine, holds: str) -> bytes:
    """The bytes of an ``.npz`` file of a source.

    Parameters
    ----------
    source
        What is open.
    engine
        Computes the weights.
    holds
        "queries": query, key and value [layers, 1, H, S, D] float32 and how they are masked, but without a
        visitor's score_mod and mask_mod, which are program text; or "attentions": the weights
        [layers, H, S, S] float32 as they are shown, whose ``layout`` is "LHSS".

    Raises
    ------
    ValueError
        When nothing is open, the source has only weights, or the file would be too large.
    """
    if source is None:
        raise ValueError("nothing is open yet")
    if holds not in HOLDS:
        raise ValueError(f"holds: expected one of {', '.join(HOLDS)}, got {holds!r}")
    arrays: dict[str, Any] = {"tokens": np.array(list(source.tokens)), "title": np.array(source.title)}
    if holds == "attentions":
        _check(4 * len(source.layers) * source.heads * source.length**2)
        arrays |= {"attentions": await _weights(source, engine), "layout": np.array("LHSS")}
    elif isinstance(source, GivenSource):
        raise ValueError("holds: only weights were given, so there are no queries and keys to save")
    else:
        width = source.heads + 2 * source.kv_heads
        _check(4 * len(source.layers) * width * source.length * source.head_dim)
        arrays |= await _queries(source)
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _check(size: int) -> None:
    if size > MAX_SAVED_BYTES:
        raise ValueError(
            f"the file would have {size / 1e6:,.0f} MB, and at most {MAX_SAVED_BYTES / 1e6:,.0f} MB are saved"
        )


async def _weights(source: Source, engine: Engine) -> Array:
    whole = slice(0, source.length)
    count = max(1, _AT_ONCE // source.length**2)
    heads = [list(range(first, min(first + count, source.heads))) for first in range(0, source.heads, count)]
    return np.stack(
        [
            np.concatenate(
                [await engine.weights(layer, source.masking, Window(some, whole, whole)) for some in heads]
            )
            for layer in source.layers
        ]
    )


def _common(source: Source) -> Masking:
    """The masking of all layers; a file holds no more than one, and no attention sinks."""
    masking = source.masking
    if masking.by_layer:
        raise ValueError(
            "holds: the layers differ in window, mask or attention sinks, and a file holds one for all; save "
            "attentions instead"
        )
    return masking


async def _queries(source: Source) -> dict[str, Array]:
    layers = [await layer.host() for layer in source.layers]
    names = ("query", "key", "value")
    arrays = {
        name: np.stack([np.asarray(layer[i], np.float32) for layer in layers]) for i, name in enumerate(names)
    }
    masking = _common(source)
    options: dict[str, Any] = {"causal": masking.causal, "softcap": masking.softcap, "mask": masking.bias}
    if masking.window is not None:
        # numpy has no None: as many keys as there are leave a side unbounded.
        options["window"] = [source.length if side is None else side for side in masking.window]
    if masking.valid is not None:
        # Padding is not among a file's options; all that hides keys becomes one mask.
        _check(4 * source.heads * source.length**2)
        mask = masking.rows(np.arange(source.length), source.length)
        options = {"softcap": masking.softcap, "mask": mask}
    return arrays | {name: np.array(given) for name, given in options.items() if given is not None}
