"""Two heads' maps side by side: what a head is compared with, their pictures, and how far they lie apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import py_attn as pa
from py_attn.colormaps import paint, paint_signed
from py_attn.viewer.engines.engine import Engine, Style, Window
from py_attn.viewer.engines.gpu import GPUEngine
from py_attn.viewer.engines.pooling import pool
from py_attn.viewer.panels.caches import rounded
from py_attn.viewer.sources.source import Array, Layer, Masking, Source
from py_attn.viewer.viewer import Viewer

#: A difference is computed from all weights of two maps; beyond this many (2,048²) only from every n-th row.
MAX_WEIGHTS = 1 << 22
#: What a cache may hold that a head is compared with.
CACHES = ("float32", "float16", "bfloat16", "turboquant4", "turboquant3", "turboquant2", "turboquant1")
KINDS = ("head", "unedited", "cache", "text")
_CAUSAL = "A cache is read while a text is written, so both maps are causal: no query sees a later token."


@dataclass(frozen=True)
class Side:
    """A head whose map is compared, with all that computes it."""

    engine: Engine
    layer: Layer
    masking: Masking
    head: int
    tokens: list[str]

    @property
    def length(self) -> int:
        return len(self.tokens)

    async def weights(self, rows: slice, columns: slice) -> Array:
        """Float32 [rows, columns]."""
        found = await self.engine.weights(self.layer, self.masking, Window([self.head], rows, columns))
        weights: Array = found[0]
        return weights


class Pair(NamedTuple):
    """The head in focus and what it is compared with; ``why_not`` says why there is no difference."""

    a: Side
    b: Side
    note: str = ""
    why_not: str = ""


def diverge(a: Array, b: Array) -> dict[str, Any]:
    """How far rows [R, S] of two maps lie apart.

    Returns
    -------
    dict
        ``row``, ``key``: where they differ most; ``rows``: how many have weights in both maps, and the means
        over these of two figures that are 0 for equal rows and 1 for rows that share no key. ``variation`` is
        the total variation distance ½ Σ |a - b|: the share of a row's attention that lies elsewhere.
        ``shannon`` is the Jensen-Shannon divergence in bits (Lin, "Divergence measures based on the Shannon
        entropy", IEEE Trans. Inf. Theory 37, 1991). Both are usual for attention (Jain and Wallace, arXiv
        1902.10186).
    """
    p, q = np.asarray(a, np.float64), np.asarray(b, np.float64)
    row, key = np.unravel_index(np.argmax(np.abs(p - q)), p.shape)
    seen = (p.sum(-1) > 0) & (q.sum(-1) > 0)
    p, q = p[seen], q[seen]
    rows, mean = max(1, len(p)), (p + q) / 2
    return {
        "row": int(row),
        "key": int(key),
        "rows": len(p),
        "variation": float(np.abs(p - q).sum()) / 2 / rows,
        "shannon": max(0.0, (_bits(p, mean) + _bits(q, mean)) / 2 / rows),
    }


def _bits(p: Array, q: Array) -> float:
    """The Kullback-Leibler divergence of p from q in bits, summed over rows."""
    positive = p > 0
    return float((p[positive] * np.log2(p[positive] / q[positive])).sum())


async def pair(viewer: Viewer, layer: int, head: int, other: dict[str, Any]) -> Pair:
    """The head in focus, and what ``other`` says that it is compared with.

    Parameters
    ----------
    other : dict
        ``with``: "head" with ``layer`` and ``head``; "unedited", the same head without the visitor's
        score_mod and mask_mod; "cache" with ``dtype``, the same head with its keys read from such a cache;
        or "text" with ``text``, the same head of another sentence.

    Raises
    ------
    ValueError
        In plain words, where there is no such thing.
    """
    source, chosen = viewer.layer(layer)
    _check_head(source, head)
    a = Side(viewer.engine, chosen, source.masking, head, list(source.tokens))
    kind = other.get("with")
    if kind == "head":
        _check_head(source, other["head"])
        return Pair(a, replace(a, layer=viewer.layer(other["layer"])[1], head=other["head"]))
    if kind == "unedited":
        if source.masking.mods is None:
            raise ValueError("no score_mod or mask_mod is applied; write one under “Edit the score” first")
        return Pair(a, replace(a, masking=replace(source.masking, mods=None)))
    if kind == "cache":
        return await _with_cache(viewer, a, str(other["dtype"]))
    if kind == "text":
        return await _with_text(viewer, a, layer, str(other["text"]))
    raise ValueError(f"with: expected one of {', '.join(KINDS)}, got {kind!r}")


def _check_head(source: Source, head: int) -> None:
    if not 0 <= head < source.heads:
        raise ValueError(f"head: expected 0 to {source.heads - 1}, got {head}")


async def _with_cache(viewer: Viewer, a: Side, dtype: str) -> Pair:
    """Both are causal, as decoding is; a key is rounded alone, so these are the keys that a cache holds."""
    if dtype not in CACHES:
        raise ValueError(f"dtype: expected one of {', '.join(CACHES)}, got {dtype!r}")
    if a.layer.query is None:
        raise ValueError("only weights were given here, and a cache needs the keys that they came from")
    masking = a.masking
    note = ""
    if not masking.causal:
        masking, note = _kept(a, "masking", lambda: replace(a.masking, causal=True)), _CAUSAL
        a = replace(a, layer=_kept(a, "causal", lambda: _copy(a.layer)), masking=masking)
    key = a.layer.key
    if (a.engine, dtype) not in a.layer.kept:
        a.layer.kept[a.engine, dtype] = _copy(a.layer, await _through_cache(a.engine, key, dtype))
    return Pair(a, replace(a, layer=a.layer.kept[a.engine, dtype]), note)


def _kept(a: Side, name: str, make: Any) -> Any:
    """What is kept with a layer for its masking, so that its LSE is not computed again for every picture."""
    slot = (a.engine, name)
    found = a.layer.kept.get(slot)
    if found is None or found[0] is not a.masking:
        found = a.layer.kept[slot] = (a.masking, make())
    return found[1]


def _copy(layer: Layer, key: Any = None) -> Layer:
    """The layer with other keys, or as it is under another masking: what is kept with it does not apply."""
    return Layer(layer.query, layer.key if key is None else key, layer.value)


async def _through_cache(engine: Engine, key: Any, dtype: str) -> Any:
    """Keys as a cache of ``dtype`` holds them, float32."""
    if isinstance(engine, GPUEngine) and dtype.startswith("turboquant"):
        tensor = engine.device.tensor(key) if isinstance(key, np.ndarray) else key
        return pa.turboquant.dequantize(pa.turboquant.quantize(tensor, int(dtype[-1])))
    return rounded(key if isinstance(key, np.ndarray) else await key.numpy(), dtype)


async def _with_text(viewer: Viewer, a: Side, layer: int, text: str) -> Pair:
    assert viewer.source is not None
    if viewer.source.kind not in ("sample", "text"):
        raise ValueError("another sentence can be compared where a sentence is shown, not with this input")
    if not text.strip():
        raise ValueError("write a sentence to compare with")
    if viewer.model is None:
        raise ValueError("load MiniLM first, in the input at the top: it reads the other sentence")
    source = await _second(viewer, text)
    b = Side(a.engine, source.layers[layer], source.masking, a.head, list(source.tokens))
    if a.length == b.length:
        return Pair(a, b, "Both sentences have equally many tokens, so each weight has one to be subtracted.")
    why_not = (
        f"The sentences have {a.length} and {b.length} tokens, so their weights stand for different places "
        "and cannot be subtracted."
    )
    return Pair(a, b, why_not=why_not)


async def _second(viewer: Viewer, text: str) -> Source:
    """Another sentence through the viewer's model, with the visitor's functions; the last one is kept."""
    from py_attn.viewer.panels.input import text_source

    key = (text, viewer.edit_text, viewer.model)
    if viewer.second is None or viewer.second[0] != key:
        source = await text_source(viewer, text)
        engine = viewer.engine
        engine.check(source.heads, source.length, source.head_dim)
        viewer.second = (key, viewer.edited(source, viewer.edit_text))
    return viewer.second[1]


async def pictures(
    both: Pair,
    parts: tuple[tuple[slice, slice], tuple[slice, slice]],
    size: tuple[int, int],
    style: Style,
    *,
    maximum: float,
    span: float,
) -> dict[str, Any]:
    """Parts of both maps, and of their difference; see :func:`py_attn.viewer.panels.compare.compare`."""
    (rows, columns), other = parts
    step = _row_step(rows, columns)
    a = await both.a.weights(slice(rows.start, rows.stop, step), columns)
    other_step = _row_step(*other)
    b = await both.b.weights(slice(other[0].start, other[0].stop, other_step), other[1])

    def picture(values: Array, part: tuple[slice, slice], step: int, signed: bool = False) -> dict[str, Any]:
        height, width = (max(1, min(given, n)) for given, n in zip(size, values.shape, strict=True))
        exact = (height, width) == values.shape and step == 1
        mode = "furthest" if signed and style.pool == "max" else style.pool
        cells = values if exact else pool(values[None], (height, width), mode)[0]
        painted = (
            paint_signed(cells / np.float32(span), style.colormap, style.scale)
            if signed
            else paint(cells, style.colormap, style.scale, maximum)
        )
        return {
            "rgba": painted.reshape(-1),
            "height": height,
            "width": width,
            "rows": [part[0].start, part[0].stop],
            "columns": [part[1].start, part[1].stop],
            "exact": exact,
            "step": step,
        }

    return {
        "a": picture(a, parts[0], step),
        "b": picture(b, other, other_step),
        "difference": None if both.why_not else picture(a - b, parts[0], step, signed=True),
    }


async def figures(both: Pair) -> dict[str, Any]:
    """Figures over the whole maps; see :func:`py_attn.viewer.panels.compare.compare_figures`."""
    (a, step), (b, other_step) = [await _whole(side) for side in (both.a, both.b)]
    answer: dict[str, Any] = {
        "tokens": both.b.tokens,
        "note": both.note,
        "whyNot": both.why_not,
        "step": max(step, other_step),
        "maximum": float(max(np.nanmax(a), np.nanmax(b))),
    }
    if both.why_not:
        return answer
    found = diverge(a, b)
    row, key = found.pop("row"), found.pop("key")
    values = {"a": a[row, key], "b": b[row, key], "difference": a[row, key] - b[row, key]}
    largest = {name: float(value) for name, value in values.items()}
    return {**answer, **found, "largest": {"query": row * step, "key": key, **largest}}


async def _whole(side: Side) -> tuple[Array, int]:
    """A map, or every n-th row of it, and n."""
    everything = slice(0, side.length)
    step = _row_step(everything, everything)
    return await side.weights(slice(0, side.length, step), everything), step


def _row_step(rows: slice, columns: slice) -> int:
    """1; or n, to look only at every n-th row of so many weights."""
    weights: int = (rows.stop - rows.start) * (columns.stop - columns.start)
    return max(1, -(-weights // MAX_WEIGHTS))
