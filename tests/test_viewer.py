"""The viewer on the reference engine: what the page shows without a GPU."""

import asyncio
import math

import numpy as np
import pytest

from py_attn import reference
from py_attn.colormaps import table
from py_attn.viewer import Viewer
from py_attn.viewer.engines.engine import Style, Window, row_step
from py_attn.viewer.engines.gpu import GPUEngine
from py_attn.viewer.engines.host import ReferenceEngine
from py_attn.viewer.engines.pooling import pool
from py_attn.viewer.panels.accuracy import compare, rows_of, sampled_rows
from py_attn.viewer.sources.source import Masking
from py_attn.viewer.sources.synthetic import MASKS, synthetic
from tests.recording_bridge import RecordingBridge
from tests.test_device import device_on
from tests.viewers import SAMPLE, call

SMALL = {"length": 20, "heads": 4, "kv_heads": 2, "head_dim": 8}


@pytest.fixture
def viewer():
    made = Viewer()
    call(made, "open_sample", data=SAMPLE.read_bytes())
    return made


def exact_weights(source, layer=0):
    made = source.layers[layer]
    return reference.attention_weights(made.query, made.key, **source.masking.keywords())[0]


# sources


def test_the_sample_opens_with_its_tokens(viewer):
    answer = call(viewer, "open_sample", data=SAMPLE.read_bytes())
    assert answer["tokens"][0] == "[CLS]"
    assert (answer["layers"], answer["heads"], answer["headDim"]) == (6, 12, 32)
    assert answer["length"] == len(answer["tokens"])
    assert answer["engine"] == "numpy"


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("window", [None, 0, 3])
def test_masks_written_out_agree_with_the_keywords(mask, window):
    source = synthetic(**SMALL, mask=mask, window=window, softcap=5.0)
    engine = ReferenceEngine()
    window = Window([0, 3], slice(4, 17), slice(0, source.length))
    rows = asyncio.run(engine.weights(source.layers[0], source.masking, window))
    np.testing.assert_allclose(rows, exact_weights(source)[[0, 3], 4:17], atol=2e-6)


def test_a_seed_gives_the_same_input_again():
    first, again, other = (synthetic(**SMALL, seed=seed).layers[0].query for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"length": 0}, "length: expected 1 to"),
        ({"heads": 6, "kv_heads": 4}, "kv_heads: expected a divisor of the 6 heads, got 4"),
        ({"head_dim": 513}, "head_dim: expected 1 to 512, got 513"),
        ({"window": -1}, "window: expected 0 or more, got -1"),
        ({"mask": "nobody"}, "mask: expected one of"),
        (
            {"mask": "documents", "length": 5000},
            "mask: documents needs a boolean matrix; expected a length up to",
        ),
    ],
)
def test_wrong_shapes_are_named(shape, message):
    with pytest.raises(ValueError, match=message):
        synthetic(**{**SMALL, **shape})


def test_the_reference_engine_has_a_limit(viewer):
    with pytest.raises(ValueError, match="length: expected at most 2,048 without a GPU"):
        call(viewer, "open_synthetic", **{**SMALL, "length": 4096})


def test_a_text_needs_a_model(viewer):
    with pytest.raises(ValueError, match="no model is loaded"):
        call(viewer, "open_text", text="hello")


# maps


def test_overview_is_every_head_in_colours(viewer):
    answer = call(viewer, "overview", layer=2, colormap="viridis", scale="linear")
    length, heads = viewer.source.length, viewer.source.heads
    assert answer["size"] == length
    pixels = answer["rgba"].reshape(heads, length, length, 4)
    exact = exact_weights(viewer.source, 2)
    index = np.rint(exact * 255).astype(int)
    difference = pixels.astype(int) - table("viridis")[index].astype(int)
    assert abs(difference).max() <= 6  # a weight on the edge between two colours


def test_overview_pools_what_is_larger_than_a_thumbnail(viewer):
    answer = call(viewer, "overview", layer=0, size=7)
    assert answer["size"] == 7
    assert answer["rgba"].size == viewer.source.heads * 7 * 7 * 4


def test_a_window_is_exact_when_it_fits_and_pooled_when_not(viewer):
    part = {"layer": 1, "head": 3, "rows": [2, 10], "columns": [0, 20]}
    exact = call(viewer, "window", **part, size=[100, 100])
    assert (exact["height"], exact["width"], exact["exact"]) == (8, 20, True)
    pooled = call(viewer, "window", **part, size=[4, 5])
    assert (pooled["height"], pooled["width"], pooled["exact"]) == (4, 5, False)
    assert pooled["rgba"].size == 4 * 4 * 5


@pytest.mark.parametrize("rows", [[3, 3], [-1, 2], [0, 21]])
def test_a_window_outside_the_map_is_refused(viewer, rows):
    with pytest.raises(ValueError, match="rows: expected a range inside 0 to 20"):
        call(viewer, "window", layer=0, head=0, rows=rows, columns=[0, 20], size=[9, 9])


def test_the_weights_of_a_part_come_as_figures(viewer):
    answer = call(viewer, "weights", layer=5, head=11, rows=[3, 9], columns=[0, 20])
    np.testing.assert_allclose(
        answer["weights"].reshape(6, 20), exact_weights(viewer.source, 5)[11, 3:9], atol=1e-6
    )
    call(viewer, "open_synthetic", length=1200, heads=1, kv_heads=1, head_dim=2)
    with pytest.raises(ValueError, match="expected at most 1,000,000 weights, got 1,440,000"):
        call(viewer, "weights", layer=0, head=0, rows=[0, 1200], columns=[0, 1200])


def test_row_gives_exact_weights_and_the_strongest_first(viewer):
    answer = call(viewer, "row", layer=3, head=1, query=9, links=3)
    exact = exact_weights(viewer.source, 3)[1, 9]
    np.testing.assert_allclose(answer["weights"], exact, atol=1e-6)
    assert [link["key"] for link in answer["links"]] == list(np.argsort(-exact)[:3])
    assert viewer.source.tokens[answer["links"][0]["key"]] == "animal"  # what “it” means


def test_a_row_that_sees_nothing_has_no_links():
    source = synthetic(**SMALL, mask="none")
    source.masking = Masking(bias=np.zeros((1, 1, 1, 20), np.bool_))
    viewer = Viewer()
    viewer.source = source
    answer = call(viewer, "row", layer=0, head=0, query=0)
    assert answer["links"] == []
    assert not answer["weights"].any()


@pytest.mark.parametrize("mode", ["max", "mean", "furthest"])
@pytest.mark.parametrize("size", [(5, 7), (20, 20), (1, 1), (3, 20)])
def test_pooling_is_the_references(mode, size):
    weights = np.random.default_rng(0).standard_normal((2, 20, 20), np.float32)
    np.testing.assert_allclose(pool(weights, size, mode), reference.pool(weights, size, mode), atol=1e-6)


def test_pooling_names_its_modes():
    with pytest.raises(ValueError, match="pool: expected max, mean or furthest"):
        pool(np.zeros((2, 2)), (1, 1), "median")


@pytest.mark.parametrize("scale", ["linear", "sqrt", "log"])
def test_the_legend_spans_the_strip(scale):
    answer = call(Viewer(), "legend", colormap="rocket_r", scale=scale)
    assert answer["rgba"].shape == (1024,)
    places = [tick["at"] for tick in answer["ticks"]]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (0, 1)


def test_a_style_is_what_the_page_sends():
    assert Style(colormap="magma", scale="log", pool="mean").pool == "mean"


# kernel panel


def test_measuring_without_a_gpu_times_numpy(viewer):
    answer = call(viewer, "measure", layer=0, variant="numpy", repeats=3)
    assert answer["variant"] == "numpy"
    assert set(answer["parts"]) == {"dispatch"}
    spread = answer["parts"]["dispatch"]
    assert 0 < spread["low"] <= spread["median"] <= spread["high"]
    assert answer["ok"]
    assert answer["error"] < 1e-5


def test_a_wrong_output_is_seen():
    source = synthetic(**SMALL, mask="alibi", softcap=3.0)
    layer = source.layers[0]
    arrays = (layer.query, layer.key, layer.value)
    exact = reference.attention(*arrays, **source.masking.keywords())
    good = compare(exact.astype(np.float32), arrays, source.masking)
    assert good["ok"]
    bad = exact.copy()
    bad[0, 2, 19, 3] += 0.01
    assert not compare(bad, arrays, source.masking)["ok"]


def test_long_inputs_are_compared_on_some_rows():
    query = np.zeros((1, 8, 4096, 1), np.float32)
    rows = sampled_rows(query)
    assert len(rows) == 122
    assert (rows[0], rows[-1]) == (0, 4095)


def test_rows_of_the_reference_are_rows_of_the_whole():
    source = synthetic(**SMALL, mask="padding", window=4)
    layer = source.layers[0]
    arrays = (layer.query, layer.key, layer.value)
    rows = np.array([0, 7, 19])
    whole = reference.attention(*arrays, **source.masking.keywords())
    np.testing.assert_allclose(
        rows_of(arrays, source.masking, rows, np.float64), whole[:, :, rows], atol=1e-12
    )


# decode panel


def test_decoding_fills_the_cache_and_the_splits_add_up(viewer):
    call(viewer, "decode_open", layer=3, capacity=20)
    for position in range(20):
        step = call(viewer, "decode_step", position=position, head=2, splits=4)
        assert (step["first"], step["length"]) == (0, position + 1)
        assert step["weights"].sum() == pytest.approx(1, abs=1e-5)
        assert sum(split["factor"] for split in step["splits"]) == pytest.approx(1, abs=1e-5)
        total = math.log(sum(math.exp(split["lse"]) for split in step["splits"]))
        assert total == pytest.approx(step["lse"], abs=1e-5)
        assert step["combined"] < 1e-5
        assert step["error"] < 1e-5
        covered = [p for split in step["splits"] for p in range(split["start"], split["stop"])]
        assert covered == list(range(position + 1))


def test_a_full_cache_forgets_the_oldest(viewer):
    call(viewer, "decode_open", layer=0, capacity=8)
    step = call(viewer, "decode_step", position=15, head=0, splits=3)
    assert (step["first"], step["length"], step["capacity"]) == (8, 8, 8)
    assert step["splits"][0]["start"] == 8
    assert len(step["weights"]) == 8


def test_decoding_names_what_is_wrong(viewer):
    with pytest.raises(ValueError, match="call decode_open first"):
        call(viewer, "decode_step", position=0, head=0)
    with pytest.raises(ValueError, match="capacity: expected 1 to 20, got 21"):
        call(viewer, "decode_open", layer=0, capacity=21)
    call(viewer, "decode_open", layer=0, capacity=20)
    with pytest.raises(ValueError, match="position: expected 0 to 19, got 20"):
        call(viewer, "decode_step", position=20, head=0)


# the door


def test_only_what_is_meant_for_it_can_be_called(viewer):
    for method in ("_layer", "call", "console", "nothing"):
        with pytest.raises(ValueError, match="method: expected one of"):
            call(viewer, method)


def test_without_webgpu_it_says_why():
    answer = call(Viewer(), "connect")
    assert answer["webgpu"] is False
    assert answer["adapter"].startswith("none: ")
    assert "navigator.gpu" in answer["reason"]
    assert answer["variants"] == ["numpy"]
    assert set(answer["versions"]) == {"py_attn", "python", "numpy"}


def test_pictures_of_very_many_weights_look_at_some_rows():
    part = slice(0, 16_384)
    assert row_step(slice(0, 4096), slice(0, 4096), 100) == 1
    assert row_step(part, part, 512) == 8
    assert row_step(slice(0, 10), part, 10) == 1


def test_a_software_adapter_is_not_given_minutes_of_work(device):
    engine = GPUEngine(device)
    engine.check(8, 2048, 64)
    with pytest.raises(ValueError, match="would keep this software adapter busy for minutes"):
        engine.check(8, 16_384, 64)


@pytest.mark.parametrize(
    ("software", "length", "kernel"), [(False, 128, "naive"), (False, 129, "tiled"), (True, 128, "rows")]
)
def test_a_short_layer_takes_the_kernel_that_compiles_soonest(software, length, kernel):
    bridge = RecordingBridge(software=software)
    device = device_on(bridge)
    made = synthetic(**(SMALL | {"length": length}))
    GPUEngine(device).upload(made.layers[0], made.masking)
    device.flush()
    assert bridge.programs[-1][-1].label == f"attention/{kernel}"
