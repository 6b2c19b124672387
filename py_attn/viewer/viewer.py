"""The object that a front end talks to: what is looked at, and what computes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import py_attn as pa
from py_attn.viewer.console import Console
from py_attn.viewer.decoding import Decode
from py_attn.viewer.engines.engine import Engine, Over
from py_attn.viewer.engines.gpu import GPUEngine
from py_attn.viewer.engines.host import GivenEngine, ReferenceEngine
from py_attn.viewer.methods import METHODS, early_methods
from py_attn.viewer.sources.given import GivenSource
from py_attn.viewer.sources.limit import LIMIT_SECONDS
from py_attn.viewer.sources.reading import Reading, possible
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
        What is being looked at, as it is read.
    reading : Reading or None
        How its tokens are read; None for as they are.
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
    second : tuple or None
        Another sentence that heads are compared with: what it was made from, and its source.
    writer : Writer or None
        The language model and its text; None until it is loaded.
    """

    def __init__(self, request_device: RequestDevice = pa.request_device) -> None:
        self.console = Console()
        self.source: Source | None = None
        self.shown: dict[str, Any] | None = None
        self.reading: Reading | None = None
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
        self.second: tuple[Any, Source] | None = None
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

    @property
    def base(self) -> Source | None:
        """The source token by token, however it is read."""
        return self.source and (self.source.base or self.source)

    @property
    def base_engine(self) -> Engine:
        """The engine that computes, or looks up, the weights of the source token by token."""
        return self._engine_for(self.base)

    def _engine_for(self, source: Source | None) -> Engine:
        if source is not None and source.base is not None:
            from py_attn.viewer.engines.derived import DerivedEngine

            return DerivedEngine(self._engine_for(source.base))
        return GivenEngine() if isinstance(source, GivenSource) else self._computing

    @property
    def early_methods(self) -> dict[str, str]:
        """See :func:`py_attn.viewer.methods.early_methods`."""
        return early_methods()

    async def import_rest(self) -> None:
        """Import what a start does without, so that nothing that is asked for later waits for it."""
        for package in (pa, pa.models):
            for name in package.__all__:
                getattr(package, name)
                await asyncio.sleep(0)  # what a visitor asks for meanwhile comes first

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
        try:
            return await found.function(self, **payload, **more)
        except (pa.GPUOutOfMemoryError, pa.GPUValidationError):
            self._forget_uploads()
            raise

    def _forget_uploads(self) -> None:
        """Upload again what is asked for next, as there may have been no room for what was uploaded."""
        for source in (self.source, self.base, self.second and self.second[1]):
            if source:
                source.forget()

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
        self.decode = None
        problem = None
        if self.edit_text:
            from py_attn.viewer.sources.mods import ModError, explain  # a start does not need it

            # The visitor's text applies to the next source too, unless it fails there.
            try:
                source = self.edited(source, self.edit_text)
            except ModError as error:
                problem = explain(error)
                if not error.finished:
                    self.edit_text = ""
        self.show(source)
        return self.describe() | {"editError": problem}

    def show(self, source: Source) -> None:
        """Show a source as the visitor reads tokens."""
        if self.reading is None:
            self.source = source
        else:
            from py_attn.viewer.sources.derived import read

            self.source = read(source, self.reading)

    def describe(self) -> dict[str, Any]:
        """What a front end needs to know about the source that is shown."""
        source = self._shown()
        return {
            **source.describe(),
            **possible(source, self.reading),
            "engine": self.engine.name,
            "edited": source.edited,
            "editError": None,
        }

    def edited(self, source: Source, text: str) -> Source:
        """The source with the functions that ``text`` defines; given weights stay as they are.

        Raises
        ------
        ModError
            With the line of the text that is to blame, where one is.
        """
        if isinstance(source, GivenSource):
            return source
        mods = None
        if text:
            from py_attn.viewer.sources.mods import compile_mods  # a start does not need it

            given = {"heads": source.heads, "length": source.length, "tokens": list(source.tokens)}
            mods = compile_mods(text, self.device, limit_seconds=self.limit_seconds, **given)
        return replace(source, masking=replace(source.masking, mods=mods))

    def layer(self, layer: int) -> tuple[Source, Layer]:
        """The source that is open, as it is read, and one of its layers."""
        return _layer_of(self._shown(), layer)

    def base_layer(self, layer: int) -> tuple[Source, Layer]:
        """The source that is open token by token, and one of its layers, with queries, keys and values."""
        source = self._shown()
        return _layer_of(source.base or source, layer)

    def map(self, layer: int, head: int, over: Over) -> tuple[Engine, Layer, int]:
        """A map of the source: what computes it, and of which layer and head.

        The heads that ``over`` takes together are taken together first, and then the tokens are read.
        """
        source, chosen = self.layer(layer)
        if over == "head":
            return self.engine, chosen, head
        from py_attn.viewer.engines.over import OverEngine, over_layer

        base, _ = self.base_layer(layer)
        together, engine = over_layer(base, layer, over), OverEngine(self.base_engine)
        if source.base is None:
            return engine, together, 0
        from py_attn.viewer.engines.derived import DerivedEngine
        from py_attn.viewer.sources.derived import DerivedLayer

        assert isinstance(chosen, DerivedLayer)
        return DerivedEngine(engine), DerivedLayer(together, chosen.groups), 0

    def _shown(self) -> Source:
        if self.source is None:
            raise ValueError("nothing is open yet")
        return self.source


def _layer_of(source: Source, layer: int) -> tuple[Source, Layer]:
    if not 0 <= layer < len(source.layers):
        raise ValueError(f"layer: expected 0 to {len(source.layers) - 1}, got {layer}")
    chosen = source.layers[layer]
    masking = chosen.masked(source.masking)
    return (source if masking is source.masking else replace(source, masking=masking)), chosen
