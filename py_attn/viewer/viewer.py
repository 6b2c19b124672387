"""The one object a front end talks to. Every public coroutine takes and gives plain data and arrays."""

from __future__ import annotations

import asyncio
import contextlib
import platform
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import py_attn as pa
from py_attn import colormaps, models
from py_attn.kernels.attention.forward import device_variants
from py_attn.models.sample import load_sample
from py_attn.viewer.caches import try_cache
from py_attn.viewer.console import Console
from py_attn.viewer.decode import DEFAULT_SPLITS, Decode
from py_attn.viewer.engines import Engine, ReferenceEngine, Show, Style, check_show, row_step
from py_attn.viewer.gpu_engine import GPUEngine
from py_attn.viewer.measure import measure, measure_operation, measure_reference
from py_attn.viewer.mods import ModError, compile_mods
from py_attn.viewer.operations import OPERATIONS
from py_attn.viewer.source import Layer, Masking, Source
from py_attn.viewer.synthetic import synthetic

Progress = Callable[[str, int, int], None]

#: Exact weights given out at once.
MAX_WEIGHTS = 1_000_000


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
        self._model: Any = None
        self._edit = ""
        self._decode: Decode | None = None

    async def call(self, method: str, payload: dict[str, Any], progress: Progress | None = None) -> Any:
        """Call a method by its name, as a front end on the other side of a bridge does."""
        if method.startswith("_") or method not in _METHODS:
            raise ValueError(f"method: expected one of {', '.join(sorted(_METHODS))}, got {method!r}")
        extra = {"progress": progress} if progress is not None else {}
        return await getattr(self, method)(**payload, **extra)

    async def connect(self) -> dict[str, Any]:
        """Ask for a GPU; without one the reference engine goes on.

        Returns
        -------
        dict
            ``webgpu``; ``adapter`` in its own words, or "none: …"; ``reason`` why there is none;
            ``features``, ``software``, ``variants`` of the attention kernel, ``operations`` that can be timed
        beside it and ``versions``.
        """
        self.device, self._model, self._decode = None, None, None
        self.engine = ReferenceEngine()
        self.console.namespace.pop("device", None)
        answer: dict[str, Any] = {
            "webgpu": False,
            "reason": "",
            "features": [],
            "software": False,
            "variants": ["numpy"],
            "operations": {},
            "versions": {
                "py_attn": pa.__version__,
                "python": platform.python_version(),
                "numpy": np.__version__,
            },
        }
        try:
            self.device = await self._request_device()
        except pa.WebGPUUnavailableError as error:
            return answer | {"adapter": f"none: {error}", "reason": str(error)}
        self.console.namespace["device"] = self.device
        self.engine = GPUEngine(self.device)
        info = self.device.info
        return answer | {
            "webgpu": True,
            "adapter": str(info),
            "features": sorted(info.features),
            "software": info.software,
            "variants": device_variants(self.device),
            "operations": {name: operation.describe() for name, operation in OPERATIONS.items()},
        }

    async def _request_device(self) -> pa.Device:
        return await pa.request_device()

    # what is being looked at

    async def open_sample(self, data: Any) -> dict[str, Any]:
        """Show a precomputed trace (``sample/*.npz``)."""
        trace = load_sample(bytes(data))
        layers = [Layer(layer.query, layer.key, layer.value, layer.lse) for layer in trace.layers]
        return self._open(Source("sample", trace.text, trace.tokens, layers))

    async def load_model(self, progress: Progress | None = None) -> dict[str, Any]:
        """Load MiniLM; ``progress(stage, loaded, total)``. A cancelled download gives ``loaded`` False."""
        try:
            if self.device is None:
                self._model = await models.load("minilm", backend="numpy", progress=progress)
            else:
                self._model = await models.load("minilm", device=self.device, progress=progress)
        except asyncio.CancelledError:
            return {"loaded": False}
        return {"loaded": True}

    async def open_text(self, text: str) -> dict[str, Any]:
        """Run the model on a text and show its attention.

        Raises
        ------
        ValueError
            When the text has no word in it, or no model is loaded.
        """
        if self._model is None:
            raise ValueError("no model is loaded yet")
        trace = await self._model.trace(text)
        layers = [Layer(layer.query, layer.key, layer.value, layer.lse) for layer in trace.layers]
        note = (
            f"The text was cut after {len(trace.tokens)} tokens, the longest that the model reads."
            if trace.truncated
            else ""
        )
        return self._open(Source("text", text, trace.tokens, layers, note=note))

    async def open_synthetic(self, **shape: Any) -> dict[str, Any]:
        """Show made-up input; arguments as :func:`py_attn.viewer.synthetic.synthetic`."""
        source = synthetic(**shape)
        self.engine.check(source.heads, source.length, source.head_dim)
        return self._open(source)

    def _open(self, source: Source) -> dict[str, Any]:
        self.source, self._decode = source, None
        # What the visitor wrote goes on to hold, unless it does not fit what is opened now.
        with contextlib.suppress(ModError):
            self.source = self._edited(source, self._edit)
        return {**source.describe(), "engine": self.engine.name, "edited": self._edited_names()}

    async def edit(self, text: str, layer: int = 0) -> dict[str, Any]:
        """Let the score_mod and mask_mod that ``text`` defines hold for all maps; "" takes them away.

        Returns
        -------
        dict
            ``error``: None, or {"message", "line"} (line None where no line is to blame), and then the maps
            stay as they were; ``edited``: which of the two functions hold; ``wgsl``: what they became;
            ``kernel``: the shader around them.
        """
        before, chosen = self._layer(layer)
        try:
            source = self._edited(before, text)
            kernel = await self._try_out(chosen, source.masking)
        except ModError as error:
            return self._edit_answer({"message": str(error), "line": error.line})
        except Exception as error:
            return self._edit_answer({"message": f"{type(error).__name__}: {error}", "line": None})
        if self.source is not before:
            # Something else was opened meanwhile: what is edited is that.
            return await self.edit(text, min(layer, len(self._layer(0)[0].layers) - 1))
        self.source, self._edit = source, text
        return self._edit_answer(None, kernel)

    async def _try_out(self, layer: Layer, masking: Masking) -> str:
        """Run attention once, so that what only the device finds out is raised here; the shader's text."""
        if not isinstance(self.engine, GPUEngine):
            await self.engine.weights(layer, masking, [0], slice(0, 1), slice(0, 1))
            return ""
        with self.engine.device.timer() as timer:
            self.engine.upload(layer, masking)
        return "".join(call.shader.wgsl for call in await timer.results() if call.kernel == "attention")

    def _edit_answer(self, error: dict[str, Any] | None, kernel: str = "") -> dict[str, Any]:
        assert self.source is not None
        mods = self.source.masking.mods
        return {
            "error": error,
            "edited": self._edited_names(),
            "wgsl": mods.wgsl if mods else "",
            "kernel": kernel,
        }

    def _edited_names(self) -> list[str]:
        mods = self.source.masking.mods if self.source else None
        return list(mods.functions) if mods else []

    def _edited(self, source: Source, text: str) -> Source:
        given = {"heads": source.heads, "length": source.length, "tokens": list(source.tokens)}
        mods = compile_mods(text, self.device, **given) if text else None
        return replace(source, masking=replace(source.masking, mods=mods))

    # maps

    async def overview(self, layer: int, size: int = 96, **style: Any) -> dict[str, Any]:
        """All heads of a layer as thumbnails: ``rgba`` uint8 [heads·height·width·4]."""
        source, chosen = self._layer(layer)
        everything = slice(0, source.length)
        cells = min(size, source.length)
        step = row_step(everything, everything, cells)
        pixels = await self.engine.image(
            chosen,
            source.masking,
            list(range(source.heads)),
            slice(0, source.length, step),
            everything,
            (cells, cells) if cells < source.length else None,
            Style(**style),
        )
        return {
            "layer": layer,
            "heads": source.heads,
            "size": cells,
            "step": step,
            "rgba": pixels.reshape(-1),
        }

    async def window(
        self,
        layer: int,
        head: int,
        rows: list[int],
        columns: list[int],
        size: list[int],
        edited: bool = True,
        **style: Any,
    ) -> dict[str, Any]:
        """A part of one map, at most ``size`` [height, width] cells of it.

        ``edited`` False shows the map as it is without the visitor's score_mod and mask_mod.

        Returns
        -------
        dict
            ``rgba`` uint8 [height·width·4], ``height``, ``width``, ``rows``, ``columns``; ``exact``: whether
            every cell is one weight; ``step``: 1, or n where only every n-th row was looked at.
        """
        source, chosen = self._layer(layer)
        r, c = _range("rows", rows, source.length), _range("columns", columns, source.length)
        full = (r.stop - r.start, c.stop - c.start)
        cells = (max(1, min(size[0], full[0])), max(1, min(size[1], full[1])))
        exact = cells == full
        step = 1 if exact else row_step(r, c, cells[0])
        masking = source.masking if edited else replace(source.masking, mods=None)
        pixels = await self.engine.image(
            chosen,
            masking,
            [head],
            slice(r.start, r.stop, step),
            c,
            None if exact else cells,
            Style(**style),
        )
        return {
            "rgba": pixels.reshape(-1),
            "height": cells[0],
            "width": cells[1],
            "rows": [r.start, r.stop],
            "columns": [c.start, c.stop],
            "exact": exact,
            "step": step,
        }

    async def weights(
        self, layer: int, head: int, rows: list[int], columns: list[int], show: Show = "weights"
    ) -> dict[str, Any]:
        """The exact weights of a part of one map: ``weights`` float32 [rows·columns], ``rows``, ``columns``.

        Raises
        ------
        ValueError
            When they are more than a million, which is a file of 10 MB as text.
        """
        source, chosen = self._layer(layer)
        check_show(show)
        r, c = _range("rows", rows, source.length), _range("columns", columns, source.length)
        count = (r.stop - r.start) * (c.stop - c.start)
        if count > MAX_WEIGHTS:
            raise ValueError(
                f"rows, columns: expected at most {MAX_WEIGHTS:,} weights, got {count:,}; zoom in"
            )
        found = await self.engine.weights(chosen, source.masking, [head], r, c, show)
        return {
            "weights": np.ascontiguousarray(found, np.float32).reshape(-1),
            "rows": [r.start, r.stop],
            "columns": [c.start, c.stop],
        }

    async def row(
        self, layer: int, head: int, query: int, links: int = 8, show: Show = "weights"
    ) -> dict[str, Any]:
        """The exact weights of one query (or what else ``show`` asks for), and its strongest keys."""
        source, chosen = self._layer(layer)
        check_show(show)
        row = _range("query", [query, query + 1], source.length)
        everything = slice(0, source.length)
        weights = await self.engine.weights(chosen, source.masking, [head], row, everything, show)
        values = weights[0, 0]
        strongest = np.argsort(-np.abs(values), kind="stable")[:links]
        return {
            "query": query,
            "weights": np.ascontiguousarray(values, np.float32),
            "links": [{"key": int(k), "weight": float(values[k])} for k in strongest if values[k] != 0],
        }

    async def legend(self, colormap: str, scale: str, show: Show = "weights") -> dict[str, object]:
        """The colour strip; see :func:`py_attn.colormaps.legend`."""
        check_show(show)
        return colormaps.legend(colormap, scale, signed=show == "gradient")

    # kernels

    async def measure(
        self, layer: int, variant: str, repeats: int = 10, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Time the layer's attention, or one of the other operations where ``variant`` names one.

        See :func:`py_attn.viewer.measure.measure` and :func:`py_attn.viewer.measure.measure_operation`.
        """
        source, chosen = self._layer(layer)
        if not 1 <= repeats <= 1000:
            raise ValueError(f"repeats: expected 1 to 1000, got {repeats}")
        if self.device is None:
            return measure_reference(await chosen.host(), source.masking, repeats)
        if variant in OPERATIONS:
            return await measure_operation(self.device, chosen, variant, repeats, progress)
        return await measure(self.device, chosen, source.masking, variant, repeats, progress)

    # decoding

    async def decode_open(self, layer: int, capacity: int) -> dict[str, Any]:
        """Start over with an empty cache of ``capacity`` positions."""
        source, chosen = self._layer(layer)
        arrays = await chosen.host()
        self._decode = Decode(self.device, arrays, capacity, source.masking.softcap, source.masking.mods)
        return {"length": source.length, "capacity": capacity}

    async def decode_step(self, position: int, head: int, splits: int = DEFAULT_SPLITS) -> dict[str, Any]:
        """Attend from one position; see :meth:`py_attn.viewer.decode.Decode.step`."""
        if self._decode is None:
            raise ValueError("decode_step: call decode_open first")
        return await self._decode.step(position, head, splits)

    async def decode_cache(
        self, layer: int, position: int, head: int, capacity: int, dtype: str
    ) -> dict[str, Any]:
        """One step over a cache of some dtype; see :func:`py_attn.viewer.caches.try_cache`."""
        source, chosen = self._layer(layer)
        if not 0 <= head < source.heads:
            raise ValueError(f"head: expected 0 to {source.heads - 1}, got {head}")
        return await try_cache(
            self.device, await chosen.host(), dtype, position, head, capacity,
            source.masking.softcap, source.masking.mods,
        )  # fmt: skip

    def _layer(self, layer: int) -> tuple[Source, Layer]:
        if self.source is None:
            raise ValueError("nothing is open yet")
        if not 0 <= layer < len(self.source.layers):
            raise ValueError(f"layer: expected 0 to {len(self.source.layers) - 1}, got {layer}")
        return self.source, self.source.layers[layer]


_METHODS = frozenset(
    {
        "connect",
        "open_sample",
        "load_model",
        "open_text",
        "open_synthetic",
        "overview",
        "window",
        "weights",
        "row",
        "legend",
        "edit",
        "measure",
        "decode_open",
        "decode_step",
        "decode_cache",
    }
)


def _range(name: str, given: list[int], length: int) -> slice:
    start, stop = int(given[0]), int(given[1])
    if not 0 <= start < stop <= length:
        raise ValueError(f"{name}: expected a range inside 0 to {length}, got {start} to {stop}")
    return slice(start, stop)
