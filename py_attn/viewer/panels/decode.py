"""Decoding a layer of the source, position by position."""

from __future__ import annotations

from typing import Any

from py_attn.viewer.decoding import DEFAULT_SPLITS, Decode
from py_attn.viewer.methods import method
from py_attn.viewer.viewer import Viewer


@method(start={"layer": 0, "capacity": 8}, after="overview", notebook=True)
async def decode_open(viewer: Viewer, layer: int, capacity: int) -> dict[str, Any]:
    """Start over with an empty cache of ``capacity`` positions."""
    source, chosen = viewer.base_layer(layer)
    arrays = await chosen.host()
    viewer.decode = Decode(viewer.device, arrays, capacity, source.masking.softcap, source.masking.mods)
    return {"length": source.length, "capacity": capacity}


@method(start={"position": 0, "head": 0}, notebook=True)
async def decode_step(
    viewer: Viewer, position: int, head: int, splits: int = DEFAULT_SPLITS
) -> dict[str, Any]:
    """Attend from one position; see :meth:`Decode.step`."""
    if viewer.decode is None:
        raise ValueError("decode_step: call decode_open first")
    return await viewer.decode.step(position, head, splits)
