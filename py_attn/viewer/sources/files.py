"""Files to look at: queries and keys, or attention weights, of one layer or many, found by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from py_attn.models.safetensors import BytesLike
from py_attn.viewer.sources.arrays import SQUARE, query_source, to_numpy, weights_source
from py_attn.viewer.sources.formats import read_contents, shorten
from py_attn.viewer.sources.layouts import ROLES, arranged, layouts_of, likely_layout
from py_attn.viewer.sources.named import NamedArrays, named_arrays
from py_attn.viewer.sources.source import Array, Source


@dataclass(frozen=True)
class FileContents:
    """A file as it was understood.

    Attributes
    ----------
    source : Source
    kind : str
        "npz", "npy", "safetensors" or "json".
    found : list of str
        What is shown, as "query: float16 [12, 1, 12, 20, 64]".
    layout : str
        The order in which the axes were read, such as "BHSD".
    layouts : list of str
        The orders in which they can be read.
    has_tokens : bool
    """

    source: Source
    kind: str
    found: list[str]
    layout: str
    layouts: list[str]
    has_tokens: bool


def read_source(data: BytesLike, name: str = "") -> Source:
    """The source that a file holds; see :func:`read_file`."""
    return read_file(data, name).source


def read_file(
    data: BytesLike, name: str = "", *, layout: str | None = None, tokens: Sequence[str] | None = None
) -> FileContents:
    """Read an ``.npz``, ``.npy``, ``.safetensors`` or JSON file, whatever its name.

    Parameters
    ----------
    data
        The bytes of a file with either

        - ``query`` and ``key`` [S, D] up to [layers, B, H, S, D], and optionally ``value``;
        - ``attentions`` (probabilities) [S, S] up to [layers, B, H, S, S]; or
        - ``qkv`` [layers, 3, H, S, D], as :mod:`py_attn.models.sample` writes it;

        and optionally with ``causal``, ``window``, ``softcap``, ``scale`` and ``mask`` as
        :func:`py_attn.attention` takes them, an ``attention_mask`` [B, S] of zeros and ones, ``tokens`` [S],
        ``title`` and ``layout``. Other names are in :mod:`py_attn.viewer.sources.named`; the only array of a
        file needs none, if it is square. Where each layer has an array of its own, the names are numbered. Of
        a batch the first element is shown.
    name
        The file's name: its title where it has none itself.
    layout
        The order of the axes, such as "BSHD", instead of the file's own or of the most likely one.
    tokens
        One per position, instead of the file's own.

    Raises
    ------
    TypeError, ValueError
        When the file is broken or an array is not as expected; the message names the array, and lists what
        the file holds where names are missing or stand for two things.
    """
    contents = read_contents(data, name)
    file = named_arrays(contents)
    given = list(tokens) if tokens is not None else file.tokens()
    common: dict[str, Any] = {"tokens": given, "title": _title(file, name), "batch": 0}
    # Weights are shown as they are. Where a file has queries and keys too, these are left alone.
    if "weights" in file.arrays:
        used = ["weights"]
        file.check(used)
        chosen = _layout(file, used, layout, given)
        source = weights_source(_weights(file, chosen), **common)
    else:
        used, arrays, chosen = _queries(file, layout, given)
        causal = file.option("causal")
        source = query_source(
            *(arrays.get(role) for role in ("query", "key", "value")),
            causal=False if causal is None else causal,
            window=file.option("window"),
            softcap=file.option("softcap"),
            scale=file.option("scale"),
            mask=_mask(file),
            **common,
        )
    found = [line for role in used for line in file.lines(role)]
    source.note = " ".join(filter(None, [source.note, *_notes(file, used, chosen)]))
    possible = layouts_of(file.axes(used[0]), used[0], file.numbered) if chosen else []
    return FileContents(source, contents.kind, found, chosen, possible, given is not None)


def _title(file: NamedArrays, name: str) -> str:
    title = file.option("title")
    return name if title is None or isinstance(title, list | dict) else str(title)


def _layout(file: NamedArrays, roles: list[str], asked: str | None, tokens: Sequence[str] | None) -> str:
    """The order of the axes: the visitor's, the file's, or the most likely one."""
    role = roles[0]
    given = asked or file.option("layout")
    possible = layouts_of(file.axes(role), role, file.numbered)
    if given is None:
        shapes = [file.shape(each) for each in roles]
        return likely_layout(possible, shapes, None if tokens is None else len(tokens))
    chosen = str(given).upper()
    if chosen not in possible:
        raise ValueError(
            f"layout: expected one of {', '.join(possible)} for {file.lines(role)[0]}, "
            f"got {shorten(str(given))!r}"
        )
    return chosen


def _queries(
    file: NamedArrays, layout: str | None, tokens: Sequence[str] | None
) -> tuple[list[str], dict[str, Array], str]:
    """The roles that are used, their arrays [L, B, H, S, D], and the order in which the axes were read."""
    if "qkv" in file.arrays:
        file.check(["qkv"])
        (qkv,) = file.load("qkv") if not file.numbered else (np.stack(file.load("qkv")),)
        return ["qkv"], _split(qkv), ""
    roles = [role for role in ROLES if role in file.arrays]
    file.check(roles)
    axes = {role: file.axes(role) for role in roles}
    if len(set(axes.values())) > 1:
        shapes = "; ".join(file.lines(role)[0] for role in roles)
        raise ValueError(f"key: expected arrays with the same number of axes, got {shapes}")
    chosen = _layout(file, roles, layout, tokens)
    return roles, {role: _stacked([arranged(x, chosen) for x in file.load(role)]) for role in roles}, chosen


def _weights(file: NamedArrays, layout: str) -> list[Array]:
    """An array [B, H, S, S] for each layer."""
    shape, line = file.shape("weights"), file.lines("weights")[0]
    if shape[-1] != shape[-2]:
        raise ValueError(f"weights: expected a square last pair of axes, got {line}; {SQUARE}")
    layers = [layer for each in file.load("weights") for layer in arranged(each, layout)]
    if not layers:
        raise ValueError(f"weights: expected at least one layer, got {line}")
    return layers


def _stacked(layers: list[Array]) -> Array:
    return layers[0] if len(layers) == 1 else np.concatenate(layers)


def _split(qkv: Array) -> dict[str, Array]:
    if qkv.ndim != 5 or qkv.shape[1] != 3:
        raise ValueError(f"qkv: expected [layers, 3, H, S, D], got {list(qkv.shape)}")
    return {name: qkv[:, index, None] for index, name in enumerate(ROLES)}


def _mask(file: NamedArrays) -> Any:
    mask, valid = file.option("mask"), file.option("attention_mask")
    if valid is None:
        return mask if mask is None else to_numpy("mask", mask)
    if mask is not None:
        raise ValueError("mask: expected either mask or attention_mask, got both")
    array = to_numpy("attention_mask", valid)
    if array.ndim > 2:
        return array
    if not array.ndim or not np.isin(array, (0, 1)).all():
        raise ValueError("attention_mask: expected zeros and ones [B, S]")
    return array.astype(np.bool_).reshape(-1, 1, 1, array.shape[-1])


def _notes(file: NamedArrays, used: list[str], layout: str) -> list[str]:
    """What a visitor would not expect."""
    notes = []
    if file.ignored:
        notes.append(f"The file's {' and '.join(file.ignored)} are not used, as it has attention weights.")
    if file.numbered and file.layers != list(range(len(file.layers))):
        first, last = file.layers[0], file.layers[-1]
        notes.append(f"The file has layers {first} to {last}; they are counted from 0 here.")
    shape = file.shape(used[0])
    if layout[:1] == "B" and shape[0] > 1:
        notes.append(f"The first axis ({shape[0]}) was read as a batch.")
    return notes
