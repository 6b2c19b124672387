"""A trace in a small file: one sentence's query, key and value of every layer, shown before any download.

The file is an ``.npz`` made by ``scripts/make_sample.py``. Query, key and value are float16; output and LSE
are computed from them when it is read.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from py_attn import reference
from py_attn.models.trace import LayerTrace, Trace

if TYPE_CHECKING:
    from py_attn.models.safetensors import BytesLike

Array: TypeAlias = npt.NDArray[np.float32]


#: The arrays of a file and numpy's kind letter of each.
_KINDS = {"qkv": "f", "embedding": "f", "ids": "i", "tokens": "U", "text": "U", "model": "U", "licence": "U"}


@dataclass(frozen=True)
class Sample(Trace[Array]):
    """A :class:`Trace` of numpy arrays that says where it is from.

    Attributes
    ----------
    model, licence : str
        The model whose weights it was computed with, and under what licence they are published.
    """

    model: str
    licence: str


def save_sample(trace: Trace[npt.NDArray[Any]], model: str, licence: str) -> bytes:
    """The bytes of a sample file; float16 rounds the values to 11 significant bits."""
    qkv = np.stack([np.stack([layer.query[0], layer.key[0], layer.value[0]]) for layer in trace.layers])
    file = io.BytesIO()
    np.savez_compressed(
        file,
        qkv=qkv.astype(np.float16),
        embedding=trace.embedding.astype(np.float32),
        ids=np.array(trace.ids, np.int32),
        tokens=np.array(trace.tokens),
        text=np.array(trace.text),
        model=np.array(model),
        licence=np.array(licence),
    )
    return file.getvalue()


def load_sample(data: BytesLike) -> Sample:
    """Read a sample file.

    Parameters
    ----------
    data
        The bytes of the file.

    Returns
    -------
    Sample
        The shape of a model's trace, with float32 numpy arrays.

    Raises
    ------
    ValueError
        The file is broken or holds something else; the message says what.
    """
    source = io.BytesIO(data)
    try:
        with np.load(source, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files}
    # For broken files zipfile, zlib and numpy raise a dozen unrelated types, and document none of them.
    except Exception as error:
        raise ValueError(f"sample: not a readable .npz file ({type(error).__name__}: {error})") from None
    for name, kind in _KINDS.items():
        if name not in arrays:
            raise ValueError(f"sample: array {name!r} is missing, the file has {sorted(arrays)}")
        if arrays[name].dtype.kind != kind:
            raise ValueError(
                f"sample: array {name!r} has dtype {arrays[name].dtype}, expected numpy's kind {kind!r}"
            )
    qkv, ids, tokens = arrays["qkv"], arrays["ids"], arrays["tokens"]
    if qkv.ndim != 5 or qkv.shape[1] != 3 or 0 in qkv.shape:
        raise ValueError(
            f"sample: array 'qkv' has shape {list(qkv.shape)}, expected [layers, 3, heads, T, D]"
        )
    for name, array in {"ids": ids, "tokens": tokens}.items():
        if array.shape != qkv.shape[3:4]:
            raise ValueError(
                f"sample: array {name!r} has shape {list(array.shape)}, expected [{qkv.shape[3]}] like 'qkv'"
            )
    return Sample(
        text=str(arrays["text"]),
        tokens=tokens.tolist(),
        ids=ids.tolist(),
        truncated=False,
        layers=[_layer(layer) for layer in qkv.astype(np.float32)],
        embedding=arrays["embedding"].astype(np.float32),
        model=str(arrays["model"]),
        licence=str(arrays["licence"]),
    )


def _layer(qkv: Array) -> LayerTrace[Array]:
    """A layer's trace from its query, key and value [3, H, T, D]."""
    query, key, value = cast("tuple[Array, Array, Array]", tuple(part[None] for part in qkv))
    out, lse = reference.attention(query, key, value, return_lse=True, compute_dtype=np.float32)
    return LayerTrace(query, key, value, out, lse)
