"""Colours that span 0 to a map's largest weight."""

import asyncio
import itertools

import numpy as np
import pytest

from py_attn import colormaps, reference
from py_attn.models import load_sample
from py_attn.viewer import Viewer
from py_attn.viewer.engines import engine as engines
from py_attn.viewer.engines.engine import largest_step
from tests.viewers import SAMPLE, call

LAYERS = load_sample(SAMPLE.read_bytes()).layers


def exact(layer, head):
    query, key = (np.asarray(x, np.float64) for x in (LAYERS[layer].query, LAYERS[layer].key))
    return reference.attention_weights(query, key)[0, head]


@pytest.fixture
def viewer():
    made = Viewer()
    call(made, "open_sample", data=SAMPLE.read_bytes())
    return made


def whole(viewer, layer, head, **style):
    n = LAYERS[0].query.shape[2]
    answer = call(viewer, "window", layer=layer, head=head, rows=[0, n], columns=[0, n], size=[n, n], **style)
    return answer, answer["rgba"].reshape(n, n, 4)


@pytest.mark.parametrize("scale", colormaps.SCALES)
def test_the_largest_weight_has_the_last_colour(viewer, scale):
    expected = exact(0, 3)
    answer, pixels = whole(viewer, 0, 3, colormap="magma", scale=scale, range="map")
    assert answer["maximum"] == pytest.approx(expected.max(), rel=1e-5)
    assert answer["maximum_step"] == 1
    strongest = np.unravel_index(expected.argmax(), expected.shape)
    assert pixels[strongest].tolist() == colormaps.table("magma")[255].tolist()
    painted = colormaps.paint(expected, "magma", scale, maximum=expected.max())
    # A weight at the border of two colours may have either.
    assert np.abs(pixels.astype(int) - painted).max() <= 8


def test_a_part_of_a_map_has_the_colours_of_the_whole(viewer):
    _, pixels = whole(viewer, 5, 11, range="map")
    part = call(
        viewer, "window", layer=5, head=11, rows=[3, 7], columns=[4, 9], size=[99, 99], range="map"
    )  # fmt: skip
    assert np.array_equal(part["rgba"].reshape(4, 5, 4), pixels[3:7, 4:9])
    assert part["maximum"] == pytest.approx(exact(5, 11).max(), rel=1e-5)


def test_every_thumbnail_has_its_own_largest_weight(viewer):
    answer = call(viewer, "overview", layer=0, range="map")
    thumbnails = answer["rgba"].reshape(answer["heads"], -1, 4)
    last = colormaps.table("rocket")[255]
    for head, pixels in enumerate(thumbnails):
        assert (pixels == last).all(-1).any(), head


def test_gradients_span_their_largest_distance_from_zero(viewer):
    answer, pixels = whole(viewer, 5, 11, range="map", show="gradient")
    values = call(viewer, "weights", layer=5, head=11, rows=answer["rows"], columns=answer["columns"],
                  show="gradient")["weights"]  # fmt: skip
    assert answer["maximum"] == pytest.approx(np.abs(values).max(), rel=1e-5)
    ends = colormaps.signed_table("rocket")[[0, -1]]
    assert (pixels.reshape(-1, 1, 4) == ends).all(-1).any()


def test_a_score_mod_changes_the_largest_weight(viewer):
    before, _ = whole(viewer, 5, 11, range="map")
    call(viewer, "edit", text="def score_mod(score, b, h, i, j):\n    return score * 0")
    after, _ = whole(viewer, 5, 11, range="map")
    assert before["maximum"] > 0.5
    n = LAYERS[0].query.shape[2]
    assert after["maximum"] == pytest.approx(1 / n, rel=1e-5)


def test_the_unit_range_ends_at_one(viewer):
    answer, _ = whole(viewer, 5, 11)
    assert (answer["maximum"], answer["maximum_step"]) == (1.0, 1)


def test_of_huge_maps_some_rows_are_looked_at(viewer, monkeypatch):
    n = LAYERS[0].query.shape[2]
    assert largest_step(4096) == 1
    monkeypatch.setattr(engines, "MAX_POOLED_WEIGHTS", 100)
    monkeypatch.setattr(engines, "_CELLS_OF_LARGEST", 2)
    step = largest_step(n)
    assert step > 1
    answer, _ = whole(viewer, 5, 11, range="map")
    assert answer["maximum_step"] == step
    assert answer["maximum"] == pytest.approx(exact(5, 11)[::step].max(), rel=1e-5)


def test_a_map_of_zeros_keeps_the_range_of_one():
    class Zeros(engines.Engine):
        name = "zeros"
        most_weights = 1

        def check(self, heads, length, head_dim):
            """Anything goes."""

        async def weights(self, layer, masking, window, style=None):
            rows, columns = window.size or (3, 3)
            return np.full((len(window.heads), rows, columns), np.nan if window.heads[0] else 0, np.float32)

    class Kept:
        def __init__(self):
            self.kept = {}

    zeros = Zeros()
    for heads in ([0], [1]):
        assert asyncio.run(zeros.largest(Kept(), None, heads, 3)).tolist() == [1.0]


@pytest.mark.parametrize("scale", colormaps.SCALES)
@pytest.mark.parametrize("maximum", [0.93, 0.4, 0.07, 0.0031])
def test_a_legend_ends_at_the_maximum(scale, maximum):
    ticks = colormaps.legend("rocket", scale, maximum=maximum)["ticks"]
    at = [tick["at"] for tick in ticks]
    assert (ticks[-1]["value"], at[0], at[-1]) == (maximum, 0, 1)
    assert len(ticks) >= 3
    assert all(after - before >= 0.17 for before, after in itertools.pairwise(at))
    for tick in ticks:
        assert colormaps.position(tick["value"], scale, maximum) == pytest.approx(tick["at"], abs=1e-6)


def test_a_signed_legend_ends_at_both_sides():
    ticks = colormaps.legend("rocket", "sqrt", signed=True, maximum=0.4)["ticks"]
    assert [(tick["value"], tick["at"]) for tick in ticks] == [(-0.4, 0), (0, 0.5), (0.4, 1)]


@pytest.mark.parametrize("maximum", [0, -1, float("nan"), float("inf")])
def test_a_legend_needs_a_positive_maximum(maximum):
    with pytest.raises(ValueError, match="maximum: expected a number > 0"):
        colormaps.legend("rocket", "sqrt", maximum=maximum)


def test_the_maps_of_a_layer_can_share_their_largest_weight(viewer):
    own = call(viewer, "overview", layer=5, range="map")
    assert own["maximum"] == pytest.approx(max(exact(5, head).max() for head in range(12)), rel=1e-5)
    shared = call(viewer, "overview", layer=5, range="map", colormap="magma", maximum=2.0)
    expected = colormaps.paint(exact(5, 3), "magma", "sqrt", maximum=2.0)
    n = shared["size"]
    assert np.abs(shared["rgba"].reshape(12, n, n, 4)[3].astype(int) - expected).max() <= 8


@pytest.mark.parametrize("maximum", [0.0, -1.0, float("inf"), float("nan")])
def test_a_maximum_that_no_colours_can_span_is_refused(viewer, maximum):
    with pytest.raises(ValueError, match="maximum"):
        call(viewer, "overview", layer=0, range="map", maximum=maximum)
