"""Arrays from numpy, PyTorch or JAX as a source: checked, and split into layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from py_attn.gpu.tensor import Tensor
from py_attn.viewer.sources.formats import shorten
from py_attn.viewer.sources.given import GivenLayer, GivenSource
from py_attn.viewer.sources.source import Array, Layer, Masking, Source

#: The longest sequence that is shown: a map of it has 2^30 cells.
MAX_LENGTH = 32_768
MAX_LAYERS = 256
#: Heads of a layer: each is a map of its own on the page.
MAX_HEADS = 512
#: Why a map with fewer queries than keys is refused.
SQUARE = "maps are square here, as queries and keys are of the same tokens"
#: How far a row's sum may be from 1: float16 loses as much.
_SUM_TOLERANCE = 0.01


def to_numpy(name: str, value: Any) -> Array:
    """An array from numpy, from anything with ``__array__`` or DLPack (PyTorch, JAX), or from lists.

    Raises
    ------
    TypeError
        When it is none of these, or holds no real numbers.
    """
    if isinstance(value, Tensor):
        raise TypeError(f"{name}: expected an array, got a Tensor on the GPU; pass `await tensor.numpy()`")
    if value is None:
        raise TypeError(f"{name}: expected an array, got None")
    try:
        array = _convert(value)
    except Exception as error:
        raise TypeError(f"{name}: expected an array, got {type(value).__name__} ({error})") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected real numbers, got {array.dtype} in {type(value).__name__}")
    return array


def _convert(value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    # PyTorch: numpy takes neither tensors with gradients, nor tensors on a GPU, nor bfloat16.
    for step in ("detach", "cpu"):
        if callable(getattr(value, step, None)):
            value = getattr(value, step)()
    if "bfloat16" in str(getattr(value, "dtype", "")):
        value = value.float() if callable(getattr(value, "float", None)) else value.astype("float32")
    if hasattr(value, "__array__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def check_finite(name: str, array: Array) -> None:
    # A sum is finite only if all its terms are, and a float64 sum of float32 numbers cannot overflow.
    with np.errstate(invalid="ignore", over="ignore"):
        if np.isfinite(array.sum(dtype=np.float64)):
            return
    bad = ~np.isfinite(array)
    if bad.any():
        first = [int(i) for i in np.argwhere(bad)[0]]
        what = "NaN" if np.isnan(array[tuple(first)]) else "an infinity"
        raise ValueError(f"{name}: expected finite numbers, got {what} at {first} ({bad.sum():,} such)")


def _five_axes(name: str, array: Array) -> Array:
    """An array [S, D] up to [layers, B, H, S, D] with all five axes."""
    if not 2 <= array.ndim <= 5:
        raise ValueError(
            f"{name}: expected 2 to 5 dimensions ([S, D] up to [layers, B, H, S, D]), got {list(array.shape)}"
        )
    result: Array = array.reshape((1,) * (5 - array.ndim) + array.shape)
    return result


def check_length(name: str, length: int) -> None:
    if not 1 <= length <= MAX_LENGTH:
        raise ValueError(f"{name}: expected 1 to {MAX_LENGTH:,} tokens, got {length:,}")


def check_heads(name: str, heads: int) -> None:
    if heads > MAX_HEADS:
        raise ValueError(f"{name}: expected at most {MAX_HEADS} heads, got {heads:,}")


def token_list(tokens: Sequence[str] | None, length: int) -> list[str]:
    """The tokens as text; their numbers where none are given.

    Raises
    ------
    TypeError, ValueError
        When there are more or fewer than positions.
    """
    if tokens is None:
        return [str(i) for i in range(length)]
    if isinstance(tokens, str):
        raise TypeError(
            f"tokens: expected a list of {length:,} strings, got one; text.split() makes a list of its words"
        )
    texts = [str(token) for token in tokens]
    check_length("tokens", len(texts))
    if len(texts) != length:
        raise ValueError(f"tokens: expected {length:,}, one per position, got {len(texts):,}")
    return texts


def batch_index(batch: int, size: int) -> int:
    if not isinstance(batch, int | np.integer) or not 0 <= batch < size:
        raise ValueError(f"batch: expected 0 to {size - 1}, got {batch!r}")
    return int(batch)


def batch_note(batch: int, size: int) -> str:
    return f"Element {batch} of a batch of {size}." if size > 1 else ""


def query_source(
    query: Any,
    key: Any,
    value: Any,
    *,
    tokens: Sequence[str] | None,
    title: str,
    batch: int,
    causal: bool,
    window: Any,
    softcap: float | None,
    scale: float | None,
    mask: Any,
) -> Source:
    """A source of queries, keys and values, [S, D] up to [layers, B, H, S, D].

    Raises
    ------
    TypeError, ValueError
        Naming the argument, what was given and what was expected.
    """
    query = _five_axes("query", to_numpy("query", query))
    key = _five_axes("key", to_numpy("key", key))
    # Maps do not depend on the values.
    value = key if value is None else _five_axes("value", to_numpy("value", value))
    _check_shapes(query, key, value)
    layers, size, heads, length, dim = query.shape
    batch = batch_index(batch, size)
    texts = token_list(tokens, length)
    # The kernels' scale is 1/sqrt(D); a different one is multiplied into the queries.
    factor = None if scale is None else np.float32(_positive("scale", scale) * np.sqrt(dim))
    made = []
    for index in range(layers):
        parts = [np.ascontiguousarray(x[index, batch : batch + 1], np.float32) for x in (query, key, value)]
        for name, part in zip(("query", "key", "value"), parts, strict=True):
            check_finite(name, part)
        made.append(Layer(parts[0] if factor is None else parts[0] * factor, parts[1], parts[2]))
    masking = Masking(
        causal=_causal(causal),
        window=_window(window),
        softcap=None if not softcap else _positive("softcap", softcap),
        bias=None if mask is None else _bias(mask, batch, size, heads, length),
    )
    if not title:
        title = f"{heads} heads, {length:,} × {length:,}, head dim {dim}"
    return Source("tensors", title, texts, made, masking, batch_note(batch, size))


def _check_shapes(query: Array, key: Array, value: Array) -> None:
    layers, size, heads, length, dim = query.shape
    check_length("query", length)
    if min(query.shape) < 1 or layers > MAX_LAYERS:
        raise ValueError(
            f"query: expected 1 to {MAX_LAYERS} layers and no empty axis, got {list(query.shape)}"
        )
    check_heads("query", heads)
    kv_heads = key.shape[2]
    for name, given in (("key", key), ("value", value)):
        expected = (layers, size, kv_heads, length, dim if name == "key" else given.shape[4])
        if given.shape != expected or not given.size:
            why = f"; {SQUARE}" if given.shape[3] != length else ""
            raise ValueError(
                f"{name}: expected {list(expected)} ([layers, B, H, S, D]) for a query of "
                f"{list(query.shape)}, got {list(given.shape)}{why}"
            )
    if heads % kv_heads:
        raise ValueError(f"key: expected a number of heads that divides the query's {heads}, got {kv_heads}")


def _positive(name: str, given: Any) -> float:
    try:
        number = float(given)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected a number, got {shorten(repr(given))}") from None
    except OverflowError:
        number = np.inf
    if not 0 < number < np.inf:
        raise ValueError(f"{name}: expected a positive number, got {shorten(repr(given))}")
    return number


def _causal(given: Any) -> bool:
    if isinstance(given, bool | np.bool_):
        return bool(given)
    raise TypeError(f"causal: expected True or False, got {shorten(repr(given))}")


def _window(given: Any) -> tuple[int | None, int | None] | None:
    if given is None:
        return None
    sides = tuple(given) if isinstance(given, Sequence | np.ndarray) else (given, given)
    if len(sides) != 2 or not all(
        side is None or (isinstance(side, int | np.integer) and side >= 0) for side in sides
    ):
        raise ValueError(
            f"window: expected None, a number of keys or (left, right), got {shorten(repr(given))}"
        )
    left, right = sides
    return None if left is None else int(left), None if right is None else int(right)


def _bias(mask: Any, batch: int, size: int, heads: int, length: int) -> Array:
    array = to_numpy("mask", mask)
    full = (size, heads, length, length)
    try:
        np.broadcast_shapes(array.shape, full)
        fits = array.ndim <= 4
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"mask: expected a shape that broadcasts to [B, H, S, S] = {list(full)}, got {list(array.shape)}"
        )
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    array = array[batch : batch + 1] if array.shape[0] > 1 else array
    if array.dtype != np.bool_:
        array = array.astype(np.float32)
        if np.isnan(array).any():
            raise ValueError("mask: expected numbers or -inf, got NaN")
    if array.shape[-1] == 1:
        array = np.broadcast_to(array, (*array.shape[:-1], length))
    return np.ascontiguousarray(array)


def weights_source(given: Any, *, tokens: Sequence[str] | None, title: str, batch: int) -> Source:
    """A source of probabilities, [S, S] up to [layers, B, H, S, S], or one array per layer.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, what was given and what was expected.
    """
    arrays = _weight_layers(given)
    size, heads, length, _ = arrays[0].shape
    check_length("weights", length)
    if not heads or not 1 <= len(arrays) <= MAX_LAYERS:
        raise ValueError(
            f"weights: expected 1 to {MAX_LAYERS} layers and a head, got {len(arrays)} × {heads}"
        )
    check_heads("weights", heads)
    batch = batch_index(batch, size)
    texts = token_list(tokens, length)
    chosen = [array[batch] for array in arrays]
    for array in chosen:
        check_finite("weights", array)
    note = " ".join(filter(None, [batch_note(batch, size), _sums_note(chosen)]))
    title = title or f"given weights, {heads} heads, {length:,} × {length:,}"
    return GivenSource("weights", title, texts, [GivenLayer(array) for array in chosen], note=note)


def _weight_layers(given: Any) -> list[Array]:
    """An array [B, H, S, S] for each layer."""
    layers = given if isinstance(given, list | tuple) and np.ndim(given[0] if given else 0) > 2 else [given]
    if any(layer is None for layer in layers):
        raise TypeError(
            "weights: expected one array per layer, got None; in transformers, load the model with "
            'attn_implementation="eager" and call it with output_attentions=True'
        )
    arrays = [to_numpy("weights", layer) for layer in layers]
    if len(arrays) == 1:
        arrays = list(_five_weights(arrays[0]))
    else:
        arrays = [a.reshape((1,) * (4 - a.ndim) + a.shape) for a in arrays]
    first = arrays[0].shape
    for index, array in enumerate(arrays):
        if array.ndim != 4 or array.shape != first or array.shape[2] != array.shape[3]:
            why = f"; {SQUARE}" if array.shape[-1] != array.shape[-2] else ""
            raise ValueError(
                f"weights: expected layers of one shape [B, H, S, S], got {list(array.shape)} at {index}{why}"
            )
    return arrays


def _five_weights(array: Array) -> Array:
    if not 2 <= array.ndim <= 5 or array.shape[-1] != array.shape[-2]:
        raise ValueError(
            "weights: expected a square last pair of axes ([S, S] up to [layers, B, H, S, S]), got "
            f"{list(array.shape)}; {SQUARE}"
        )
    result: Array = array.reshape((1,) * (5 - array.ndim) + array.shape)
    return result


def _sums_note(layers: list[Array]) -> str:
    """A note about rows that do not sum to 1. A row of zeros is valid: it may attend to nothing."""
    wrong = rows = 0
    low, high, outside = np.inf, -np.inf, False
    for array in layers:
        sums = array.sum(axis=-1, dtype=np.float64)
        odd = (np.abs(sums - 1) > _SUM_TOLERANCE) & (sums != 0)
        rows += sums.size
        if odd.any():
            wrong += int(odd.sum())
            low, high = min(low, sums[odd].min()), max(high, sums[odd].max())
        outside = outside or bool(array.min() < 0 or array.max() > 1 + _SUM_TOLERANCE)
    parts = []
    if wrong:
        parts.append(
            f"{wrong:,} of {rows:,} rows do not sum to 1 (their sums go from {low:.3g} to {high:.3g}); "
            "they are shown as they are."
        )
    if outside:
        parts.append("Weights below 0 or above 1 are shown with the colours of 0 and 1.")
    return " ".join(parts)
