"""Files to look at: what is read, and what is said about those that are wrong."""

import io

import numpy as np
import pytest

from py_attn import reference
from py_attn.viewer import Viewer
from py_attn.viewer.sources.files import read_source
from tests.viewers import SAMPLE, call

RNG = np.random.default_rng(0)


def npz(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def qk(*shape):
    return {name: RNG.standard_normal(shape, np.float32) for name in ("query", "key")}


def test_the_page_s_sample_is_such_a_file():
    source = read_source(SAMPLE.read_bytes())
    assert (len(source.layers), source.heads, source.length, source.head_dim) == (6, 12, 20, 32)
    assert source.tokens[2] == "animal"
    assert source.title.startswith("The animal did not")


@pytest.mark.parametrize("shape", [(5, 4), (2, 5, 4), (1, 2, 5, 4), (3, 1, 2, 5, 4)])
def test_plain_arrays_of_any_rank(shape):
    arrays = qk(*shape)
    source = read_source(npz(**arrays, tokens=np.array(list("abcde")), causal=np.array(True)))
    assert source.tokens == list("abcde")
    assert source.masking.causal
    np.testing.assert_array_equal(
        source.layers[-1].query.reshape(-1, 5, 4)[-1], arrays["query"].reshape(-1, 5, 4)[-1]
    )


def test_options_come_as_numbers_and_masks_as_arrays():
    source = read_source(
        npz(**qk(5, 4), window=np.array([2, 0]), softcap=np.array(3.0), mask=np.ones((5, 5), np.bool_))
    )
    assert (source.masking.window, source.masking.softcap) == ((2, 0), 3.0)
    assert source.masking.bias.shape == (1, 1, 5, 5)


def test_a_file_s_viewer_shows_weights_and_then_queries():
    viewer = Viewer().beside()
    weights = np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None]
    opened = call(viewer, "open_file", data=npz(weights=weights, tokens=np.array([b"a", b"b", b"c", b"d"])))
    assert (opened["kind"], opened["engine"], opened["tokens"]) == ("weights", "given", list("abcd"))
    np.testing.assert_allclose(
        call(viewer, "row", layer=0, head=0, query=2)["weights"], weights[2], rtol=1e-6
    )
    arrays = qk(5, 4)
    assert call(viewer, "open_file", data=npz(**arrays))["engine"] == "numpy"
    exact = reference.attention_weights(arrays["query"][None, None], arrays["key"][None, None])[0, 0]
    np.testing.assert_allclose(call(viewer, "row", layer=0, head=0, query=1)["weights"], exact[1], atol=1e-6)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<!doctype html>", r"expected \.npz, .* or \.json .*, got 15 bytes that begin with b'<!doctyp'"),
        (b"PK\x03\x04broken", r"not a readable .npz file"),
        (npz(a=np.ones(3)), r"array 'query' is missing.*the file has a float64 \[3\]"),
        (npz(query=np.ones((5, 4))), r"array 'key' is missing"),
        (npz(query=np.ones((5, 4)), key=np.ones((6, 4))), r"key: expected \[1, 1, 1, 5, 4\]"),
        (npz(**qk(5, 4), tokens=np.array(["a"])), r"tokens: expected 5, one per position, got 1"),
        (npz(**qk(5, 4), tokens=np.arange(5)), r"tokens: expected texts \[S\], got int64 \[5\]"),
        (npz(query=np.full((5, 4), np.nan), key=np.ones((5, 4))), r"query: expected finite numbers, got NaN"),
        (npz(**qk(0, 4)), r"expected 1 to 32,768 tokens, got 0"),
        (npz(**qk(100_000, 1)), r"expected 1 to 32,768 tokens, got 100,000"),
        (npz(qkv=np.ones((2, 3, 4))), r"qkv: expected \[layers, 3, H, S, D\], got \[2, 3, 4\]"),
        (npz(weights=np.ones((3, 4))), r"weights: expected"),
        (npz(query=np.array(["a"]), key=np.ones((5, 4))), r"query: expected real numbers"),
    ],
)
def test_wrong_files_are_refused_in_words(data, message):
    with pytest.raises((TypeError, ValueError), match=message):
        read_source(data)
