"""Operations other than attention that the kernel panel runs on a layer, and their exact results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import py_attn as pa
from py_attn import reference
from py_attn.gpu.tensor import Tensor
from py_attn.viewer.sources.source import Array

#: Scores [H, n, n] that the reference computes quickly; of longer layers only the first n positions are used.
MAX_SCORES = 1_000_000
_CACHE_DTYPE = "turboquant4"

Arrays = tuple[Array, Array, Array]
Tensors = list[Tensor]
#: The results of an operation, computed by numpy in the given precision.
Exact = Callable[[npt.DTypeLike], tuple[Array, ...]]


class Operation(NamedTuple):
    """A call to time.

    Attributes
    ----------
    label, call : str
        The operation's name in a table, and the function that is called.
    about : str
    kernel : str
        The main kernel, whose shader is shown.
    prepare : callable
        Takes the uploaded query, key and value and returns what ``run`` takes; not timed.
    run : callable
        The call itself.
    exact : coroutine function
        Takes the arrays and the result of ``prepare`` and returns :data:`Exact`.
    """

    label: str
    call: str
    about: str
    kernel: str
    prepare: Callable[[pa.Device, Tensors], Any]
    run: Callable[[Any], tuple[Tensor, ...]]
    exact: Callable[[Arrays, Any], Any]

    def describe(self) -> dict[str, str]:
        """What a front end shows about it before it is run."""
        return {"label": self.label, "call": self.call, "about": self.about}


def first_positions(arrays: Arrays) -> Arrays:
    """The first positions, as many as the reference computes quickly."""
    heads, length = arrays[0].shape[1:3]
    count = max(1, min(length, int((MAX_SCORES / heads) ** 0.5)))
    query, key, value = (np.ascontiguousarray(x[:, :, :count]) for x in arrays)
    return query, key, value


def _as_given(_: pa.Device, tensors: Tensors) -> Tensors:
    return tensors


# Packed sequences


def _sequences(length: int) -> npt.NDArray[np.int32]:
    """Four sequences, each about twice as long as the one before."""
    return (length * np.array([0, 1, 3, 7, 15]) // 15).astype(np.int32)


def _pack(x: Any) -> Any:
    return x.transpose(0, 2, 1, 3)[0]


def _prepare_varlen(device: pa.Device, tensors: Tensors) -> tuple[Any, ...]:
    ends = device.tensor(_sequences(tensors[0].shape[2]))
    return (*(_pack(x) for x in tensors), ends, ends)


async def _exact_varlen(arrays: Arrays, _: Any) -> Exact:
    ends = _sequences(arrays[0].shape[2])
    query, key, value = (_pack(x) for x in arrays)
    return lambda dtype: (
        reference.varlen_attention(query, key, value, ends, ends, causal=True, compute_dtype=dtype),
    )


# Gradients


def _some_gradient(arrays: Any) -> Array:
    query, _, value = arrays
    shape = (*query.shape[:3], value.shape[3])
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _prepare_backward(device: pa.Device, tensors: Tensors) -> tuple[Any, ...]:
    out, lse = pa.attention(*tensors, causal=True, return_lse=True)
    return (device.tensor(_some_gradient(tensors)), *tensors, out, lse)


async def _exact_backward(arrays: Arrays, _: Any) -> Exact:
    grad = _some_gradient(arrays)

    def compute(dtype: npt.DTypeLike) -> tuple[Array, ...]:
        # In float32 from the results of the forward pass, as the kernels compute it.
        out, lse = reference.attention(*arrays, causal=True, return_lse=True, compute_dtype=dtype)
        given = {} if dtype == np.float64 else {"out": out, "lse": lse}
        return reference.attention_backward(grad, *arrays, causal=True, compute_dtype=dtype, **given)

    return compute


# Decoding


def _prepare_decode(dtype: str) -> Callable[[pa.Device, Tensors], tuple[Any, ...]]:
    def prepare(device: pa.Device, tensors: Tensors) -> tuple[Any, ...]:
        query, key, value = tensors
        cache = pa.KVCache(
            1, key.shape[1], key.shape[2], key.shape[3],
            value_head_dim=value.shape[3], dtype=dtype, device=device,
        )  # fmt: skip
        cache.append(key, value)
        return query[:, :, -1:], cache

    return prepare


async def _exact_decode(arrays: Arrays, prepared: Any) -> Exact:
    query, key, value = arrays
    _, cache = prepared
    if not cache.key_format:
        return lambda dtype: (reference.decode_attention(query[:, :, -1:], key, value, compute_dtype=dtype),)
    from py_attn import turboquant_reference  # a start does not need it

    # Computed from the codes in the cache, because quantisation is not an error of this kernel.
    codes = [
        turboquant_reference.unpack(await storage.numpy(), form.bits, form.dim)
        for storage, form in ((cache.keys, cache.key_format), (cache.values, cache.value_format))
    ]

    def compute(dtype: npt.DTypeLike) -> tuple[Array, ...]:
        held = [turboquant_reference.dequantize(each, dtype) for each in codes]
        rotated = [turboquant_reference.rotate(x, dtype) for x in (query[:, :, -1:], *held)]
        out = reference.decode_attention(*rotated, compute_dtype=dtype)
        return (turboquant_reference.rotate_back(out, dtype),)

    return compute


# score_mod and sinks


def _slopes(heads: int) -> Array:
    return (2.0 ** (-8 * np.arange(1, heads + 1) / heads)).astype(np.float32)


def _alibi(slopes: Any) -> Callable[..., Any]:
    return lambda score, b, h, q_idx, kv_idx: score - slopes[h] * pa.abs(q_idx - kv_idx)


def _prepare_alibi(device: pa.Device, tensors: Tensors) -> tuple[Any, ...]:
    return tensors, _alibi(device.tensor(_slopes(tensors[0].shape[1])))


async def _exact_alibi(arrays: Arrays, _: Any) -> Exact:
    mod = _alibi(_slopes(arrays[0].shape[1]))
    return lambda dtype: (reference.attention(*arrays, causal=True, score_mod=mod, compute_dtype=dtype),)


def _prepare_sinks(device: pa.Device, tensors: Tensors) -> tuple[Any, ...]:
    return tensors, device.tensor(_slopes(tensors[0].shape[1]))


async def _exact_sinks(arrays: Arrays, _: Any) -> Exact:
    sinks = _slopes(arrays[0].shape[1])
    return lambda dtype: (reference.attention(*arrays, causal=True, sinks=sinks, compute_dtype=dtype),)


async def _exact_causal(arrays: Arrays, _: Any) -> Exact:
    return lambda dtype: (reference.attention(*arrays, causal=True, compute_dtype=dtype),)


OPERATIONS = {
    "backward": Operation(
        "backward",
        "pa.attention_backward",
        "dQ, dK and dV of causal attention, recomputed from the LSE",
        "attention_backward",
        _prepare_backward,
        lambda given: pa.attention_backward(*given, causal=True),
        _exact_backward,
    ),
    "varlen": Operation(
        "varlen",
        "pa.varlen_attention",
        "four packed sequences of increasing length, causal",
        "attention",
        _prepare_varlen,
        lambda given: (pa.varlen_attention(*given, causal=True),),
        _exact_varlen,
    ),
    "score_mod": Operation(
        "score_mod",
        "pa.attention(score_mod=…)",
        "ALiBi as a Python function, traced into the kernel",
        "attention",
        _prepare_alibi,
        lambda given: (pa.attention(*given[0], causal=True, score_mod=given[1]),),
        _exact_alibi,
    ),
    "sinks": Operation(
        "sinks",
        "pa.attention(sinks=…)",
        "a logit per head in the softmax that has no value, causal",
        "attention",
        _prepare_sinks,
        lambda given: (pa.attention(*given[0], causal=True, sinks=given[1]),),
        _exact_sinks,
    ),
    "decode": Operation(
        "decode",
        "pa.decode_attention",
        "the last query over a float32 cache, split along the keys",
        "decode_split",
        _prepare_decode("float32"),
        lambda given: (pa.decode_attention(*given),),
        _exact_decode,
    ),
    "turboquant": Operation(
        "decode, 4 bits",
        "pa.decode_attention, 4 bits",
        "the same over a TurboQuant cache; the error is against the dequantized cache",
        "decode_split",
        _prepare_decode(_CACHE_DTYPE),
        lambda given: (pa.decode_attention(*given),),
        _exact_decode,
    ),
    "sdpa": Operation(
        "sdpa",
        "pa.scaled_dot_product_attention",
        "PyTorch's signature: is_causal, enable_gqa",
        "attention",
        _as_given,
        lambda given: (
            pa.scaled_dot_product_attention(given[0], given[1], given[2], is_causal=True, enable_gqa=True),
        ),
        _exact_causal,
    ),
    "onnx": Operation(
        "onnx",
        "pa.onnx.attention",
        "ONNX's operator Attention: is_causal",
        "attention",
        _as_given,
        lambda given: (pa.onnx.attention(given[0], given[1], given[2], is_causal=1)[0],),
        _exact_causal,
    ),
}
