"""Writes web/src/first/picture.json: the sample's maps, which the page shows before its Python is there.

Run by hand after a change of the sample or of its colours, and commit what it writes
(tests/test_first_picture.py compares them):

    .venv/bin/python -m scripts.make_first_picture

The maps come from the same viewer that the page has, with numpy as its engine. They are kept as levels from 0
to 255 of the colour map, which is the same in reverse in the light theme.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn.viewer.viewer import Viewer
from scripts.common import ROOT, run_main, say

SAMPLE = ROOT / "web" / "public" / "sample" / "minilm.npz"
EXAMPLES = ROOT / "web" / "src" / "first" / "examples.json"
TARGET = ROOT / "web" / "src" / "first" / "picture.json"
STYLE = {"colormap": "rocket", "scale": "sqrt"}


def _text(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")


async def make() -> dict[str, Any]:
    """What the file holds.

    Returns
    -------
    dict
        ``source``: what the page knows about the sample; ``colors``: uint8 RGBA [256·4] and ``ticks`` of
        the legend; ``levels``: uint8 [layers, heads, T, T]; ``layer``, ``head``, ``query``, ``key``: where
        the page begins; ``weights``: float32 [T, T] of that head. Arrays are in base64.
    """
    viewer = Viewer()
    source = await viewer.call("open_sample", {"data": SAMPLE.read_bytes()})
    legend = await viewer.call("legend", STYLE)
    first = json.loads(EXAMPLES.read_text(encoding="utf-8"))[0]
    start = {name: first[name] for name in ("layer", "head", "query", "key")}
    every = [0, source["length"]]
    head = {"layer": start["layer"], "head": start["head"]}
    exact = await viewer.call("weights", {**head, "rows": every, "columns": every})
    colors = legend["rgba"].reshape(256, 4)
    levels = {tuple(color): level for level, color in reversed([*enumerate(colors.tolist())])}
    maps = []
    for layer in range(source["layers"]):
        overview = await viewer.call("overview", {"layer": layer, **STYLE})
        if overview["size"] != source["length"]:
            raise ValueError("the sample is too long: its thumbnails do not show every weight")
        maps += [levels[tuple(color)] for color in overview["rgba"].reshape(-1, 4).tolist()]
    return {
        "source": {**source, "engine": "built"},
        **start,
        "colors": _text(legend["rgba"]),
        "ticks": legend["ticks"],
        "levels": _text(np.array(maps, np.uint8)),
        "weights": _text(exact["weights"]),
    }


def main() -> None:
    """Write the file."""
    text = json.dumps(asyncio.run(make()), ensure_ascii=False, indent=1) + "\n"
    TARGET.write_text(text, encoding="utf-8")
    say(f"{TARGET.relative_to(ROOT)}: {len(text):,} bytes")


if __name__ == "__main__":
    run_main(main)
