"""float32 on subgroup matrices of float16: what a call launches, and what it says where it cannot."""

import re
from functools import partial

import numpy as np
import pytest

import py_attn as pa
from py_attn.kernels.attention.matrix import PairTile
from py_attn.kernels.attention.tiles import Tile
from tests.matrix_stand_ins import without_matrices
from tests.recording_bridge import MATRIX_ADAPTER, RecordingBridge
from tests.test_device import device_on
from tests.test_matrix import launches
from tests.test_shaders import naga
from tests.workgroup_text import workgroup_memory

launched = partial(launches, dtype="float32")


@pytest.mark.parametrize(
    ("shape", "rows", "keys", "turns"),
    [
        ((1, 16, 4096, 128), 128, 16, 8),
        ((8, 12, 512, 64), 128, 32, 4),
        ((32, 12, 128, 32), 64, 32, 4),
        ((1, 8, 1024, 128), 64, 16, 8),
        # Few rows: as many workgroups as there can be.
        ((1, 2, 40, 80), 16, 16, 8),
        ((1, 1, 5, 16), 16, 16, 4),
    ],
)
def test_a_second_launch_computes_what_does_not_fit(shape, rows, keys, turns):
    first, second = launched(shape, shape, shape, causal=True)
    batch, heads, queries, _ = shape
    tiles = batch * heads * -(-queries // rows)
    assert (first.label, second.label) == ("attention/matrix", "attention/subgroup")
    assert first.workgroups == second.workgroups == (tiles, 1, 1)
    for name, value in (("BQ", rows), ("BK", keys), ("TURNS_SUMMED", turns), ("WORKGROUP", 2 * rows)):
        assert f"const {name}: u32 = {value}u;" in first.wgsl
    assert f"const BQ: u32 = {rows}u;" in second.wgsl
    assert "if (unfit[work] == 0u) {\n    return;" in second.wgsl
    assert first.buffers[-1] == second.buffers[-1]
    assert first.buffers[-1][2] >= 4 * tiles


@pytest.mark.parametrize(("d", "dv"), [(128, 128), (128, 40), (64, 64), (40, 64), (33, 7), (5, 100)])
def test_naga_takes_all_but_the_matrices(d, dv):
    texts = {}
    for keywords in (
        {},
        {"causal": True, "return_lse": True},
        {"window": (30, 5), "layout": "BHSD"},
        {"kv_lengths": np.array([150, 70], np.int32)},
    ):
        first, _ = launched((2, 4, 100, d), (2, 2, 150, d), (2, 2, 150, dv), **keywords)
        texts[", ".join(keywords) or "plain"] = without_matrices(first.wgsl)
        assert workgroup_memory(first.wgsl) <= 48 << 10
        offsets = re.findall(r"subgroupMatrix(?:Load<[^>]+>|Store<\w+>)\(&[^,]+, ([^,]+),", first.wgsl)
        assert len(offsets) > 10
        assert all(re.fullmatch(r"\d+u", offset) for offset in offsets)
    assert naga(texts) == {}


@pytest.mark.parametrize(
    ("d", "dv", "in_turn"),
    [(128, 128, False), (96, 48, False), (16, 80, False), (32, 32, True), (7, 20, True)],
)
def test_tiles_know_their_memory(d, dv, in_turn):
    first, _ = launched((1, 16, 4096, d), (1, 16, 4096, d), (1, 16, 4096, dv))
    constants = {name: int(re.search(rf"const {name}: u32 = (\d+)u", first.wgsl)[1]) for name in ("BQ", "BK")}
    tile = PairTile(constants["BQ"] // 16, constants["BK"], 4, in_turn, Tile(4, 8, 4, 16, 2, 4))
    assert workgroup_memory(first.wgsl) == tile.workgroup_bytes(d, dv)
    assert ("var<workgroup> values" in first.wgsl) == (not in_turn)


@pytest.mark.parametrize(("kib", "in_turn"), [(16, True), (32, False), (48, False)])
def test_keys_and_values_take_turns_where_memory_is_short(kib, in_turn):
    shape = (1, 16, 4096, 128)
    first, _ = launched(shape, shape, shape, limits={"maxComputeWorkgroupStorageSize": kib << 10})
    assert workgroup_memory(first.wgsl) <= kib << 10
    assert ("var<workgroup> values" in first.wgsl) == (not in_turn)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"mask": np.ones((10, 10), bool)}, "without mask, score_mod, mask_mod, softcap and sinks"),
        ({"softcap": 3.0}, "without mask"),
        ({"sinks": np.zeros(2, np.float32)}, "without mask"),
        ({"score_mod": lambda score, b, h, q, k: score + 1}, "without mask"),
    ],
)
def test_options_that_it_does_not_take_are_named(keywords, message):
    bridge = RecordingBridge(**MATRIX_ADAPTER)
    device = device_on(bridge)
    query = device.empty((1, 2, 10, 64))
    with pytest.raises(ValueError, match=message):
        pa.attention(query, query, query, variant="matrix", **keywords)
    device.flush()
    assert bridge.programs == []


def test_inputs_that_do_not_fit_are_named():
    device = device_on(RecordingBridge(**MATRIX_ADAPTER))
    wide, single = device.empty((1, 2, 10, 136)), device.empty((1, 2, 10, 64))
    with pytest.raises(ValueError, match="float32 head dims up to 128, got 136 and 136"):
        pa.attention(wide, wide, wide, variant="matrix")
    half = device.empty((1, 2, 10, 64), "float16")
    with pytest.raises(ValueError, match="got query in float32; or all three in float32"):
        pa.attention(single, half, half, variant="matrix")
    small = device_on(RecordingBridge(**MATRIX_ADAPTER | {"maxComputeWorkgroupStorageSize": 4096}))
    query = small.empty((1, 2, 100, 64))
    with pytest.raises(ValueError, match="float32 head dims 64 and 64 needs more workgroup memory"):
        pa.attention(query, query, query, variant="matrix")
