"""What the viewer finds about the heads of every kind of source."""

import asyncio

import numpy as np
import pytest

from e2e.page.fake_writer import FakeWriter
from py_attn import findings, reference
from py_attn.viewer import Viewer
from py_attn.viewer import findings as viewer_findings
from py_attn.viewer.sources.arrays import query_source, weights_source
from py_attn.viewer.sources.written import written_source
from py_attn.viewer.writing import Writer
from tests.viewers import SAMPLE, call

SHAPE = {"length": 24, "heads": 4, "kv_heads": 2, "head_dim": 8}
NAMES = [label.name for label in findings.LABELS]


@pytest.fixture
def viewer():
    return Viewer()


def scores(answer, name):
    return answer["scores"].reshape(-1, len(NAMES))[:, NAMES.index(name)]


def exact(viewer):
    """The weights of all heads of the source, by the reference."""
    source = viewer.source
    return np.concatenate(
        [reference.attention_weights(x.query, x.key, **source.masking.keywords())[0] for x in source.layers]
    )


def test_labels_are_told_with_what_they_mean(viewer):
    told = call(viewer, "labels")
    assert [label["name"] for label in told] == NAMES
    assert all(label["title"] and label["description"].endswith(".") for label in told)


def test_the_sample_s_heads(viewer):
    call(viewer, "open_sample", data=SAMPLE.read_bytes())
    answer = call(viewer, "heads")
    wanted = findings.head_scores(exact(viewer), viewer.source.tokens)
    for name in NAMES:
        np.testing.assert_allclose(scores(answer, name), wanted.labels[name], atol=1e-5)
    np.testing.assert_allclose(answer["entropy"], wanted.entropy, atol=1e-5)
    np.testing.assert_allclose(answer["sparsity"], wanted.sparsity, atol=1e-5)
    # Layer 0, head 2 of this model attends to the previous token.
    assert answer["shown"][2] == [{"name": "previous", "score": pytest.approx(1, abs=1e-3)}]
    assert len(answer["shown"]) == len(answer["groups"]) == 72
    assert sorted(answer["order"]) == list(range(72))
    assert (answer["step"], answer["rows"]["previous"]) == (1, 19)


@pytest.mark.parametrize(
    "more",
    [{}, {"mask": "causal", "window": 9}, {"mask": "padding", "window": 5}, {"mask": "documents"}],
    ids=str,
)
def test_chance_is_that_of_the_keys_a_query_sees(viewer, more):
    call(viewer, "open_synthetic", **SHAPE, **more)
    call(viewer, "edit", text="def score_mod(score, b, h, q_idx, kv_idx): return 0 * score")
    answer = call(viewer, "heads")
    # All scores are the same, so that every head is uniform over what it sees.
    assert [[label["name"] for label in head] for head in answer["shown"]] == [["broad"]] * 4
    np.testing.assert_allclose(scores(answer, "broad"), 1, atol=1e-5)
    np.testing.assert_allclose(scores(answer, "previous"), 0, atol=1e-5)


def test_a_mask_mod_hides_keys_by_head(viewer):
    call(viewer, "open_synthetic", **SHAPE)
    text = "def score_mod(s, b, h, i, j): return 0 * s\ndef mask_mod(b, h, i, j): return j <= i + h"
    assert call(viewer, "edit", text=text)["error"] is None
    np.testing.assert_allclose(scores(call(viewer, "heads"), "broad"), 1, atol=1e-5)
    call(viewer, "edit", text="def score_mod(s, b, h, i, j): return pa.where(j == i - 1, s + 99, s)")
    answer = call(viewer, "heads")
    assert [head[0]["name"] for head in answer["shown"]] == ["previous"] * 4


def test_given_weights_are_causal_where_they_look_like_it(viewer):
    n = 12
    tokens = list("abcdefabcdef")
    previous = np.eye(n)[np.maximum(np.arange(n) - 1, 0)]
    viewer.open(weights_source([previous[None, None]] * 2, tokens=tokens, title="", batch=0))
    answer = call(viewer, "heads")
    assert [head[0]["name"] for head in answer["shown"]] == ["previous", "previous"]
    assert answer["rows"]["next"] == 0
    assert answer["groups"].tolist() == [0, 0]
    viewer.open(weights_source(np.ones((n, n)) / n, tokens=tokens, title="", batch=0))
    assert call(viewer, "heads")["rows"]["next"] == n - 1


def test_tensors(viewer):
    query = np.random.default_rng(0).standard_normal((2, 1, 3, 9, 4))
    source = query_source(
        query, query, None, tokens=None, title="", batch=0, causal=True, window=None, softcap=None,
        scale=None, mask=None,
    )  # fmt: skip
    viewer.open(source)
    answer = call(viewer, "heads")
    assert len(answer["shown"]) == 6
    assert np.isnan(scores(answer, "same")).all()  # the tokens are numbers, of which each stands once


def test_a_long_source_is_looked_at_in_every_other_row_or_fewer(viewer, monkeypatch):
    call(viewer, "open_synthetic", length=301, heads=4, kv_heads=2, head_dim=8)
    whole = call(viewer, "heads")
    monkeypatch.setattr(viewer_findings, "MAX_SLOW_WEIGHTS", 4 * 301 * 80)
    part = call(viewer, "heads")
    assert (whole["step"], part["step"]) == (1, 5)  # odd, so that no pattern of twos is missed
    assert part["rows"]["self"] == 60
    np.testing.assert_allclose(scores(part, "self"), scores(whole, "self"), atol=0.05)
    monkeypatch.setattr(viewer_findings, "MAX_SLOW_WEIGHTS", 1)
    assert call(viewer, "heads")["rows"]["self"] >= viewer_findings.FEWEST_ROWS - 1


def test_too_many_heads_are_not_compared(viewer, monkeypatch):
    call(viewer, "open_synthetic", **SHAPE)
    monkeypatch.setattr(viewer_findings, "MAX_COMPARED_HEADS", 3)
    answer = call(viewer, "heads")
    assert (len(answer["shown"]), len(answer["groups"]), len(answer["order"])) == (4, 0, 0)


def test_a_text_of_one_token(viewer):
    call(viewer, "open_synthetic", length=1, heads=2, kv_heads=2, head_dim=4)
    answer = call(viewer, "heads")
    assert answer["shown"] == [[], []]
    assert np.isnan(answer["entropy"]).all()


def test_another_source_ends_the_work(viewer):
    call(viewer, "open_synthetic", **SHAPE)
    before = viewer.engine.weights

    async def weights(*given):
        call_ = await before(*given)
        viewer.open(viewer_source())
        return call_

    def viewer_source():
        return weights_source(np.eye(3), tokens=None, title="", batch=0)

    viewer.engine.weights = weights
    assert call(viewer, "heads") is None


def test_what_a_language_model_has_written(viewer, monkeypatch):
    writer = Writer(FakeWriter())
    asyncio.run(writer.start("the old light house the old light", False))
    source = written_source(writer.model, writer.texts)
    viewer.open(source)
    answer = call(viewer, "heads")
    assert len(answer["shown"]) == len(source.layers) * source.heads
    assert np.isnan(scores(answer, "next")).all()  # nobody sees a later token


@pytest.mark.parametrize("special", ["show", "hide", "renormalise"])
@pytest.mark.parametrize("words", [False, True])
def test_words_and_texts_without_special_tokens(viewer, words, special):
    call(viewer, "open_sample", data=SAMPLE.read_bytes())
    call(viewer, "read_as", words=words, special=special)
    answer = call(viewer, "heads")
    assert answer["shown"][2][0] == {"name": "previous", "score": pytest.approx(1, abs=1e-3)}
    assert np.isnan(scores(answer, "separator")).all() == (special != "show")


def test_a_word_sees_what_any_of_its_pieces_sees(viewer):
    n = 6
    tokens = ["[CLS]", "un", "##like", "##ly", "cat", "[SEP]"]
    weights = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
    viewer.open(weights_source(weights, tokens=tokens, title="", batch=0))
    call(viewer, "read_as", words=True, special="hide")
    rows = viewer_findings.choose_rows(viewer.source, software=True)
    assert rows.causal
    assert rows.visible.tolist() == [[True, False], [True, True]]
    assert call(viewer, "heads")["rows"]["previous"] == 1


def test_on_a_gpu_rows_are_summed_there_in_parts(device, bridge, monkeypatch):
    viewer = Viewer()
    viewer.use(device)
    call(viewer, "open_synthetic", **SHAPE)
    monkeypatch.setattr(viewer_findings, "CHUNK", 2 * 24 * 24)
    call(viewer, "heads")
    labels = [launch.label.split("/")[0] for launch in bridge.launches]
    assert labels.count("attention") == 1
    assert labels.count("row_sums") == 2
    assert labels.count("attention_weights") == 3  # two parts, and the pooled maps
    largest = max(
        size for launch in bridge.launches for _, _, size in launch.buffers if "row_sums" in launch.label
    )
    assert largest == 4 * 2 * 24 * 24
