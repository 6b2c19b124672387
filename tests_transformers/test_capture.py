"""How `capture` behaves: errors, exceptions, several passes, nesting, long texts, and the view."""

import sys
import tracemalloc

import numpy as np
import pytest
import torch
import transformers as tf

import py_attn as pa
from py_attn.viewer.engines.engine import Style, Window
from py_attn.viewer.engines.gpu import GPUEngine
from py_attn.viewer.engines.host import ReferenceEngine
from py_attn.viewer.sources.captured import captured_source
from tests_transformers.models import SMALL, build, inputs
from tests_transformers.test_models import compare, expected, run

ORIGINAL = tf.AttentionInterface.get_interface


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    assert tf.AttentionInterface.get_interface is ORIGINAL


def test_an_exception_leaves_everything_as_it_was():
    model = build("llama", "sdpa")

    def run_and_fail():
        with pa.transformers.capture(model):
            run(model, **inputs("llama"))
            assert tf.AttentionInterface.get_interface is not ORIGINAL
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_and_fail()
    assert model.config._attn_implementation == "sdpa"
    assert tf.AttentionInterface.get_interface is ORIGINAL


def test_a_capture_is_used_once():
    model = build("llama", "sdpa")
    captured = pa.transformers.capture(model)
    with captured:
        pass
    with pytest.raises(RuntimeError, match="is for one `with`"), captured:
        pass


def test_a_model_is_not_captured_twice_at_once():
    model = build("llama", "sdpa")
    with pa.transformers.capture(model) as captured:
        with (
            pytest.raises(RuntimeError, match="being captured already"),
            pa.transformers.capture(model.model),
        ):
            pass
        run(model, **inputs("llama"))
    assert len(captured.main.layers) == 2


def test_two_models_are_captured_beside_each_other():
    first, second = build("llama", "sdpa"), build("bert", "sdpa")
    with pa.transformers.capture(first) as one:
        with pa.transformers.capture(second) as other:
            run(first, **inputs("llama"))
            run(second, **inputs("bert"))
        run(first, **inputs("llama", 12))
    assert one.main.layers[0].query.shape == (2, 4, 12, 16)
    assert other.main.layers[0].query.shape == (2, 4, 24, 8)


def test_a_part_of_a_model():
    model = build("bart", "sdpa")
    with pa.transformers.capture(model.model.encoder) as captured:
        run(model, **inputs("bart"))
    assert list(captured.stacks) == ["self"]


def test_the_last_of_several_passes_counts(maps):
    model = build("mistral", "sdpa")
    with pa.transformers.capture(model) as captured:
        run(model, **inputs("mistral", 30))
        run(model, **inputs("mistral", 18))
    compare(maps, captured, expected("mistral", inputs("mistral", 18)))


def test_a_module_that_a_pass_calls_twice_is_two_layers(maps):
    model, given = build("albert", "sdpa"), inputs("albert")
    with pa.transformers.capture(model) as captured:
        run(model, input_ids=given["input_ids"][:, :9])
        run(model, **given)
    first, second = captured.main.layers
    assert second.name == f"{first.name} (call 2)"
    compare(maps, captured, expected("albert", given))


def test_a_failed_pass_does_not_count(maps):
    model, given = build("albert", "sdpa"), inputs("albert")
    with pa.transformers.capture(model) as captured:
        with pytest.raises(IndexError):
            run(model, input_ids=given["input_ids"] + 1000)
        run(model.encoder, hidden_states=torch.zeros(1, 3, 16))
        run(model, **given)
    assert len(captured.main.layers) == 2
    compare(maps, captured, expected("albert", given))


def test_nothing_was_captured():
    model = build("llama", "sdpa")
    with pa.transformers.capture(model) as captured:
        pass
    assert repr(captured) == "<Captured LlamaForCausalLM: nothing yet>"
    with pytest.raises(
        ValueError, match="no attention of LlamaForCausalLM was captured: call the model inside"
    ):
        _ = captured.stacks
    run(model, **inputs("llama"))  # after the with
    with pytest.raises(ValueError, match="no attention"):
        _ = captured.main


def test_what_is_there_has_names():
    model = build("bart", "sdpa")
    with pa.transformers.capture(model) as captured:
        run(model, **inputs("bart"))
    assert repr(captured) == (
        "<Captured BartForConditionalGeneration: 'encoder' (2 layers), 'decoder' (2 layers), "
        "'cross' (2 layers)>"
    )
    assert captured.main is captured["decoder"]
    assert captured["cross"].layers[1].name == "model.decoder.layers.1.encoder_attn"
    with pytest.raises(KeyError, match="expected one of encoder, decoder, cross, got 'self'"):
        _ = captured["self"]


def test_models_without_such_attention_are_refused():
    with pytest.raises(TypeError, match=r"model: expected a model of transformers .*, got str"):
        pa.transformers.capture("bert-base-uncased")
    with pytest.raises(
        ValueError, match=r"attention that goes through transformers' AttentionInterface.*Linear"
    ):
        pa.transformers.capture(torch.nn.Linear(2, 2))
    bloom = tf.BloomModel(tf.BloomConfig(vocab_size=9, hidden_size=8, n_layer=1, n_head=2))
    with pytest.raises(ValueError, match="that of BloomModel does not; use output_attentions"):
        pa.transformers.capture(bloom)


def test_an_old_transformers_is_refused(monkeypatch):
    model = build("llama", "sdpa")
    # The library replaces its module while it is imported.
    monkeypatch.setattr(sys.modules["transformers"], "AttentionInterface", object)
    with pytest.raises(ImportError, match=r"needs transformers 5\.0 or later, this is"):
        pa.transformers.capture(model)


def test_a_cache_from_before_is_refused():
    model = build("llama", "sdpa")
    ids = inputs("llama")["input_ids"]
    cache = run(model, input_ids=ids, use_cache=True).past_key_values
    with pa.transformers.capture(model) as captured:
        run(model, input_ids=ids[:, :1], past_key_values=cache)
    with pytest.raises(
        ValueError, match=r"self_attn was not captured as a whole: .* before the capture began"
    ):
        _ = captured.stacks


def test_beam_search_is_refused():
    model = build("llama", "sdpa")
    ids = inputs("llama", 6)["input_ids"]
    with pa.transformers.capture(model) as captured, torch.no_grad():
        model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=4, max_new_tokens=12, min_new_tokens=12
        )
    with pytest.raises(ValueError, match="beam search"):
        _ = captured.stacks


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_a_static_cache(name, maps):
    model = build(name, "sdpa")
    ids = inputs(name, 10)["input_ids"]
    with pa.transformers.capture(model) as captured, torch.no_grad():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=6,
            min_new_tokens=6,
            do_sample=False,
            cache_implementation="static",
            disable_compile=True,
        )
    compare(maps, captured, expected(name, {"input_ids": out[:, :-1]}))


def test_a_prompt_in_parts_and_a_cropped_cache(maps):
    model = build("llama", "sdpa")
    ids = inputs("llama", 24)["input_ids"]
    with pa.transformers.capture(model) as captured:
        cache = run(model, input_ids=ids[:, :10], use_cache=True).past_key_values
        run(model, input_ids=ids[:, 1:9], past_key_values=cache)
        cache.crop(-8)
        run(model, input_ids=ids[:, 10:], past_key_values=cache)
    compare(maps, captured, expected("llama", {"input_ids": ids}))


def test_training_computes_the_same_gradients():
    gradients = []
    for capturing in (False, True):
        model = build("llama", "sdpa").train()
        given = inputs("llama")
        if capturing:
            with pa.transformers.capture(model):
                model(**given, labels=given["input_ids"]).loss.backward()
        else:
            model(**given, labels=given["input_ids"]).loss.backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_sixteen_thousand_tokens(engine, runner):
    length, dim = 16_384, 16
    small = SMALL | {"hidden_size": dim, "num_attention_heads": 1, "num_hidden_layers": 1}
    config = tf.LlamaConfig(**small | {"max_position_embeddings": length})
    model = tf.LlamaModel._from_config(config, attn_implementation="sdpa").eval()
    ids = torch.randint(0, 99, (1, length), generator=torch.Generator().manual_seed(0))
    tracemalloc.start()
    with pa.transformers.capture(model) as captured:
        run(model, input_ids=ids)
    source = captured_source(captured.main, tokens=None, title="", batch=0)
    rows, columns = slice(length - 40, length), slice(0, length)
    if not isinstance(engine, GPUEngine):
        with pytest.raises(ValueError, match="expected at most 2,048 without a GPU, got 16,384"):
            engine.check(source.heads, source.length, source.head_dim)
    found = runner.run(engine.weights(source.layers[0], source.masking, Window([0], rows, columns)))[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < length**2 / 8  # bytes: an eighth of a mask with one byte for each weight
    layer = captured.main.layers[0]
    query, key = (torch.from_numpy(x[0, 0].astype(np.float32)) for x in (layer.query, layer.key))
    scores = query[rows] @ key.T * dim**-0.5
    later = torch.arange(length)[None, :] > torch.arange(length - 40, length)[:, None]
    exact = scores.masked_fill(later, -torch.inf).softmax(-1).numpy()
    assert np.abs(found - exact).max() < 1e-5


def test_gradients_of_values_in_half_precision(engine, runner):
    model = build("gpt_oss")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.v_proj.weight.mul_(1000)  # the squares of outputs are beyond float16
    with pa.transformers.capture(model, values=True) as captured:
        run(model, **inputs("gpt_oss"))
    source = captured_source(captured.main, tokens=None, title="", batch=0)
    layer = source.layers[0]
    assert layer.value.dtype == np.float16
    window = Window([0, 1, 2, 3], slice(0, 24), slice(0, 24))
    found = runner.run(engine.weights(layer, source.masking, window, Style("gradient")))
    exact = runner.run(ReferenceEngine().weights(layer, source.masking, window, Style("gradient")))
    assert np.isfinite(exact).all()
    assert np.abs(found - exact).max() < 4e-3 * np.abs(exact).max()
    layer.kept.clear()


def test_a_view_of_what_was_captured():
    from py_attn.widget import AttentionView

    model = build("gemma2")
    with pa.transformers.capture(model) as captured:
        run(model, **inputs("gemma2"))
    view = AttentionView(captured, tokens=[f"t{i}" for i in range(24)], batch=1)
    assert (view.title, view.source["layers"], view.source["kvHeads"]) == ("Gemma2ForCausalLM", 2, 2)
    assert view.message == "Element 1 of a batch of 2."
    assert view.still  # the snapshot
    assert AttentionView(captured["self"]).tokens[3] == "3"
    with pytest.raises(ValueError, match="window: expected nothing, as what was captured brings its own"):
        AttentionView(captured, window=3)
    with pytest.raises(ValueError, match="batch: expected 0 to 1, got 2"):
        AttentionView(captured, batch=2)
    with pytest.raises(ValueError, match="tokens: expected 24, one per position, got 1"):
        AttentionView(captured, tokens=["one"])
    view.close()


def test_transformers_is_imported_only_by_a_capture():
    assert "transformers" not in sys.modules["py_attn.transformers.capturing"].__dict__
