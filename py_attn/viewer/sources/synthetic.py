"""Synthetic input of any shape: heads that attend to keys at different distances, with noise added."""

from __future__ import annotations

import numpy as np

from py_attn.viewer.sources.source import Array, Layer, Masking, Source

MASKS = ("none", "causal", "padding", "documents", "alibi")
#: Longer ones would need too much memory for the boolean matrix of the "documents" mask.
MAX_DOCUMENTS_LENGTH = 4096
_LIMITS = {
    "length": (1, 32768),
    "heads": (1, 64),
    "kv_heads": (1, 64),
    "head_dim": (1, 512),
    "layers": (1, 8),
}


def synthetic(
    *,
    length: int = 256,
    heads: int = 8,
    kv_heads: int = 2,
    head_dim: int = 64,
    layers: int = 1,
    mask: str = "causal",
    window: int | None = None,
    softcap: float | None = None,
    seed: int = 0,
) -> Source:
    """Queries, keys and values drawn from a seed.

    Positions are encoded in queries and keys as cosines and sines of falling frequencies (as in
    Vaswani et al., arXiv 1706.03762), shifted by a different distance in every head, so that the maps
    have a structure.

    Parameters
    ----------
    length, heads, kv_heads, head_dim, layers : int
        S, Hq, Hkv (a divisor of Hq), D, and the number of such layers.
    mask : str
        "none", "causal", "padding" (the last quarter of the keys is padding), "documents" (four texts in a
        row, none of which sees another) or "alibi" (a penalty by distance, arXiv 2108.12409, causal).
    window : int, optional
        How many keys before the position may be seen (without causality, also as many after it).
    softcap : float, optional
    seed : int

    Raises
    ------
    ValueError
        Naming the argument, what was given and what was expected.
    """
    for name, given in (
        ("length", length),
        ("heads", heads),
        ("kv_heads", kv_heads),
        ("head_dim", head_dim),
        ("layers", layers),
    ):
        low, high = _LIMITS[name]
        if not low <= given <= high:
            raise ValueError(f"{name}: expected {low} to {high}, got {given}")
    if heads % kv_heads:
        raise ValueError(f"kv_heads: expected a divisor of the {heads} heads, got {kv_heads}")
    if window is not None and window < 0:
        raise ValueError(f"window: expected 0 or more, got {window}")
    rng = np.random.default_rng(seed)
    made = [_layer(rng, length, heads, kv_heads, head_dim) for _ in range(layers)]
    causal = mask in ("causal", "alibi")
    masking = Masking(
        causal=causal,
        window=None if window is None else (window, 0 if causal else window),
        softcap=softcap or None,
        valid=max(1, length * 3 // 4) if mask == "padding" else None,
        bias=_bias(mask, length, heads),
    )
    title = (
        f"{heads} heads over {kv_heads} KV heads, {length:,} × {length:,}, head dim {head_dim}, mask {mask}"
    )
    return Source("synthetic", title, [str(i) for i in range(length)], made, masking)


def _layer(rng: np.random.Generator, length: int, heads: int, kv_heads: int, head_dim: int) -> Layer:
    shape = (1, heads, length, head_dim)
    kv_shape = (1, kv_heads, length, head_dim)
    query, key = rng.standard_normal(shape, np.float32), rng.standard_normal(kv_shape, np.float32)
    value = rng.standard_normal(kv_shape, np.float32)
    pairs = head_dim // 2
    if pairs:
        frequency = np.pi * float(max(length, 2)) ** -(np.arange(pairs) / pairs)
        angle = np.arange(length)[:, None] * frequency
        strength = np.float32(1.6 * max(1.0, pairs / 8) ** -0.25)

        def encode(x: Array, angle: Array) -> None:
            x[..., : 2 * pairs] *= np.float32(0.5)
            waves = np.concatenate([np.cos(angle), np.sin(angle)], -1).astype(np.float32)
            x[..., : 2 * pairs] += strength * waves

        encode(key, angle)
        for head in range(heads):
            back = 0 if head == 0 else round(min(length / 3, 1.8**head))
            encode(query[0, head], angle - back * frequency)
    return Layer(query, key, value)


def _bias(mask: str, length: int, heads: int) -> Array | None:
    if mask not in MASKS:
        raise ValueError(f"mask: expected one of {', '.join(MASKS)}, got {mask!r}")
    if mask == "documents":
        if length > MAX_DOCUMENTS_LENGTH:
            raise ValueError(
                f"mask: documents needs a boolean matrix; expected a length up to {MAX_DOCUMENTS_LENGTH}, "
                f"got {length}"
            )
        document = np.arange(length) * 4 // length
        same: Array = document[:, None] == document[None, :]
        return same[None, None]
    if mask == "alibi":
        # A constant in a row cancels in the softmax, so -m·(i-j) may be written as +m·j, without rows.
        slopes = 2.0 ** (-8 * (np.arange(heads) + 1) / heads)
        key = np.arange(length) - (length - 1)
        return (slopes[:, None] * key).astype(np.float32)[None, :, None, :]
    return None
