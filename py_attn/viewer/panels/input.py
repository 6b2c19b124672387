"""Input: what a visitor opens becomes the source. Modules not needed when a page starts are imported late."""

from __future__ import annotations

import asyncio
from typing import Any

import py_attn as pa
from py_attn.gpu.device import Device
from py_attn.gpu.tensor import Tensor
from py_attn.models.sample import load_sample
from py_attn.models.trace import Trace
from py_attn.viewer.methods import method
from py_attn.viewer.sources.source import Layer, Source
from py_attn.viewer.viewer import Progress, Viewer


@method(early=True)
async def open_sample(viewer: Viewer, data: Any) -> dict[str, Any]:
    """Show a trace that was computed beforehand (``sample/*.npz``)."""
    return viewer.open(_source("sample", load_sample(bytes(data))))


@method(early=True)
async def load_model(viewer: Viewer, progress: Progress | None = None) -> dict[str, Any]:
    """Load MiniLM, calling ``progress(stage, loaded, total)``; ``loaded`` is False if cancelled."""
    try:
        if viewer.device is None:
            viewer.model = await pa.models.load("minilm", backend="numpy", progress=progress)
        else:
            viewer.model = await pa.models.load("minilm", device=viewer.device, progress=progress)
    except asyncio.CancelledError:
        return {"loaded": False}
    return {"loaded": True}


@method()
async def open_text(viewer: Viewer, text: str) -> dict[str, Any]:
    """Run the model on a text and show its attention.

    Raises
    ------
    ValueError
        When the text has no words, or no model is loaded.
    """
    if viewer.model is None:
        raise ValueError("no model is loaded yet")
    return viewer.open(await text_source(viewer, text))


@method()
async def open_again(viewer: Viewer) -> dict[str, Any] | None:
    """Show what is open once more, on the device that there is now, with the visitor's text applied anew.

    Returns
    -------
    dict or None
        None where nothing is open, or where its queries and keys were on a device that is lost.
    """
    source = viewer.base
    if source is None or (viewer.device is not None and _is_elsewhere(source, viewer.device)):
        return None
    # What the text captured was on the device before.
    return viewer.open(viewer.edited(source, ""))


def _is_elsewhere(source: Source, device: Device) -> bool:
    """Whether the source's tensors are on another device."""
    query = getattr(source.layers[0], "query", None)
    return isinstance(query, Tensor) and query.device is not device


@method()
async def open_synthetic(viewer: Viewer, **shape: Any) -> dict[str, Any]:
    """Show synthetic input; arguments as for :func:`py_attn.viewer.sources.synthetic.synthetic`."""
    from py_attn.viewer.sources.synthetic import synthetic

    return viewer.open(synthetic(**shape))


async def text_source(viewer: Viewer, text: str) -> Source:
    """A text through the model, which must be loaded, without showing it."""
    return _source("text", await viewer.model.trace(text))


def _source(kind: str, trace: Trace[Any]) -> Source:
    layers = [Layer(layer.query, layer.key, layer.value, layer.lse) for layer in trace.layers]
    note = (
        f"The text was cut off after {len(trace.tokens)} tokens, the most that the model can read."
        if trace.truncated
        else ""
    )
    return Source(kind, trace.text, trace.tokens, layers, note=note)
