"""ONNX's operators Attention and FlexAttention in plain numpy, step by step as they are specified."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn.products import product
from py_attn.reference import softmax

Array = npt.NDArray[Any]


def attention(
    Q: npt.ArrayLike,
    K: npt.ArrayLike,
    V: npt.ArrayLike,
    attn_mask: npt.ArrayLike | None = None,
    past_key: npt.ArrayLike | None = None,
    past_value: npt.ArrayLike | None = None,
    nonpad_kv_seqlen: npt.ArrayLike | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int | None = None,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    compute_dtype: npt.DTypeLike = np.float64,
) -> tuple[Array, Array | None, Array | None, Array | None]:
    """The operator in ``compute_dtype``; arguments and results as in :func:`py_attn.onnx.attention`.

    Arguments are not checked, and ``softmax_precision`` has no effect: every step is in ``compute_dtype``.
    """
    flat = np.ndim(Q) == 3
    q, k, v = (np.asarray(x).astype(compute_dtype) for x in (Q, K, V))
    if flat:
        q, k, v = (
            x.reshape(*x.shape[:2], heads or 1, -1).swapaxes(1, 2)
            for x, heads in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads))
        )
    present_key = present_value = None
    if past_key is not None and past_value is not None:
        present_key = k = np.concatenate((np.asarray(past_key).astype(compute_dtype), k), axis=2)
        present_value = v = np.concatenate((np.asarray(past_value).astype(compute_dtype), v), axis=2)
    queries, keys = q.shape[2], k.shape[2]

    # The position of each query among the keys, [B or 1, 1, Sq, 1].
    offset = np.array([0 if past_key is None else np.shape(past_key)[2]])
    valid = np.array([keys])
    if nonpad_kv_seqlen is not None:
        valid = np.asarray(nonpad_kv_seqlen)
        offset = valid - queries
    position = np.arange(queries)[:, None] + offset[:, None, None, None]
    key = np.arange(keys)
    hidden = key >= valid[:, None, None, None]
    if is_causal:
        hidden = hidden | (key > position)
    if left_window_size >= 0:
        hidden = hidden | (key < position - left_window_size)
    if right_window_size >= 0:
        hidden = hidden | (key > position + right_window_size)

    factor = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    group = q.shape[1] // k.shape[1]
    scaled = product(q * q.dtype.type(factor), np.repeat(k, group, axis=1).swapaxes(-1, -2))
    capped = q.dtype.type(softcap) * np.tanh(scaled / q.dtype.type(softcap)) if softcap else scaled
    masked = np.where(hidden, -np.inf, capped + _bias(attn_mask, keys, q.dtype))
    p, _ = softmax(masked)
    y = product(p, np.repeat(v, group, axis=1))
    if flat:
        y = y.swapaxes(1, 2).reshape(y.shape[0], queries, -1)
    qk = None if qk_matmul_output_mode is None else (scaled, capped, masked, p)[qk_matmul_output_mode]
    return y, present_key, present_value, qk


def flex_attention(
    Q: npt.ArrayLike,
    K: npt.ArrayLike,
    V: npt.ArrayLike,
    scale: float,
    score_mod: Callable[..., Any] | None = None,
    prob_mod: Callable[..., Any] | None = None,
    compute_dtype: npt.DTypeLike = np.float64,
) -> Array:
    """FlexAttention; the mods are functions of whole arrays and of b, h, q_idx and kv_idx."""
    q, k, v = (np.asarray(x).astype(compute_dtype) for x in (Q, K, V))
    group = q.shape[1] // k.shape[1]
    s = product(q * q.dtype.type(scale), np.repeat(k, group, axis=1).swapaxes(-1, -2))
    places = np.ogrid[tuple(slice(n) for n in s.shape)]
    if score_mod is not None:
        s = np.broadcast_to(score_mod(s, *places), s.shape).astype(q.dtype)
    p = softmax(s)[0]
    if prob_mod is not None:
        p = np.broadcast_to(prob_mod(p, *places), p.shape).astype(q.dtype)
    out: Array = product(p, np.repeat(v, group, axis=1))
    return out


def _bias(attn_mask: npt.ArrayLike | None, keys: int, dtype: np.dtype[Any]) -> Array:
    """What a mask adds to the scores; -inf for keys after its end."""
    if attn_mask is None:
        return np.zeros(1, dtype)
    mask = np.asarray(attn_mask)
    bias = np.where(mask, 0, -np.inf) if mask.dtype == np.bool_ else mask
    missing = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
    return np.pad(bias.astype(dtype), missing, constant_values=-np.inf)
