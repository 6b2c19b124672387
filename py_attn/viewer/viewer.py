"""The one object a front end talks to. Every public coroutine takes and gives plain data and arrays."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import numpy as np

import py_attn as pa
from py_attn import colormaps as colors
from py_attn.models.sample import load_sample
from py_attn.viewer.console import Console
from py_attn.viewer.engines import Engine, ReferenceEngine, Style
from py_attn.viewer.source import Layer, Source
from py_attn.viewer.synthetic import synthetic

Progress = Callable[..., object]


class Viewer:
    """A source, the engine that computes its weights, and a console.

    Attributes
    ----------
    console : Console
    device : Device or None
        The GPU, when there is one.
    source : Source or None
        What is being looked at.
    """

    def __init__(self) -> None:
        self.console = Console()
        self.device: pa.Device | None = None
        self.source: Source | None = None
        self.engine: Engine = ReferenceEngine()

    async def call(self, method: str, payload: dict[str, Any], progress: Progress | None = None) -> Any:
        """Call a method by its name, as a front end on the other side of a bridge does."""
        if method.startswith("_") or method not in _METHODS:
            raise ValueError(f"method: expected one of {', '.join(_METHODS)}, got {method!r}")
        extra = {"progress": progress} if progress is not None else {}
        return await getattr(self, method)(**payload, **extra)

    async def connect(self) -> dict[str, Any]:
        """Ask for a GPU; without one the reference engine goes on. Gives what there is."""
        versions = {"py_attn": pa.__version__, "python": platform.python_version(), "numpy": np.__version__}
        try:
            self.device = await pa.request_device()
        except pa.WebGPUUnavailableError as error:
            self.device = None
            return {
                "adapter": f"none: {error}",
                "features": [],
                "software": False,
                "webgpu": False,
                "reason": str(error),
                "versions": versions,
            }
        self.console.namespace["device"] = self.device
        info = self.device.info
        return {
            "adapter": str(info),
            "features": sorted(info.features),
            "software": info.software,
            "webgpu": True,
            "reason": "",
            "versions": versions,
        }

    # what is being looked at

    async def open_sample(self, data: Any) -> dict[str, Any]:
        """Show a precomputed trace (``sample/*.npz``)."""
        trace = load_sample(bytes(data))
        layers = [Layer(layer.query, layer.key, layer.value, layer.lse) for layer in trace.layers]
        return self._open(Source("sample", trace.text, trace.tokens, layers))

    async def open_synthetic(self, **shape: Any) -> dict[str, Any]:
        """Show made-up input; arguments as :func:`py_attn.viewer.synthetic.synthetic`."""
        length = int(shape.get("length", 0))
        if length > self.engine.max_length:
            raise ValueError(
                f"length: the {self.engine.name} engine goes up to {self.engine.max_length:,}, got {length:,}"
            )
        return self._open(synthetic(**shape))

    def _open(self, source: Source) -> dict[str, Any]:
        self.source = source
        return {**source.describe(), "engine": self.engine.name}

    # maps

    async def overview(self, layer: int, size: int = 96, **style: str) -> dict[str, Any]:
        """All heads of a layer as thumbnails: ``rgba`` uint8 [heads·height·width·4]."""
        source, chosen = self._layer(layer)
        await self.engine.prepare(chosen, source.masking)
        everything = slice(0, source.length)
        cells = min(size, source.length)
        pixels = await self.engine.image(
            chosen,
            source.masking,
            list(range(source.heads)),
            everything,
            everything,
            (cells, cells) if cells < source.length else None,
            Style(**style),
        )
        return {"layer": layer, "heads": source.heads, "size": cells, "rgba": pixels.reshape(-1)}

    async def window(
        self, layer: int, head: int, rows: list[int], columns: list[int], size: list[int], **style: str
    ) -> dict[str, Any]:
        """A part of one map, at most ``size`` [height, width] cells of it.

        Returns
        -------
        dict
            ``rgba`` uint8 [height·width·4], ``height``, ``width``, ``rows``, ``columns`` and ``exact``: whether
            every cell is one weight.
        """
        source, chosen = self._layer(layer)
        await self.engine.prepare(chosen, source.masking)
        r, c = _range("rows", rows, source.length), _range("columns", columns, source.length)
        full = (r.stop - r.start, c.stop - c.start)
        cells = (max(1, min(size[0], full[0])), max(1, min(size[1], full[1])))
        pixels = await self.engine.image(
            chosen, source.masking, [head], r, c, cells if cells != full else None, Style(**style)
        )
        return {
            "rgba": pixels.reshape(-1),
            "height": cells[0],
            "width": cells[1],
            "rows": [r.start, r.stop],
            "columns": [c.start, c.stop],
            "exact": cells == full,
        }

    async def row(self, layer: int, head: int, query: int, links: int = 8) -> dict[str, Any]:
        """The exact weights of one query, and its strongest keys."""
        source, chosen = self._layer(layer)
        await self.engine.prepare(chosen, source.masking)
        row = _range("query", [query, query + 1], source.length)
        weights = await self.engine.weights(chosen, source.masking, [head], row, slice(0, source.length))
        values = weights[0, 0]
        strongest = np.argsort(-values, kind="stable")[:links]
        return {
            "query": query,
            "weights": np.ascontiguousarray(values, np.float32),
            "links": [{"key": int(k), "weight": float(values[k])} for k in strongest if values[k] > 0],
        }

    async def legend(self, colormap: str, scale: str) -> dict[str, object]:
        """The colour strip; see :func:`py_attn.colormaps.legend`."""
        return colors.legend(colormap, scale)

    def _layer(self, layer: int) -> tuple[Source, Layer]:
        if self.source is None:
            raise ValueError("nothing is open yet")
        if not 0 <= layer < len(self.source.layers):
            raise ValueError(f"layer: expected 0 to {len(self.source.layers) - 1}, got {layer}")
        return self.source, self.source.layers[layer]


_METHODS = ("connect", "open_sample", "open_synthetic", "overview", "window", "row", "legend")


def _range(name: str, given: list[int], length: int) -> slice:
    start, stop = int(given[0]), int(given[1])
    if not 0 <= start < stop <= length:
        raise ValueError(f"{name}: expected a range inside 0 to {length}, got {start} to {stop}")
    return slice(start, stop)
