"""PyTorch's ``scaled_dot_product_attention``, so that a call can be pasted.

https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from __future__ import annotations

import math
from typing import Any, Literal

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
        [N, …, Hq, L, E]; also without the axes before [L, E].
    key, value : Tensor or array_like
        [N, …, H, S, E] and [N, …, H, S, Ev], with as many axes as query.
    attn_mask : Tensor or array_like, optional
        Booleans (True = takes part) or floats (added to the scores), of any shape that broadcasts to
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
        [N, …, Hq, L, Ev] in query's dtype. Rows that may see nothing are zero.

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
        raise ValueError(f"dropout_p: expected 0, as this computes no dropout, got {dropout_p}")
    if attn_mask is not None and is_causal:
        raise ValueError("attn_mask: expected None with is_causal=True; give one of the two")
    shapes = {name: shape_of(name, x) for name, x in (("query", query), ("key", key), ("value", value))}
    four = _check_shapes(shapes, enable_gqa)
    lead = shapes["query"][:-3]
    if attn_mask is not None:
        check_mask_dtype(attn_mask, "attn_mask")
        scores = (*lead, *four["query"][1:3], four["key"][2])
        check_mask_shape(shape_of("attn_mask", attn_mask), scores, "attn_mask")
    causal: Literal["top-left", False] = "top-left" if is_causal else False
    resolve(*four.values(), causal=causal, scale=scale)

    device = find_device(query, key, value, attn_mask)
    q, k, v = (
        _merged(float_tensor(name, x, device), four[name])
        for name, x in (("query", query), ("key", key), ("value", value))
    )
    mask = None if attn_mask is None else _merged_mask(attn_mask, lead, device)
    out: Tensor = attention(q, k, v, mask=mask, causal=causal, scale=scale)
    return out.reshape(*shapes["query"][:-1], shapes["value"][-1])


def _check_shapes(shapes: dict[str, Shape], enable_gqa: bool) -> dict[str, Shape]:
    """The shapes as [N, H, L or S, E or Ev], the axes before the heads merged into one."""
    rank = len(shapes["query"])
    for name, shape in shapes.items():
        if len(shape) < 2 or len(shape) != rank:
            expected = "[N, …, H, L, E]" if name == "query" else f"{rank} axes like query"
            raise ValueError(f"{name}: expected {expected}, got {list(shape)}")
        if shape[:-3] != shapes["query"][:-3]:
            raise ValueError(
                f"{name}: expected query's leading axes {list(shapes['query'][:-3])}, got {list(shape)}"
            )
    four = {name: (math.prod(s[:-3]), s[-3] if rank > 2 else 1, *s[-2:]) for name, s in shapes.items()}
    heads, kv_heads = four["query"][1], four["key"][1]
    if heads != kv_heads and not enable_gqa:
        raise ValueError(
            f"key: expected query's {heads} heads, got {kv_heads}; enable_gqa=True lets heads share keys"
        )
    return four


def _merged(x: Tensor, shape: Shape) -> Tensor:
    """``x`` seen as four axes."""
    return (contiguous(x) if x.ndim > 4 else x).reshape(*shape)


def _merged_mask(mask: Any, lead: Shape, device: Device) -> Tensor:
    """The mask with its axes before the heads merged, which writes out those along which it repeats."""
    tensor = as_tensor("attn_mask", mask, device)
    own = tensor.shape[:-3]
    if len(lead) < 2 or not own:
        return tensor
    if own != lead and any(n != 1 for n in own):
        tensor = broadcast(tensor, (*lead, *tensor.shape[-3:]))
    return contiguous(tensor).reshape(math.prod(tensor.shape[:-3]), *tensor.shape[-3:])
