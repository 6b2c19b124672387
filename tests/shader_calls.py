"""Calls whose shaders test_shaders.py looks at, of kernels that have many variants."""

import itertools

import numpy as np

import py_attn as pa
from py_attn.kernels import nn
from py_attn.kernels.decode.formats import DTYPES
from py_attn.kernels.decode.step import append_step, decode_attention_step, decode_partials_step
from py_attn.kernels.maps.row_sums import row_sums
from py_attn.kernels.steps import new_state

FLOATS = ("float32", "float16", "bfloat16")
VARIANTS = ("naive", "rows", "tiled", "subgroup")


def variants_of(device):
    return VARIANTS if device.info.subgroup_min_size >= 4 else VARIANTS[:3]


def functions(device):
    """One of each kind of expression, and of tensor that is looked up."""
    slopes = device.empty((4,), "float16")
    table = device.empty((4, 30), "bfloat16")
    documents = device.empty((2, 40), "int32")
    allowed = device.empty((40,), "bool")

    def arithmetic(score, b, h, q, k):
        near = pa.maximum(score, 0.3 * score) * pa.exp(-pa.abs(score) / 8) - (q // 2 - k) % 5
        far = score**2 / (1 + pa.sqrt(1.0 + k)) + score**0.5 % 2.0 // 1.0
        return pa.where(~((b == h) & (q != k)), near, pa.minimum(far, 3.0)) + pa.log(2.0 + pa.tanh(score))

    return {
        "alibi": {"score_mod": lambda score, b, h, q, k: score - slopes[h] * pa.abs(q - k)},
        "table": {"score_mod": lambda score, b, h, q, k: score + table[h, q - k + 9]},
        "arithmetic": {"score_mod": arithmetic},
        "document": {"mask_mod": lambda b, h, q, k: documents[b, q] == documents[b, k]},
        "listed": {"mask_mod": lambda b, h, q, k: (documents[b, q] == documents[b, k]) ^ allowed[k]},
        "both": {
            "score_mod": lambda score, b, h, q, k: pa.where(k > q, -np.inf, score),
            "mask_mod": lambda b, h, q, k: (q | k) & 3 != 1,
        },
    }


def inputs_of(device, kind="float32", value=12):
    sizes = ((2, 4, 9, 20), (2, 2, 11, 20), (2, 2, 11, value))
    return [device.empty(size, kind) for size in sizes]


def mods_and_sinks(device):
    """Both in every kernel that takes them."""
    query, key, value = inputs_of(device)
    lse = device.empty((2, 4, 9))
    for mods in functions(device).values():
        for variant in variants_of(device):
            pa.attention(query, key, value, **mods, variant=variant, return_lse=True)
            pa.attention(query, key, value, **mods, variant=variant, softcap=2.0)
        pa.attention_weights(query, key, lse, **mods)
    for sinks, variant in itertools.product(FLOATS, variants_of(device)):
        given = {"sinks": device.empty((4,), sinks), "variant": variant}
        pa.attention(query, key, value, **given)
        pa.attention(query, key, value, **given, mask=device.empty((9, 11), "bool"), return_lse=True)
    pa.onnx.flex_attention(query, key, value, prob_mod=lambda prob, b, h, q, k: prob * prob)


def packed_sequences(device):
    """Forward and backward."""
    for kind, variant in itertools.product(FLOATS, variants_of(device)):
        query, key, value = (device.empty((n, h, 20), kind) for n, h in ((30, 4), (40, 2), (40, 2)))
        cu = [0, 10, 30], [0, 0, 40]
        sinks = device.empty((4,))
        for options in ({}, {"causal": True, "softcap": 3.0, "sinks": sinks}, functions(device)["both"]):
            out, lse = pa.varlen_attention(
                query, key, value, *cu, **options, variant=variant, return_lse=True
            )
            pa.varlen_attention_backward(out, query, key, value, out, lse, *cu, **options)


def stored_gradients(device):
    """Backward passes that store the gradients of scores, of batches and of packed sequences."""
    if device.info.limits["maxStorageBuffersPerShaderStage"] < 10:
        return
    options = [{}, {"causal": True, "softcap": 3.0}, {"window": 5}, functions(device)["both"]]
    cu = [0, 10, 30], [0, 0, 40]
    for kind, chosen in itertools.product(FLOATS, options):
        query, key, value = inputs_of(device, kind)
        grad, lse = device.empty((2, 4, 9, 12), kind), device.empty((2, 4, 9))
        pa.attention_backward(grad, query, key, value, grad, lse, **chosen, variant="stored")
        query, key, value = (device.empty((n, h, 20), kind) for n, h in ((30, 4), (40, 2), (40, 2)))
        lse = device.empty((4, 30))
        pa.varlen_attention_backward(query, query, key, value, query, lse, *cu, **chosen, variant="stored")


def gradients(device):
    """Of dense calls."""
    calls = [{}, {"softcap": 2.0}, {"kv_lengths": [3, 11]}, {"sinks": device.empty((4,))}]
    calls += [{"mask": device.empty((9, 11), mask)} for mask in ("bool", *FLOATS)]
    # The pass over keys has room for one tensor to look up where there are eight buffers.
    calls += [mods for name, mods in functions(device).items() if name != "listed"]
    for kind in FLOATS:
        query, key, value = inputs_of(device, kind)
        lse = device.empty((2, 4, 9))
        for options in calls if kind == "float32" else calls[:3]:
            grad = device.empty((2, 4, 9, 12), kind)
            pa.attention_backward(grad, query, key, value, grad, lse, **options)
    shared = inputs_of(device)
    query, key, value = shared[0], shared[1][:1], shared[2][:1]
    lse, grad = device.empty((2, 4, 9)), device.empty((2, 4, 9, 12))
    pa.attention_backward(grad, query, key, value, grad, lse, grad_lse=lse)
    for kind in FLOATS:
        halves = [x if kind == "float32" else device.empty(x.shape, kind) for x in (key, value)]
        mask = device.empty((4, 1, 11), kind)
        options = {"mask": mask, "mask_gradient": True}
        pa.attention_backward(grad, query, *halves, grad, lse, **options)
        table = device.empty((4, 20), kind)
        for mod in (
            lambda score, b, h, q, k, table=table: score + table[h, q],
            lambda score, b, h, q, k, table=table: pa.tanh(score) * table[h, q - k + 9] + table[h, q % 3],
        ):
            options = {"score_mod": mod, "captured": [table]}
            pa.attention_backward(grad, query, key, value, grad, lse, **options)
    read = [device.empty((4,), dtype) for dtype in (*FLOATS, "int32", "uint32", "bool")]

    def reads_many(score, b, h, q, k):
        *numbers, condition = (tensor[h] for tensor in read)
        return pa.where(condition, score, score * sum(numbers, 0.0))

    query, key, value = inputs_of(device)
    lse = device.empty((2, 4, 9))
    options = {"score_mod": reads_many}
    pa.attention(query, key, value, **options)
    pa.attention_weights(query, key, lse, **options)
    pa.attention_backward(grad, query, key, value, grad, lse, captured=read[:2], **options)
    for dim, value in ((1, 1), (64, 64), (128, 128), (65, 3)):
        sizes = ((1, 2, 5, dim), (1, 1, 6, dim), (1, 1, 6, value), (1, 2, 5, value))
        query, key, value_tensor, grad = (device.empty(size) for size in sizes)
        pa.attention_backward(grad, query, key, value_tensor, grad, device.empty((1, 2, 5)), causal=True)


def findings(device):
    """What sums rows of weights."""
    words = device.empty((40,), "uint32")
    row_sums(device.empty((2, 3, 20, 40)), words, words, row_begin=1, row_step=2)


def decoding(device):
    """Quantised caches, kept tokens, sinks and mods."""
    kinds = ("float32", "float16", "turboquant4", "turboquant3", "turboquant2", "turboquant1")
    mods = functions(device)
    for kind in kinds:
        for sink_tokens, dim in itertools.product((0, 3), (20, 64)):
            cache = pa.KVCache(2, 2, 32, dim, dtype=kind, sink_tokens=sink_tokens, device=device)
            rows = device.empty((2, 2, 40, dim))
            cache.append(rows, rows)
            query = device.empty((2, 4, 1, dim))
            sinks = device.empty((4,), "float16")
            for options in ({"splits": 1, "sinks": sinks}, {"splits": 3, "sinks": sinks}, {"window": 4}):
                pa.decode_attention(query, cache, **options, return_lse=True)
            for functions_ in mods.values() if sink_tokens else ():
                pa.decode_attention(query, cache, **functions_)
    for bits, qjl in itertools.product((2, 3, 4), (False, True)):
        cache = pa.KVCache(1, 1, 32, 64, dtype=(f"turboquant{bits}", "float32"), qjl=qjl, device=device)
        rows = device.empty((1, 1, 4, 64))
        cache.append(rows, rows)
        pa.decode_attention(device.empty((1, 1, 1, 64)), cache)
        for kind, dim in itertools.product(FLOATS, (7, 64, 512)):
            packed = pa.turboquant.quantize(device.empty((5, dim), kind), bits, qjl=qjl)
            pa.turboquant.dequantize(packed)


def new_cache(device, kind, dim, **options):
    """A cache for two sequences, with scales where its dtype takes them."""
    scales = {"k_scale": 0.1, "v_scale": 0.1} if kind == "int8" else {}
    return pa.KVCache(2, 2, 32, dim, dtype=kind, device=device, **scales, **options)


def elements(device):
    """Lengths and left padding of batch elements."""
    padding = device.empty((2,), "int32")
    both = functions(device)["both"]
    for kind, (sink_tokens, dim) in itertools.product(DTYPES, ((0, 20), (3, 64))):
        rows, query = device.empty((2, 2, 5, dim)), device.empty((2, 4, 1, dim))
        for ragged in (False, True):
            cache = new_cache(device, kind, dim, sink_tokens=sink_tokens, ragged=ragged)
            cache.append(rows, rows)
            if ragged:
                cache.append(rows, rows, lengths=padding)
                pa.decode_attention(query, cache, splits=3)
            for options in ({"splits": 1}, {"splits": 3}, {"window": 4}, both):
                pa.decode_attention(query, cache, **options, left_padding=padding, return_lse=True)


def pages(device):
    """Appends and decodes through a block table."""
    padding, both = device.empty((2,), "int32"), functions(device)["document"]
    for kind, (sink_tokens, dim) in itertools.product(DTYPES, ((0, 20), (3, 64))):
        scales = {"k_scale": 0.1, "v_scale": 0.1} if kind == "int8" else {}
        cache = pa.PagedKVCache(
            2,
            9,
            dim,
            block_table=[[1, 2], [0, 8]],
            dtype=kind,
            sink_tokens=sink_tokens,
            device=device,
            **scales,
        )
        rows, query = device.empty((2, 2, 5, dim)), device.empty((2, 4, 1, dim))
        cache.append(rows, rows, lengths=padding)
        for options in ({"splits": 1}, {"splits": 3}, {"window": 4}, {"left_padding": padding}, both):
            pa.decode_attention(query, cache, **options)


def rotary_embeddings(device):
    """Of rows, in appends and of a decode's query."""
    for kind, interleaved in itertools.product(FLOATS, (False, True)):
        tables = [device.empty((64, 8), kind) for _ in range(2)]
        x, first, each = device.empty((2, 4, 5, 20), kind), device.empty((2,), "int32"), [[0, 1, 2, 3, 4]]
        for positions in (3, first, each):
            pa.rotary(x, *tables, positions=positions, interleaved=interleaved)
        turned = {"rotary": tables, "rotary_interleaved": interleaved}
        rows = x[:, :2]
        for dtype, ragged in itertools.product(("float16", "turboquant3", "int8", "q4_0"), (False, True)):
            cache = new_cache(device, dtype, 20, ragged=ragged)
            cache.append(rows, rows, **turned)
            pa.decode_attention(x, cache, **turned)


def merging(device):
    """Partial results of every dtype, with and without what lies behind an LSE."""
    query, key, value = inputs_of(device)
    made = pa.attention(query, key, value, return_lse=True)
    for kind, return_lse in itertools.product(FLOATS, (False, True)):
        for dim in (7, 12):
            parts = [(device.empty((2, 4, 9, dim), kind), device.empty((2, 4, 9))) for _ in range(3)]
            pa.merge(parts, return_lse=return_lse)
        turned = device.empty((2, 9, 4, 12), kind).transpose(0, 2, 1, 3)
        pa.merge([made, (turned, made[1])], return_lse=return_lse)


def steps(device):
    """Decoding and appending at the position of a state."""
    state = new_state(device)
    for kind, (sink_tokens, dim) in itertools.product(DTYPES, ((0, 20), (3, 64))):
        cache = new_cache(device, kind, dim, sink_tokens=sink_tokens)
        rows = device.empty((2, 2, 5, dim))
        append_step(rows, rows, cache, state)
        query = device.empty((2, 40, 4, dim)).transpose(0, 2, 1, 3)
        for splits in (1, 3):
            decode_attention_step(query, cache, state, splits=splits)
            if not cache.value_format:
                decode_partials_step(query, cache, state, splits=splits)


def language_model(device):
    """The products of a layer with quantised weights."""
    state, x, norm = new_state(device), device.empty((40, 64)), device.empty((64,))
    rope, query = device.empty((40, 16, 2)), device.empty((40, 2, 32))

    def matrix(rows, form):
        words = -(-rows * 2 * {"Q4_1": 20, "Q8_0": 34}[form] // 4)
        return nn.pack_quantized([device.empty((words,), "uint32")], [rows], 64, form)

    for form, count in itertools.product(("Q4_1", "Q8_0"), (1, 3, 20)):
        nn.embed_tokens(device.empty((41,), "uint32"), matrix(50, form), x, state, count=count)
        shared = {"count": count, "head_dim": 32, "heads": 2, "kv_heads": 1}
        for kinds in itertools.product(FLOATS, repeat=2):
            key, value = (device.empty((1, 1, 30, 32), kind) for kind in kinds)
            nn.project_qkv(x, norm, matrix(128, form), rope, query, key, value, state, **shared, kept=2)
        key, value = (device.empty((1, 1, count, 32)) for _ in range(2))
        nn.project_qkv(x, norm, matrix(128, form), rope, query, key, value, state, **shared, cache=False)
        given = [device.empty((count, 64))]
        if count == 1:
            given += [(device.empty((1, 2, 1, 5, 32)), device.empty((1, 2, 1, 5, 2)))]
        for inputs, scale in itertools.product(given, (None, device.empty((2,)))):
            options = {"count": count, "head_scale": scale, "heads": 2}
            nn.add_projection(x, inputs, matrix(64, form), state, **options)
        nn.gated_linear(x, norm, matrix(90, form), state, count=count)
        for rows, at in itertools.product((50, 51), (None, state)):
            nn.logits(x, norm, matrix(rows, form), state=at, count=count)


ALL = (
    mods_and_sinks,
    packed_sequences,
    gradients,
    stored_gradients,
    findings,
    decoding,
    elements,
    pages,
    rotary_embeddings,
    merging,
    steps,
    language_model,
)
