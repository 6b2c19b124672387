"""ONNX's operator Attention, opsets 23, 24 and 25, and its preview FlexAttention, as in onnx 1.23.

https://onnx.ai/onnx/operators/onnx__Attention.html. That release put the softcap before the mask and the
causal diagonal behind the cached keys in all three opsets; what is new in 25 are the window attributes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from py_attn import onnx_reference
from py_attn.arguments import check_int, check_mask_shape, check_positive, resolve
from py_attn.gpu.device import as_tensor
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.forward import attention as fused_attention
from py_attn.kernels.attention.weights import attention_scores
from py_attn.kernels.checks import check_lengths, check_mask_dtype, find_device, float_tensor, shape_of
from py_attn.kernels.copy import contiguous, join
from py_attn.onnx_flex import SOFTMAX_PRECISIONS, flex_attention, reference_flex_attention

__all__ = ["attention", "flex_attention", "reference_attention", "reference_flex_attention"]

reference_attention = onnx_reference.attention

_SCALED, _CAPPED, _MASKED, _PROBABILITIES = range(4)


def attention(
    Q: Any,
    K: Any,
    V: Any,
    attn_mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    nonpad_kv_seqlen: Any = None,
    **attributes: Any,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The operator Attention: inputs in its order, its attributes as keywords.

    Query i stands at key i, behind the cached keys with ``past_key``, and at the end of the valid keys
    with ``nonpad_kv_seqlen``. Storage may be float32, float16 or bfloat16 (float64 becomes float32);
    all arithmetic is float32.

    Parameters
    ----------
    Q : Tensor or array_like
        [B, Hq, Sq, D], or [B, Sq, Hq·D] with ``q_num_heads`` and ``kv_num_heads``.
    K, V : Tensor or array_like
        [B, Hkv, Skv, D] and [B, Hkv, Skv, Dv], or [B, Skv, Hkv·D] and [B, Skv, Hkv·Dv]; Hq a multiple
        of Hkv.
    attn_mask : Tensor or array_like, optional
        Booleans (True = may attend) or floats (added to the scores), of any shape that broadcasts to
        [B, Hq, Sq, T], T = P + Skv. What is missing at the end of its last axis counts as hidden, also
        where that axis has length 1.
    past_key, past_value : Tensor or array_like, optional
        [B, Hkv, P, D] and [B, Hkv, P, Dv], which K and V continue.
    nonpad_kv_seqlen : Tensor or array_like of int, optional
        [B] valid keys, where K and V are a whole cache; not together with ``past_key``.
    is_causal : int
        1: no key after the query's position.
    left_window_size, right_window_size : int
        Keys before and after the position that may be seen; -1 (unless given) is unbounded.
    scale : float
        1/√D unless given.
    softcap : float
        c > 0 turns a score s into c·tanh(s/c) before the mask.
    q_num_heads, kv_num_heads : int
        Hq and Hkv, for 3-D inputs and only for them.
    softmax_precision : int
        1 (float), 10 (float16), 11 (double) or 16 (bfloat16). Softmax is float32 whatever is asked for.
    qk_matmul_output_mode : int
        0 (scaled scores), 1 (after the softcap), 2 (after the mask as well, -inf where hidden) or 3
        (probabilities). Given, the fourth output is computed; it is the only one that takes memory
        with Sq·T.

    Returns
    -------
    Y : Tensor
        [B, Hq, Sq, Dv] or [B, Sq, Hq·Dv], in Q's dtype. A row that may see nothing is zero.
    present_key, present_value : Tensor or None
        [B, Hkv, T, D] and [B, Hkv, T, Dv] in K's and V's dtypes, where there is a past.
    qk_matmul_output : Tensor or None
        [B, Hq, Sq, T] in Q's dtype, where ``qk_matmul_output_mode`` is given.

    Raises
    ------
    TypeError
        For an attribute that the operator does not have, and for inputs of a wrong type.
    ValueError
        Naming the input or attribute, what was given and what was expected.

    Examples
    --------
    >>> device = await pa.request_device()
    >>> rng = np.random.default_rng(0)
    >>> query, key, value = (rng.standard_normal((1, 2, heads * 8)) for heads in (4, 2, 2))
    >>> past = rng.standard_normal((1, 2, 5, 8))
    >>> y, present_key, present_value, qk = pa.onnx.attention(
    ...     query, key, value, None, past, past, q_num_heads=4, kv_num_heads=2, is_causal=1
    ... )
    >>> y.shape, present_key.shape, present_value.shape, qk
    ((1, 2, 32), (1, 2, 7, 8), (1, 2, 7, 8), None)
    """
    node = _attributes(attributes)
    call = _check(node, Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen)
    device = find_device(Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen)
    q, k, v = (float_tensor(name, x, device) for name, x in (("Q", Q), ("K", K), ("V", V)))
    if call.flat:
        q, k, v = (_split(x, heads) for x, heads in ((q, call.heads), (k, call.kv_heads), (v, call.kv_heads)))
    mask = None if attn_mask is None else as_tensor("attn_mask", attn_mask, device)
    lengths = None
    if nonpad_kv_seqlen is not None:
        lengths = as_tensor("nonpad_kv_seqlen", nonpad_kv_seqlen, device, "int32")
    present_key = present_value = None
    if past_key is not None:
        past = [float_tensor(n, x, device) for n, x in (("past_key", past_key), ("past_value", past_value))]
        present_key, present_value = join(past[0], k), join(past[1], v)
        k, v = present_key, present_value

    keywords: dict[str, Any] = {
        "scale": node.scale,
        "softcap": node.softcap,
        "mask": mask,
        "causal": bool(node.is_causal),
        "window": tuple(None if n == -1 else n for n in (node.left_window_size, node.right_window_size)),
        "kv_lengths": lengths,
        "query_offset": call.past if lengths is None else None,
    }
    # Nobody sees the keys behind the mask's end.
    seen_k, seen_v = k[:, :, : call.seen], v[:, :, : call.seen]
    if call.flat:
        # The result then lies as [B, Sq, Hq, Dv], whose last two axes are one wherever Dv is a multiple of 4.
        y, lse = fused_attention(
            _swap(q), _swap(seen_k), _swap(seen_v), layout="BSHD", return_lse=True, **keywords
        )
        y = contiguous(y).reshape(y.shape[0], y.shape[1], y.shape[2] * y.shape[3])
    else:
        y, lse = fused_attention(q, seen_k, seen_v, return_lse=True, **keywords)
    mode = node.qk_matmul_output_mode
    if mode is None:
        return y, present_key, present_value, None
    if mode in (_SCALED, _CAPPED):
        cap = None if mode == _SCALED else node.softcap
        qk = attention_scores(q, k, scale=node.scale, softcap=cap)
    else:
        row_lse = lse if mode == _PROBABILITIES else None
        qk = attention_scores(q, seen_k, lse=row_lse, columns=call.total, **keywords)
    return y, present_key, present_value, contiguous(qk, q.dtype)


@dataclass(frozen=True, slots=True)
class _Attributes:
    """The operator's attributes; what is None was not given and has no default that is a number."""

    is_causal: int = 0
    kv_num_heads: int | None = None
    left_window_size: int = -1
    q_num_heads: int | None = None
    qk_matmul_output_mode: int | None = None
    right_window_size: int = -1
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int | None = None


def _attributes(given: dict[str, Any]) -> _Attributes:
    known = [field.name for field in fields(_Attributes)]
    for name in given:
        if name not in known:
            raise TypeError(f"{name}: Attention has no such attribute; it has {', '.join(known)}")
    node = _Attributes(**{name: value for name, value in given.items() if value is not None})
    if node.is_causal not in (0, 1):
        raise ValueError(f"is_causal: expected 0 or 1, got {node.is_causal!r}")
    for name in ("left_window_size", "right_window_size"):
        if check_int(name, getattr(node, name)) < -1:
            raise ValueError(f"{name}: expected -1 (unbounded) or more, got {getattr(node, name)}")
    for name, allowed in (("qk_matmul_output_mode", range(4)), ("softmax_precision", SOFTMAX_PRECISIONS)):
        value = getattr(node, name)
        if value is not None and check_int(name, value) not in allowed:
            raise ValueError(f"{name}: expected one of {', '.join(map(str, allowed))}, got {value}")
    return node


@dataclass(frozen=True, slots=True)
class _Call:
    """Sizes of one call: ``past`` of the ``total`` keys are cached; a short mask ends after ``seen``."""

    flat: bool
    heads: int
    kv_heads: int
    past: int
    total: int
    seen: int


def _check(
    node: _Attributes, Q: Any, K: Any, V: Any, attn_mask: Any, past_key: Any, past_value: Any, lengths: Any
) -> _Call:
    shapes = {name: shape_of(name, x) for name, x in (("Q", Q), ("K", K), ("V", V))}
    rank = len(shapes["Q"])
    if rank not in (3, 4):
        raise ValueError(f"Q: expected [B, Hq, Sq, D] or [B, Sq, Hq·D], got {list(shapes['Q'])}")
    for name, shape in shapes.items():
        if len(shape) != rank:
            raise ValueError(f"{name}: expected {rank} dimensions like Q, got {list(shape)}")
    q, k, v = _head_shapes(node, shapes)
    if k[0] != q[0] or k[3] != q[3]:
        raise ValueError(f"K: expected Q's batch size {q[0]} and head size {q[3]}, got {k[0]} and {k[3]}")
    if v[:3] != k[:3]:
        raise ValueError(f"V: expected K's batch size, heads and length {list(k[:3])}, got {list(v[:3])}")
    if k[1] == 0 or q[1] % k[1]:
        raise ValueError(f"Q: expected a multiple of K's {k[1]} heads, got {q[1]}")

    past = _check_past(past_key, past_value, k, v)
    if past_key is not None and lengths is not None:
        raise ValueError("nonpad_kv_seqlen: is for a cache given as K and V, not together with past_key")
    total = seen = past + k[2]
    if attn_mask is not None:
        mask_shape = shape_of("attn_mask", attn_mask)
        check_mask_dtype(attn_mask, "attn_mask")
        if not mask_shape or mask_shape[-1] > total:
            raise ValueError(
                f"attn_mask: expected up to {total} keys in the last axis, got {list(mask_shape)}"
            )
        seen = mask_shape[-1]
        check_mask_shape(mask_shape, (q[0], q[1], q[2], seen), "attn_mask")
    if lengths is not None:
        check_lengths(lengths, q[0], seen, "nonpad_kv_seqlen")
    # The numbers among the attributes and the head sizes, before anything is dispatched.
    resolve(q, k, v, scale=node.scale, softcap=node.softcap)
    return _Call(rank == 3, q[1], k[1], past, total, seen)


def _head_shapes(node: _Attributes, shapes: dict[str, tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The shapes of Q, K and V as [B, H, S, D]."""
    found: list[tuple[int, ...]] = []
    for name, attribute in (("Q", "q_num_heads"), ("K", "kv_num_heads"), ("V", "kv_num_heads")):
        heads, shape = getattr(node, attribute), shapes[name]
        if len(shape) == 4:
            if heads is not None:
                raise ValueError(f"{attribute}: is for 3-D inputs only, {name} is {list(shape)}")
            found.append(shape)
            continue
        if heads is None:
            raise ValueError(f"{attribute}: is needed with 3-D inputs, {name} is {list(shape)}")
        if shape[2] % check_positive(attribute, heads):
            raise ValueError(f"{attribute}: expected a divisor of {name}'s {shape[2]} columns, got {heads}")
        found.append((shape[0], heads, shape[1], shape[2] // heads))
    return found


def _check_past(past_key: Any, past_value: Any, k: tuple[int, ...], v: tuple[int, ...]) -> int:
    """The number of cached keys."""
    if (past_key is None) != (past_value is None):
        raise ValueError(f"{'past_key' if past_key is None else 'past_value'}: expected both or neither")
    if past_key is None:
        return 0
    key_shape, value_shape = shape_of("past_key", past_key), shape_of("past_value", past_value)
    if len(key_shape) != 4 or (*key_shape[:2], key_shape[3]) != (*k[:2], k[3]):
        raise ValueError(f"past_key: expected [{k[0]}, {k[1]}, P, {k[3]}], got {list(key_shape)}")
    if value_shape != (*key_shape[:3], v[3]):
        raise ValueError(f"past_value: expected {[*key_shape[:3], v[3]]}, got {list(value_shape)}")
    return key_shape[2]


def _split(x: Tensor, heads: int) -> Tensor:
    """[B, S, H·D] seen as [B, H, S, D]."""
    batch, length, width = x.shape
    return _swap(x.reshape(batch, length, heads, width // heads))


def _swap(x: Tensor) -> Tensor:
    return x.transpose(0, 2, 1, 3)
