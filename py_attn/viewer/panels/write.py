"""Write: a language model writes a text token by token, and what it has written is the source."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np

import py_attn as pa
from py_attn.viewer.methods import method
from py_attn.viewer.viewer import Progress, Viewer
from py_attn.viewer.writing import CALL_SECONDS, Writer, cache_options

#: The model by its name for :func:`py_attn.models.load`, and the number of its weights.
MODEL = "smollm2"
WEIGHTS = 134_515_008


@method()
async def write_load(
    viewer: Viewer,
    cache: str = "float32",
    context: int = 2048,
    ring: bool = False,
    sink_tokens: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Load the language model, calling ``progress(stage, loaded, total)``.

    ``loaded`` is False if it was cancelled. The other arguments are those of :func:`write_cache`.
    """
    if viewer.device is None:
        raise ValueError("the language model needs WebGPU, which is not available here")
    given = cache_options(cache, context, ring, sink_tokens)
    try:
        model = await pa.models.load(MODEL, device=viewer.device, progress=progress, **given)
    except asyncio.CancelledError:
        return {"loaded": False}
    viewer.writer = Writer(model)
    return {"loaded": True, **viewer.writer.describe()}


@method()
async def write_start(viewer: Viewer, prompt: str, chat: bool = False) -> dict[str, Any]:
    """Forget the text and begin with this prompt; see :meth:`Writer.start`."""
    return await _writer(viewer).start(prompt, chat)


@method()
async def write_restore(viewer: Viewer, ids: list[int], prompt: int, scored: bool = False) -> dict[str, Any]:
    """Begin with the tokens of an earlier text, of which the first ``prompt`` were its prompt.

    With ``scored``, the answer has the probabilities that the model gives to the other ones.
    """
    return await _writer(viewer).restore(ids, prompt, scored)


@method()
async def write_next(
    viewer: Viewer, count: int, seconds: float = CALL_SECONDS, **sampling: Any
) -> dict[str, Any]:
    """Write at most ``count`` tokens, for about that long; see :meth:`Writer.next`."""
    return await _writer(viewer).next(count, seconds, sampling)


@method()
async def write_back(viewer: Viewer, length: int, token: int | None = None) -> dict[str, Any]:
    """Keep the first ``length`` tokens, and put ``token`` after them if one is given."""
    return await _writer(viewer).back(length, token)


@method()
async def write_alternatives(viewer: Viewer, index: int) -> list[dict[str, Any]]:
    """The ten likeliest tokens at a position, likeliest first; empty for the first token."""
    return await _writer(viewer).alternatives(index)


@method()
async def write_cache(
    viewer: Viewer, cache: str, context: int = 2048, ring: bool = False, sink_tokens: int = 0
) -> dict[str, Any]:
    """Keep the text in another cache; the model reads it again."""
    return await _writer(viewer).change_cache(cache, context, ring, sink_tokens)


@method()
async def write_heads_off(viewer: Viewer, heads: list[list[int]]) -> dict[str, Any]:
    """Switch off these heads, as pairs of layer and head, and no others: their output is zero from now on."""
    return {"off": _writer(viewer).switch_heads(heads)}


@method()
async def write_compare(
    viewer: Viewer,
    cache: str,
    context: int = 2048,
    ring: bool = False,
    sink_tokens: int = 0,
    more: bool = False,
) -> dict[str, Any]:
    """What a cache does to this very text; see :meth:`Writer.compare`."""
    return await _writer(viewer).compare(cache, context, ring, sink_tokens, more)


@method()
async def write_view(viewer: Viewer, growing: bool = False) -> dict[str, Any]:
    """Show the text as the source. While it is ``growing`` the decode panel stays with what it has."""
    from py_attn.viewer.sources.written import written_source  # a start does not need it

    writer = _writer(viewer)
    decode = viewer.decode
    if not growing:
        await writer.finish()
    answer = viewer.open(written_source(writer.model, writer.texts))
    if growing:
        viewer.decode = decode
    return {**answer, "growing": growing}


@method()
async def write_profile(viewer: Viewer) -> dict[str, Any]:
    """GPU time of one token by kernel, most first: ``gpu`` in µs, empty where there are no timestamps."""
    return await _writer(viewer).profile()


@method()
async def write_estimate(viewer: Viewer) -> dict[str, Any]:
    """How long numpy would take here: ``seconds`` a token, and the ``bytes`` of the weights in float32.

    The time is measured on a matrix of the model's size, and multiplied by the number of weights.
    """
    matrix, vector = np.ones((1536, 576), np.float32), np.ones(576, np.float32)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        matrix @ vector
        times.append(time.perf_counter() - began)
    return {"seconds": float(np.median(times)) * WEIGHTS / matrix.size, "bytes": 4 * WEIGHTS}


def _writer(viewer: Viewer) -> Writer:
    if viewer.writer is None:
        raise ValueError("the language model is not loaded yet")
    return viewer.writer
