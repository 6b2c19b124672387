"""PyTorch's ``scaled_dot_product_attention``, so that PyTorch calls work unchanged.

https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from py_attn.arguments import check_mask_shape, check_real, resolve
from py_attn.gpu.device import Device, as_tensor
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.forward import attention
from py_attn.kernels.checks import check_mask_dtype, find_device, float_tensor, shape_of
from py_attn.kernels.copy import broadcast, contiguous

Shape = tuple[int, ...]


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention with PyTorch's signature and meaning.

    Letters are PyTorch's: N batch, Hq and H heads of queries and of keys, L queries, S keys, E and Ev
    head dims.

    Parameters
    ----------
    query : Tensor or array_like
        [N, …, Hq, L, E]; the axes before [L, E] may be left out.
    key, value : Tensor or array_like
        [N, …, H, S, E] and [N, …, H, S, Ev], with as many axes as query. The axes before L and S broadcast
        as in numpy: where one of the three has length 1, it is shared along the others' axis.
    attn_mask : Tensor or array_like, optional
        Booleans (True = may attend) or floats (added to the scores), of any shape that broadcasts to
        [N, …, Hq, L, S].
    dropout_p : float
        Only 0.
    is_causal : bool
        Query i sees keys 0 … i, whatever L and S are; not together with ``attn_mask``.
    scale : float, optional
        1/√E unless given.
    enable_gqa : bool
        Allow Hq to be a multiple of H: consecutive query heads share a key/value head.

    Returns
    -------
    Tensor
        [N, …, Hq, L, Ev] in query's dtype, its axes before L broadcast. Rows that may see nothing are zero.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.

    Examples
    --------
    >>> device = await pa.request_device()
    >>> rng = np.random.default_rng(0)
    >>> query, key, value = (rng.standard_normal((32, heads, 16, 64)) for heads in (32, 8, 8))
    >>> pa.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True).shape
    (32, 32, 16, 64)
    """
    if check_real("dropout_p", dropout_p) != 0:
        raise ValueError(f"dropout_p: expected 0, as dropout is not supported, got {dropout_p}")
    if attn_mask is not None and is_causal:
        raise ValueError("attn_mask: expected None with is_causal=True; give one of the two")
    shapes = {name: shape_of(name, x) for name, x in (("query", query), ("key", key), ("value", value))}
    lead, four = _check_shapes(shapes, enable_gqa)
    if attn_mask is not None:
        check_mask_dtype(attn_mask, "attn_mask")
        scores = (*lead, *four["query"][1:3], four["key"][2])
        check_mask_shape(shape_of("attn_mask", attn_mask), scores, "attn_mask")
    causal: Literal["top-left", False] = "top-left" if is_causal else False
    resolve(*four.values(), causal=causal, scale=scale)

    device = find_device(query, key, value, attn_mask)
    q, k, v = (
        _merged(float_tensor(name, x, device), lead, four[name])
        for name, x in (("query", query), ("key", key), ("value", value))
    )
    mask = None if attn_mask is None else _merged_mask(attn_mask, lead, device)
    out: Tensor = attention(q, k, v, mask=mask, causal=causal, scale=scale)
    heads = four["query"][1:2] if len(shapes["query"]) > 2 else ()
    return out.reshape(*lead, *heads, *out.shape[2:])


def _check_shapes(shapes: dict[str, Shape], enable_gqa: bool) -> tuple[Shape, dict[str, Shape]]:
    """The broadcast axes before the heads; the shapes as [N, H, L or S, E or Ev], those axes merged."""
    rank = len(shapes["query"])
    lead: Shape = ()
    for name, shape in shapes.items():
        if len(shape) < 2 or len(shape) != rank:
            expected = "[N, …, H, L, E]" if name == "query" else f"{rank} axes like query"
            raise ValueError(f"{name}: expected {expected}, got {list(shape)}")
        before = lead if name != "query" else shape[:-3]
        try:
            lead = np.broadcast_shapes(before, shape[:-3])
        except ValueError:
            raise ValueError(
                f"{name}: expected leading axes that broadcast with {list(before)}, got {list(shape)}"
            ) from None
    heads, *others = (shape[-3] if rank > 2 else 1 for shape in shapes.values())
    # Keys and values that differ broadcast with each other; one head for both is shared as it is.
    kv_heads = [max(others) if 1 in others and 0 not in others else n for n in others]
    if heads == 1:
        heads = kv_heads[0]
    if kv_heads[0] not in (1, heads) and not enable_gqa:
        raise ValueError(
            f"key: expected query's {heads} heads, got {kv_heads[0]}; enable_gqa=True lets heads share keys"
        )
    batch, all_heads = math.prod(lead), (heads, *kv_heads)
    four = {name: (batch, n, *s[-2:]) for (name, s), n in zip(shapes.items(), all_heads, strict=True)}
    return lead, four


def _merged(x: Tensor, lead: Shape, shape: Shape) -> Tensor:
    """``x`` broadcast and seen as four axes; copied only where axes that merge do not lie in order."""
    own = x.shape[:-3]
    if x.size == math.prod(shape):
        return (contiguous(x) if x.ndim > 4 else x).reshape(*shape)
    if math.prod(own) == 1:
        return broadcast(x.reshape(*x.shape[len(own) :]), shape)
    if len(lead) == 1:
        return broadcast(x, shape)
    return contiguous(broadcast(x, (*lead, *shape[1:]))).reshape(*shape)


def _merged_mask(mask: Any, lead: Shape, device: Device) -> Tensor:
    """The mask with its axes before the heads merged into one, broadcast beforehand where they differ."""
    tensor = as_tensor("attn_mask", mask, device)
    own = tensor.shape[:-3]
    if len(lead) < 2 or not own:
        return tensor
    if own != lead and any(n != 1 for n in own):
        tensor = broadcast(tensor, (*lead, *tensor.shape[-3:]))
    return contiguous(tensor).reshape(math.prod(tensor.shape[:-3]), *tensor.shape[-3:])
