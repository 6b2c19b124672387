"""The maps of captured models are the attention weights that the same models return when they are eager."""

import numpy as np
import pytest
import torch
import transformers as tf

import py_attn as pa
from tests_transformers.models import DECODERS, EAGER_ONLY, ENCODER_DECODERS, MODELS, build, inputs

#: Queries and keys are rounded to 11 bits: scores s are off by about |s| / 1000, and weights are at most 1.
BOUND = 4e-3


def run(model, **given):
    with torch.no_grad():
        return model(**given)


def implementations(name):
    return ("eager",) if name in EAGER_ONLY else ("eager", "sdpa")


CASES = [(name, implementation) for name in MODELS for implementation in implementations(name)]


def expected(name, given):
    """The attention weights of the eager model by stack, [layers, B, H, Sq, Sk]."""
    out = run(build(name), **given, output_attentions=True)
    if name in ENCODER_DECODERS:
        found = {
            "encoder": out.encoder_attentions,
            "decoder": out.decoder_attentions,
            "cross": out.cross_attentions,
        }
    else:
        found = {"": out.attentions}
    return {kind: np.stack([layer.numpy() for layer in layers]) for kind, layers in found.items()}


def compare(maps, captured, wanted, batch=0, real=slice(None)):
    """Compare the rows ``real``, which are no padding."""
    for kind, weights in wanted.items():
        stack = captured[kind] if kind else captured.main
        found = maps(stack, batch)
        if stack.cross:
            keys = weights.shape[-1]
            assert not found[:, :, :keys].any()
            assert not found[..., keys:].any()
            found = found[:, :, keys:, :keys]
        error = np.abs(found - weights[:, batch])[:, :, real].max()
        assert error < BOUND, (kind, error)


@pytest.mark.parametrize(("name", "implementation"), CASES)
def test_the_maps_are_those_of_the_eager_model(name, implementation, maps):
    given = inputs(name)
    model = build(name, implementation)
    plain = run(model, **given)
    with pa.transformers.capture(model) as captured:
        out = run(model, **given)
    assert torch.equal(out[0], plain[0])  # the model computed as it always does
    wanted = expected(name, given)
    assert max(weights.max(axis=-1).mean() for weights in wanted.values()) > 0.15  # not uniform
    compare(maps, captured, wanted, batch=1)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("name", "implementation"), [case for case in CASES if case[0] not in ("vit", "whisper")]
)
def test_padding_is_hidden(name, implementation, side, maps):
    given = inputs(name, padded=side)
    model = build(name, implementation)
    with pa.transformers.capture(model) as captured:
        run(model, **given)
    rows = slice(6, None) if side == "left" else slice(0, -6)
    wanted = expected(name, given)
    for kind in wanted:
        compare(maps, captured, {kind: wanted[kind]}, 1, rows if kind in ("", "encoder") else slice(None))
    compare(maps, captured, wanted, 0)


@pytest.mark.parametrize(
    ("name", "implementation"), [case for case in CASES if case[0] in DECODERS + ENCODER_DECODERS]
)
def test_a_generated_text_is_captured_as_one(name, implementation, maps):
    given = inputs(name, 10)
    given.pop("decoder_input_ids", None)
    model = build(name, implementation)
    options = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    if "input_ids" in given:
        options["attention_mask"] = torch.ones_like(given["input_ids"])
    with pa.transformers.capture(model) as captured, torch.no_grad():
        # Whisper's own generate returns fewer tokens than it has computed.
        ids = tf.GenerationMixin.generate(model, **given, **options)
    # The newest token has not been through the model.
    length = captured.main.layers[0].query.shape[2]
    assert length == (8 if name in ENCODER_DECODERS else 17)
    whole = dict(given)
    whole["decoder_input_ids" if name in ENCODER_DECODERS else "input_ids"] = ids[:, :length]
    compare(maps, captured, expected(name, whole), batch=1)


def test_no_mask_is_kept_where_rules_say_the_same():
    for name in ("llama", "mistral", "gemma3", "bert"):
        model = build(name, "sdpa")
        with pa.transformers.capture(model) as captured:
            run(model, **inputs(name, padded="right"))
        for layer in captured.main.layers:
            causal, _, bias = layer.rules(1)
            assert causal == (name != "bert")
            assert bias is None or bias.shape == (1, 1, 1, 24)
    assert [layer.rules(0)[1] for layer in captured.main.layers] == [None, None]


def test_windows_differ_by_layer():
    model = build("gemma3", "sdpa")
    with pa.transformers.capture(model) as captured:
        run(model, **inputs("gemma3"))
    assert [layer.rules(0) for layer in captured.main.layers] == [(True, (4, None), None), (True, None, None)]


def test_queries_and_keys_are_half_and_values_on_request():
    model = build("llama", "sdpa")
    for values in (False, True):
        with pa.transformers.capture(model, values=values) as captured:
            run(model, **inputs("llama"))
        layer = captured.main.layers[0]
        assert (layer.query.dtype, layer.key.dtype) == (np.float16, np.float16)
        assert layer.query.shape == (2, 4, 24, 16)
        assert layer.key.shape == (2, 2, 24, 16)
        assert (layer.value is not None) == values


def test_numbers_beyond_half_precision_stay_in_single(maps):
    model = build("llama", "sdpa")
    with torch.no_grad():
        # Scores stay as they are: queries grow by as much as keys shrink.
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.mul_(1e6)
            layer.self_attn.k_proj.weight.mul_(1e-6)
    with pa.transformers.capture(model) as captured:
        run(model, **inputs("llama"))
    assert captured.main.layers[0].query.dtype == np.float32
    compare(maps, captured, expected("llama", inputs("llama")))


def test_bfloat16(maps):
    model = build("llama", "sdpa").bfloat16()
    with pa.transformers.capture(model) as captured:
        run(model, **inputs("llama"))
    eager = build("llama").bfloat16()
    out = run(eager, **inputs("llama"), output_attentions=True)
    wanted = np.stack([layer.float().numpy() for layer in out.attentions])[:, 0]
    assert np.abs(maps(captured.main) - wanted).max() < 0.02  # the eager softmax is in bfloat16
