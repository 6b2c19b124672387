"""What was captured of a Hugging Face model (:mod:`py_attn.transformers`) as a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from py_attn.transformers.recording import Stack, StackLayer
from py_attn.viewer.sources.arrays import (
    batch_index,
    batch_note,
    check_finite,
    check_heads,
    check_length,
    token_list,
)
from py_attn.viewer.sources.source import Array, Layer, Masking, Source

#: A map of cross-attention needs a mask with the square of all its positions.
MAX_CROSS_LENGTH = 8_192


class CapturedLayer(Layer):
    """A layer in half precision; numpy gets it in float32."""

    async def host(self) -> tuple[Array, Array, Array]:
        """Query, key and value as float32 arrays."""
        query, key, value = (np.asarray(x, np.float32) for x in (self.query, self.key, self.value))
        return query, key, value


def captured_source(stack: Stack, *, tokens: Sequence[str] | None, title: str, batch: int) -> Source:
    """A source of captured layers.

    Cross-attention is shown as a map of both sequences one after the other, keys first: its queries are the
    rows below, its keys the columns at the left, and the rest is empty.

    Parameters
    ----------
    stack : Stack
    tokens : sequence of str, optional
        For cross-attention those of the keys, then those of the queries.
    title : str
    batch : int

    Raises
    ------
    TypeError, ValueError
        Naming the argument, what was given and what was expected.
    """
    size, heads, queries, dim = stack.layers[0].query.shape
    keys = stack.layers[0].key.shape[2]
    length = queries + keys if stack.cross else queries
    check_length("captured", length)
    check_heads("captured", heads)
    if stack.cross and length > MAX_CROSS_LENGTH:
        raise ValueError(
            f"captured: expected at most {MAX_CROSS_LENGTH:,} keys and queries of cross-attention together, "
            f"got {length:,}"
        )
    batch = batch_index(batch, size)
    texts = token_list(tokens, length)
    masks: dict[tuple[Any, ...], Array] = {}
    layers = [_layer(each, stack.cross, batch, masks) for each in stack.layers]
    maskings = [layer.masking for layer in layers]
    common = Masking(causal=all(m is not None and m.causal for m in maskings), by_layer=True)
    notes = [batch_note(batch, size)]
    if stack.cross:
        notes.append(f"The first {keys:,} positions are the keys, the other {queries:,} the queries.")
    title = title or f"{stack.name}, {heads} heads, {length:,} × {length:,}, head dim {dim}"
    return Source("tensors", title, texts, layers, common, " ".join(filter(None, notes)))


def _layer(layer: StackLayer, cross: bool, batch: int, masks: dict[tuple[Any, ...], Array]) -> Layer:
    one = slice(batch, batch + 1)
    query, key = layer.query[one], layer.key[one]
    value = key if layer.value is None else layer.value[one]
    for name, array in (("query", query), ("key", key)):
        check_finite(f"{name} of {layer.name}", array)
    causal, window, bias = layer.rules(batch)
    if cross:
        bias = _beside(bias, causal, window, query.shape[2], key.shape[2])
        causal, window = False, None
        pad = ((0, 0), (0, 0), (0, query.shape[2]), (0, 0))
        query = np.pad(query, ((0, 0), (0, 0), (key.shape[2], 0), (0, 0)))
        key, value = np.pad(key, pad), np.pad(value, pad)
    if bias is not None:
        # Layers that share a mask share its array.
        bias = masks.setdefault((bias.shape, bias.dtype.str, hash(bias.tobytes())), bias)
    masking = Masking(
        causal=causal, window=window, softcap=layer.softcap, bias=bias, sinks=layer.sinks, by_layer=True
    )
    return CapturedLayer(query, key, value, masking=masking)


def _beside(bias: Array | None, causal: bool, window: Any, queries: int, keys: int) -> Array:
    """The mask of queries against keys in the map of all positions."""
    if bias is None:
        bias = np.ones((1, 1, 1, keys), np.bool_)
    hidden = np.bool_(False) if bias.dtype == np.bool_ else np.float32(-np.inf)
    whole = np.full((1, bias.shape[1], keys + queries, keys + queries), hidden)
    whole[:, :, keys:, :keys] = bias
    rules = Masking(causal=causal, window=window).rows(np.arange(queries), keys)
    if rules is not None:
        whole[:, :, keys:, :keys] = np.where(np.isneginf(rules), hidden, whole[:, :, keys:, :keys])
    return whole
