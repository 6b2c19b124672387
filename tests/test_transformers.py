"""What is kept of Hugging Face models, without these: masks read as rules, and captured layers as a source.

`tests_transformers/` has the tests with real models.
"""

import sys

import numpy as np
import pytest

import py_attn as pa
from py_attn import reference
from py_attn.transformers.patterns import MaskRows, Pattern, find_pattern
from py_attn.transformers.recording import Piece, Stack, StackLayer, assemble
from py_attn.viewer.engines.engine import Window
from py_attn.viewer.engines.host import ReferenceEngine
from py_attn.viewer.sources.captured import captured_source
from py_attn.viewer.viewer import Viewer

RNG = np.random.default_rng(0)


def rows(mask, first=0, first_key=0):
    queries, keys = (
        np.arange(n) + start for n, start in zip(mask.shape[2:], (first, first_key), strict=True)
    )
    return MaskRows(lambda part: mask[:, :, part], mask.shape, queries, keys)


def seen(causal, window=None, visible=None, queries=12, keys=12):
    found = Pattern(causal, window).seen(np.arange(queries), np.arange(keys))
    return (found[None] if visible is None else found & visible[:, None, :])[:, None]


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("pad", ["", "left", "right"])
@pytest.mark.parametrize(
    ("causal", "window", "sliding"),
    [(True, None, None), (False, None, None), (True, (3, None), 4), (False, (2, 2), 4), (False, (4, 4), 4)],
)
def test_masks_are_read_as_the_rules_that_they_stand_for(causal, window, sliding, pad, additive):
    visible = np.ones((2, 12), bool)
    visible[1, {"": slice(0), "left": slice(0, 3), "right": slice(-3, None)}[pad]] = False
    mask = seen(causal, window, visible)
    if additive:
        mask = np.where(mask, np.float32(0), np.finfo(np.float32).min)
    found = find_pattern(rows(mask), sliding)
    assert isinstance(found, Pattern)
    assert (found.causal, found.window) == (causal, window)
    assert np.array_equal(visible if found.visible is None else found.visible, visible)


def test_rows_of_padding_may_see_everything():
    visible = np.ones((1, 12), bool)
    visible[0, :4] = False
    mask = seen(True, None, visible)
    mask[0, 0, :4] = True  # so that their softmax is no NaN
    found = find_pattern(rows(mask), None)
    assert found.causal
    assert np.array_equal(found.visible, visible)


def test_other_masks_are_kept_as_they_are():
    mask = RNG.random((1, 1, 9, 9)) < 0.5
    assert np.array_equal(find_pattern(rows(mask), None), mask)
    one_too_many = seen(True)
    one_too_many[0, 0, 3, 5] = True
    assert np.array_equal(find_pattern(rows(one_too_many), None), one_too_many)
    bias = RNG.standard_normal((1, 4, 9, 9)).astype(np.float32)
    bias[..., 3] = np.finfo(np.float32).min
    found = find_pattern(rows(bias), None)
    assert found.dtype == np.float16
    assert np.isneginf(found[..., 3]).all()
    assert np.abs(np.delete(found - bias, 3, axis=-1)).max() < 2e-3


def test_long_masks_are_read_in_parts(monkeypatch):
    monkeypatch.setattr("py_attn.transformers.patterns._AT_ONCE", 30)
    visible = np.ones((2, 12), bool)
    visible[0, 10:] = False
    found = find_pattern(rows(seen(True, None, visible)), None)
    assert (found.causal, found.visible.tolist()) == (True, visible.tolist())
    mask = RNG.random((2, 1, 12, 12)) < 0.5
    assert np.array_equal(find_pattern(rows(mask), None), mask)


def test_pieces_of_a_text_become_one():
    begin = Piece(0, 5, 0, 5, Pattern(True, (3, None)))
    later = Piece(5, 1, 2, 4, Pattern(True, (3, None)))
    assert assemble([begin, later], 6, 6, 0) == (True, (3, None), None)
    other = Piece(5, 1, 0, 6, np.array([[[[True, False, True, False, True, True]]]]))
    causal, window, mask = assemble([begin, other], 6, 6, 0)
    assert (causal, window) == (False, None)
    assert np.array_equal(mask[0, 0, :5], np.pad(seen(True, (3, None), None, 5, 5)[0, 0], ((0, 0), (0, 1))))
    assert mask[0, 0, 5].tolist() == [True, False, True, False, True, True]


def layer(name, pattern, *, queries=10, keys=10, **more):
    given = {"softcap": None, "sinks": None} | more
    query = RNG.standard_normal((2, 4, queries, 8)).astype(np.float16)
    key = RNG.standard_normal((2, 2, keys, 8)).astype(np.float16)
    return StackLayer(name, query, key, None, pieces=[Piece(0, queries, 0, keys, pattern)], **given)


def exact(made, batch=1, **keywords):
    one = slice(batch, batch + 1)
    key = np.repeat(made.key[one], 2, axis=1)
    return reference.attention_weights(made.query[one], key, **keywords)[0]


async def test_every_layer_has_a_masking_of_its_own():
    sinks = np.array([0.5, -1, 2, 0], np.float32)
    layers = [
        layer("0", Pattern(True, (2, None)), sinks=sinks, softcap=2.0),
        layer("1", Pattern(False)),
    ]
    source = captured_source(Stack("self", False, layers), tokens=None, title="", batch=1)
    whole = Window([0, 1, 2, 3], slice(0, 10), slice(0, 10))
    engine = ReferenceEngine()
    first, second = [await engine.weights(each, source.masking, whole) for each in source.layers]
    wanted = exact(layers[0], causal="top-left", window=(2, None), softcap=2.0, sinks=sinks)
    assert np.abs(first - wanted).max() < 1e-6
    assert np.abs(second - exact(layers[1])).max() < 1e-6
    assert source.note == "Element 1 of a batch of 2."


async def test_panels_use_the_masking_of_their_layer():
    sinks = np.array([0.5, -1, 2, 0], np.float32)
    layers = [layer("0", Pattern(True), sinks=sinks), layer("1", Pattern(False))]
    viewer = Viewer()
    viewer.open(captured_source(Stack("self", False, layers), tokens=None, title="", batch=0))
    assert (viewer.layer(0)[0].masking.causal, viewer.layer(1)[0].masking.causal) == (True, False)
    why = await viewer.call("explain", {"layer": 0, "head": 2, "query": 4, "key": 3})
    assert why["weight"] == pytest.approx(why["computed"], abs=1e-6)  # the sink counts in both
    assert why["visible"] == 5
    await viewer.call("edit", {"layer": 0, "text": "def score_mod(s, b, h, i, j): return s * 2"})
    edited, chosen = viewer.layer(0)
    assert edited.masking.causal
    assert edited.masking.mods is viewer.source.masking.mods
    assert chosen.masked(viewer.source.masking) is edited.masking
    mean = await viewer.call(
        "window",
        {
            "layer": 0,
            "head": 0,
            "rows": [0, 10],
            "columns": [0, 10],
            "size": [10, 10],
            "over": "all",
            "colormap": "rocket",
            "scale": "sqrt",
            "pool": "max",
        },
    )
    assert mean["height"] == 10


def test_layers_of_different_masks_are_not_saved_as_queries():
    from py_attn.viewer.sources.saving import save

    source = captured_source(
        Stack("self", False, [layer("0", Pattern(True))]), tokens=None, title="", batch=0
    )
    with pytest.raises(ValueError, match="holds: the layers differ in window, mask or attention sinks"):
        save(source, ReferenceEngine(), "queries").send(None)


async def test_cross_attention_is_a_block_of_a_square_map():
    visible = np.ones((2, 6), bool)
    visible[1, 4:] = False
    made = layer("0", Pattern(False, None, visible), queries=3, keys=6)
    source = captured_source(Stack("cross", True, [made]), tokens=None, title="", batch=1)
    assert (source.length, source.heads, source.kv_heads) == (9, 4, 2)
    assert "The first 6 positions are the keys, the other 3 the queries." in source.note
    window = Window([0, 1, 2, 3], slice(0, 9), slice(0, 9))
    found = await ReferenceEngine().weights(source.layers[0], source.masking, window)
    assert np.abs(found[:, 6:, :6] - exact(made, mask=visible[1])).max() < 1e-6
    assert not found[:, :6].any()
    assert not found[:, :, 6:].any()


def test_too_long_a_cross_attention_is_refused():
    made = layer("0", Pattern(False), queries=200, keys=8_000)
    with pytest.raises(ValueError, match=r"captured: expected at most 8,192 keys and queries .* got 8,200"):
        captured_source(Stack("cross", True, [made]), tokens=None, title="", batch=0)


def test_without_transformers_there_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r"py_attn\.transformers needs transformers: pip install"):
        pa.transformers.capture(object())
