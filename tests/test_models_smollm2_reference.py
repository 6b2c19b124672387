"""SmolLM2's numpy forward pass: properties on a tiny random model, and the real one against transformers."""

import hashlib
import json
import math
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import quants

from py_attn import turboquant_reference
from py_attn.models import smollm2_reference as smollm2
from py_attn.models.cache_options import is_held
from py_attn.models.files import BytesFile
from tests.tiny_gguf import quantize_q4_1, quantize_q8_0, tiny_gguf

FIXTURE = Path(__file__).parent / "fixtures" / "smollm2.json"

#: transformers computes in float32, with logits of up to 45; it comes as close as 3e-5.
LOGIT_ERROR = 1e-4


@pytest.fixture(scope="module")
def model():
    return smollm2.read_weights(BytesFile(tiny_gguf(layers=3, heads=4, kv_heads=2)))


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(5).integers(0, 250, 24).tolist()


def test_weights_are_those_of_the_file(model):
    config, weights = model
    assert (config.layers, config.heads, config.kv_heads, config.head_dim) == (3, 4, 2, 16)
    assert weights["token_embd.weight"].shape == (config.vocabulary, config.width)
    assert weights["blk.2.ffn_down.weight"].shape == (config.width, config.inner)
    assert len(weights) == 2 + 9 * 3
    assert {weight.dtype for weight in weights.values()} == {np.dtype(np.float32)}


# The parts


@pytest.mark.parametrize("name", ["F32", "F16", "Q4_1", "Q8_0"])
def test_dequantize_agrees_with_the_gguf_package(name):
    kind = gguf.GGMLQuantizationType[name]
    values = np.random.default_rng(0).standard_normal((6, 96), np.float32)
    data = quants.quantize(values, kind)
    ours = smollm2.dequantize(name, values.shape, data.tobytes())
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, quants.dequantize(data, kind))
    quantize = {"Q4_1": quantize_q4_1, "Q8_0": quantize_q8_0}.get(name)
    if quantize:
        assert quantize(values) == data.tobytes()


def test_dequantize_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="expected a tensor of type F32, F16, Q4_1, Q8_0, got Q4_K"):
        smollm2.dequantize("Q4_K", (256,), bytes(144))
    for shape, size in (((32,), 19), ((40,), 20), ((2, 32), 20), ((0,), 20)):
        with pytest.raises(ValueError, match=rf"got {size} bytes for shape .* blocks of 20 bytes for 32"):
            smollm2.dequantize("Q4_1", shape, bytes(size))
    assert smollm2.dequantize("Q4_1", (0, 32), b"").shape == (0, 32)
    assert math.isinf(smollm2.dequantize("F16", (1,), b"\0\x7c")[0])


@pytest.mark.parametrize(("cache", "unit"), [("float16", 2**-11), ("bfloat16", 2**-8)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_caches_round_to_the_nearest(cache, unit, dtype):
    x = np.random.default_rng(4).standard_normal((3, 64)).astype(dtype)
    found = smollm2.stored(x, cache)
    assert found.dtype == dtype
    assert 0 < np.abs(found / x - 1).max() <= unit
    np.testing.assert_array_equal(smollm2.stored(found, cache), found)
    # Half way between two numbers of the cache's: the even one.
    ties = np.array([1 + unit, 1 + 3 * unit], dtype)
    np.testing.assert_array_equal(smollm2.stored(ties, cache), [1, 1 + 4 * unit])


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_quantised_caches_are_turboquants(bits):
    x = np.random.default_rng(4).standard_normal((2, 3, 64))
    expected = turboquant_reference.dequantize(turboquant_reference.quantize(x, bits))
    np.testing.assert_array_equal(smollm2.stored(x, f"turboquant{bits}"), expected)


def test_visibility_of_a_ring():
    expected = [
        "1.......",
        "11......",
        "111.....",
        "1111....",
        "1.111...",
        "1..111..",
        "1...111.",
        "1....111",
    ]
    for count in (1, 3, 8):
        seen = smollm2.visible(np.arange(8)[-count:], 8, capacity=4, kept=1)
        assert ["".join(".1"[int(s)] for s in row) for row in seen] == expected[-count:]
        query, key = np.arange(8)[-count:, None], np.arange(8)
        np.testing.assert_array_equal(is_held(query, key, 4, 1) & (key <= query), seen)
    np.testing.assert_array_equal(smollm2.visible(np.arange(8), 8), np.tri(8, dtype=bool))


# The whole


def written_out(config, weights, ids):
    """Logits of the last token, computed number by number without the reference's functions."""
    weights = {name: weight.astype(np.float64) for name, weight in weights.items()}

    def norm(x, name):
        return x / np.sqrt(np.mean(x**2) + config.epsilon) * weights[f"{name}.weight"]

    def turned(x, position):
        result = []
        for i in range(0, config.head_dim, 2):
            angle = position / config.rope_base ** (i / config.head_dim)
            result += [x[i] * np.cos(angle) - x[i + 1] * np.sin(angle)]
            result += [x[i] * np.sin(angle) + x[i + 1] * np.cos(angle)]
        return np.array(result)

    rows = [weights["token_embd.weight"][token] for token in ids]
    for layer in range(config.layers):
        block, keys, values, after = f"blk.{layer}", [], [], []
        for position, x in enumerate(rows):
            normal = norm(x, f"{block}.attn_norm")
            query, key, value = (
                (weights[f"{block}.attn_{name}.weight"] @ normal).reshape(-1, config.head_dim)
                for name in "qkv"
            )
            keys.append([turned(head, position) for head in key])
            values.append(value)
            heads = []
            for head in range(config.heads):
                shared = head * config.kv_heads // config.heads
                asked = turned(query[head], position) / config.head_dim**0.5
                e = np.exp([asked @ key[shared] for key in keys])
                heads.append(sum(n * value[shared] for n, value in zip(e / e.sum(), values, strict=True)))
            x = x + weights[f"{block}.attn_output.weight"] @ np.concatenate(heads)
            normal = norm(x, f"{block}.ffn_norm")
            gate, up = (weights[f"{block}.ffn_{name}.weight"] @ normal for name in ("gate", "up"))
            after.append(x + weights[f"{block}.ffn_down.weight"] @ (gate / (1 + np.exp(-gate)) * up))
        rows = after
    return weights["token_embd.weight"] @ norm(rows[-1], "output_norm")


def test_forward_is_what_the_formulas_give(model, ids):
    config, weights = model
    hidden = smollm2.forward(config, weights, ids).hidden
    found = smollm2.logits(config, weights, hidden[-1:])[0]
    np.testing.assert_allclose(found, written_out(config, weights, ids), rtol=0, atol=1e-11)


def test_float32_comes_close_and_stays_float32(model, ids):
    config, weights = model
    exact, single = (
        smollm2.logits(config, weights, smollm2.forward(config, weights, ids, dtype=dtype).hidden, dtype)
        for dtype in (np.float64, np.float32)
    )
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, exact, rtol=0, atol=1e-4 * np.abs(exact).max())


def test_later_tokens_change_nothing(model, ids):
    whole = smollm2.forward(*model, ids)
    part = smollm2.forward(*model, [*ids[:10], *reversed(ids[10:])])
    np.testing.assert_allclose(whole.hidden[:10], part.hidden[:10], rtol=0, atol=1e-12)
    assert not np.allclose(whole.hidden[10:], part.hidden[10:])


CACHES = [
    {},
    {"cache": "float16"},
    {"cache": "turboquant3"},
    {"capacity": 8},
    {"capacity": 8, "kept": 2, "cache": "bfloat16"},
    {"heads_off": [(0, 1), (2, 3)]},
]


@pytest.mark.parametrize("options", CACHES)
def test_token_by_token_is_the_same_as_at_once(model, ids, options):
    whole = smollm2.forward(*model, ids, layers=True, **options)
    text = smollm2.Text(*model, **options)
    parts = [text.extend(ids[:5]), *(text.extend([token], layers=True) for token in ids[5:])]
    assert text.length == len(ids)
    hidden = np.concatenate([part.hidden for part in parts])
    np.testing.assert_allclose(hidden, whole.hidden, rtol=0, atol=1e-10)
    for layer, last in zip(whole.layers, parts[-1].layers, strict=True):
        np.testing.assert_allclose(last.key, layer.key, rtol=0, atol=1e-10)
        np.testing.assert_allclose(last.value, layer.value, rtol=0, atol=1e-10)
        np.testing.assert_allclose(last.query[:, 0], layer.query[:, -1], rtol=0, atol=1e-10)
        np.testing.assert_allclose(last.weights[:, 0], layer.weights[:, -1], rtol=0, atol=1e-10)


def test_a_ring_that_holds_the_text_is_no_ring(model, ids):
    plain = smollm2.forward(*model, ids).hidden
    for capacity, kept in ((24, 0), (24, 3), (100, 99)):
        ring = smollm2.forward(*model, ids, capacity=capacity, kept=kept).hidden
        np.testing.assert_array_equal(ring, plain)
    ring = smollm2.forward(*model, ids, capacity=23).hidden
    np.testing.assert_array_equal(ring[:23], plain[:23])
    assert not np.allclose(ring[23], plain[23])


def test_a_ring_forgets_and_keeps(model, ids):
    other = [7, 8, *ids[2:]]
    for kept, same in ((0, True), (2, False)):
        found, changed = (
            smollm2.forward(*model, text, capacity=4 + kept, kept=kept).hidden[-1] for text in (ids, other)
        )
        # In three layers a token sees back at most three times three tokens.
        assert np.allclose(found, changed, rtol=0, atol=1e-12) == same


def test_weights_are_a_distribution_over_what_is_seen(model, ids):
    for capacity, kept in ((None, 0), (6, 2)):
        seen = smollm2.visible(np.arange(len(ids)), len(ids), capacity, kept)
        for layer in smollm2.forward(*model, ids, layers=True, capacity=capacity, kept=kept).layers:
            assert layer.weights.shape == (4, 24, 24)
            assert layer.key.shape == layer.value.shape == (2, 24, 16)
            np.testing.assert_allclose(layer.weights.sum(-1), 1, rtol=1e-12)
            np.testing.assert_array_equal(layer.weights > 0, np.broadcast_to(seen, (4, 24, 24)))


def test_grouped_heads_are_repeated_heads(model, ids):
    config, weights = model
    repeated = dict(weights)
    for layer in range(config.layers):
        for name in ("attn_k", "attn_v"):
            heads = weights[f"blk.{layer}.{name}.weight"].reshape(config.kv_heads, config.head_dim, -1)
            repeated[f"blk.{layer}.{name}.weight"] = np.repeat(heads, 2, axis=0).reshape(config.width, -1)
    # The sizes of a model that has a key and a value head for each query head.
    more, _ = smollm2.read_weights(BytesFile(tiny_gguf(layers=3, heads=4, kv_heads=4)))
    np.testing.assert_allclose(
        smollm2.forward(more, repeated, ids).hidden,
        smollm2.forward(config, weights, ids).hidden,
        rtol=0,
        atol=1e-12,
    )


def test_without_heads_attention_adds_nothing(model, ids):
    config, weights = model
    everything = {(layer, head) for layer in range(config.layers) for head in range(config.heads)}
    silent = weights | {
        f"blk.{layer}.attn_output.weight": np.zeros((config.width, config.width), np.float32)
        for layer in range(config.layers)
    }
    np.testing.assert_array_equal(
        smollm2.forward(config, weights, ids, heads_off=everything).hidden,
        smollm2.forward(config, silent, ids).hidden,
    )


def test_a_head_that_is_off_is_a_part_of_the_projection_that_is_zero(model, ids):
    config, weights = model
    name = "blk.1.attn_output.weight"
    cut = weights[name].copy()
    cut[:, 2 * config.head_dim : 3 * config.head_dim] = 0
    off = smollm2.forward(config, weights, ids, heads_off={(1, 2)}).hidden
    np.testing.assert_allclose(
        off, smollm2.forward(config, weights | {name: cut}, ids).hidden, rtol=0, atol=1e-12
    )
    assert not np.allclose(off, smollm2.forward(config, weights, ids).hidden)


@pytest.mark.parametrize("options", CACHES)
def test_greedy_takes_the_likeliest_of_the_whole_text(model, ids, options):
    config, weights = model
    written = smollm2.greedy(config, weights, ids, 12, **options)
    text = list(ids)
    for token in written:
        hidden = smollm2.forward(config, weights, text, **options).hidden[-1:]
        assert smollm2.logits(config, weights, hidden).argmax() == token
        text.append(token)
    assert len(written) == 12


def test_greedy_ends(model, ids):
    written = smollm2.greedy(*model, ids, 12)
    last = written[4]
    stopped = smollm2.greedy(*model, ids, 12, end_tokens=[last])
    assert stopped == written[: written.index(last) + 1]
    assert smollm2.greedy(*model, ids, 0) == []


def test_log_probabilities_are_those_of_the_softmax(model, ids):
    config, weights = model
    logits = smollm2.logits(config, weights, smollm2.forward(config, weights, ids).hidden)
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = np.log([row[token] for row, token in zip(probabilities[:-1], ids[1:], strict=True)])
    np.testing.assert_allclose(smollm2.log_probabilities(config, weights, ids), expected, rtol=1e-11)
    assert smollm2.log_probabilities(config, weights, ids[:1]).shape == (0,)


# The real model


@pytest.fixture(scope="module")
def published():
    return json.loads(FIXTURE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def real(smollm2_file):
    """SmolLM2 with weights in float64, so that they are converted once."""
    config, weights = smollm2.read_weights(smollm2_file)
    return config, {name: weight.astype(np.float64) for name, weight in weights.items()}


def test_fixture_is_of_the_same_file(smollm2_file, published):
    data = smollm2_file.read(0, smollm2_file.size)
    assert hashlib.sha256(data).hexdigest() == published["file"]


def test_sizes_of_the_real_model(real):
    config, weights = real
    assert (config.layers, config.width, config.inner, config.vocabulary) == (30, 576, 1536, 49152)
    assert (config.heads, config.kv_heads, config.head_dim) == (9, 3, 64)
    assert (config.rope_base, np.float32(config.epsilon)) == (1e5, np.float32(1e-5))
    assert len(weights) == 272


def test_real_continuations_are_those_of_transformers(real, published):
    assert len(published["continuations"]) >= 6
    for row in published["continuations"]:
        ids, written = row["ids"], row["written"]
        hidden = smollm2.forward(*real, (ids + written)[:-1]).hidden[len(ids) - 1 :]
        logits = smollm2.logits(*real, hidden)
        # The likeliest token at each place is the next one: what greedy decoding writes.
        assert logits.argmax(-1).tolist() == written, row["prompt"]
        first, second = np.partition(logits, -2)[:, [-1, -2]].T
        assert (first - second).min() == pytest.approx(row["smallest_gap"], abs=LOGIT_ERROR)
        for top in row["top"]:
            found = logits[top["written"]]
            np.testing.assert_allclose(found[top["ids"]], top["logits"], rtol=0, atol=LOGIT_ERROR)
            assert (found > top["logits"][-1] + LOGIT_ERROR).sum() < 10


def test_real_greedy_continuation(real, published):
    row = published["continuations"][0]
    written = smollm2.greedy(*real, row["ids"], 40, end_tokens=real[0].end_tokens)
    assert written == row["written"]
    assert len(written) < 40


def test_real_attention_is_that_of_transformers(real, published):
    expected = published["attention"]
    layer = smollm2.forward(*real, expected["ids"], layers=True).layers[expected["layer"]]
    np.testing.assert_allclose(layer.weights, expected["weights"], rtol=0, atol=1e-5)


def test_real_log_probabilities_are_those_of_transformers(real, published):
    expected = published["text"]
    count = 160
    found = smollm2.log_probabilities(*real, expected["ids"][:count])
    np.testing.assert_allclose(found, expected["log_probabilities"][: count - 1], rtol=0, atol=LOGIT_ERROR)
