"""The object that a front end talks to: what is looked at, and what computes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import py_attn as pa
from py_attn.viewer.console import Console
from py_attn.viewer.decoding import Decode
from py_attn.viewer.engines.engine import Engine
from py_attn.viewer.engines.gpu import GPUEngine
from py_attn.viewer.engines.host import GivenEngine, ReferenceEngine
from py_attn.viewer.methods import METHODS, early_methods
from py_attn.viewer.sources.given import GivenSource
from py_attn.viewer.sources.mods import LIMIT_SECONDS, ModError, compile_mods, explain
from py_attn.viewer.sources.source import Layer, Source
from py_attn.viewer.writing import Writer

Progress = Callable[[str, int, int], None]
RequestDevice = Callable[[], Awaitable[pa.Device]]


class Viewer:
    """A source, the engine that computes its weights, and a console.

    Parameters
    ----------
    request_device : coroutine function
        Returns the device that :meth:`use_gpu` uses.

    Attributes
    ----------
    console : Console
    device : Device or None
        The GPU, when there is one.
    source : Source or None
        What is being looked at.
    model : MiniLM or MiniLMReference or None
        Turns a text into a source; None until it is loaded.
    shown : dict or None
        What a cell of the console has opened, as :meth:`open` describes it, until the front end knows.
    edit_text : str
        The visitor's score_mod and mask_mod.
    limit_seconds : float
        How long that text may run.
    measuring : int
        Counts the measurements that were cancelled.
    decode : Decode or None
        The decode panel's cache.
    writer : Writer or None
        The language model and its text; None until it is loaded.
    """

    def __init__(self, request_device: RequestDevice = pa.request_device) -> None:
        self.console = Console()
        self.source: Source | None = None
        self.shown: dict[str, Any] | None = None
        self.edit_text = ""
        self.limit_seconds = LIMIT_SECONDS
        self.measuring = 0
        self._request_device = request_device
        self.use(None)

    def use(self, device: pa.Device | None) -> None:
        """Compute on a device from now on, or with numpy if it is None."""
        self.device = device
        self._computing: Engine = ReferenceEngine() if device is None else GPUEngine(device)
        self.model: Any = None
        self.decode: Decode | None = None
        self.writer: Writer | None = None

    def beside(self) -> Viewer:
        """Another viewer on the same device, for a file."""
        other = Viewer(self._request_device)
        other.device, other._computing = self.device, self._computing
        return other

    @property
    def engine(self) -> Engine:
        """The engine that computes, or looks up, the weights of the source."""
        return self._engine_for(self.source)

    def _engine_for(self, source: Source | None) -> Engine:
        return GivenEngine() if isinstance(source, GivenSource) else self._computing

    @property
    def early_methods(self) -> dict[str, str]:
        """See :func:`py_attn.viewer.methods.early_methods`."""
        return early_methods()

    async def call(self, method: str, payload: dict[str, Any], progress: Progress | None = None) -> Any:
        """Call a method of :data:`py_attn.viewer.methods.METHODS` by its name.

        Parameters
        ----------
        method : str
        payload : dict
            Its arguments.
        progress : callable, optional
            Called with news about how far it is, by the methods that report any.
        """
        found = METHODS.get(method)
        if found is None:
            raise ValueError(f"method: expected one of {', '.join(sorted(METHODS))}, got {method!r}")
        more = {"progress": progress} if progress is not None and found.reports_progress else {}
        return await found.function(self, **payload, **more)

    async def run_cell(
        self, source: str, *, show: bool = False, focus: dict[str, int] | None = None
    ) -> dict[str, Any]:
        """Run a cell of the console.

        Parameters
        ----------
        source : str
        show : bool
        focus : dict, optional
            What ``page`` speaks of: see :meth:`py_attn.viewer.page.Page.look`.

        Returns
        -------
        dict
            As of :meth:`py_attn.viewer.console.Console.answer`; ``opened`` describes the source that the
            cell has opened, where it has.
        """
        from py_attn.viewer.page import Page, mentions_page  # a start does not need it

        page = self.console.namespace.setdefault("page", Page(self))
        if isinstance(page, Page) and mentions_page(source):
            await page.look(focus or {})
        answer = await self.console.answer(source, show=show)
        opened, self.shown = self.shown, None
        return answer if opened is None else {**answer, "opened": opened}

    async def use_gpu(self) -> None:
        """Request a GPU and compute on it from now on.

        Raises
        ------
        WebGPUUnavailableError
            When there is none; then numpy computes.
        """
        self.use(None)
        self.console.namespace.pop("device", None)
        self.use(await self._request_device())
        self.console.namespace["device"] = self.device

    def open(self, source: Source) -> dict[str, Any]:
        """Show a source; returns what a front end needs to know about it.

        Raises
        ------
        ValueError
            When it would take minutes to compute.
        """
        engine = self._engine_for(source)
        engine.check(source.heads, source.length, source.head_dim)
        self.source, self.decode = source, None
        problem = None
        # The visitor's text applies to the next source too, unless it fails there.
        try:
            self.source = self.edited(source, self.edit_text)
        except ModError as error:
            problem = explain(error)
            if not error.finished:
                self.edit_text = ""
        return {
            **source.describe(),
            "engine": engine.name,
            "edited": self.source.edited,
            "editError": problem,
        }

    def edited(self, source: Source, text: str) -> Source:
        """The source with the functions that ``text`` defines.

        Raises
        ------
        ModError
            With the line of the text that is to blame, where one is.
        """
        given = {"heads": source.heads, "length": source.length, "tokens": list(source.tokens)}
        mods = compile_mods(text, self.device, limit_seconds=self.limit_seconds, **given) if text else None
        return replace(source, masking=replace(source.masking, mods=mods))

    def layer(self, layer: int) -> tuple[Source, Layer]:
        """The source that is open, and one of its layers."""
        if self.source is None:
            raise ValueError("nothing is open yet")
        if not 0 <= layer < len(self.source.layers):
            raise ValueError(f"layer: expected 0 to {len(self.source.layers) - 1}, got {layer}")
        return self.source, self.source.layers[layer]
