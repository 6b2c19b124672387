"""What a cell of the console sees of the page: the head in focus, as arrays."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import numpy as np

from py_attn.viewer.engines.engine import Style, Window
from py_attn.viewer.sources.given import GivenLayer, GivenSource
from py_attn.viewer.sources.source import Array

#: Larger maps are not read for a cell.
MAX_WEIGHTS = 4_000_000
#: What one call of :meth:`Page.show` takes.
MAX_SHOWN = 16_000_000
_FOCUS = ("layer", "head", "row", "column")


class Page:
    """The page as it was when the cell began; every cell that mentions ``page`` sees it anew.

    Attributes
    ----------
    layer, head : int
        The head in focus, counted from 0.
    row, column : int
        The chosen cell of its map: the positions of its query and its key.
    tokens : list of str
    title : str
        The sentence, or what the input is called.
    query, key, value : array
        float32 [S, D] of the head in focus. With fewer KV heads than heads, key and value are those of the
        KV head that the head reads.
    weights : array
        float32 [S, S]: row i holds the weights of query i; each row sums to 1.
    """

    layer: int = 0
    head: int = 0
    row: int = 0
    column: int = 0

    def __init__(self, viewer: Any) -> None:
        self._viewer = viewer
        self._arrays: dict[str, Array | str] = {}

    def __repr__(self) -> str:
        if self._viewer.source is None:
            return "page: nothing is open yet"
        return (
            f"page: layer {self.layer}, head {self.head} of {self.source.title!r}, {len(self.tokens)} tokens"
        )

    @property
    def source(self) -> Any:
        """The :class:`~py_attn.viewer.sources.source.Source` that is shown, with all layers and heads."""
        if self._viewer.source is None:
            raise ValueError("page: nothing is open yet")
        return self._viewer.source

    @property
    def title(self) -> str:
        return str(self.source.title)

    @property
    def tokens(self) -> list[str]:
        return list(self.source.tokens)

    @property
    def query(self) -> Array:
        return self._array("query")

    @property
    def key(self) -> Array:
        return self._array("key")

    @property
    def value(self) -> Array:
        return self._array("value")

    @property
    def weights(self) -> Array:
        return self._array("weights")

    def show(self, array: object, tokens: Sequence[object] | None = None, title: str = "") -> None:
        """Open a map of an array on the page, in the place of what it shows.

        Parameters
        ----------
        array : array_like
            [S, S], or [heads, S, S], or [layers, heads, S, S]: a row for each query, as weights are. Colours
            stand for 0 to 1; larger numbers are shown as 1 and smaller ones as 0.
        tokens : sequence, optional
            S labels; those of the page where it has as many, else the positions.
        title : str, optional

        Raises
        ------
        ValueError
            When the array has another shape, is empty, too large or not finite.
        """
        maps = np.asarray(array, np.float32)
        shape = list(maps.shape)
        while maps.ndim < 4:
            maps = maps[None]
        if maps.ndim > 4 or maps.shape[-1] != maps.shape[-2] or not 0 < maps.size <= MAX_SHOWN:
            raise ValueError(
                "array: expected [S, S], [heads, S, S] or [layers, heads, S, S] with at most "
                f"{MAX_SHOWN:,} numbers, got {shape}"
            )
        if not np.isfinite(maps).all():
            raise ValueError("array: expected finite numbers only")
        length = maps.shape[-1]
        given = self._viewer.source.tokens if tokens is None and self._viewer.source else tokens
        labels = [str(token) for token in given or ()]
        if len(labels) != length:
            if tokens is not None:
                raise ValueError(f"tokens: expected {length}, got {len(labels)}")
            labels = [str(position) for position in range(length)]
        layers = [GivenLayer(np.ascontiguousarray(each)) for each in maps]
        note = title or f"An array of shape {shape}, from the console"
        self._viewer.shown = self._viewer.open(GivenSource("weights", note, labels, layers))

    async def look(self, focus: dict[str, int]) -> None:
        """Read what is in focus: ``layer``, ``head``, and the cell's ``row`` and ``column``."""
        for name in _FOCUS:
            setattr(self, name, int(focus.get(name, getattr(self, name))))
        self._arrays = {}
        if self._viewer.source is None:
            return
        self.layer = min(self.layer, len(self.source.layers) - 1)
        self.head = min(self.head, self.source.heads - 1)
        source, layer = self._viewer.layer(self.layer)
        self._arrays["weights"] = await self._read_weights()
        try:
            arrays = await layer.host()
        except ValueError as error:  # weights that were given have nothing behind them
            self._arrays |= dict.fromkeys(("query", "key", "value"), str(error))
            return
        group = source.heads // source.kv_heads
        for name, array, head in zip(
            ("query", "key", "value"), arrays, (self.head, *[self.head // group] * 2), strict=True
        ):
            self._arrays[name] = np.asarray(array[0, head], np.float32)

    async def _read_weights(self) -> Array | str:
        source, layer = self._viewer.layer(self.layer)
        if source.length**2 > MAX_WEIGHTS:
            return (
                f"the map has {source.length**2:,} weights, more than the {MAX_WEIGHTS:,} that a cell reads; "
                "compute a part of it with pa.attention_weights(query, key, lse, rows=..., columns=...)"
            )
        everything = slice(0, source.length)
        part = Window([self.head], everything, everything)
        found = await self._viewer.engine.weights(layer, source.masking, part, Style())
        return np.array(found[0], np.float32)

    def _array(self, name: str) -> Array:
        found = self._arrays.get(name, "the cell that runs this does not mention page")
        if isinstance(found, str):
            raise ValueError(f"page.{name}: {found}")
        return found


def mentions_page(source: str) -> bool:
    """Whether a cell reads the name ``page``."""
    try:
        names = ast.walk(ast.parse(source))
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.Name) and node.id == "page" for node in names)
