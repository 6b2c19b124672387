"""What a cell of the console sees of the page, what it shows there, and which names it is offered."""

import asyncio

import numpy as np
import pytest

from py_attn import reference
from py_attn.viewer import Viewer
from py_attn.viewer.page import MAX_WEIGHTS, mentions_page
from tests.viewers import SAMPLE, call


@pytest.fixture
def viewer():
    made = Viewer()
    call(made, "open_sample", data=SAMPLE.read_bytes())
    return made


def run(viewer, source, **focus):
    answer = asyncio.run(viewer.run_cell(source, focus=focus or None))
    assert "error" not in answer, answer["error"]
    return answer


def test_a_cell_sees_the_head_in_focus(viewer):
    focus = {"layer": 3, "head": 7, "row": 9, "column": 2}
    seen = run(viewer, "[page.layer, page.head, page.row, page.column]", **focus)["value"]
    assert seen == [3, 7, 9, 2]
    layer = viewer.source.layers[3]
    for name in ("query", "key", "value"):
        assert np.array_equal(run(viewer, f"page.{name}", **focus)["value"], getattr(layer, name)[0, 7])
    exact = reference.attention_weights(layer.query, layer.key)[0, 7]
    assert np.allclose(run(viewer, "page.weights", **focus)["value"], exact, atol=1e-6)
    assert run(viewer, "(page.tokens[1], page.title)", **focus)["value"][0] == viewer.source.tokens[1]


def test_keys_are_those_of_the_head_s_group(viewer):
    call(viewer, "open_synthetic", length=10, heads=6, kv_heads=2, head_dim=8)
    key = run(viewer, "page.key", layer=5, head=4)["value"]  # a layer that is no longer there
    assert np.array_equal(key, viewer.source.layers[0].key[0, 1])


def test_a_cell_keeps_what_it_saw_until_one_mentions_the_page_again(viewer):
    run(viewer, "def head(): return page.head", layer=0, head=3)
    assert run(viewer, "head()", layer=0, head=5)["value"] == 3
    assert run(viewer, "page; head()", layer=0, head=5)["value"] == 5


@pytest.mark.parametrize(
    ("source", "mentions"), [("page", True), ("x.page", False), ("'page'", False), ("def f(:", False)]
)
def test_whether_a_cell_reads_the_page(source, mentions):
    assert mentions_page(source) is mentions


def test_a_map_too_large_to_be_read_says_what_to_do(viewer):
    length = int(MAX_WEIGHTS**0.5) + 1
    call(viewer, "open_synthetic", length=length, heads=1, kv_heads=1, head_dim=4)
    assert (
        "page.weights: the map has 4,004,001 weights" in asyncio.run(viewer.run_cell("page.weights"))["error"]
    )
    assert run(viewer, "page.query.shape")["value"] == [length, 4]


def test_an_array_is_opened_as_a_source(viewer):
    shown = np.linspace(0, 1, 2 * 3 * 16).reshape(2, 3, 4, 4)
    viewer.console.namespace["x"] = shown
    opened = run(viewer, "page.show(x, tokens=['a', 'b', 'c', 4], title='mine')")["opened"]
    assert (opened["kind"], opened["title"], opened["tokens"]) == ("weights", "mine", ["a", "b", "c", "4"])
    assert (opened["layers"], opened["heads"], opened["length"]) == (2, 3, 4)
    got = call(viewer, "weights", layer=1, head=2, rows=[0, 4], columns=[0, 4])["weights"]
    assert np.allclose(got.reshape(4, 4), shown[1, 2])
    assert "opened" not in run(viewer, "1")
    assert "were given" in asyncio.run(viewer.run_cell("page.query"))["error"]


def test_labels_are_the_page_s_where_they_fit(viewer):
    tokens = list(viewer.source.tokens)
    assert run(viewer, "page.show(page.weights)")["opened"]["tokens"] == tokens
    assert run(viewer, "page.show(np.eye(3))")["opened"]["tokens"] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("array", "told"),
    [
        ("np.ones(3)", "array: expected [S, S]"),
        ("np.ones((2, 3))", "array: expected [S, S]"),
        ("np.ones((0, 0))", "array: expected [S, S]"),
        ("np.ones((1, 1, 1, 2, 2))", "array: expected [S, S]"),
        ("[[1, np.nan], [0, 1]]", "finite numbers"),
        ("np.eye(2), ['a']", "tokens: expected 2, got 1"),
    ],
)
def test_other_arrays_are_refused(viewer, array, told):
    before = viewer.source
    assert told in asyncio.run(viewer.run_cell(f"page.show({array})"))["error"]
    assert viewer.source is before


def test_nothing_is_open_yet():
    assert "nothing is open" in asyncio.run(Viewer().run_cell("page.tokens"))["error"]
    assert run(Viewer(), "repr(page)")["value"] == "page: nothing is open yet"


# Completion


def complete(viewer, text):
    answer = call(viewer, "complete", text=text, position=len(text))
    return answer["from"], {one["label"]: one for one in answer["options"]}


def test_names_and_attributes_that_there_are(viewer):
    run(viewer, "weights_of_mine = np.ones((2, 3))\ndef twice(x, *more, y=1): return 2 * x\npage")
    at, found = complete(viewer, "x = weights_o")
    assert (at, found["weights_of_mine"]["detail"]) == (4, "ndarray [2, 3]")
    assert complete(viewer, "twi")[1]["twice"]["detail"] == "(x, *more, y=)"
    assert complete(viewer, "pa.attention_w")[1]["attention_weights"]["detail"].startswith("(query, key, lse")
    assert "attention" in complete(viewer, "pa.reference.")[1]
    assert {"query", "key", "weights", "tokens", "show"} <= set(complete(viewer, "f(page.")[1])
    assert "ndim" in complete(viewer, "weights_of_mine.nd")[1]
    assert {"while"} <= set(complete(viewer, "whi")[1])
    assert "__class__" not in complete(viewer, "page.")[1]
    assert "__class__" in complete(viewer, "page.__cl")[1]


ODD = """
class Odd:
    @property
    def trap(self): raise SystemExit
    def __getattr__(self, name): raise SystemExit
    def __dir__(self): raise SystemExit
odd = Odd()
"""


def test_completing_runs_nothing(viewer):
    run(viewer, ODD)
    assert complete(viewer, "odd.tr")[1]["trap"]["type"] == "property"
    assert complete(viewer, "odd.trap.")[1] is not None


@pytest.mark.parametrize("text", ["", "f().", "x[0].", "'a.", "1.", "nothing.", "  ", "é" * 5, "a" * 200_000])
def test_elsewhere_there_is_nothing(viewer, text):
    assert complete(viewer, text)[1] == {}


def test_names_are_bounded(viewer):
    viewer.console.namespace |= {f"name{n}": n for n in range(1000)}
    assert len(complete(viewer, "name")[1]) == 300
