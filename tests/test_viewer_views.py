"""Several heads at once: the rows and columns of a token, and the strongest links of a part of the maps."""

import numpy as np
import pytest

from py_attn.viewer import Viewer
from py_attn.viewer.engines.engine import in_chunks
from py_attn.viewer.panels.views import MAX_HEADS
from py_attn.viewer.sources.arrays import weights_source
from tests.viewers import SAMPLE, call

LAYERS, HEADS, LENGTH = 3, 4, 9
SEVERAL = [[2, 3], [0, 1], [2, 0]]
TOKENS = ["[CLS]", "un", "##believ", "##able", "news", ",", "to", "##day", "[SEP]"]


@pytest.fixture(scope="module")
def maps():
    found = np.random.default_rng(5).dirichlet(np.ones(LENGTH), (LAYERS, HEADS, LENGTH))
    return np.where(np.tri(LENGTH, dtype=bool), found, 0).astype(np.float32)


@pytest.fixture
def viewer(maps):
    viewer = Viewer()
    viewer.open(weights_source(maps[:, None], tokens=TOKENS, title="made", batch=0))
    return viewer


def chosen(maps, heads=SEVERAL):
    return np.stack([maps[layer, head] for layer, head in heads])


def test_a_token_s_row_and_column_in_several_heads(viewer, maps):
    row = call(viewer, "token_weights", heads=SEVERAL, position=4)
    assert row["weights"].dtype == np.float32
    assert row["maximum"] == 1
    np.testing.assert_array_equal(row["weights"].reshape(3, LENGTH), chosen(maps)[:, 4])
    column = call(viewer, "token_weights", heads=SEVERAL, position=4, direction="to", range="map")
    np.testing.assert_array_equal(column["weights"].reshape(3, LENGTH), chosen(maps)[:, :, 4])
    assert column["maximum"] == pytest.approx(chosen(maps).max())


def test_means_and_rollouts_are_one_map(viewer, maps):
    found = call(viewer, "token_weights", heads=[[1, 0]], position=2, over="layer")
    np.testing.assert_allclose(found["weights"], maps[1].mean(axis=0)[2], atol=1e-6)
    found = call(viewer, "token_weights", heads=[[1, 0]], position=2, over="rollout", direction="to")
    whole = call(viewer, "weights", layer=1, head=0, rows=[0, LENGTH], columns=[0, LENGTH], over="rollout")
    np.testing.assert_allclose(found["weights"], whole["weights"].reshape(LENGTH, LENGTH)[:, 2], atol=1e-6)
    links = call(viewer, "strongest", heads=[[1, 0]], rows=[0, LENGTH], columns=[0, LENGTH], over="all")
    assert links["weight"][0] == pytest.approx(maps.mean(axis=(0, 1)).max())


@pytest.mark.parametrize("most", [1, 7, 1000])
@pytest.mark.parametrize("part", [((0, LENGTH), (0, LENGTH)), ((2, 7), (1, 4)), ((0, 1), (8, 9))])
def test_the_strongest_links_of_a_part(viewer, maps, most, part, monkeypatch):
    # In parts of one row, as of a long text.
    monkeypatch.setattr("py_attn.viewer.panels.views.in_chunks", lambda window: in_chunks(window, most=1))
    (top, bottom), (left, right) = part
    found = call(viewer, "strongest", heads=SEVERAL, rows=part[0], columns=part[1], most=most)
    expected = chosen(maps)[:, top:bottom, left:right]
    values = np.sort(expected[expected != 0])[::-1]
    assert found["count"] == len(values)
    np.testing.assert_array_equal(found["weight"], values[:most])
    places = tuple(found[name] for name in ("head", "query", "key"))
    assert all(one.dtype == np.int32 for one in places)
    np.testing.assert_array_equal(chosen(maps)[places], found["weight"])


def test_words_are_read_as_everywhere(viewer, maps):
    call(viewer, "read_as", words=True, special="hide")
    found = call(viewer, "token_weights", heads=SEVERAL, position=0)["weights"].reshape(3, -1)
    assert found.shape == (3, 4)  # unbelievable, news, the comma, today
    # What the pieces of a word get is added, what they give is averaged.
    expected = chosen(maps)[:, 1:4, 1:4].sum(axis=-1).mean(axis=-1)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-6)


def test_shares_of_the_output_have_signs():
    viewer = Viewer()
    call(viewer, "open_sample", data=SAMPLE.read_bytes())
    heads = [[3, 1], [0, 4]]
    shares = call(viewer, "token_weights", heads=heads, position=9, show="gradient")["weights"].reshape(2, -1)
    for (layer, head), share in zip(heads, shares, strict=True):
        row = call(viewer, "row", layer=layer, head=head, query=9, show="gradient")
        np.testing.assert_allclose(share, row["weights"], atol=1e-6)
    links = call(viewer, "strongest", heads=heads, rows=[9, 10], columns=[0, 20], most=1, show="gradient")
    assert abs(links["weight"][0]) == pytest.approx(np.abs(shares).max())


@pytest.mark.parametrize(
    ("method", "payload", "message"),
    [
        ("token_weights", {"heads": [], "position": 0}, "heads: expected 1 to 8, got 0"),
        ("token_weights", {"heads": [[0, 0]] * (MAX_HEADS + 1), "position": 0}, "heads: expected 1 to 8"),
        ("token_weights", {"heads": [[0, 4]], "position": 0}, "heads: expected heads from 0 to 3, got 4"),
        ("token_weights", {"heads": [[3, 0]], "position": 0}, "layer: expected 0 to 2"),
        ("token_weights", {"heads": [[0, 0]], "position": 9}, "position: expected a range inside 0 to 9"),
        (
            "token_weights",
            {"heads": [[0, 0]], "position": 0, "direction": "up"},
            "direction: expected from or",
        ),
        ("strongest", {"heads": [[0, 0]], "rows": [0, 10], "columns": [0, 1]}, "rows: expected a range"),
    ],
)
def test_what_does_not_exist_is_said(viewer, method, payload, message):
    with pytest.raises(ValueError, match=message):
        call(viewer, method, **payload)


def test_a_part_that_is_too_large_is_refused(viewer, monkeypatch):
    monkeypatch.setattr("py_attn.viewer.panels.views.MAX_SEARCHED", 100)
    part = {"rows": [0, 4], "columns": [0, LENGTH]}
    assert call(viewer, "strongest", heads=[[0, 0], [0, 1]], **part)["count"] == 20
    with pytest.raises(ValueError, match="at most 100 weights, got 108"):
        call(viewer, "strongest", heads=SEVERAL, **part)
