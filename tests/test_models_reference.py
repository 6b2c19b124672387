"""The numpy forward pass against the published model, and the sample file."""

import io
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_attn import reference
from py_attn.models import minilm_reference, minilm_weights
from py_attn.models.sample import load_sample, save_sample
from py_attn.models.wordpiece import WordPiece

FIXTURE = Path(__file__).parent / "fixtures" / "minilm.npz"
SAMPLE = Path(__file__).parent.parent / "web" / "public" / "sample" / "minilm.npz"


@pytest.fixture(scope="module")
def published():
    with np.load(FIXTURE, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def model(minilm_files):
    tokenizer = WordPiece(minilm_files.vocabulary.read_text(encoding="utf-8"))
    config, weights = minilm_weights.read(minilm_files.weights.read_bytes(), tokenizer)
    return tokenizer, config, weights


def test_configuration(model):
    _, config, _ = model
    assert (config.layers, config.heads, config.width, config.inner) == (6, 12, 384, 1536)
    assert (config.positions, config.vocabulary) == (512, 30522)


@pytest.mark.parametrize(("dtype", "texts"), [(np.float64, slice(None)), (np.float32, slice(6))])
def test_embeddings_are_the_published_ones(model, published, dtype, texts):
    tokenizer, config, weights = model
    pairs = zip(published["texts"][texts].tolist(), published["embeddings"][texts], strict=True)
    for text, expected in pairs:
        ids = tokenizer.encode(text, config.positions).ids
        _, embedding = minilm_reference.forward(config, weights, ids, dtype)
        assert embedding.dtype == dtype
        # The published values are float32 sums of 384 terms, rounded to 7 digits.
        np.testing.assert_allclose(embedding, expected, rtol=0, atol=1e-6, err_msg=text[:60])


def test_attention_is_the_published_one(model, published):
    tokenizer, config, weights = model
    ids = tokenizer.encode(str(published["texts"][0])).ids
    layers, _ = minilm_reference.forward(config, weights, ids)
    ours = reference.attention_weights(layers[2].query, layers[2].key)[0]
    np.testing.assert_allclose(ours, published["attention"], rtol=0, atol=2e-6)


def test_gelu_is_x_times_the_normal_distribution():
    x = np.linspace(-6, 6, 25)
    expected = [v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x]
    np.testing.assert_allclose(minilm_reference.gelu(x), expected, rtol=1e-12, atol=1e-15)


def test_layer_norm_of_a_constant_row_is_its_bias():
    x = np.full((2, 8), 3.0)
    np.testing.assert_array_equal(
        minilm_reference.layer_norm(x, np.ones(8), np.arange(8.0))[0], np.arange(8.0)
    )


# The sample


@pytest.mark.parametrize("path", sorted(SAMPLE.parent.glob("*.npz")), ids=lambda path: path.stem)
def test_sample_is_what_the_model_computes(model, path):
    tokenizer, config, weights = model
    sample = load_sample(path.read_bytes())
    assert sample.ids == tokenizer.encode(sample.text).ids
    layers, embedding = minilm_reference.forward(config, weights, sample.ids)
    np.testing.assert_allclose(sample.embedding, embedding, rtol=0, atol=1e-6)
    for ours, kept in zip(layers, sample.layers, strict=True):
        for name in ("query", "key", "value"):
            np.testing.assert_allclose(getattr(kept, name), getattr(ours, name), rtol=2**-11, atol=1e-6)
        exact, rounded = (reference.attention_weights(x.query, x.key) for x in (ours, kept))
        np.testing.assert_allclose(rounded, exact, rtol=0, atol=1e-3)


def test_sample_shows_maps_without_weights():
    sample = load_sample(SAMPLE.read_bytes())
    tokens = len(sample.tokens)
    assert SAMPLE.stat().st_size < 1_000_000
    assert (sample.tokens[0], sample.tokens[-1]) == ("[CLS]", "[SEP]")
    assert (sample.model, sample.licence) == ("sentence-transformers/all-MiniLM-L6-v2", "Apache-2.0")
    assert len(sample.layers) == 6
    for layer in sample.layers:
        assert layer.query.shape == layer.key.shape == layer.out.shape == (1, 12, tokens, 32)
        assert layer.lse.shape == (1, 12, tokens)
        assert {a.dtype for a in (layer.query, layer.key, layer.value, layer.out)} == {np.dtype(np.float32)}
    # The heads that the sentence was chosen for: "it" looks at "animal", and every token at the one before.
    animal = sample.tokens.index("animal")
    its = [i for i, token in enumerate(sample.tokens) if token == "it"]
    first, third = (
        reference.attention_weights(sample.layers[n].query, sample.layers[n].key)[0] for n in (0, 3)
    )
    assert third[1, its].argmax(axis=-1).tolist() == [animal, animal]
    assert first[2, 1:].argmax(axis=-1).tolist() == [*range(tokens - 1)]


def test_sample_round_trip():
    sample = load_sample(SAMPLE.read_bytes())
    again = load_sample(save_sample(sample, "model", "licence"))
    assert (again.text, again.tokens, again.ids) == (sample.text, sample.tokens, sample.ids)
    assert (again.model, again.licence) == ("model", "licence")
    np.testing.assert_array_equal(again.layers[3].value, sample.layers[3].value)


def rewrite(**changes):
    with np.load(SAMPLE) as file:
        arrays = {name: file[name] for name in file.files} | changes
    target = io.BytesIO()
    np.savez(target, **{name: array for name, array in arrays.items() if array is not None})
    return target.getvalue()


def other_zip():
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as file:
        file.writestr("qkv.npy", b"no array")
    return target.getvalue()


def lone_array():
    target = io.BytesIO()
    np.save(target, np.zeros(3))
    return target.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a readable .npz file"),
        (b"PK\x03\x04 and nothing more", "not a readable .npz file"),
        (SAMPLE.read_bytes()[:-100], "not a readable .npz file"),
        (lone_array(), "not a readable .npz file"),
        (other_zip(), "not a readable .npz file|dtype"),
        (rewrite(qkv=None), "array 'qkv' is missing"),
        (rewrite(qkv=np.zeros((6, 3, 12, 20, 32), int)), "'qkv' has dtype int64"),
        (rewrite(qkv=np.zeros((6, 2, 12, 20, 32))), r"'qkv' has shape \[6, 2, 12, 20, 32\]"),
        (rewrite(qkv=np.zeros((6, 3, 12, 0, 32))), "'qkv' has shape"),
        (rewrite(tokens=np.array(["a"])), r"'tokens' has shape \[1\], expected \[20\]"),
        (rewrite(ids=np.array([1.5] * 20)), "'ids' has dtype float64"),
        (rewrite(text=np.array({"a": 1}, object)), "not a readable .npz file"),
    ],
)
def test_broken_sample_says_what_is_wrong(data, words):
    with pytest.raises(ValueError, match=words) as caught:
        load_sample(data)
    assert str(caught.value).startswith("sample: ")


@given(position=st.integers(0, SAMPLE.stat().st_size - 1), value=st.integers(0, 255))
def test_a_changed_byte_is_noticed_or_harmless(position, value):
    data = bytearray(SAMPLE.read_bytes())
    data[position] = value
    try:
        load_sample(bytes(data))
    except ValueError as error:
        if not str(error).startswith("sample: "):
            raise
