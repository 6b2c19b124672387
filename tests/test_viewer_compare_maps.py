"""A head's map beside another, and their difference."""

import numpy as np
import pytest

from py_attn import reference, turboquant_reference
from py_attn.colormaps import paint, paint_signed
from py_attn.models.trace import LayerTrace, Trace
from py_attn.viewer import Viewer
from py_attn.viewer.comparing import MAX_WEIGHTS, diverge
from py_attn.viewer.sources.given import GivenLayer, GivenSource
from tests.viewers import SAMPLE, call

HEAD = {"with": "head", "layer": 0, "head": 1}
STYLE = {"colormap": "magma", "scale": "linear"}
MOD = "def score_mod(score, b, h, q_idx, kv_idx):\n    return 2 * score\n"


@pytest.fixture
def viewer():
    made = Viewer()
    call(made, "open_sample", data=SAMPLE.read_bytes())
    return made


@pytest.fixture
def on_gpu(device):
    made = Viewer()
    made.use(device)
    call(made, "open_synthetic", length=40, heads=4, kv_heads=2, head_dim=16, mask="causal")
    return made


def compared(viewer, other, method="compare", layer=5, head=11, **payload):
    return call(viewer, method, layer=layer, head=head, other=other, **payload)


def windows(n, **more):
    names = ("rows", "columns", "other_rows", "other_columns")
    return {**{name: [0, n] for name in names}, "size": [n, n], **STYLE, **more}


def weights(viewer, layer, head, **keywords):
    chosen = viewer.source.layers[layer]
    return reference.attention_weights(chosen.query, chosen.key, **keywords)[0, head]


def entropy(rows):
    return -(rows * np.log2(np.where(rows > 0, rows, 1))).sum(-1)


# pictures


def test_two_heads_and_their_difference(viewer):
    a, b = weights(viewer, 5, 11), weights(viewer, 0, 1)
    answer = compared(viewer, HEAD, **windows(20, span=0.5, maximum=0.8))
    for name, wanted in (
        ("a", paint(a, "magma", "linear", 0.8)),
        ("b", paint(b, "magma", "linear", 0.8)),
        ("difference", paint_signed((a - b) / 0.5, "magma", "linear")),
    ):
        got = answer[name]
        assert (got["height"], got["width"], got["exact"], got["step"]) == (20, 20, True, 1)
        apart = np.abs(got["rgba"].reshape(20, 20, 4).astype(int) - wanted)
        assert apart.max() <= 6  # a neighbouring colour, where float32 rounds the other way


def test_a_pooled_difference_keeps_its_sign(viewer):
    a, b = weights(viewer, 5, 11), weights(viewer, 0, 1)
    part = {"rows": [4, 12], "columns": [0, 20], "other_rows": [4, 12], "other_columns": [0, 20]}
    answer = compared(viewer, HEAD, **windows(20) | part | {"size": [2, 1]})["difference"]
    assert (answer["height"], answer["width"], answer["exact"]) == (2, 1, False)
    difference = (a - b)[4:12].reshape(2, -1)
    furthest = difference[np.arange(2), np.abs(difference).argmax(-1)]
    wanted = paint_signed(furthest[:, None], "magma", "linear")
    assert np.abs(answer["rgba"].reshape(2, 1, 4).astype(int) - wanted).max() <= 6


@pytest.mark.parametrize("given", [{"span": 0.0}, {"maximum": -1.0}])
def test_ranges_are_positive(viewer, given):
    with pytest.raises(ValueError, match="maximum, span: expected positive numbers"):
        compared(viewer, HEAD, **windows(20, **given))


def test_parts_lie_inside_of_their_map(viewer):
    with pytest.raises(ValueError, match="columns: expected a range inside 0 to 20, got 0 to 21"):
        compared(viewer, HEAD, **windows(20) | {"columns": [0, 21]})


# figures


def test_figures_of_two_heads(viewer):
    a, b = weights(viewer, 5, 11), weights(viewer, 0, 1)
    found = compared(viewer, HEAD, "compare_figures")
    assert (found["rows"], found["whyNot"], found["note"]) == (20, "", "")
    assert found["tokens"] == viewer.source.tokens
    assert found["maximum"] == pytest.approx(max(a.max(), b.max()), abs=1e-6)
    assert found["variation"] == pytest.approx(np.abs(a - b).sum(-1).mean() / 2, abs=1e-6)
    # The entropy of the mean less the mean of the entropies, in bits.
    divergences = entropy((a + b) / 2) - (entropy(a) + entropy(b)) / 2
    assert found["shannon"] == pytest.approx(divergences.mean(), abs=1e-6)
    largest = found["largest"]
    at = (largest["query"], largest["key"])
    assert at == np.unravel_index(np.abs(a - b).argmax(), a.shape)
    assert [largest[name] for name in ("a", "b", "difference")] == pytest.approx(
        [a[at], b[at], a[at] - b[at]], abs=1e-6
    )


def test_a_head_does_not_differ_from_itself(viewer):
    found = compared(viewer, {"with": "head", "layer": 5, "head": 11}, "compare_figures")
    assert (found["variation"], found["shannon"], found["largest"]["difference"]) == (0, 0, 0)


def test_rows_without_a_key_in_common_are_one_bit_apart():
    a, b = np.eye(3, 4), np.eye(3, 4, 1)
    found = diverge(a, b)
    assert (found["variation"], found["shannon"], found["rows"]) == (1, 1, 3)
    a[1] = 0  # all is masked there: a row without weights is no distribution
    assert diverge(a, b)["rows"] == 2


def test_of_very_many_weights_some_rows_are_looked_at():
    viewer = Viewer()
    length = 2100
    layer = GivenLayer(np.zeros((2, length, length), np.float16))
    layer.weights[0, :, 0] = layer.weights[1, :, 0] = 1
    layer.weights[1, 2000, :2] = 0, 1
    viewer.open(GivenSource("weights", "", [str(i) for i in range(length)], [layer]))
    other = {"with": "head", "layer": 0, "head": 1}
    found = compared(viewer, other, "compare_figures", 0, 0)
    assert length**2 > MAX_WEIGHTS
    assert (found["step"], found["rows"]) == (2, length // 2)
    assert (found["largest"]["query"], found["largest"]["difference"]) == (2000, 1)
    answer = compared(viewer, other, "compare", 0, 0, **windows(length) | {"size": [300, 300]})
    assert {one["step"] for one in answer.values()} == {2}


# what a head is compared with


def test_before_and_after_a_score_mod(viewer):
    other = {"with": "unedited"}
    with pytest.raises(ValueError, match="no score_mod or mask_mod is applied"):
        compared(viewer, other, "compare_figures")
    assert call(viewer, "edit", text=MOD)["error"] is None
    row = compared(viewer, other, "compare_row", query=9)
    plain = weights(viewer, 5, 11)[9]
    mods = viewer.source.masking.mods.plain
    np.testing.assert_allclose(row["a"], weights(viewer, 5, 11, **mods)[9], atol=1e-6)
    np.testing.assert_allclose(row["b"], plain, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "turboquant2"])
def test_over_another_cache_both_maps_are_causal(viewer, dtype):
    row = compared(viewer, {"with": "cache", "dtype": dtype}, "compare_row", query=9)
    layer = viewer.source.layers[5]
    np.testing.assert_allclose(row["a"], weights(viewer, 5, 11, causal=True)[9], atol=1e-6)
    if dtype == "turboquant2":
        key = turboquant_reference.roundtrip(layer.key, 2)
        wanted = reference.attention_weights(layer.query, key, causal=True)[0, 11, 9]
        np.testing.assert_allclose(row["b"], wanted, atol=1e-5)
    apart = np.abs(row["a"] - row["b"]).max()
    assert apart == 0 if dtype == "float32" else 0 < apart < (0.5 if dtype == "turboquant2" else 0.01)
    found = compared(viewer, {"with": "cache", "dtype": dtype}, "compare_figures")
    assert found["note"].startswith("A cache is read while a text is written")


def test_a_cache_knows_the_visitor_s_functions(viewer):
    call(viewer, "edit", text=MOD)
    first = compared(viewer, {"with": "cache", "dtype": "float16"}, "compare_row", query=9)
    mods = viewer.source.masking.mods.plain
    np.testing.assert_allclose(first["a"], weights(viewer, 5, 11, causal=True, **mods)[9], atol=1e-6)
    call(viewer, "edit", text="")
    second = compared(viewer, {"with": "cache", "dtype": "float16"}, "compare_row", query=9)
    np.testing.assert_allclose(second["a"], weights(viewer, 5, 11, causal=True)[9], atol=1e-6)


def test_the_source_stays_as_it_is(viewer):
    before = call(viewer, "row", layer=5, head=11, query=9)["weights"]
    compared(viewer, {"with": "cache", "dtype": "turboquant1"}, "compare_figures")
    np.testing.assert_array_equal(call(viewer, "row", layer=5, head=11, query=9)["weights"], before)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"with": "head", "layer": 0, "head": 12}, "head: expected 0 to 11, got 12"),
        ({"with": "head", "layer": 6, "head": 0}, "layer: expected 0 to 5, got 6"),
        ({"with": "cache", "dtype": "int8"}, "dtype: expected one of float32, float16"),
        ({"with": "text", "text": "A dog."}, "load MiniLM first"),
        ({"with": "text", "text": "  "}, "write a sentence to compare with"),
        ({"with": "nothing"}, "with: expected one of head, unedited, cache, text, got 'nothing'"),
    ],
)
def test_what_cannot_be_compared_is_said(viewer, other, message):
    with pytest.raises(ValueError, match=message):
        compared(viewer, other, "compare_figures")


def test_of_weights_alone_only_heads_are_compared():
    viewer = Viewer()
    viewer.open(GivenSource("weights", "", ["a", "b"], [GivenLayer(np.full((2, 2, 2), 0.5, np.float32))]))
    assert (
        compared(viewer, {"with": "head", "layer": 0, "head": 1}, "compare_figures", 0, 0)["variation"] == 0
    )
    for other, message in (
        ({"with": "cache", "dtype": "float16"}, "only weights were given here"),
        ({"with": "unedited"}, "no score_mod or mask_mod is applied"),
        ({"with": "text", "text": "A dog."}, "not with this input"),
    ):
        with pytest.raises(ValueError, match=message):
            compared(viewer, other, "compare_figures", 0, 0)


class Model:
    """A model whose tokens are words; it counts the texts that it reads."""

    def __init__(self):
        self.read = []

    async def trace(self, text):
        self.read.append(text)
        tokens = text.split()
        rng = np.random.default_rng(len(text))
        arrays = [rng.standard_normal((1, 12, len(tokens), 32)).astype(np.float32) for _ in range(3)]
        layers = [LayerTrace(*arrays, None, None) for _ in range(6)]
        return Trace(text, tokens, list(range(len(tokens))), False, layers, np.zeros(1))


def test_another_sentence_of_equal_length(viewer):
    viewer.model = Model()
    text = " ".join("abcdefghijklmnopqrst")
    other = {"with": "text", "text": text}
    before = viewer.source
    found = compared(viewer, other, "compare_figures")
    assert found["tokens"] == text.split()
    assert found["whyNot"] == ""
    assert found["variation"] > 0
    assert compared(viewer, other, **windows(20))["difference"] is not None
    assert viewer.source is before
    assert viewer.model.read == [text]  # once for all answers


def test_another_sentence_of_another_length_has_no_difference(viewer):
    viewer.model = Model()
    other = {"with": "text", "text": "three words here"}
    found = compared(viewer, other, "compare_figures")
    assert "20 and 3 tokens" in found["whyNot"]
    assert "variation" not in found
    answer = compared(viewer, other, **windows(20) | {"other_rows": [0, 3], "other_columns": [0, 3]})
    assert answer["difference"] is None
    assert (answer["a"]["height"], answer["b"]["height"]) == (20, 3)
    assert compared(viewer, other, "compare_row", query=9)["b"] is None
    assert compared(viewer, other, "compare_row", query=2)["b"].shape == (3,)


def test_another_sentence_has_the_visitor_s_functions(viewer):
    viewer.model = Model()
    other = {"with": "text", "text": "three words here"}
    plain = compared(viewer, other, "compare_row", query=2)["b"]
    call(viewer, "edit", text=MOD)
    assert np.abs(compared(viewer, other, "compare_row", query=2)["b"] - plain).max() > 0


# on the GPU


@pytest.mark.parametrize(
    "other", [{"with": "head", "layer": 0, "head": 3}, {"with": "cache", "dtype": "turboquant3"}]
)
def test_the_gpu_computes_both_maps(on_gpu, bridge, other):
    answer = compared(on_gpu, other, layer=0, head=1, **windows(40))
    assert {name: one["height"] for name, one in answer.items()} == {"a": 40, "b": 40, "difference": 40}
    labels = [launch.label for launch in bridge.launches]
    assert sum("attention_weights" in label for label in labels) == 2
    assert any("turboquant" in label for label in labels) == (other["with"] == "cache")
    before = len(labels)
    compared(on_gpu, other, layer=0, head=1, **windows(40))
    again = [launch.label for launch in bridge.launches[before:]]
    assert len(again) == 2, again  # the LSE and the cache are kept
