"""MiniLM's forward pass in plain numpy: the reference of the tests, and the backend without WebGPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from py_attn import reference
from py_attn.models.minilm_weights import EPSILON, HEAD_DIM, Config, Weights
from py_attn.models.trace import LayerTrace

Array: TypeAlias = npt.NDArray[Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def forward(
    config: Config, weights: Weights, ids: Sequence[int], dtype: npt.DTypeLike = np.float64
) -> tuple[list[LayerTrace[Array]], Array]:
    """Every layer's attention and the sentence embedding of one text.

    The encoder is BERT's (Devlin et al. 2018, https://arxiv.org/abs/1810.04805), with layer norms after the
    residuals; the embedding is the mean of the last layer over all tokens, [CLS] and [SEP] too, divided by
    its L2 norm, as the published sentence-transformers pipeline has it.

    Parameters
    ----------
    config, weights
        From :func:`py_attn.models.minilm_weights.read`.
    ids
        T token ids, T <= config.positions.
    dtype
        The precision of every step.

    Returns
    -------
    layers : list[LayerTrace]
    embedding : numpy.ndarray
        [width].
    """

    def get(name: str) -> Array:
        return weights[name].astype(dtype, copy=False)

    def linear(x: Array, name: str) -> Array:
        return x @ get(f"{name}.weight").T + get(f"{name}.bias")

    def norm(x: Array, name: str) -> Array:
        return layer_norm(x, get(f"{name}.weight"), get(f"{name}.bias"))

    tokens = np.asarray(ids)
    x = (
        weights["embeddings.word_embeddings.weight"][tokens].astype(dtype)
        + get("embeddings.position_embeddings.weight")[: len(tokens)]
        + get("embeddings.token_type_embeddings.weight")[0]
    )
    x = norm(x, "embeddings.LayerNorm")
    layers = []
    for number in range(config.layers):
        layer = f"encoder.layer.{number}"
        query, key, value = (
            linear(x, f"{layer}.attention.self.{name}")
            .reshape(1, len(tokens), config.heads, HEAD_DIM)
            .transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        out, lse = reference.attention(query, key, value, return_lse=True, compute_dtype=dtype)
        layers.append(LayerTrace(query, key, value, out, lse))
        joined = out.transpose(0, 2, 1, 3).reshape(len(tokens), config.width)
        x = norm(x + linear(joined, f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm")
        inner = gelu(linear(x, f"{layer}.intermediate.dense"))
        x = norm(x + linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return layers, mean_pool(x)


def layer_norm(x: Array, weight: Array, bias: Array, epsilon: float = EPSILON) -> Array:
    """Layer norm along the last axis (Ba, Kiros & Hinton 2016, https://arxiv.org/abs/1607.06450)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    normal: Array = centred / np.sqrt(variance + x.dtype.type(epsilon))
    return normal * weight + bias


def gelu(x: Array) -> Array:
    """GELU by the error function (Hendrycks & Gimpel 2016, https://arxiv.org/abs/1606.08415)."""
    phi: Array = 0.5 * (1.0 + _erf(x / math.sqrt(2.0)))
    result: Array = x * phi.astype(x.dtype)
    return result


def mean_pool(x: Array) -> Array:
    """Mean of the rows of ``x`` [T, width], divided by its L2 norm."""
    mean: Array = x.mean(axis=0)
    unit: Array = mean / np.linalg.norm(mean)
    return unit
