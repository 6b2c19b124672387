"""The widget itself."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Literal

import anywidget
import traitlets

from py_attn.colormaps import table
from py_attn.gpu.bridge_remote import RemotePage
from py_attn.gpu.wire import pack, unpack
from py_attn.viewer.sources.arrays import query_source, weights_source
from py_attn.viewer.sources.source import Source
from py_attn.widget import _export, _host
from py_attn.widget._pages import KERNEL, acquire, announce, pages
from py_attn.widget._viewer import NotebookViewer

STATIC = Path(__file__).parent / "static"

#: Traits that a front end may set.
_SETTABLE = ("layer", "head", "selection", "variant", "coloring")

#: Cells of a still's longer side, and the seconds of rest after which a new one is made.
STILL_CELLS = 512
STILL_SECONDS = 0.7
#: Up to here numpy computes a first still before a browser is there.
_FIRST_STILL_LENGTH = 768


def _bundled(name: str) -> str:
    path = STATIC / name
    if path.is_file():
        return path.read_text(encoding="utf-8")
    if name.endswith(".css"):
        return ""
    say = f"{path} is missing: in a checkout of py-attn, `npm run build` makes it."
    return f"export default {{ render({{ el }}) {{ el.textContent = {say!r}; }} }}"


def _sync(trait: Any) -> Any:
    return trait.tag(sync=True)


def _display(bundle: dict[str, Any], **options: Any) -> None:
    from IPython.display import display

    show: Any = display
    show(bundle, raw=True, **options)


class AttentionView(anywidget.AnyWidget):
    """Attention maps in a notebook, computed by the fused kernels on the GPU of who looks, or given.

    Parameters
    ----------
    query, key, value : array_like, optional
        [S, D] up to [layers, B, H, S, D]: numpy, or anything with DLPack or ``__array__``. Keys and values
        may have fewer heads (a divisor); values may be left out, as maps do not depend on them.
    weights : array_like or sequence of array_like, optional
        Instead: probabilities [S, S] up to [layers, B, H, S, S], or one array a layer. No GPU is needed.
    tokens : sequence of str, optional
        One a position; else positions are numbered.
    causal, window, softcap, scale, mask
        As in :func:`py_attn.attention`; ``mask`` broadcasts to [B, H, S, S].
    batch : int
        The element of the batch that is shown.
    title : str
    layer, head : int
        What is shown first.
    colormap : str
        "auto" (by the notebook's theme), "rocket", "magma" or "viridis", with ``_r`` behind for the reverse.
    color_scale : {"sqrt", "linear", "log"}
    pool : {"max", "mean"}
        What a pixel shows that stands for several weights.

    Attributes
    ----------
    layer, head : int
    selection : tuple of int
        Query and key under the cursor. These three can be set, observed and linked.
    variant : str
        The kernel variant that is timed.
    timings : dict
        The last measurement; read only.
    state : str
        "live" or "error"; ``message`` says why, or what to know about the input.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, what was given and what was expected.
    """

    _esm = _bundled("widget.js")
    _css = _bundled("widget.css")

    layer = _sync(traitlets.Int(0))
    head = _sync(traitlets.Int(0))
    selection = _sync(traitlets.Tuple(traitlets.Int(), traitlets.Int(), default_value=(0, 0)))
    variant = _sync(traitlets.Unicode("auto"))
    coloring = _sync(traitlets.Dict())
    timings = _sync(traitlets.Dict())
    tokens = _sync(traitlets.List(traitlets.Unicode()))
    title = _sync(traitlets.Unicode())
    source = _sync(traitlets.Dict())
    state = _sync(traitlets.Unicode("live"))
    message = _sync(traitlets.Unicode(""))
    still = _sync(traitlets.Bytes(b""))
    still_text = _sync(traitlets.Unicode(""))
    still_id = _sync(traitlets.Unicode(""))

    _closed = True  # until there is something to close

    def __init__(
        self,
        query: Any = None,
        key: Any = None,
        value: Any = None,
        *,
        weights: Any = None,
        tokens: Sequence[str] | None = None,
        causal: bool = False,
        window: int | tuple[int | None, int | None] | None = None,
        softcap: float | None = None,
        scale: float | None = None,
        mask: Any = None,
        batch: int = 0,
        title: str = "",
        layer: int = 0,
        head: int = 0,
        colormap: str = "auto",
        color_scale: Literal["sqrt", "linear", "log"] = "sqrt",
        pool: Literal["max", "mean"] = "max",
    ) -> None:
        if weights is not None:
            others = {"query": query, "key": key, "value": value, "mask": mask, "window": window}
            if extra := [name for name, given in others.items() if given is not None]:
                raise ValueError(f"{extra[0]}: expected nothing beside weights, which are shown as they are")
            source = weights_source(weights, tokens=tokens, title=title, batch=batch)
        else:
            if query is None or key is None:
                missing = "query" if query is None else "key"
                raise TypeError(f"{missing}: expected an array (or weights= instead of query and key)")
            source = query_source(
                query,
                key,
                value,
                tokens=tokens,
                title=title,
                batch=batch,
                causal=causal,
                window=window,
                softcap=softcap,
                scale=scale,
                mask=mask,
            )
        self._begin(source, layer, head, {"colormap": colormap, "scale": color_scale, "pool": pool})

    def _begin(self, source: Source, layer: int, head: int, coloring: dict[str, str]) -> None:
        described = source.describe()
        tokens = described.pop("tokens")
        self._viewer = NotebookViewer(source)
        self._loop = _host.running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._mounted: dict[str, int] = {}
        self._last_call: dict[str, int] = {}
        self._drawing: asyncio.TimerHandle | None = None
        self._display_id = ""
        self._closed = False
        self._cell, self._run = _host.running_cell()
        super().__init__(
            layer=layer,
            head=head,
            coloring=coloring,
            tokens=tokens,
            title=source.title,
            source={**described, "engine": self._viewer.engine.name, "edited": []},
            message=source.note,
            still_id=f"py-attn-still-{uuid.uuid4().hex[:12]}",
        )
        announce()
        self._first_still()
        self.on_msg(self._on_message)
        self.observe(self._on_look, ["layer", "head", "coloring"])
        if self._cell:
            _of_cell.setdefault(self._cell, []).append(self)

    @classmethod
    def from_attentions(
        cls, attentions: Any, tokens: Sequence[str] | None = None, **options: Any
    ) -> AttentionView:
        """A view of what a Hugging Face model returned with ``output_attentions=True``.

        Parameters
        ----------
        attentions
            The model's output, or its ``attentions``: a tensor [B, H, S, S] a layer.
        tokens : sequence of str, optional
            ``tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])``.
        **options
            As for :class:`AttentionView`.

        Raises
        ------
        TypeError, ValueError
            When there are no attentions in it.
        """
        found = getattr(attentions, "attentions", attentions)
        if found is None or (isinstance(found, list | tuple) and (not found or found[0] is None)):
            raise ValueError(
                'attentions: the model returned none; load it with attn_implementation="eager" and call it '
                "with output_attentions=True"
            )
        return cls(weights=found, tokens=tokens, **options)

    # traits

    @traitlets.validate("layer", "head")
    def _check_place(self, proposal: Any) -> int:
        name, given = proposal["trait"].name, proposal["value"]
        source = self._viewer.source
        limit = len(source.layers) if name == "layer" else source.heads
        if not 0 <= given < limit:
            raise traitlets.TraitError(f"{name}: expected 0 to {limit - 1}, got {given}")
        return int(given)

    @traitlets.validate("selection")
    def _check_selection(self, proposal: Any) -> tuple[int, int]:
        query, key = proposal["value"]
        length = self._viewer.source.length
        if not (0 <= query < length and 0 <= key < length):
            raise traitlets.TraitError(
                f"selection: expected a query and a key from 0 to {length - 1}, got {(query, key)}"
            )
        return int(query), int(key)

    @traitlets.validate("coloring")
    def _check_coloring(self, proposal: Any) -> dict[str, str]:
        given = {"colormap": "auto", "scale": "sqrt", "pool": "max"} | dict(proposal["value"])
        if given["colormap"] != "auto":
            try:
                table(given["colormap"])
            except ValueError as error:
                raise traitlets.TraitError(str(error)) from None
        for name, allowed in (("scale", ("linear", "sqrt", "log")), ("pool", ("max", "mean"))):
            if given[name] not in allowed:
                raise traitlets.TraitError(
                    f"{name}: expected one of {', '.join(allowed)}, got {given[name]!r}"
                )
        return given

    # messages

    @property
    def reachable(self) -> bool:
        """Whether messages may still go to a front end."""
        return not self._closed and self.comm is not None and not getattr(self.comm, "_closed", False)

    def _on_message(self, _: Any, content: Any, buffers: Any) -> None:
        """Take a message, in whichever thread the host delivers it."""
        if not isinstance(content, dict) or "page" not in content or self._closed:
            return
        page = pages.get(content["page"])
        if page is not None and content.get("kind") in ("bridge-answer", "lost", "pong"):
            page.receive(content, buffers or [])
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._dispatch, content, buffers or [])

    def _dispatch(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        kind, name = content.get("kind"), content["page"]
        if kind == "closed":
            self._mounted.pop(name, None)
            pages.detach(self, name)
            return
        if kind == "hello":
            pages.attach(self, name, "" if content.get("webgpu") else str(content.get("reason", "")))
            self.send({"kind": "welcome", "page": name, "kernel": KERNEL})
            self._close_earlier()
        elif kind == "set":
            traits = content["traits"]
            # As ipywidgets takes an update: the sender gets no echo of it.
            with contextlib.suppress(traitlets.TraitError):  # of what is not there any more
                self.set_state({name: traits[name] for name in _SETTABLE if name in traits})
        elif kind == "views":
            self._mounted[name] = int(content["count"])
            if not self.displayed:
                self._viewer.release()
            self._close_earlier()
        elif kind == "call":
            if content["id"] <= self._last_call.get(name, 0):
                return  # delivered twice, see _host
            self._last_call[name] = content["id"]
            page = pages.get(name)
            if page is None or page.gone:
                page = pages.attach(self, name, "")
            self._start(self._answer(page, content, buffers))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, page: RemotePage, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        address = {"page": page.name, "id": content["id"]}

        def progress(*news: Any) -> None:
            self.send({"kind": "progress", **address, "news": news})

        reply: dict[str, Any] = {"kind": "answer", **address}
        out: list[Any] = []
        try:
            method, payload = content["method"], unpack(content.get("payload") or {}, buffers)
            given = {name: value for name, value in payload.items() if value is not None}
            result = await self._viewer.answer(method, given, lambda: acquire(page), progress)
            reply["result"] = pack(result, out)
            self._after(method, result)
        except Exception as error:
            reply["error"] = {"type": type(error).__name__, "message": str(error)}
            if content.get("method") == "connect":
                self.set_trait("state", "error")
                self.message = str(error)
        if self.reachable:
            self.send(reply, out)

    def _after(self, method: str, result: Any) -> None:
        if method == "measure":
            self.timings = dict(result)
        elif method == "connect":
            notes = [self._viewer.source.note]
            if not (result["webgpu"] or self._viewer.given):
                notes.append(f"No WebGPU: {result['reason']} The maps are computed by numpy in the kernel.")
            self.state = "live"
            self.message = " ".join(filter(None, notes))
            self.source = {**self.source, "engine": self._viewer.engine.name}
            self._on_look(None)

    # stills

    @property
    def displayed(self) -> bool:
        """Whether some page shows the view now."""
        alive = [page for name in self._mounted if (page := pages.get(name)) and not page.gone]
        return any(self._mounted[page.name] for page in alive)

    def _on_look(self, _: Any) -> None:
        """Make a new still once the visitor rests."""
        if self._loop is not None and not self._closed:
            self._loop.call_soon_threadsafe(self._draw_later)

    def _draw_later(self) -> None:
        assert self._loop is not None
        if self._drawing is not None:
            self._drawing.cancel()
        self._drawing = self._loop.call_later(STILL_SECONDS, lambda: self._start(self._draw()))

    async def _draw(self) -> None:
        if not self.displayed or not self.reachable:
            return
        try:
            picture = await self._picture()
        except Exception:  # the view itself says what went wrong
            return
        self._set_still(picture)

    def _picture(self) -> Coroutine[Any, Any, _export.Pixels]:
        return _export.picture(self._viewer, self.coloring, STILL_CELLS, self.layer, self.head)

    def _first_still(self) -> None:
        source = self._viewer.source
        if not self._viewer.given and source.length > _FIRST_STILL_LENGTH:
            return
        # Neither numpy nor given weights wait for anything.
        work = self._picture()
        try:
            work.send(None)
        except StopIteration as done:
            self._set_still(done.value)
        except Exception:
            work.close()

    def _set_still(self, picture: Any) -> None:
        with self.hold_sync():
            self.still = _export.png(picture)
            self.still_text = _export.caption(self._viewer.source, self.layer, self.head)
        if self._display_id:
            _display(self._still_bundle(), display_id=self._display_id, update=True)

    def _still_bundle(self) -> dict[str, str]:
        length = self._viewer.source.length
        return _export.still_bundle(self.still_id, self.still, self.title, self.still_text, length)

    def _ipython_display_(self, **_: Any) -> None:
        """Show the live view, and beside it the still, which a live view hides."""
        found = self._repr_mimebundle_()
        if found is not None:
            _display(found[0], metadata=found[1])
        again = bool(self._display_id)
        self._display_id = self._display_id or self.still_id
        if again:
            _display(self._still_bundle(), display_id=self._display_id, update=True)
        _display(self._still_bundle(), display_id=self._display_id)

    # export

    async def export(
        self,
        format: Literal["png", "svg", "json"] = "png",
        *,
        layer: int | None = None,
        head: int | None = None,
        size: int = 1024,
    ) -> bytes:
        """A map as a file's bytes.

        Parameters
        ----------
        format : {"png", "svg", "json"}
            PNG: the cells, enlarged by a whole number; SVG: with title and tokens; JSON: the weights.
        layer, head : int, optional
            Those in view unless given.
        size : int
            PNG and SVG: pixels of the longer side at most; longer maps are pooled.

        Raises
        ------
        ValueError
            When an argument is out of range, or the map is too long for JSON.
        """
        layer = self.layer if layer is None else layer
        head = self.head if head is None else head
        return await _export.export(self._viewer, self.coloring, format, layer, head, size)

    async def save(self, path: str | Path, **options: Any) -> Path:
        """Write :meth:`export` to a file; its suffix says the format."""
        target = Path(path)
        data = await self.export(target.suffix.removeprefix(".").lower() or "png", **options)  # type: ignore[arg-type]
        target.write_bytes(data)
        return target

    # life

    def _close_earlier(self) -> None:
        """Close what earlier runs of this view's cell have made and nobody shows any more."""
        views = _of_cell.get(self._cell, []) if self._cell else []
        for view in list(views):
            if view._run != views[-1]._run and not view.displayed:
                view.close()

    def close(self) -> None:
        """Close the view and free what it holds; the device lives on while other views are there."""
        if self._closed:
            return
        if self.reachable:
            self.send({"kind": "closed"})
        self._closed = True
        if self._drawing is not None:
            self._drawing.cancel()
        for task in list(self._tasks):
            task.cancel()
        self._viewer.disconnect()
        pages.detach(self)
        views = _of_cell.get(self._cell, [])
        if self in views:
            views.remove(self)
            if not views:
                _of_cell.pop(self._cell, None)
        super().close()


#: Views by the notebook cell that made them.
_of_cell: dict[str, list[AttentionView]] = {}
