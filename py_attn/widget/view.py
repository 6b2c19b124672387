"""The notebook widget :class:`AttentionView`."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import traitlets

from py_attn.remote import session
from py_attn.remote.session import Acquire
from py_attn.transformers.capturing import Captured
from py_attn.transformers.recording import Stack
from py_attn.viewer.sources.arrays import query_source, weights_source
from py_attn.viewer.sources.captured import captured_source
from py_attn.viewer.sources.source import Layer, Source
from py_attn.viewer.sources.written import written_source
from py_attn.viewer.writing import token_texts
from py_attn.widget import _export
from py_attn.widget._snapshots import Snapshots, display
from py_attn.widget._traits import PARTS, SETTABLE, ViewTraits
from py_attn.widget._viewer import NotebookViewer


class AttentionView(ViewTraits):
    """Attention maps in a notebook, computed on the GPU of the user's browser, or of given weights.

    Parameters
    ----------
    query, key, value : array_like, optional
        What :func:`py_attn.transformers.capture` kept of a model, or one of its stacks, alone; or
        [S, D] up to [layers, B, H, S, D]: numpy, or anything with DLPack or ``__array__``. Keys and values
        may have fewer heads (a divisor); values may be left out, as maps do not depend on them.
    weights : array_like or sequence of array_like, optional
        Probabilities instead: [S, S] up to [layers, B, H, S, S], or one array per layer. No GPU is needed.
    tokens : sequence of str, optional
        One per position; without them positions are numbered.
    causal, window, softcap, scale, mask
        As in :func:`py_attn.attention`; ``mask`` broadcasts to [B, H, S, S].
    batch : int
        The element of the batch that is shown.
    title : str
    layer, head : int
        The map that is shown first.
    colormap : str
        "auto" (depends on the notebook's theme), "rocket", "magma" or "viridis"; the suffix ``_r``
        reverses it.
    color_scale : {"sqrt", "linear", "log"}
    pool : {"max", "mean"}
        How several weights that share a pixel are combined.
    parts : str or sequence of str, optional
        What is shown of "overview", "focus", "links", "compare" and "kernel", as a list or in one string;
        by default everything.

    Attributes
    ----------
    layer, head : int
    selection : tuple of int
        Query and key under the cursor. Layer, head and selection can be set, observed and linked.
    variant : str
        The kernel variant that is timed.
    parts : list of str
        What is shown; it can be set too.
    timings : dict
        The last measurement; read only.
    state : str
        "live" or "error"; ``message`` is the error, or a note about the input.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, what was given and what was expected.
    """

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
        parts: str | Sequence[str] | None = None,
    ) -> None:
        if weights is not None:
            others = {"query": query, "key": key, "value": value, "mask": mask, "window": window}
            if extra := [name for name, given in others.items() if given is not None]:
                raise ValueError(
                    f"{extra[0]}: expected no other inputs together with weights, which are shown as they are"
                )
            source = weights_source(weights, tokens=tokens, title=title, batch=batch)
        elif isinstance(query, Captured | Stack):
            others = {"key": key, "value": value, "causal": causal or None, "window": window, "mask": mask}
            others |= {"softcap": softcap, "scale": scale}
            if extra := [name for name, given in others.items() if given is not None]:
                raise ValueError(f"{extra[0]}: expected nothing, as what was captured brings its own")
            stack, model = (query.main, query.title) if isinstance(query, Captured) else (query, "")
            source = captured_source(stack, tokens=tokens, title=title or model, batch=batch)
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
        self._begin(source, layer, head, {"colormap": colormap, "scale": color_scale, "pool": pool}, parts)

    def _begin(
        self,
        source: Source,
        layer: int,
        head: int,
        coloring: dict[str, str],
        parts: str | Sequence[str] | None,
    ) -> None:
        names = parts.replace(",", " ").split() if isinstance(parts, str) else list(parts or ())
        self._viewer = NotebookViewer(source)
        described = self._viewer.describe()
        tokens = described.pop("tokens")
        super().__init__(
            layer=layer,
            head=head,
            coloring=coloring,
            parts=list(PARTS) if parts is None else names,
            tokens=tokens,
            title=source.title,
            source=described,
            message=source.note,
            still_id=f"py-attn-snapshot-{uuid.uuid4().hex[:12]}",
        )
        self._link = session.current.open(self)
        self._snapshots = Snapshots(self, self._link)
        self._snapshots.draw_first()
        self.on_msg(self._on_message)
        self.observe(self._on_look, ["layer", "head", "coloring"])

    @classmethod
    def from_attentions(
        cls, attentions: Any, tokens: Sequence[str] | None = None, **options: Any
    ) -> AttentionView:
        """A view of the attention weights that a Hugging Face model returned (``output_attentions=True``).

        Parameters
        ----------
        attentions
            The model's output, or its ``attentions``: a tensor [B, H, S, S] per layer.
        tokens : sequence of str, optional
            ``tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])``.
        **options
            As for :class:`AttentionView`.

        Raises
        ------
        TypeError, ValueError
            When it holds no attention weights.
        """
        found = getattr(attentions, "attentions", attentions)
        if found is None or (isinstance(found, list | tuple) and (not found or found[0] is None)):
            raise ValueError(
                'attentions: the model returned none; load it with attn_implementation="eager" and call it '
                "with output_attentions=True"
            )
        return cls(weights=found, tokens=tokens, **options)

    @classmethod
    async def from_written(
        cls,
        model: Any,
        *,
        layer: int = 0,
        head: int = 0,
        colormap: str = "auto",
        color_scale: Literal["sqrt", "linear", "log"] = "sqrt",
        pool: Literal["max", "mean"] = "max",
        parts: str | Sequence[str] | None = None,
    ) -> AttentionView:
        """A view of what a language model has read and written so far; it does not follow what comes later.

        Parameters
        ----------
        model : SmolLM2
            From ``await pa.models.load("smollm2")``. Queries, keys and values are read back once.
        layer, head, colormap, color_scale, pool, parts
            As for :class:`AttentionView`.

        Raises
        ------
        ValueError
            When there is no text yet.
        """
        if not model.tokens:
            raise ValueError("model: expected a text to look at; call start, generate or score first")
        await model.finish()
        source = written_source(model, token_texts(model, model.tokens))
        source.layers = [Layer(*await each.host()) for each in source.layers]
        view = cls.__new__(cls)
        view._begin(source, layer, head, {"colormap": colormap, "scale": color_scale, "pool": pool}, parts)
        return view

    # messages; all but the first are called by the view's link

    def _on_message(self, _: Any, content: Any, buffers: Any) -> None:
        self._link.receive(content, buffers or [])

    @property
    def reachable(self) -> bool:
        """Whether messages may still be sent to a front end."""
        return not self._link.closed and self.comm is not None and not getattr(self.comm, "_closed", False)

    def take_traits(self, traits: Mapping[str, Any]) -> None:
        """Take new values of traits from a front end, which is not told of them again."""
        # A value may be for a layer or head that the view does not have any more.
        with contextlib.suppress(traitlets.TraitError):
            self.set_state({name: traits[name] for name in SETTABLE if name in traits})

    async def answer(
        self, method: str, payload: dict[str, Any], acquire: Acquire, progress: Callable[..., None]
    ) -> Any:
        """What a front end's call of a method of the viewer returns."""
        try:
            result = await self._viewer.answer(method, payload, acquire, progress)
        except Exception as error:
            if method == "connect":
                self.state = "error"
                self.message = str(error)
            raise
        if method == "measure":
            self.timings = dict(result)
        elif method == "connect":
            self._show_connected(result)
        elif method == "read_as":
            # Every front end of the view reads its tokens in the same way.
            described = {name: value for name, value in result.items() if name != "tokens"}
            with self.hold_sync():
                self.tokens, self.source = result["tokens"], described
        return result

    def _show_connected(self, info: Mapping[str, Any]) -> None:
        notes = [self._viewer.source.note]
        if not (info["webgpu"] or self._viewer.given):
            notes.append(f"No WebGPU: {info['reason']} The maps are computed by numpy in the kernel.")
        self.state = "live"
        self.message = " ".join(filter(None, notes))
        self.source = {**self.source, "engine": self._viewer.engine.name}
        self._snapshots.draw_later()

    def release(self) -> None:
        """Free the view's tensors on the device; they are uploaded again when a page shows the view."""
        self._viewer.release()

    def _on_look(self, _: Any) -> None:
        self._snapshots.draw_later()

    def _ipython_display_(self, **_: Any) -> None:
        """Show the live view and the snapshot, which the live view hides."""
        found = self._repr_mimebundle_()
        if found is not None:
            display(found[0], metadata=found[1])
        self._snapshots.show()

    # export

    async def export(
        self,
        format: Literal["png", "svg", "json"] = "png",
        *,
        layer: int | None = None,
        head: int | None = None,
        size: int = 1024,
    ) -> bytes:
        """A map as the bytes of a file.

        Parameters
        ----------
        format : {"png", "svg", "json"}
            PNG: the cells, enlarged by a whole factor; SVG: with title and tokens; JSON: the weights.
        layer, head : int, optional
            By default those in view.
        size : int
            PNG and SVG: the longer side has at most this many pixels; longer maps are pooled.

        Raises
        ------
        ValueError
            When an argument is out of range, or the map is too long for JSON.
        """
        layer = self.layer if layer is None else layer
        head = self.head if head is None else head
        return await _export.export(self._viewer, self.coloring, format, layer, head, size)

    async def save(self, path: str | Path, **options: Any) -> Path:
        """Write :meth:`export` to a file; the suffix of its name is the format."""
        target = Path(path)
        data = await self.export(target.suffix.removeprefix(".").lower() or "png", **options)  # type: ignore[arg-type]
        target.write_bytes(data)
        return target

    def close(self) -> None:
        """Close the view and free what it holds; the device stays for the other views of the page."""
        # ipywidgets also closes a view whose arguments were refused.
        link: session.Link | None = getattr(self, "_link", None)
        if link is None or link.closed:
            return
        if self.reachable:
            self.send({"kind": "closed"})
        self._snapshots.cancel()
        link.close()
        self._viewer.disconnect()
        super().close()
