"""A small call of every family of kernels, of any size: for what concerns all, such as a lack of memory."""

import numpy as np

import py_attn as pa
from e2e.page.quantized import as_words, random_blocks
from py_attn.kernels import nn
from py_attn.kernels.maps.row_sums import row_sums


def normal(random, *shape):
    return random.standard_normal(shape, np.float32)


async def attention(device, random, size):
    q, k, v = (device.tensor(normal(random, 1, heads, size, 16)) for heads in (4, 2, 2))
    return await pa.attention(q, k, v, causal=size % 2 == 0, window=None if size % 3 else (5, 0)).numpy()


async def half(device, random, size):
    q, k, v = (device.tensor(normal(random, 2, 1, n, 8), "float16") for n in (size % 7 + 1, size, size))
    return await pa.attention(q, k, v, layout="BSHD" if size == 1 else "BHSD").numpy()


async def modified(device, random, size):
    q, k, v = (device.tensor(normal(random, 1, 2, size, 8)) for _ in range(3))
    table = device.tensor(normal(random, 64))
    return await pa.attention(q, k, v, score_mod=lambda s, b, h, q_idx, k_idx: s + table[k_idx]).numpy()


async def maps(device, random, size):
    q, k, v = (device.tensor(normal(random, 1, 2, size, 8)) for _ in range(3))
    _, lse = pa.attention(q, k, v, return_lse=True)
    weights = pa.attention_weights(q, k, lse, rows=slice(0, size, 2))
    words = [device.tensor(np.arange(size), "uint32") for _ in range(2)]
    sums = row_sums(pa.attention_weights(q, k, lse), *words)
    return np.concatenate([(await x.numpy()).ravel() for x in (weights, sums)])


async def backward(device, random, size):
    q, k, v, grad = (device.tensor(normal(random, 1, 2, size, 8)) for _ in range(4))
    out, lse = pa.attention(q, k, v, causal=True, return_lse=True)
    grads = pa.attention_backward(grad, q, k, v, out, lse, causal=True)
    return np.stack([await x.numpy() for x in grads])


async def packed(device, random, size):
    q, k, v, grad = (device.tensor(normal(random, size + 3, 2, 8)) for _ in range(4))
    ends = np.array([0, size // 2, size, size + 3], np.int32)
    out, lse = pa.varlen_attention(q, k, v, ends, ends, causal=True, return_lse=True)
    grads = pa.varlen_attention_backward(grad, q, k, v, out, lse, ends, ends, causal=True)
    return np.stack([await x.numpy() for x in (out, *grads)])


async def decoding(device, random, size):
    """A cache that becomes a ring, in one of the dtypes, and partial results that are merged."""
    dtype = ("float32", "float16", "turboquant4")[size % 3]
    cache = pa.KVCache(1, 2, max(4, size - 2), 16, dtype=dtype)
    cache.append(normal(random, 1, 2, size, 16), normal(random, 1, 2, size, 16))
    q = device.tensor(normal(random, 1, 4, 1, 16))
    parts = [pa.decode_attention(q, cache, return_lse=True, splits=splits) for splits in (1, 2)]
    return await pa.merge(parts).numpy()


async def quantization(device, random, size):
    x = device.tensor(normal(random, size, 32))
    return await pa.turboquant.dequantize(pa.turboquant.quantize(x, 1 + size % 4)).numpy()


async def layers(device, random, size):
    x, weight, bias = normal(random, size, 16), normal(random, 16, 16), normal(random, 16)
    x, weight, bias = (device.tensor(each) for each in (x, weight, bias))
    x = nn.linear(nn.layer_norm(x, bias, bias, residual=x), weight, bias, activation="gelu")
    return await nn.mean_pool(x).numpy()


async def matrices(device, random, size):
    blocks = [device.tensor(as_words(random_blocks(random, "Q8_0", 4 * 64 // 32)))]
    matrix = nn.pack_quantized(blocks, [4], 64, "Q8_0")
    x, norm = device.tensor(normal(random, size, 64)), device.tensor(normal(random, 64))
    return await nn.logits(x, norm, matrix, count=size).numpy()


FAMILIES = {
    each.__name__: each
    for each in (attention, half, modified, maps, backward, packed, decoding, quantization, layers, matrices)
}
