"""Maps as PNG, SVG and JSON files, written without a drawing library, and snapshots for saved notebooks."""

from __future__ import annotations

import base64
import html
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import numpy.typing as npt

from py_attn.viewer import Viewer
from py_attn.viewer.engines.engine import Window
from py_attn.viewer.sources.source import Source

Pixels = npt.NDArray[np.uint8]

#: An SVG labels its tokens if there are at most this many.
MAX_LABELS = 96
#: A JSON file holds the weights of at most this many tokens.
MAX_JSON_LENGTH = 1024
#: Pixels of a picture's longer side at most.
MAX_SIDE = 8192
_CELL = 14
_MAP_SIDE = 720


def png(pixels: Pixels, scale: int = 1) -> bytes:
    """RGBA or RGB pixels [height, width, channels] as a PNG; ``scale`` repeats each of them.

    References
    ----------
    https://www.w3.org/TR/png-3/
    """
    pixels = np.repeat(np.repeat(pixels[..., :3], scale, axis=0), scale, axis=1)
    height, width, _ = pixels.shape
    # Each row begins with the number of its filter: 0 is none.
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def svg(pixels: Pixels, tokens: Sequence[str], title: str, caption: str) -> bytes:
    """A map with its tokens at its left and top; each pixel becomes one cell."""
    height, width, _ = pixels.shape
    labelled = len(tokens) == height == width and height <= MAX_LABELS
    cell = _CELL if labelled else _MAP_SIDE / max(height, width)
    margin = 12 + 7.0 * max((min(len(token), 16) for token in tokens), default=0) if labelled else 16.0
    top = 58 + (margin if labelled else 0)
    across, down = width * cell, height * cell
    image = base64.b64encode(png(pixels)).decode()
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{margin + across + 16:.0f}"',
        f'height="{top + down + 16:.0f}" font-family="ui-sans-serif, system-ui, sans-serif" fill="#1d1d1f">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="16" y="26" font-size="15" font-weight="600">{escape(title)}</text>',
        f'<text x="16" y="46" font-size="12" fill="#555">{escape(caption)}</text>',
        f'<image x="{margin:.1f}" y="{top:.1f}" width="{across:.1f}" height="{down:.1f}"',
        'preserveAspectRatio="none" style="image-rendering:pixelated"',
        f'href="data:image/png;base64,{image}"/>',
    ]
    if labelled:
        for index, token in enumerate(tokens):
            middle = (index + 0.5) * cell
            text = escape(token if len(token) <= 16 else f"{token[:15]}…")
            parts.append(
                f'<text x="{margin - 5:.1f}" y="{top + middle + 3.5:.1f}" font-size="10" '
                f'text-anchor="end">{text}</text>'
            )
            parts.append(
                f'<text transform="translate({margin + middle + 3.5:.1f} {top - 5:.1f}) rotate(-90)" '
                f'font-size="10">{text}</text>'
            )
    parts.append("</svg>")
    return "\n".join(parts).encode()


def as_json(weights: Any, **about: Any) -> bytes:
    """The weights of a map as JSON, together with ``about``, which describes them."""
    rounded = [[float(f"{w:.6g}") for w in row] for row in np.asarray(weights).tolist()]
    return json.dumps({**about, "weights": rounded}, ensure_ascii=False).encode()


def caption(source: Source, layer: int, head: int) -> str:
    """What a map shows; layers and heads count from 0, as everywhere."""
    layers = f"{len(source.layers)} layer{'s' if len(source.layers) > 1 else ''}"
    heads = f"{source.heads} head{'s' if source.heads > 1 else ''}"
    return f"Layer {layer}, head {head} (of {layers} with {heads}); {source.length:,} tokens."


async def picture(viewer: Viewer, coloring: Mapping[str, str], cells: int, layer: int, head: int) -> Pixels:
    """A whole map with at most ``cells`` pixels on a side: [height, width, 4]."""
    assert viewer.source is not None
    everything = [0, viewer.source.length]
    position = {"layer": layer, "head": head, "rows": everything, "columns": everything}
    colors = {**coloring, "colormap": coloring["colormap"].replace("auto", "rocket_r")}
    answer = await viewer.call("window", {**position, **colors, "size": [cells, cells]})
    pixels: Pixels = answer["rgba"].reshape(answer["height"], answer["width"], 4)
    return pixels


async def export(
    viewer: Viewer, coloring: Mapping[str, str], format: str, layer: int, head: int, size: int
) -> bytes:
    """A map as the bytes of a file; see :meth:`py_attn.widget.AttentionView.export`."""
    source = viewer.source
    assert source is not None
    for name, given, limit in (("layer", layer, len(source.layers)), ("head", head, source.heads)):
        if not 0 <= given < limit:
            raise ValueError(f"{name}: expected 0 to {limit - 1}, got {given}")
    if format not in ("png", "svg", "json"):
        raise ValueError(f"format: expected png, svg or json, got {format!r}")
    if not 1 <= size <= MAX_SIDE:
        raise ValueError(f"size: expected 1 to {MAX_SIDE:,}, got {size}")
    if format == "json":
        if source.length > MAX_JSON_LENGTH:
            raise ValueError(
                f"format: expected at most {MAX_JSON_LENGTH:,} tokens for JSON, got {source.length:,}"
            )
        all_of_it = slice(0, source.length)
        window = Window([head], all_of_it, all_of_it)
        weights = await viewer.engine.weights(source.layers[layer], source.masking, window)
        about = {"title": source.title, "layer": layer, "head": head, "tokens": list(source.tokens)}
        return as_json(weights[0], **about)
    pixels = await picture(viewer, coloring, size, layer, head)
    if format == "svg":
        return svg(pixels, source.tokens, source.title, caption(source, layer, head))
    return png(pixels, max(1, size // max(pixels.shape[:2])))


def snapshot_bundle(name: str, image: bytes, title: str, text: str, length: int) -> dict[str, str]:
    """The last map by MIME type, for where no JavaScript runs; ``name`` becomes the id of the element."""
    words = f"{title}: " if title else ""
    text = f"{words}{text} A snapshot; run the cell to explore it."
    quoted = html.escape(text, quote=True)
    if not image:
        return {"text/plain": text, "text/html": f'<p id="{name}">{quoted}</p>'}
    side = min(512, max(192, 4 * length))
    figure = (
        f'<figure id="{name}" style="margin:0"><img alt="{quoted}" width="{side}" height="{side}" '
        f'style="image-rendering:pixelated" src="data:image/png;base64,{base64.b64encode(image).decode()}">'
        f'<figcaption style="font-size:12px;opacity:.75">{quoted}</figcaption></figure>'
    )
    return {"text/plain": text, "text/html": figure}
