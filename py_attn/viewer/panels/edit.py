"""Edit the score: a visitor's score_mod and mask_mod, which apply to all maps."""

from __future__ import annotations

from typing import Any

from py_attn.viewer.engines.engine import Window
from py_attn.viewer.engines.gpu import GPUEngine
from py_attn.viewer.methods import method
from py_attn.viewer.sources.source import Layer, Masking
from py_attn.viewer.viewer import Viewer


@method()
async def edit(viewer: Viewer, text: str, layer: int = 0) -> dict[str, Any]:
    """Apply the score_mod and mask_mod that ``text`` defines to all maps; "" removes them.

    Returns
    -------
    dict
        ``error``: None, or what :func:`py_attn.viewer.sources.mods.explain` gives, and then the maps stay as
        they were; ``edited``: which of the two functions apply; ``wgsl``: the functions as WGSL; ``kernel``:
        the whole shader.
    """
    from py_attn.viewer.sources.mods import explain  # a start does not need it

    before, chosen = viewer.base_layer(layer)
    try:
        source = viewer.edited(before, text)
        kernel = await _try_out(viewer, chosen, source.masking)
    except Exception as error:
        return _answer(viewer, explain(error))
    if viewer.base is not before:
        # Another source was opened meanwhile: the text is applied to that one.
        return await edit(viewer, text, min(layer, len(viewer.layer(0)[0].layers) - 1))
    viewer.show(source)
    viewer.edit_text = text
    return _answer(viewer, None, kernel)


async def _try_out(viewer: Viewer, layer: Layer, masking: Masking) -> str:
    """Run attention once, so that errors that only the device finds are raised here; returns the shader."""
    engine = viewer.base_engine
    if not isinstance(engine, GPUEngine):
        await engine.weights(layer, masking, Window([0], slice(0, 1), slice(0, 1)))
        return ""
    with engine.device.timer() as timer:
        engine.upload(layer, masking)
    return "".join(call.shader.wgsl for call in await timer.results() if call.kernel == "attention")


def _answer(viewer: Viewer, error: dict[str, Any] | None, kernel: str = "") -> dict[str, Any]:
    assert viewer.source is not None
    mods = viewer.source.masking.mods
    return {
        "error": error,
        "edited": viewer.source.edited,
        "wgsl": mods.wgsl if mods else "",
        "kernel": kernel,
    }
