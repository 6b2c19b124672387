"""Caches of several dtypes side by side, and the other operations of the kernel panel."""

import asyncio

import numpy as np
import pytest

import py_attn as pa
from py_attn import reference, turboquant_reference
from py_attn.viewer import Viewer
from py_attn.viewer.panels.accuracy import errors
from py_attn.viewer.panels.caches import DTYPES
from py_attn.viewer.panels.operations import OPERATIONS, first_positions
from tests.viewers import SAMPLE, call

SHAPE = {"length": 40, "heads": 4, "kv_heads": 2, "head_dim": 16}


@pytest.fixture
def viewer():
    made = Viewer()
    call(made, "open_sample", data=SAMPLE.read_bytes())
    return made


@pytest.fixture
def on_gpu(device):
    made = Viewer()
    made.use(device)
    call(made, "open_synthetic", **SHAPE, mask="causal", softcap=5.0)
    return made


# caches


def try_all(viewer, **payload):
    return [call(viewer, "decode_cache", layer=0, dtype=dtype, **payload) for dtype in DTYPES]


def test_fewer_bits_take_less_and_change_more(viewer):
    # A head whose weights are spread: where one key has nearly all weight, no cache changes much.
    caches = try_all(viewer, position=15, head=3, capacity=20)
    for name in ("error", "relative", "change"):
        values = [cache[name] for cache in caches]
        assert values == sorted(values)
    sizes = [cache["nbytes"] for cache in caches]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 20 * 12 * 2 * 32 * 4
    for cache in caches:
        assert cache["weights"].sum() == pytest.approx(1, abs=1e-5)
        assert cache["time"] is None


def test_a_ring_compares_what_it_holds(viewer):
    answer = call(viewer, "decode_cache", layer=3, position=15, head=2, capacity=6, dtype="turboquant4")
    assert (answer["first"], answer["length"]) == (10, 6)
    layer = viewer.source.layers[3]
    key, value = (turboquant_reference.roundtrip(x[:, :, 10:16], 4) for x in (layer.key, layer.value))
    out = reference.decode_attention(layer.query[:, :, 15:16], key, value)
    exact = reference.decode_attention(
        layer.query[:, :, 15:16], layer.key[:, :, 10:16], layer.value[:, :, 10:16]
    )
    assert answer["error"] == pytest.approx(np.abs(out - exact).max(), rel=1e-3)


def test_bytes_are_the_caches_own(viewer, on_gpu):
    for chosen in (viewer, on_gpu):
        length, layer = chosen.source.length, chosen.source.layers[0]
        for cache in try_all(chosen, position=5, head=1, capacity=length):
            dim = layer.key.shape[3]
            made = pa.KVCache(1, layer.key.shape[1], length, dim, dtype=cache["dtype"], device=on_gpu.device)
            assert cache["nbytes"] == made.nbytes


def test_each_cache_is_timed_on_the_gpu(on_gpu):
    assert all(cache["time"] > 0 for cache in try_all(on_gpu, position=30, head=3, capacity=40))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"position": 20}, "position: expected 0 to 19, got 20"),
        ({"capacity": 0}, "capacity: expected 1 to 20, got 0"),
        ({"head": 12}, "head: expected 0 to 11, got 12"),
        ({"dtype": "int8"}, "dtype: expected one of float32, float16, turboquant4"),
    ],
)
def test_what_does_not_fit_is_named(viewer, given, message):
    payload = {"layer": 0, "position": 3, "head": 0, "capacity": 20, "dtype": "float32"}
    with pytest.raises(ValueError, match=message):
        call(viewer, "decode_cache", **payload | given)


# operations


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_timed_and_compared(on_gpu, name):
    answer = call(on_gpu, "measure", layer=0, variant=name, repeats=2)
    assert answer["variant"] == name
    assert set(answer["parts"]) == {"upload", "compile", "dispatch", "readback"}
    assert "@compute" in answer["wgsl"]
    assert not answer["ok"]  # the recording bridge computes nothing, and outputs hold NaN before


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - {"turboquant"}))
def test_float32_is_close_to_float64(on_gpu, name):
    layer = on_gpu.source.layers[0]
    arrays = (layer.query, layer.key, layer.value)
    prepared = OPERATIONS[name].prepare(on_gpu.device, [on_gpu.device.tensor(x) for x in arrays])
    exact = asyncio.run(OPERATIONS[name].exact(arrays, prepared))
    answer = errors(list(exact(np.float32)), exact)
    assert answer["ok"]
    assert 0 < answer["error"] < 1e-4


def test_long_layers_are_cut_to_what_the_reference_takes():
    long = tuple(np.zeros((1, heads, 4000, 4), np.float32) for heads in (16, 2, 2))
    assert [x.shape[2] for x in first_positions(long)] == [250] * 3
    short = tuple(x[:, :, :9] for x in long)
    assert [x.shape[2] for x in first_positions(short)] == [9] * 3
