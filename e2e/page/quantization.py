"""Checks of `pa.turboquant` and of quantised caches.

Codes may differ from float64's where a number lies on a threshold to a rounding; such rows are counted and
left out, and everything after the codes is compared given the codes that the GPU chose. Bounds are twice
the error of the same steps in numpy's float32, and a few roundings of the largest number.
"""

from contextlib import nullcontext
from typing import Any

import numpy as np

import py_attn as pa
from e2e.page.emulated_matrices import emulated
from e2e.page.inputs import normal, poisoned
from py_attn import turboquant_reference as plain
from py_attn.gpu.dtypes import round_to

MODS = {
    "distance": lambda score, b, h, q, k: score - 0.05 * pa.abs(q - k),
    "thirds": lambda b, h, q, k: (k % 3 != 1) | (q == k),
}


def over_bound(result, exact, single, step=4e-7):
    error = np.abs(single - exact).max(initial=0)
    bound = 2 * error + step * max(np.abs(exact).max(initial=0), 1e-30)
    return float(np.abs(result - exact).max(initial=0) / bound)


async def check_quantize(shape, bits, qjl, dtype, seed, swapped):
    """Quantise random vectors and read them back."""
    device = pa.default_device()
    random = np.random.default_rng(seed)
    x = normal(random, shape, dtype)
    x.reshape(-1, shape[-1])[::5] = 0
    with poisoned(device):
        if swapped:
            tensor = device.tensor(np.ascontiguousarray(x.T), dtype).transpose()
        else:
            tensor = device.tensor(x, dtype)
        packed = pa.turboquant.quantize(tensor, bits, qjl=qjl)
        out = await pa.turboquant.dequantize(packed).numpy()
        words = await packed.words.numpy()
    assert packed.nbytes == words.nbytes
    assert out.shape == x.shape
    assert out.dtype == np.float32
    found = plain.unpack(words, bits, shape[-1], qjl=qjl)
    expected = plain.quantize(x, bits, qjl=qjl)
    single = plain.quantize(x, bits, np.float32, qjl=qjl)
    flat = x.reshape(-1, shape[-1])
    same = np.ones(len(flat), bool)
    pairs: list[tuple[Any, Any]] = [(found, expected), (single, expected)]
    # What is left of few numbers is at right angles to few directions, and rotated it is often zero.
    if qjl and shape[-1] >= 16:
        pairs.append((found.residual, expected.residual))
    for one, other in pairs:
        same &= (one.codes == other.codes).all(-1).reshape(-1)
    zero = ~flat.any(-1)
    assert (out.reshape(flat.shape)[zero] == 0).all(), "zeros do not stay zeros"
    compared = same & ~zero
    return {
        "different": int((~same & ~zero).sum()),
        "scales": over_bound(*(c.scales.reshape(-1)[compared] for c in (found, expected, single))),
        "numbers": over_bound(out, plain.dequantize(found), plain.dequantize(found, np.float32)),
    }


async def distortion(seed, dim, bits, outliers=()):
    """The squared error of quantised vectors over their squared length; outliers are 50 times as large."""
    x = normal(np.random.default_rng(seed), (1000, dim), "float32")
    x[:, list(outliers)] *= 50
    with poisoned(pa.default_device()):
        x_hat = await pa.turboquant.dequantize(pa.turboquant.quantize(x, bits)).numpy()
    return float(((x_hat - x) ** 2).sum() / (x**2).sum())


def stored_codes(words, kind, cache):
    """What a cache holds of 4-bit keys or values, in rows or in tiles: codes [B, H, capacity, D]."""
    form = cache.key_format if kind == "keys" else cache.value_format
    if form.tiled:
        found, held = plain.unpack_tiles(words, kind, uniform=form.uniform), slice(cache.capacity)
        return found._replace(codes=found.codes[:, :, held], scales=found.scales[:, :, held])
    return plain.unpack(words, 4, form.dim)._replace(uniform=form.uniform)


async def cached_codes(x, dtype):
    """Codes of 4 bits as a cache holds them of ``x`` as keys and as values, which must be the same."""
    batch, heads, count, dim = x.shape
    cache = pa.KVCache(batch, heads, count, dim, dtype=dtype)
    cache.append(x, x)
    keys, values = [
        stored_codes(await getattr(cache, kind).numpy(), kind, cache) for kind in ("keys", "values")
    ]
    assert np.array_equal(keys.codes, values.codes)
    assert np.array_equal(keys.scales, values.scales, equal_nan=True)
    cache.destroy()
    return keys


async def check_stored(shape, seed, dtype, is_emulated=False):
    """What a cache of 4-bit codes stores of random rows [B, H, S, D], a fifth of them zeros."""
    device = pa.default_device()
    x = normal(np.random.default_rng(seed), shape, "float32")
    x.reshape(-1, shape[-1])[::5] = 0
    with emulated(device) if is_emulated else nullcontext(), poisoned(device):
        found = await cached_codes(x, dtype)
    uniform = dtype == "uniform4"
    expected, single = (plain.quantize(x, 4, kind, uniform=uniform) for kind in (np.float64, np.float32))
    same = (found.codes == expected.codes).all(-1) & (single.codes == expected.codes).all(-1)
    zero = ~x.any(-1)
    assert (found.scales[zero] == 0).all(), "zeros do not stay zeros"
    compared = same & ~zero
    return {
        "different": int((~same & ~zero).sum()),
        "scales": over_bound(*(c.scales[compared] for c in (found, expected, single))),
    }


async def as_cached(x, dtype, qjl):
    """What a cache of this dtype holds of ``x``, as a function of the precision in which it is computed."""
    if dtype == "uniform4":
        held = await cached_codes(x, dtype)
        return lambda precision: plain.dequantize(held, precision).astype(precision)
    if not dtype.startswith("turboquant"):
        rounded = round_to(x, dtype)
        return lambda precision: rounded.astype(precision)
    # A vector is quantised to the same codes wherever that is done.
    packed = pa.turboquant.quantize(x, int(dtype[-1]), qjl=qjl)
    codes = plain.unpack(await packed.words.numpy(), packed.bits, x.shape[-1], qjl=packed.qjl)
    return lambda precision: plain.dequantize(codes, precision).astype(precision)


async def check_tiled_decode(busy, *given, **keywords):
    """As :func:`check_quantized_decode`, planned for an adapter with matrices of 8-bit integers."""
    with emulated(pa.default_device(), busy):
        return await check_quantized_decode(*given, **keywords)


async def check_quantized_decode(
    batch, heads, kv_heads, capacity, dims, dtypes, qjl, appended, queries, splits, sink_tokens=0, **keywords
):
    """Append to a cache several times, then decode once.

    The keywords are those of `pa.decode_attention`, with the names of mods in `MODS`.
    """
    device = pa.default_device()
    keywords |= {name: MODS[mod] for name, mod in keywords.items() if name in ("score_mod", "mask_mod")}
    random = np.random.default_rng(3)
    ring = {"capacity": capacity, "sink_tokens": sink_tokens}
    held: list[list[Any]] = [[], []]
    with poisoned(device):
        cache = pa.KVCache(
            batch, kv_heads, capacity, dims[0], value_head_dim=dims[1], dtype=tuple(dtypes), qjl=qjl,
            sink_tokens=sink_tokens,
        )  # fmt: skip
        for count in appended:
            new = [normal(random, (batch, kv_heads, count, dim), "float32") for dim in dims]
            cache.append(*new)
            for i, x in enumerate(new):
                held[i].append(await as_cached(x, dtypes[i], qjl and i == 0))
        query = normal(random, (batch, heads, queries, dims[0]), "float32")
        results = pa.decode_attention(query, cache, splits=splits, return_lse=True, **keywords)
        partials = pa.decode_partials(query, cache, splits=splits, **keywords)
        out, lse, part_out, part_lse = [await t.numpy() for t in (*results, *partials)]

    def reference(precision):
        # In the rotated domain, as the kernels do it; a rotation of both changes nothing but the roundings.
        keys, values = (np.concatenate([x(precision) for x in parts], axis=2) for parts in held)
        q, k, v = (plain.rotate(x, precision) for x in (query, keys, values))
        out, lse = pa.reference.decode_attention(
            q, k, v, return_lse=True, compute_dtype=precision, **ring, **keywords
        )
        return plain.rotate_back(out, precision), lse

    exact, single = reference(np.float64), reference(np.float32)
    assert np.array_equal(np.isneginf(lse), np.isneginf(exact[1]))
    seen = np.isfinite(lse)
    share = np.exp(part_lse - np.where(seen, lse, 0)[..., None])
    cache.destroy()
    return {
        "out": over_bound(out, exact[0], single[0]),
        "lse": over_bound(lse[seen], exact[1][seen], single[1][seen]),
        "partials": over_bound((share[..., None] * part_out).sum(3), exact[0], single[0]),
    }
