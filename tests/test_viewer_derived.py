"""Tokens read as words, special tokens hidden, means over heads and rollout, sums and entropies of rows."""

import asyncio
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.page.fake_writer import FakeWriter
from py_attn.colormaps import paint
from py_attn.gpu.device import request_device
from py_attn.viewer import Viewer
from py_attn.viewer.engines.over import MAX_ROLLOUT_LENGTH
from py_attn.viewer.panels import reading as reading_panel
from py_attn.viewer.sources.arrays import query_source, weights_source
from py_attn.viewer.sources.derived import read
from py_attn.viewer.sources.reading import MAX_READ_LENGTH, Reading, words
from py_attn.viewer.sources.source import Source
from py_attn.viewer.sources.words import special_positions, word_starts, word_texts
from py_attn.viewer.writing import Writer
from tests.recording_bridge import RecordingBridge
from tests.viewers import SAMPLE, call

TOKENS = ["[CLS]", "un", "##believ", "##able", "news", ",", "to", "##day", "[SEP]"]
#: The words of TOKENS, as positions.
WORDS = [[0], [1, 2, 3], [4], [5], [6, 7], [8]]
OVERS = ["head", "layer", "all", "rollout"]
READINGS = [(words, special) for words in (False, True) for special in ("show", "hide", "renormalise")]


# an independent oracle: plain loops over float64


def softmax(scores):
    found = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return found / found.sum(axis=-1, keepdims=True)


def oracle_over(maps, layer, head, over):
    """The map that `over` names of maps [layers, heads, S, S]."""
    if over == "head":
        return maps[layer, head]
    if over == "layer":
        return maps[layer].mean(axis=0)
    if over == "all":
        return maps.mean(axis=(0, 1))
    result = np.eye(maps.shape[-1])
    for index in range(layer + 1):
        step = 0.5 * maps[index].mean(axis=0) + 0.5 * np.eye(maps.shape[-1])
        step = step / step.sum(axis=1)[:, None]
        result = step @ result
    return result


def oracle_read(weights, words, special, groups=WORDS, hidden=(0, 8)):
    """A map read in words or without special tokens."""
    groups = groups if words else [[i] for i in range(len(weights))]
    shown = [group for group in groups if special == "show" or group[0] not in hidden]
    found = np.array(
        [[np.mean([sum(weights[i, j] for j in to) for i in of]) for to in shown] for of in shown]
    )
    if special == "renormalise":
        for row in found:
            if row.sum() != 0:
                row /= row.sum()
    return found


def made(seed=0, layers=3, heads=4, *, causal=False, tokens=TOKENS):
    """A source of random queries and keys, and its exact maps [layers, heads, S, S]."""
    rng = np.random.default_rng(seed)
    query, key = rng.standard_normal((2, layers, 1, heads, len(tokens), 8)).astype(np.float32)
    scores = query[:, 0].astype(np.float64) @ key[:, 0].astype(np.float64).swapaxes(-1, -2) / math.sqrt(8)
    if causal:
        scores = np.where(np.tri(len(tokens), dtype=bool), scores, -np.inf)
    options = {"window": None, "softcap": None, "scale": None, "mask": None, "title": "", "batch": 0}
    return query_source(query, key, None, tokens=tokens, causal=causal, **options), softmax(scores)


def opened(source, words=False, special="show"):
    viewer = Viewer()
    viewer.open(source)
    answer = call(viewer, "read_as", words=words, special=special)
    return viewer, answer


def whole(viewer, layer=1, head=2, over="head", **more):
    everything = [0, viewer.source.length]
    answer = call(
        viewer, "weights", layer=layer, head=head, rows=everything, columns=everything, over=over, **more
    )
    return answer["weights"].reshape(viewer.source.length, -1)


# readings


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("over", OVERS)
@pytest.mark.parametrize(("words", "special"), READINGS)
def test_every_reading_of_every_map_is_as_defined(words, special, over, causal):
    source, maps = made(causal=causal)
    viewer, answer = opened(source, words, special)
    exact = oracle_read(oracle_over(maps, 1, 2, over), words, special)
    assert answer["length"] == len(answer["tokens"]) == len(exact)
    np.testing.assert_allclose(whole(viewer, over=over), exact, atol=2e-6)


@given(st.data())
def test_any_words_and_special_tokens(data):
    length = data.draw(st.integers(1, 12))
    kinds = data.draw(
        st.lists(st.sampled_from(["word", "piece", "special"]), min_size=length, max_size=length)
    )
    texts = {"word": "word", "piece": "##piece", "special": "[SEP]"}
    tokens = [texts[kind] for kind in kinds]
    groups = []
    for i, kind in enumerate(kinds):
        if kind == "piece" and i > 0 and kinds[i - 1] != "special":
            groups[-1].append(i)
        else:
            groups.append([i])
    hidden = [i for i, kind in enumerate(kinds) if kind == "special"]
    words = data.draw(st.booleans())
    special = data.draw(st.sampled_from(["show", "hide", "renormalise"]))
    if len(hidden) == length:
        special = "show"  # a text of special tokens alone shows them
    weights = softmax(np.random.default_rng(length).standard_normal((1, 2, length, length)) * 3)
    source = weights_source(weights.astype(np.float32), tokens=tokens, title="", batch=0)
    viewer, answer = opened(source, words, special)
    exact = oracle_read(weights[0, 1], words, special, groups, hidden)
    np.testing.assert_allclose(whole(viewer, 0, 1), exact, atol=1e-6)
    assert answer["specialTokens"] in (0, len(hidden))
    # Any window is a part of the whole.
    r = sorted(data.draw(st.tuples(*2 * [st.integers(0, len(exact))]).filter(lambda r: r[0] != r[1])))
    c = sorted(data.draw(st.tuples(*2 * [st.integers(0, len(exact))]).filter(lambda c: c[0] != c[1])))
    part = call(viewer, "weights", layer=0, head=1, rows=r, columns=c)["weights"].reshape(r[1] - r[0], -1)
    np.testing.assert_allclose(part, exact[slice(*r), slice(*c)], atol=1e-6)


@pytest.mark.parametrize("over", OVERS)
@pytest.mark.parametrize(("words", "special"), READINGS)
def test_pictures_rows_and_overviews_show_the_same_weights(words, special, over):
    source, _ = made()
    viewer, _ = opened(source, words, special)
    exact = whole(viewer, over=over)
    length = len(exact)
    part = {"layer": 1, "head": 2, "rows": [1, length], "columns": [0, length - 1], "size": [100, 100]}
    picture = call(viewer, "window", **part, over=over, colormap="magma", scale="linear")
    np.testing.assert_array_equal(picture["rgba"], paint(exact[1:, :-1], "magma", "linear").reshape(-1))
    row = call(viewer, "row", layer=1, head=2, query=length - 2, over=over)
    np.testing.assert_allclose(row["weights"], exact[length - 2], atol=1e-6)
    heads = call(viewer, "overview", layer=1, colormap="magma", scale="linear")["rgba"]
    expected = [paint(whole(viewer, head=head), "magma", "linear").reshape(-1) for head in range(4)]
    np.testing.assert_array_equal(heads, np.concatenate(expected))
    rows = call(viewer, "overview_row", query=2, colormap="magma", scale="linear")["rgba"]
    assert rows.shape == (3 * 4 * 3 * 4,)
    np.testing.assert_array_equal(
        rows.reshape(3, 4, -1)[1, 2], paint(whole(viewer)[2, :3], "magma", "linear").reshape(-1)
    )


@pytest.mark.parametrize("pool", ["max", "mean"])
def test_pooled_pictures_pool_what_is_read(pool):
    tokens = [text for i in range(40) for text in (f"w{i}", "##x")]
    viewer, _ = opened(made(tokens=tokens)[0], words=True)
    exact = whole(viewer)
    picture = call(
        viewer, "window", layer=1, head=2, rows=[0, 40], columns=[0, 40], size=[10, 20],
        colormap="magma", scale="linear", pool=pool,
    )  # fmt: skip
    cells = exact.reshape(10, 4, 20, 2)
    pooled = cells.max(axis=(1, 3)) if pool == "max" else cells.mean(axis=(1, 3))
    expected = paint(pooled, "magma", "linear").reshape(-1).astype(int)
    assert np.abs(picture["rgba"].astype(int) - expected).max() <= 6


def test_a_row_of_which_nothing_is_left_stays_zero():
    weights = np.array([[[1, 0, 0], [1, 0, 0], [0.5, 0.25, 0.25]]], np.float32)
    source = weights_source(weights, tokens=["[CLS]", "a", "b"], title="", batch=0)
    viewer, _ = opened(source, special="renormalise")
    np.testing.assert_array_equal(whole(viewer, 0, 0), [[0, 0], [0.5, 0.5]])


def test_only_the_rows_that_are_asked_for_are_computed():
    source, _ = made()
    viewer, _ = opened(source, words=True, special="renormalise")
    asked = []
    inner = viewer.base_engine.weights

    async def weights(layer, masking, window, style=None):
        asked.append(window)
        return await inner(layer, masking, window, style)

    viewer.base_engine.weights = weights
    call(viewer, "row", layer=0, head=1, query=3)  # "today"
    assert [(each.rows, each.columns) for each in asked] == [(slice(6, 8), slice(1, 8))]


def test_gradients_are_grouped_and_keep_their_sums():
    source, _ = made()
    viewer, _ = opened(source)
    each = whole(viewer, show="gradient")
    call(viewer, "read_as", words=True, special="renormalise")
    np.testing.assert_allclose(
        whole(viewer, show="gradient"), oracle_read(each.astype(np.float64), True, "hide"), atol=1e-6
    )
    with pytest.raises(ValueError, match="show: expected weights for the rollout, got 'gradient'"):
        whole(viewer, show="gradient", over="rollout")


def test_a_score_mod_acts_on_the_tokens():
    source, _ = made()
    viewer, _ = opened(source)
    text = "def mask_mod(b, h, i, j):\n    return j >= i - 1"
    assert call(viewer, "edit", text=text)["error"] is None
    tokens = whole(viewer)
    for over in ("head", "rollout"):
        call(viewer, "read_as")
        each = whole(viewer, over=over)
        call(viewer, "read_as", words=True, special="hide")
        np.testing.assert_allclose(whole(viewer, over=over), oracle_read(each, True, "hide"), atol=1e-6)
    assert viewer.source.edited == ["mask_mod"]
    # The text is changed while words are shown, and what was kept of the rollout is not used again.
    before = whole(viewer, over="rollout")
    assert call(viewer, "edit", text="")["error"] is None
    assert not np.allclose(whole(viewer, over="rollout"), before)
    assert viewer.source.length == 4
    call(viewer, "read_as")
    assert not np.allclose(whole(viewer), tokens)


def test_the_next_source_is_read_in_the_same_way():
    viewer, answer = opened(made()[0], words=True, special="hide")
    assert answer["tokens"] == ["unbelievable", "news", ",", "today"]
    assert answer["base"] == {"tokens": TOKENS, "starts": [1, 4, 5, 6], "stops": [4, 5, 6, 8]}
    assert answer["reading"] == {"words": True, "special": "hide"}
    assert answer["readingNote"] == (
        "2 words have several pieces: attention to a word is the sum over its pieces, from it their mean. "
        "[CLS] and [SEP] are hidden; rows sum to what is left of them."
    )
    synthetic = call(viewer, "open_synthetic", length=20, heads=2, kv_heads=2, head_dim=8)
    assert (synthetic["length"], synthetic["canMergeWords"], synthetic["specialTokens"]) == (20, False, 0)
    assert synthetic["readingNote"] == "Synthetic input has no words and no special tokens."
    sample = call(viewer, "open_sample", data=SAMPLE.read_bytes())
    assert "[CLS]" not in sample["tokens"]
    assert sample["specialTokens"] == 2
    back = call(viewer, "read_as")
    assert back["tokens"][0] == "[CLS]"
    assert "base" not in back
    assert back["readingNote"] == ""


def test_kernels_and_decoding_go_on_with_the_tokens():
    viewer, _ = opened(made()[0], words=True, special="hide")
    assert call(viewer, "decode_open", layer=0, capacity=9)["length"] == len(TOKENS)
    assert call(viewer, "decode_step", position=8, head=0)["length"] == len(TOKENS)
    assert call(viewer, "measure", layer=0, variant="auto", repeats=1)["allRows"] == len(TOKENS)


def test_wrong_readings_are_named():
    viewer = Viewer()
    with pytest.raises(ValueError, match="nothing is open yet"):
        call(viewer, "read_as", words=True)
    viewer.open(made()[0])
    with pytest.raises(ValueError, match="special: expected show, hide or renormalise, got 'drop'"):
        call(viewer, "read_as", special="drop")
    with pytest.raises(ValueError, match="over: expected head, layer, all or rollout, got 'mean'"):
        call(viewer, "row", layer=0, head=0, query=0, over="mean")


def test_long_inputs_are_shown_token_by_token():
    length = MAX_READ_LENGTH + 1
    source = Source("tensors", "", ["[CLS]", *["a"] * (length - 1)], made()[0].layers)
    source.__class__ = type("Long", (Source,), {"length": property(lambda _: length)})
    assert read(source, Reading(special="hide")) is source


# which tokens make a word


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["[CLS]", "un", "##do", "it", "[SEP]"], ["[CLS]", "undo", "it", "[SEP]"]),
        (["The", " un", "believ", "able", " 2", "0", "2", "6", ".", "\n", "\n", "Yes"],
         ["The", "unbelievable", "2026", ".", "\n", "\n", "Yes"]),
        (["<|im_start|>", "user", "\n", "Hi", " don", "'t", " go", "<|im_end|>", "\n"],
         ["<|im_start|>", "user", "\n", "Hi", "don", "'t", "go", "<|im_end|>", "\n"]),
        (["ĠcafÃ", "©", "Ġau", "Ġlait"], ["café", "au", "lait"]),
        (["▁Guten", "▁Mor", "gen", "</s>"], ["Guten", "Morgen", "</s>"]),
        ([" 東", "京", "都"], ["東", "京", "都"]),
        ([" हि", "न", "्द", "ी"], ["हिन्दी"]),
        ([" a", "", "", "🙂", "b"], ["a", "🙂", "b"]),
        ([" ab", "", "é", "c", ""], ["abéc", ""]),
        (["0", "1", "2"], ["0", "1", "2"]),
        (["this", "is", "plain"], ["this", "is", "plain"]),
    ],
)  # fmt: skip
def test_words(tokens, expected):
    special = special_positions(tokens)
    starts = word_starts(tokens, special)
    found = [range(a, b) for a, b in zip(starts, [*starts[1:], len(tokens)], strict=True)]
    assert word_texts(tokens, found) == expected


def test_special_tokens_are_told_by_their_looks():
    tokens = [
        "[CLS]",
        "[cls]",
        "[UNK]",
        "[MASK]",
        "<s>",
        "</s>",
        "<|im_start|>",
        "<b>",
        "<eos>",
        "[",
        "<|",
        "a",
    ]
    assert special_positions(tokens) == {0, 4, 5, 6, 8}


def test_the_tokenizer_knows_better_than_looks():
    source = Source(
        "written", "", ["<file_sep>", "Hel", "lo", "[SEP]"], made()[0].layers, special=frozenset({0})
    )
    assert words(source) == [range(1), range(1, 3), range(3, 4)]


def test_a_text_that_is_written_is_read_as_it_grows():
    viewer = Viewer()
    viewer.writer = Writer(FakeWriter())
    call(viewer, "write_start", prompt="the old light house")
    call(viewer, "write_view")
    assert call(viewer, "read_as", words=True)["tokens"] == [" the", " old", " light", " house"]
    viewer.writer.texts[3] = "house"
    assert call(viewer, "write_view")["tokens"] == ["the", "old", "lighthouse"]
    call(viewer, "write_next", count=3)
    grown = call(viewer, "write_view", growing=True)
    assert grown["base"]["starts"][:3] == [0, 1, 2]
    assert grown["base"]["stops"][:3] == [1, 2, 4]
    assert grown["length"] == len(grown["base"]["tokens"]) - 1
    row = call(viewer, "row", layer=2, head=0, query=grown["length"] - 1, over="all")
    assert row["weights"].sum() == pytest.approx(1, abs=1e-5)


# means and rollout


@pytest.mark.parametrize("causal", [False, True])
def test_the_rows_of_a_rollout_sum_to_one(causal):
    source, maps = made(7, causal=causal)
    viewer, _ = opened(source)
    for layer in (2, 0, 1):  # from what is kept, too
        found = whole(viewer, layer, over="rollout")
        np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(found, oracle_over(maps, layer, 0, "rollout"), atol=1e-6)
    if causal:
        assert not np.triu(found, 1).any()


async def test_a_rollout_is_computed_once_for_all_who_ask_at_once():
    source, _ = made(7)
    viewer = Viewer()
    viewer.open(source)
    asked = []
    inner = viewer.base_engine.mean

    async def mean(*given):
        asked.append(given)
        await asyncio.sleep(0)
        return await inner(*given)

    viewer.base_engine.mean = mean
    row = {"layer": 2, "head": 0, "query": 3, "over": "rollout"}
    await asyncio.gather(*(viewer.call("row", row) for _ in range(3)))
    assert len(asked) == 3  # the layers


def test_a_row_that_attends_to_nothing_rolls_out_to_itself():
    weights = np.array([[[0.0, 0.0], [0.5, 0.5]]])
    viewer, _ = opened(weights_source(weights, tokens=["a", "b"], title="", batch=0))
    np.testing.assert_allclose(whole(viewer, 0, 0, over="rollout"), [[1, 0], [0.25, 0.75]])


def test_long_inputs_have_no_rollout_and_zoomed_means():
    viewer = Viewer()
    shape = {"length": 2000, "heads": 16, "kv_heads": 1, "head_dim": 4}
    call(viewer, "open_synthetic", **shape)
    part = {"layer": 0, "head": 0, "columns": [0, 2000], "size": [40, 40]}
    with pytest.raises(
        ValueError, match="16 maps of 2,000 × 2,000 weights are too many to take together here; zoom"
    ):
        call(viewer, "window", **part, rows=[0, 2000], over="layer")
    assert call(viewer, "window", **part, rows=[500, 540], over="layer")["height"] == 40
    call(viewer, "open_synthetic", **{**shape, "layers": 2})
    with pytest.raises(ValueError, match="rollout up to layer 1 with 2,000 tokens would take minutes here"):
        call(viewer, "window", **{**part, "layer": 1}, rows=[0, 2000], over="rollout")
    weights = np.zeros((1, MAX_ROLLOUT_LENGTH + 1, 1), np.float16) * np.zeros((1, 1, MAX_ROLLOUT_LENGTH + 1))
    viewer.open(weights_source(weights.astype(np.float16), tokens=None, title="", batch=0))
    with pytest.raises(ValueError, match="over: the rollout up to layer 0 with 2,049 tokens"):
        call(viewer, "row", layer=0, head=0, query=0, over="rollout")


# margins


@pytest.mark.parametrize("over", OVERS)
@pytest.mark.parametrize(("words", "special"), READINGS)
def test_margins_are_sums_and_entropies(words, special, over):
    source, maps = made(3)
    viewer, _ = opened(source, words, special)
    exact = oracle_read(oracle_over(maps, 1, 2, over), words, special)
    found = call(viewer, "margins", layer=1, head=2, over=over)
    np.testing.assert_allclose(found["rowSum"], exact.sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(found["columnSum"], exact.sum(axis=0), atol=1e-5)
    entropies = []
    for row in exact:
        shares = [w / row.sum() for w in row if w > 0]
        entropies.append(-sum(p * math.log2(p) for p in shares))
    np.testing.assert_allclose(found["entropy"], entropies, atol=1e-4)


def test_margins_are_summed_in_parts(monkeypatch):
    viewer, _ = opened(made(3)[0])
    everything = call(viewer, "margins", layer=0, head=0)
    parts = reading_panel.in_chunks
    monkeypatch.setattr(reading_panel, "in_chunks", lambda window: parts(window, 20))
    for name, values in call(viewer, "margins", layer=0, head=0).items():
        np.testing.assert_allclose(values, everything[name], atol=1e-6)


def test_a_row_without_weights_has_no_entropy():
    viewer, _ = opened(
        weights_source(np.array([[[0.0, 0.0], [0.0, 1.0]]]), tokens=["a", "b"], title="", batch=0)
    )
    found = call(viewer, "margins", layer=0, head=0)
    np.testing.assert_array_equal(found["entropy"], [0, 0])
    np.testing.assert_array_equal(found["rowSum"], [0, 1])


def test_margins_of_long_inputs_are_refused(monkeypatch):
    monkeypatch.setattr(reading_panel, "MAX_MARGINS_LENGTH", 8)
    viewer, _ = opened(made()[0])
    with pytest.raises(ValueError, match="margins: expected at most 8 tokens, got 9"):
        call(viewer, "margins", layer=0, head=0)


# on a device


def test_a_gpu_takes_means_where_the_weights_are(device, bridge):
    viewer = Viewer()
    viewer.use(device)
    call(viewer, "open_synthetic", length=40, heads=4, kv_heads=2, head_dim=16, layers=2)
    everything = {"rows": [0, 40], "columns": [0, 40]}
    answer = call(viewer, "window", layer=0, head=0, **everything, size=[100, 100], over="layer")
    assert answer["rgba"].shape == (40 * 40 * 4,)
    names = [launch.label.split("/")[0] for launch in bridge.launches]
    assert names == ["attention", "attention_weights", "linear"]
    call(viewer, "row", layer=0, head=0, query=3, over="all")
    names = [launch.label.split("/")[0] for launch in bridge.launches]
    assert names.count("linear") == 3
    call(viewer, "weights", layer=1, head=0, **everything, over="rollout")
    call(viewer, "weights", layer=1, head=0, **everything, over="rollout")
    names = [launch.label.split("/")[0] for launch in bridge.launches]
    assert names.count("linear") == 6  # two means and a product, once


@pytest.mark.parametrize("heads", [1, 2, 7])
def test_means_of_long_inputs_are_taken_in_parts(heads):
    bridge = RecordingBridge(software=False)
    viewer = Viewer(lambda: request_device(bridge))
    call(viewer, "connect")
    source = call(viewer, "open_synthetic", length=4096, heads=heads, kv_heads=1, head_dim=4)
    everything = {"rows": [0, source["length"]], "columns": [0, source["length"]]}
    call(viewer, "window", layer=0, head=0, **everything, size=[50, 50], over="layer")
    means = [launch for launch in bridge.launches if launch.label.startswith("linear")]
    assert len(means) == {1: 1, 2: 2, 7: 8}[heads]


def test_the_engines_of_a_view_are_asked_one_after_another():
    """The derived engines answer a call of theirs as any engine does."""
    source, _ = made()
    viewer, _ = opened(source, words=True)
    assert viewer.engine.name == "numpy"
    viewer.engine.check(4, 9, 8)
    engine, layer, head = viewer.map(1, 2, "all")
    assert (engine.name, engine.most_weights, head) == ("numpy", 1 << 25, 0)
    with pytest.raises(ValueError, match="no queries, keys and values of their own"):
        asyncio.run(layer.host())
