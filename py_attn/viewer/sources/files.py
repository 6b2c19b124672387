"""Files: ``.npz`` with queries and keys, or with weights, of one layer or many."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from py_attn.viewer.sources.arrays import query_source, weights_source
from py_attn.viewer.sources.source import Array, Source

#: Optional arrays beside queries and keys: keyword arguments of :func:`py_attn.attention`.
_OPTIONS = ("causal", "window", "softcap", "scale", "mask")


def read_source(data: bytes) -> Source:
    """The source that a file holds.

    Parameters
    ----------
    data
        The bytes of an ``.npz`` file with either

        - ``query`` and ``key`` [S, D] up to [layers, B, H, S, D], and optionally ``value``, ``causal``,
          ``window``, ``softcap``, ``scale`` and ``mask``, as :func:`py_attn.attention` takes them;
        - ``weights`` [S, S] up to [layers, B, H, S, S]; or
        - ``qkv`` [layers, 3, H, S, D], as :mod:`py_attn.models.sample` writes it;

        and optionally with ``tokens`` [S] and ``title`` (or ``text``). Of a batch the first element is shown.

    Raises
    ------
    TypeError, ValueError
        When the file is broken or an array is not as expected; the message names the array.
    """
    arrays = _read(data)
    title = str(arrays.get("title", arrays.get("text", "")))
    common: dict[str, Any] = {"tokens": _texts(arrays.get("tokens")), "title": title, "batch": 0}
    if "weights" in arrays:
        return weights_source(arrays["weights"], **common)
    if "qkv" in arrays:
        arrays |= _split(arrays["qkv"])
    missing = [name for name in ("query", "key") if name not in arrays]
    if missing:
        raise ValueError(
            f"file: array {missing[0]!r} is missing; expected query and key, or weights, or qkv, "
            f"and the file has {sorted(arrays)}"
        )
    options = {name: _plain(arrays.get(name)) for name in _OPTIONS}
    return query_source(
        arrays["query"],
        arrays["key"],
        arrays.get("value"),
        **{**options, "causal": options["causal"] or False},
        **common,
    )


def _read(data: bytes) -> dict[str, Array]:
    if not data.startswith(b"PK"):
        raise ValueError(f"file: expected an .npz file, got {len(data):,} bytes that begin with {data[:8]!r}")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return {name: np.asarray(file[name]) for name in file.files}
    # For broken files zipfile, zlib and numpy raise a dozen unrelated types, and document none of them.
    except Exception as error:
        raise ValueError(f"file: not a readable .npz file ({type(error).__name__}: {error})") from None


def _split(qkv: Array) -> dict[str, Array]:
    if qkv.ndim != 5 or qkv.shape[1] != 3:
        raise ValueError(f"qkv: expected [layers, 3, H, S, D], got {list(qkv.shape)}")
    return {name: qkv[:, index, None] for index, name in enumerate(("query", "key", "value"))}


def _texts(tokens: Array | None) -> list[str] | None:
    if tokens is None:
        return None
    if tokens.ndim != 1 or tokens.dtype.kind not in "US":
        raise ValueError(f"tokens: expected texts [S], got {tokens.dtype} {list(tokens.shape)}")
    texts = np.char.decode(tokens, "utf-8", "replace") if tokens.dtype.kind == "S" else tokens
    return [str(text) for text in texts]


def _plain(value: Array | None) -> Any:
    """Numbers as numbers; masks stay arrays."""
    if value is None or value.ndim > 1:
        return value
    return value.tolist()
