"""Caches of 4-bit codes: when these lie in tiles, what is dispatched then, and its plans. No GPU."""

import numpy as np
import pytest

import py_attn as pa
from e2e.page.emulated_matrices import emulate
from py_attn.gpu.bridge import MatrixConfig
from py_attn.kernels.decode.tiled_codes import TileRuns, choose_runs
from tests.recording_bridge import MATRIX_ADAPTER, RecordingBridge
from tests.test_device import device_on
from tests.test_shaders import naga
from tests.workgroup_text import workgroup_memory

_CONFIG = MatrixConfig("i8", "i32", 16, 16, 32)
ADAPTER = {**MATRIX_ADAPTER, "matrix_configs": (_CONFIG,)}


def without(feature):
    """What an adapter has that lacks this one."""
    return {"features": tuple(x for x in ADAPTER["features"] if x != feature)}


def cache_on(adapter=ADAPTER, shape=(1, 2, 1000, 128), kind=pa.KVCache, **keywords):
    bridge = RecordingBridge(**adapter)
    return bridge, kind(*shape, device=device_on(bridge), **{"dtype": "uniform4", **keywords})


def dispatched(bridge):
    return [launch for program in bridge.programs for launch in program]


@pytest.mark.parametrize("dtype", ["uniform4", "turboquant4"])
def test_tiles_where_the_adapter_multiplies_them(dtype):
    bridge, cache = cache_on(dtype=dtype)
    assert cache.tiled
    assert cache.keys.shape == cache.values.shape == (1, 2, 8, 17 * 128)
    assert cache.nbytes == 2 * 2 * 8 * 17 * 128 * 4
    cache.append(*np.zeros((2, 1, 2, 3, 128), np.float32))
    cache.device.flush()
    keys, values = dispatched(bridge)
    assert keys.label == "turboquant_quantize/4-bit, tiles of keys"
    assert values.label == "turboquant_quantize/4-bit, tiles of values"
    assert "array<atomic<u32>>" in values.wgsl
    assert "atomic" not in keys.wgsl


@pytest.mark.parametrize(
    "changes",
    [
        {"matrix_configs": ()},
        {"matrix_configs": (MatrixConfig("i8", "i32", 16, 16, 16),)},
        without("chromium-experimental-subgroup-matrix"),
        without("subgroup_id"),
        without("subgroup_uniformity"),
        {"subgroup_size": 64},
        {"maxComputeWorkgroupStorageSize": 8192},
        {"maxComputeInvocationsPerWorkgroup": 64},
    ],
)
def test_rows_on_other_adapters(changes):
    bridge, cache = cache_on({**ADAPTER, **changes})
    assert not cache.tiled
    assert cache.keys.shape == (1, 2, 1000, 17)
    cache.append(*np.zeros((2, 1, 2, 3, 128), np.float32))
    pa.decode_attention(np.zeros((1, 4, 1, 128), np.float32), cache)
    cache.device.flush()
    assert all("subgroup_matrix" not in launch.wgsl for launch in dispatched(bridge))


@pytest.mark.parametrize(
    ("shape", "keywords"),
    [
        ((1, 2, 10, 64), {}),
        ((1, 2, 10, 128), {"value_head_dim": 64}),
        ((1, 2, 10, 128), {"dtype": ("uniform4", "float16")}),
        ((1, 2, 10, 128), {"dtype": ("uniform4", "turboquant4")}),
        ((1, 2, 10, 128), {"dtype": ("turboquant4", "turboquant3")}),
        ((1, 2, 10, 128), {"dtype": "turboquant4", "qjl": True}),
        ((1, 2, 10, 64), {"dtype": "turboquant4"}),
    ],
)
def test_rows_of_other_caches(shape, keywords):
    assert not cache_on(shape=shape, **keywords)[1].tiled


def test_blocks_of_pages_have_rows():
    table = np.arange(6).reshape(2, 3)
    _, cache = cache_on(shape=(2, 8, 128), kind=pa.PagedKVCache, block_table=table)
    assert not cache.tiled
    assert cache.keys.shape == (8, 2, 16, 17)


def test_no_residuals():
    with pytest.raises(
        ValueError, match="qjl: expected quantised keys to spend a bit of, got keys of dtype 'unif"
    ):
        cache_on(qjl=True)


# plans


def covered(runs, count):
    """How often each of `count` tiles behind the first one is taken."""
    found = np.zeros(count + runs.steps * runs.splits * runs.tiles, int)
    for split in range(runs.splits):
        for step in range(runs.steps):
            begin = split * runs.split_first + step * runs.split_stride
            found[begin : begin + runs.tiles] += 1
    assert not found[count:].max(initial=0) > 1
    return found[:count]


@pytest.mark.parametrize("in_runs", [False, True])
@pytest.mark.parametrize("splits", [None, 1, 2, 3, 7, 40, 1024])
@pytest.mark.parametrize("slots", [1, 128, 129, 1000, 4096, 32768, 1 << 20])
def test_each_tile_is_taken_once(slots, splits, in_runs):
    for workgroups in (1, 8, 64, 1000):
        for first in (0, 5, slots // 2):
            runs = choose_runs(slots, first, workgroups, 1, splits, 1024, in_runs=in_runs)
            assert runs.first_tile == first // 128
            assert runs.splits == splits or (splits is None and runs.splits <= 1024)
            assert (covered(runs, -(-slots // 128) - runs.first_tile) == 1).all()


def test_long_caches_get_the_runs_that_were_measured():
    assert choose_runs(32768, 0, 8, 1, None, 1024, in_runs=False) == TileRuns(4, 0, 1, 64, 4, 256, 1)
    assert choose_runs(32768, 0, 64, 1, None, 1024, in_runs=False).tiles == 4
    # Shorter runs keep as many cores at work.
    assert choose_runs(4096, 0, 8, 1, None, 1024, in_runs=False).tiles == 1


def decoded(shape=(1, 2, 1000, 128), heads=8, queries=1, total=900, **keywords):
    """The launch over the splits of a decode."""
    given = {name: keywords.pop(name) for name in ("sink_tokens", "ragged", "dtype") if name in keywords}
    bridge, cache = cache_on(shape=shape, **given)
    if not cache.ragged:
        cache.total = total
    out = pa.decode_attention(np.zeros((shape[0], heads, queries, 128), np.float32), cache, **keywords)
    cache.device.flush()
    launches = dispatched(bridge)
    assert [launch.label.split("/")[0] for launch in launches] == ["decode_split", "decode_reduce"]
    assert out.shape == (shape[0], heads, queries, 128)
    return launches[0]


KEYWORDS = [
    {},
    {"dtype": "turboquant4"},
    {"dtype": "turboquant4", "total": 5000, "splits": 2, "window": 3000},
    {"splits": 1},
    {"queries": 3, "window": 40, "softcap": 2.0},
    {"total": 5000, "sink_tokens": 4},
    {"ragged": True, "left_padding": np.array([1], np.int32)},
    {"score_mod": lambda score, b, h, q, k: score - pa.abs(q - k)},
    {"mask_mod": lambda b, h, q, k: k % 2 == 0, "sinks": np.zeros(8, np.float32)},
]


def test_texts_are_valid_and_declare_what_they_use():
    texts = {}
    for keywords in KEYWORDS:
        launch = decoded(**keywords)
        assert launch.label == "decode_split/4-row, matrices of integers"
        assert launch.wgsl.startswith(
            "enable subgroups;\nenable chromium_experimental_subgroup_matrix;\nrequires subgroup_id;"
        )
        assert workgroup_memory(launch.wgsl) == 16 * (3 * 4 * 9 + 4 * 160 + 4 * 4)
        # Of matrices naga knows nothing.
        texts["-".join(keywords) or "plain"] = emulate(launch.wgsl)
    assert naga(texts) == {}


def test_four_rows_share_a_workgroup():
    assert decoded(heads=8).workgroups == (8, 2, 1)
    assert decoded(heads=10, queries=3).workgroups == (4 * 8, 2, 1)
    # Of 900 keys the last 41 are seen by two queries, all of them in the last two tiles.
    assert decoded(queries=2, window=39).workgroups == (2 * 2, 2, 1)
