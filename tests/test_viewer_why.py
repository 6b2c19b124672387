"""The steps to one weight agree with the reference, whatever hides keys or changes scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_attn import reference
from py_attn.viewer import Viewer
from py_attn.viewer.sources.synthetic import MASKS
from tests.viewers import SAMPLE, call

MODS = [
    "",
    "def score_mod(score, b, h, q_idx, kv_idx):\n    return score * 0.5 - pa.abs(q_idx - kv_idx) * (h + 1)\n",
    "def mask_mod(b, h, q_idx, kv_idx):\n    return (q_idx - kv_idx) % 3 != 1\n",
]


def opened(length=11, heads=4, kv_heads=2, head_dim=6, mods="", **shape):
    viewer = Viewer()
    call(viewer, "open_synthetic", length=length, heads=heads, kv_heads=kv_heads, head_dim=head_dim, **shape)
    if mods:
        assert call(viewer, "edit", text=mods, layer=0)["error"] is None
    return viewer


def exact(viewer, head, query):
    layer, masking = viewer.source.layers[0], viewer.source.masking
    group = layer.query.shape[1] // layer.key.shape[1]
    kv = slice(head // group, head // group + 1)
    keywords = masking.head_keywords(head, np.array([query]), layer.key.shape[2])
    chosen = layer.query[:, head : head + 1, query : query + 1]
    return reference.attention_weights(chosen, layer.key[:, kv], **keywords)[0, 0, 0]


@given(
    mask=st.sampled_from(MASKS),
    window=st.none() | st.integers(0, 4),
    softcap=st.none() | st.sampled_from([0.7, 5.0]),
    mods=st.sampled_from(MODS),
    head=st.integers(0, 3),
    query=st.integers(0, 10),
    key=st.integers(0, 10),
)
def test_the_steps_lead_to_the_weight(mask, window, softcap, mods, head, query, key):
    viewer = opened(mask=mask, window=window, softcap=softcap, seed=3, mods=mods)
    told = call(viewer, "explain", layer=0, head=head, query=query, key=key)
    weight = exact(viewer, head, query)[key]
    assert told["weight"] == pytest.approx(weight, rel=1e-9, abs=1e-12)
    assert told["computed"] == pytest.approx(weight, abs=1e-6)
    assert told["kvHead"] == head // 2
    assert told["products"].sum() == pytest.approx(told["dot"], rel=1e-5, abs=1e-5)
    assert told["scaled"] == pytest.approx(told["dot"] * told["scale"])
    assert told["visible"] == np.count_nonzero(exact(viewer, head, query) > 0)
    if told["visible"]:
        assert told["exp"] / told["rowSum"] == pytest.approx(weight, rel=1e-9, abs=1e-12)
    assert bool(told["hiddenBy"]) == bool(np.isneginf(told["score"]))
    if not told["hiddenBy"]:
        before = next(told[name] for name in ("modded", "capped", "scaled") if told[name] is not None)
        assert told["score"] == pytest.approx(before + (told["bias"] or 0))


def test_what_hides_a_key_is_named():
    def rules(query, key, **shape):
        return call(opened(**shape), "explain", layer=0, head=1, query=query, key=key)["hiddenBy"]

    assert rules(3, 7, mask="causal") == ["causal masking: the key comes after the query"]
    assert rules(9, 2, mask="causal", window=2) == ["the window: the key is too far from the query"]
    assert rules(0, 10, mask="padding") == ["padding: only the first 8 keys count"]
    assert rules(0, 10, mask="documents") == ["the mask"]
    assert rules(3, 2, mask="none", mods=MODS[2]) == ["your mask_mod"]
    assert rules(7, 3, mask="causal") == []


def test_a_sentence_is_explained_to_its_last_digit():
    viewer = Viewer()
    call(viewer, "open_sample", data=SAMPLE.read_bytes())
    told = call(viewer, "explain", layer=5, head=11, query=9, key=2)
    layer = viewer.source.layers[5]
    q, k = (x[0, 11].astype(np.float64) for x in (layer.query, layer.key))
    assert told["dot"] == pytest.approx(q[9] @ k[2])
    np.testing.assert_allclose(told["products"], q[9] * k[2], rtol=1e-6)
    assert told["weight"] == pytest.approx(reference.attention_weights(layer.query, layer.key)[0, 11, 9, 2])


def test_what_cannot_be_explained_says_why():
    viewer = opened(mask="causal")
    for name in ("head", "query", "key"):
        cell = {"head": 0, "query": 0, "key": 0} | {name: 99}
        with pytest.raises(ValueError, match=f"{name}: expected 0 to"):
            call(viewer, "explain", layer=0, **cell)
    given_weights = Viewer()
    from py_attn.viewer.sources.arrays import weights_source

    given_weights.open(weights_source(np.eye(4), tokens=None, title="", batch=0))
    with pytest.raises(ValueError, match="Only the weights were given"):
        call(given_weights, "explain", layer=0, head=0, query=0, key=0)
    read = Viewer()
    call(read, "open_sample", data=SAMPLE.read_bytes())
    call(read, "read_as", words=False, special="hide")
    with pytest.raises(ValueError, match="no query and key of their own"):
        call(read, "explain", layer=0, head=0, query=0, key=0)
