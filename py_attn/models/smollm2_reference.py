"""SmolLM2's forward pass in plain numpy: the reference of the tests.

The model is a decoder of the llama architecture (Touvron et al. 2023, https://arxiv.org/abs/2302.13971) with
grouped-query attention (Ainslie et al. 2023, https://arxiv.org/abs/2305.13245) and tied embeddings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from py_attn import nn_reference, reference, turboquant_reference
from py_attn.gpu.bridge import File
from py_attn.gpu.dtypes import round_to
from py_attn.models.gguf import GGUF, TENSOR_TYPES
from py_attn.models.llama_weights import Config, read_config
from py_attn.rope import rope_table

Array: TypeAlias = npt.NDArray[Any]
Weights: TypeAlias = dict[str, Array]

#: The types of tensors that are not in blocks, and all that are read.
_PLAIN = {"F32": "<f4", "F16": "<f2"}
_TYPES = (*_PLAIN, *nn_reference.BLOCK_BYTES)

#: Rows of logits that are computed at a time where only a few numbers of each are kept.
_ROWS = 128


def read_weights(file: File) -> tuple[Config, Weights]:
    """A GGUF file's sizes, and all of its tensors as float32 (540 MB for SmolLM2-135M).

    Raises
    ------
    ValueError
        The file is broken, or no model of this architecture.
    """
    gguf = GGUF(file)
    return read_config(gguf), {
        name: dequantize(info.type, info.shape, file.read(info.start, info.stop))
        for name, info in gguf.tensors.items()
    }


def dequantize(type: str, shape: tuple[int, ...], data: bytes) -> Array:
    """A tensor's numbers as float32.

    Parameters
    ----------
    type : {"F32", "F16", "Q4_1", "Q8_0"}
        The blocks of the last two are described at :func:`py_attn.nn_reference.dequantize`.
    shape : tuple[int, ...]
        Rows first.
    data : bytes
        As in the file.

    Returns
    -------
    ndarray of float32, of this shape

    Raises
    ------
    ValueError
        The type is another, or the shape does not go with it or with the length of the data.
    """
    if type not in _TYPES:
        raise ValueError(f"dequantize: expected a tensor of type {', '.join(_TYPES)}, got {type}")
    block, size = next((block, size) for name, block, size in TENSOR_TYPES.values() if name == type)
    count = math.prod(shape)
    if count % block or len(data) != count // block * size:
        raise ValueError(
            f"dequantize: got {len(data)} bytes for shape {list(shape)}, expected blocks of {size} bytes for"
            f" {block} elements of {type}"
        )
    if plain := _PLAIN.get(type):
        return np.frombuffer(data, plain).astype(np.float32).reshape(shape)
    blocks = np.frombuffer(data, np.uint8)
    return nn_reference.dequantize(blocks, count // block, block, type, np.float32).reshape(shape)


class Layer(NamedTuple):
    """What one layer computed; T tokens, D head dim.

    Attributes
    ----------
    query
        [heads, T, D], rotated.
    key, value
        [kv_heads, T, D], as the cache holds them; keys are rotated.
    weights
        [heads, T, T]: attention weights, those of heads that are switched off too.
    """

    query: Array
    key: Array
    value: Array
    weights: Array


class Forward(NamedTuple):
    """A text's last hidden states and, where they were asked for, its layers.

    Attributes
    ----------
    hidden
        [T, width], before the final norm.
    layers : list[Layer]
        First layer first; empty unless asked for.
    """

    hidden: Array
    layers: list[Layer]


class Options(TypedDict, total=False):
    """The keyword arguments of :class:`Text`."""

    dtype: npt.DTypeLike
    heads_off: Iterable[tuple[int, int]]
    cache: str
    capacity: int | None
    kept: int


class Text:
    """A text that grows, and the keys and values of its tokens.

    Parameters
    ----------
    config : Config
    weights : dict[str, numpy.ndarray]
        The file's tensors by their names, dequantised.
    dtype
        The precision of every step. Angles are computed in float64, their cosines and sines rounded to it.
    heads_off : iterable of (layer, head)
        Heads whose output is zero.
    cache : str
        How keys and values are stored, and so what every token attends to, itself included: "float16",
        "bfloat16", "turboquant4" … "turboquant1", or "float32", which here keeps them in ``dtype``.
    capacity : int, optional
        Entries of the cache, of which the first ``kept`` stay and the others are a ring: a token sees the
        first ``kept`` tokens and the newest ``capacity - kept``, itself among them. All tokens if not given.
    kept : int

    Attributes
    ----------
    length : int
        Tokens so far.
    """

    def __init__(
        self,
        config: Config,
        weights: Weights,
        *,
        dtype: npt.DTypeLike = np.float64,
        heads_off: Iterable[tuple[int, int]] = (),
        cache: str = "float32",
        capacity: int | None = None,
        kept: int = 0,
    ) -> None:
        self.config, self.weights, self.dtype = config, weights, np.dtype(dtype)
        self.cache, self.capacity, self.kept = cache, capacity, kept
        self.length = 0
        self.head_scale = np.ones((config.layers, config.heads), self.dtype)
        for layer, head in heads_off:
            self.head_scale[layer, head] = 0
        empty = np.zeros((1, config.kv_heads, 0, config.head_dim), self.dtype)
        self.keys, self.values = [empty] * config.layers, [empty] * config.layers

    def extend(self, ids: Sequence[int], *, layers: bool = False) -> Forward:
        """Process the next tokens; T counts these in the result, and the whole text in keys and weights."""
        x = self.weights["token_embd.weight"][np.asarray(ids)].astype(self.dtype)
        positions = np.arange(self.length, self.length + len(x))
        self.length += len(x)
        seen = visible(positions, self.length, self.capacity, self.kept)
        found = []
        for number in range(self.config.layers):
            query, key, value = self._project(x, number, positions)
            self.keys[number] = key = np.concatenate([self.keys[number], stored(key, self.cache)], 2)
            self.values[number] = value = np.concatenate([self.values[number], stored(value, self.cache)], 2)
            out = reference.attention(query, key, value, mask=seen, compute_dtype=self.dtype)[0]
            out = out * self.head_scale[number][:, None, None]
            x = x + self._linear(out.swapaxes(0, 1).reshape(len(x), -1), f"blk.{number}.attn_output")
            x = x + self._feed_forward(x, number)
            if layers:
                weights = reference.attention_weights(query, key, mask=seen, compute_dtype=self.dtype)
                found.append(Layer(query[0], key[0], value[0], weights[0]))
        return Forward(x, found)

    def _project(self, x: Array, number: int, positions: Array) -> tuple[Array, Array, Array]:
        """Queries and keys, rotated, and values: [1, heads, T, D] each."""
        normal = self._norm(x, f"blk.{number}.attn_norm")
        query, key, value = (
            self._linear(normal, f"blk.{number}.attn_{name}").reshape(len(x), -1, self.config.head_dim)
            for name in "qkv"
        )
        table = rope_table(positions, self.config.head_dim, self.config.rope_base)
        query, key = (nn_reference.rope(each, table, self.dtype) for each in (query, key))
        query, key, value = (each[None].swapaxes(1, 2) for each in (query, key, value))
        return query, key, value

    def _feed_forward(self, x: Array, number: int) -> Array:
        block = f"blk.{number}"
        normal = self._norm(x, f"{block}.ffn_norm")
        gate, up = (self._linear(normal, f"{block}.ffn_{name}") for name in ("gate", "up"))
        return self._linear(nn_reference.swiglu(gate, up, self.dtype), f"{block}.ffn_down")

    def _norm(self, x: Array, name: str) -> Array:
        return nn_reference.rms_norm(x, self._get(name), self.config.epsilon, self.dtype.type)

    def _linear(self, x: Array, name: str) -> Array:
        return nn_reference.linear(x, self._get(name), self.dtype)

    def _get(self, name: str) -> Array:
        return self.weights[f"{name}.weight"].astype(self.dtype, copy=False)


def forward(
    config: Config,
    weights: Weights,
    ids: Sequence[int],
    *,
    layers: bool = False,
    **options: Unpack[Options],
) -> Forward:
    """The hidden states of one text, and with ``layers`` what each layer computed.

    The other arguments are those of :class:`Text`.
    """
    return Text(config, weights, **options).extend(ids, layers=layers)


def logits(config: Config, weights: Weights, hidden: Array, dtype: npt.DTypeLike = np.float64) -> Array:
    """Logits [T, vocabulary] of the tokens that follow those whose hidden states [T, width] are given."""
    kind = np.dtype(dtype).type
    normal = nn_reference.rms_norm(hidden, weights["output_norm.weight"], config.epsilon, kind)
    return nn_reference.linear(normal, weights["token_embd.weight"], kind)


def greedy(
    config: Config,
    weights: Weights,
    ids: Sequence[int],
    count: int,
    *,
    end_tokens: Iterable[int] = (),
    **options: Unpack[Options],
) -> list[int]:
    """The likeliest token after ``ids``, the likeliest one after that, and so on.

    At most ``count`` tokens, of which one of ``end_tokens`` is the last. The other arguments are those of
    :class:`Text`.
    """
    dtype = options.get("dtype", np.float64)
    weights = {name: weight.astype(dtype, copy=False) for name, weight in weights.items()}
    text, last, given = Text(config, weights, **options), frozenset(end_tokens), list(ids)
    written: list[int] = []
    while len(written) < count and not (written and written[-1] in last):
        hidden = text.extend(given).hidden[-1:]
        given = [int(logits(config, weights, hidden, dtype)[0].argmax())]
        written += given
    return written


def log_probabilities(
    config: Config, weights: Weights, ids: Sequence[int], **options: Unpack[Options]
) -> Array:
    """[T - 1]: the natural log of the probability of each token but the first, given those before it.

    The text's perplexity is exp(-mean). The arguments are those of :func:`forward`.
    """
    dtype = options.get("dtype", np.float64)
    hidden = forward(config, weights, ids, **options).hidden[:-1]
    targets, parts = np.asarray(ids)[1:], []
    for begin in range(0, len(targets), _ROWS):
        rows = slice(begin, begin + _ROWS)
        parts.append(log_softmax(logits(config, weights, hidden[rows], dtype), targets[rows]))
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def log_softmax(x: Array, ids: Array) -> Array:
    """[T]: the log-probability of token ``ids[t]`` by the logits ``x`` [T, vocabulary]."""
    top = x.max(axis=-1)
    result: Array = x[np.arange(len(x)), ids] - top - np.log(np.exp(x - top[:, None]).sum(axis=-1))
    return result


def stored(x: Array, cache: str) -> Array:
    """Keys or values [..., D] as a cache of this dtype gives them back; unchanged for "float32"."""
    if cache == "float32":
        return x
    if cache.startswith("turboquant"):
        return turboquant_reference.roundtrip(x, int(cache.removeprefix("turboquant")), x.dtype)
    return round_to(x, cache).astype(x.dtype)


def visible(positions: Array, tokens: int, capacity: int | None = None, kept: int = 0) -> Array:
    """[T, tokens] bool: which tokens those at ``positions`` [T] see; ``capacity`` and ``kept`` as in Text."""
    key, distance = np.arange(tokens), positions[:, None] - np.arange(tokens)
    held: Array = np.ones_like(distance, bool) if capacity is None else distance < capacity - kept
    return (distance >= 0) & (held | (key < kept))
