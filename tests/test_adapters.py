"""Plans of every family on adapters of every kind: valid within their limits, and sensible. No GPU.

The adapters are those of tests/adapters.py, with limits and subgroup sizes from public reports.
"""

import asyncio
import functools
import itertools
import math
from unittest import mock

import numpy as np
import pytest

import py_attn as pa
from py_attn.gpu import device as gpu_device
from py_attn.gpu import kernel
from py_attn.gpu.queue import Queue
from py_attn.kernels import nn
from py_attn.kernels.decode import plan as decode_plan
from tests import shader_calls
from tests.adapters import ADAPTERS
from tests.recording_bridge import RecordingBridge
from tests.workgroup_text import workgroup_memory, workgroup_size

VARIANTS = ("auto", "naive", "rows", "tiled", "subgroup")
DIMS = (1, 32, 64, 80, 128, 256, 512)
CACHES = (
    "float32", "float16", "bfloat16", "turboquant4", "turboquant3", "turboquant2", "turboquant1", "uniform4"
)  # fmt: skip
on_every_adapter = pytest.mark.parametrize("name", ADAPTERS)


class PlanningBridge(RecordingBridge):
    """Buffers without memory, so that plans of large inputs cost nothing."""

    def __init__(self, info):
        super().__init__()
        self.info = info

    def create_buffer(self, size, label):
        assert size <= self.info.limits["maxBufferSize"], label
        handle = self._handle()
        self.buffers[handle] = size
        return handle

    def destroy_buffer(self, buffer):
        del self.buffers[buffer]

    def write_buffer(self, buffer, offset, data):
        assert offset + memoryview(data).nbytes <= self.buffers[buffer]


def device_of(name):
    """A device with the limits of this adapter."""
    with mock.patch.object(gpu_device, "_default", None):
        return asyncio.run(gpu_device.request_device(PlanningBridge(ADAPTERS[name].info())))


class Planned(list):
    """What was dispatched inside ``with planned() as launches``: pairs of a shader and its workgroups."""

    def __enter__(self):
        add = Queue.add

        def collecting(queue, shader, params, buffers, workgroups, *rest, **keywords):
            self.append((shader, math.prod(workgroups)))
            add(queue, shader, params, buffers, workgroups, *rest, **keywords)

        self._patch = mock.patch.object(Queue, "add", collecting)
        self._patch.__enter__()
        return self

    def __exit__(self, *error):
        self._patch.__exit__(*error)


# What is planned


def prefill(device):
    """Every variant that the adapter has, with every head dim."""
    for dim, variant in itertools.product(DIMS, VARIANTS):
        if variant == "subgroup" and device.info.subgroup_min_size < 4:
            continue
        for kind, queries in itertools.product(("float32", "float16"), (1, 5, 100)):
            query, key = device.empty((1, 4, queries, dim), kind), device.empty((1, 2, 300, dim), kind)
            for options in ({}, {"causal": True, "mask": device.empty((queries, 300), "bool")}):
                pa.attention(query, key, key, variant=variant, **options)
    wide = device.empty((1, 12, 2000, 64))
    pa.attention(wide, wide, wide, return_lse=True)


def gradients(device):
    """Dense and packed."""
    for dim, kind in itertools.product(DIMS, ("float32", "float16")):
        query, key = device.empty((1, 4, 100, dim), kind), device.empty((1, 2, 100, dim), kind)
        pa.attention_backward(query, query, key, key, query, device.empty((1, 4, 100)), causal=True)
        query, key = device.empty((100, 4, dim), kind), device.empty((100, 2, dim), kind)
        cu = [0, 30, 100]
        lse = device.empty((4, 100))
        pa.varlen_attention(query, key, key, cu, cu, causal=True)
        pa.varlen_attention_backward(query, query, key, key, query, lse, cu, cu)


def decoding(device):
    """Caches of every dtype, head dim, group and length, one split and several."""
    for (dim, kind), (heads, keys) in itertools.product(
        itertools.product(DIMS, CACHES), ((2, 600), (8, 40), (14, 5000))
    ):
        cache = pa.KVCache(1, 2, keys, dim, dtype=kind, device=device)
        cache.append(device.empty((1, 2, keys, dim)), device.empty((1, 2, keys, dim)))
        for queries, options in ((1, {}), (1, {"splits": 1}), (3, {"return_lse": True})):
            pa.decode_attention(device.empty((1, heads, queries, dim)), cache, **options)
    for bits in (2, 3, 4):
        cache = pa.KVCache(1, 1, 40, 512, dtype=(f"turboquant{bits}", "float32"), qjl=True, device=device)
        cache.append(device.empty((1, 1, 9, 512)), device.empty((1, 1, 9, 512)))
        pa.decode_attention(device.empty((1, 4, 1, 512)), cache)
        packed = pa.turboquant.quantize(device.empty((5, 512)), bits)
        pa.turboquant.dequantize(packed)


def models(device):
    """The kernels of MiniLM and of sampling."""
    x, weight = device.empty((40, 384)), device.empty((384, 1536))
    nn.linear(x, weight, device.empty((1536,)), activation="gelu")
    nn.layer_norm(x, device.empty((384,)), device.empty((384,)), residual=x)
    nn.mean_pool(x)
    logits = device.empty((3, 49152))
    nn.token_statistics(logits, device.empty((3,), "uint32"))
    nn.compare_distributions(logits, device.empty((3, 49152)))


FAMILIES = (prefill, gradients, decoding, models, *shader_calls.ALL)


# One text serves all adapters whose plans agree.
_render_once = functools.cache(kernel._rendered.__wrapped__)
_memory = functools.cache(workgroup_memory)
_size = functools.cache(workgroup_size)


@functools.cache
def planned_on(name):
    """The shaders of all families by their text."""
    with Planned() as launches, mock.patch.object(kernel, "_rendered", _render_once):
        device = device_of(name)
        with mock.patch.object(gpu_device, "_default", device):
            for family in FAMILIES:
                family(device)
        device.flush()
    return {shader.wgsl: shader for shader, _ in launches}


# Valid


@on_every_adapter
def test_plans_are_within_the_limits(name):
    info = ADAPTERS[name].info()
    limits = info.limits
    shaders = planned_on(name)
    assert len({shader.name for shader in shaders.values()}) > 20
    for wgsl, shader in shaders.items():
        said = f"{shader.label} on {name}"
        assert _memory(wgsl) <= limits["maxComputeWorkgroupStorageSize"], said
        assert math.prod(_size(wgsl)) <= limits["maxComputeInvocationsPerWorkgroup"], said
        for axis, size in zip("XY", _size(wgsl), strict=False):
            assert size <= limits[f"maxComputeWorkgroupSize{axis}"], said
        assert len(shader.bindings) <= limits["maxStorageBuffersPerShaderStage"], said


def test_decode_knows_its_workgroup_memory():
    # By which the shape of a workgroup is chosen.
    seen = set()
    launch_splits = decode_plan._launch_splits

    def measured(call, config, *rest, **keywords):
        launch = launch_splits(call, config, *rest, **keywords)
        wgsl, promised = launch.shader.wgsl, config.shape.workgroup_bytes(config.keys, config.values)
        # A built-in number of the subgroup needs no counter, and codes of fewer bits have smaller tables.
        assert promised - 16 - 2 * 48 <= _memory(wgsl) <= promised, config
        seen.add(config.shape)
        return launch

    with mock.patch.object(decode_plan, "_launch_splits", measured):
        for name in ("Apple M series, Chrome 151", "Arm Mali-G77 (Valhall)", "WebGPU's default limits"):
            device = device_of(name)
            with mock.patch.object(gpu_device, "_default", device):
                decoding(device)
    assert len(seen) > 20


@on_every_adapter
def test_shuffles_are_where_subgroups_are_wide_enough(name):
    info = ADAPTERS[name].info()
    for wgsl, shader in planned_on(name).items():
        if "enable subgroups;" not in wgsl:
            assert "subgroup" not in wgsl.replace("subgroups_seen", ""), shader.label
            continue
        assert "subgroups" in info.features, shader.label
        constants = shader.constants
        # Those who exchange by shuffles share a subgroup, however small.
        together = [constants[of] for of in ("TX", "TEAM", "LANES") if of in constants]
        together += [-(-constants["D"] // 4)] if constants.get("rotates") else []
        assert together, shader.label
        assert max(together) <= info.subgroup_min_size, shader.label
        assert constants["WORKGROUP"] % max(together) == 0, shader.label
        assert ("requires subgroup_id;" in wgsl) == ("subgroup_id" in info.features)


# Sensible


def only(launches, *names):
    """The launches of these kernels."""
    return [launch for launch in launches if launch[0].name in names]


on_every_gpu = pytest.mark.parametrize(
    "name", [name for name, adapter in ADAPTERS.items() if not adapter.software]
)
# Batch, heads and rows of attention; batch, heads, key/value heads and keys of decode.
ATTENTION = ((1, 16, 4096), (8, 12, 512), (1, 1, 2048), (1, 12, 33), (1, 12, 9), (1, 4, 3))
DECODE = ((1, 32, 8, 16384), (4, 32, 8, 4096), (1, 14, 2, 2000), (1, 1, 1, 5000), (1, 8, 8, 200))


@on_every_gpu
@pytest.mark.parametrize("dim", [32, 64, 128])
@pytest.mark.parametrize(
    "sizes", [(1, 16, 4096), (8, 12, 512), (1, 1, 2048), (1, 12, 33), (1, 12, 9), (1, 4, 3)]
)
def test_tiles_of_attention(name, dim, sizes):
    """Tiles in workgroup memory, not half empty, and enough of them."""
    batch, heads, rows = sizes
    device = device_of(name)
    x = device.empty((batch, heads, rows, dim))
    with Planned() as launches:
        pa.attention(x, x, x)
        pa.attention_backward(x, x, x, x, x, device.empty((batch, heads, rows)))
    found = only(launches, "attention", "attention_backward")
    # The forward pass, and one or more turns of two or three launches of the backward pass.
    info = device.info
    stored = [shader for shader, _ in found if shader.variant == "key stored"]
    separate = any(shader.variant == "value stored" for shader, _ in found)
    assert (len(found) - 1) % (3 if separate else 2) == 0
    assert not separate or dim == 128
    assert len(stored) <= 16
    assert bool(stored) or dim == 32 or sizes == (1, 16, 4096)
    for each in {shader for shader, _ in found}:
        launched = sum(workgroups for shader, workgroups in found if shader is each)
        assert launched >= heads * batch * -(-rows // each.constants["BQ"])
    for shader, workgroups in found:
        tile = shader.constants["BQ"]
        assert shader.variant != "naive"
        assert tile <= 8 or tile < 2 * rows, shader.label
        # As many workgroups as a GPU has cores, or tiles of the least height that is worth its loads.
        assert workgroups >= 128 or tile <= 32, shader.label
        if sizes == (1, 16, 4096):
            # What is stored is multiplied a few keys at a time, without scores in registers.
            keys = 32 if shader.variant == "query stored" else shader.constants["BK"]
            assert tile * keys >= 32 * 32, shader.label
        if shader.name == "attention":
            assert (shader.variant == "subgroup") == (info.subgroup_min_size >= 8)


@on_every_gpu
def test_tiles_of_short_packed_sequences(name):
    """They are as tall as the usual sequence, not as all of them together."""
    device = device_of(name)
    x = device.empty((64 * 16, 12, 64))
    cu = np.arange(0, 64 * 16 + 1, 16)
    with Planned() as launches:
        pa.varlen_attention(x, x, x, cu, cu)
        pa.varlen_attention_backward(x, x, x, x, x, device.empty((12, 64 * 16)), cu, cu)
    found = only(launches, "attention", "attention_backward")
    assert len(found) == 3
    for shader, _ in found:
        assert shader.constants["BQ"] < 2 * 16, shader.label


@on_every_gpu
@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize(
    "sizes", [(1, 32, 8, 16384), (4, 32, 8, 4096), (1, 14, 2, 2000), (1, 1, 1, 5000), (1, 8, 8, 200)]
)
def test_splits_of_decode(name, kind, sizes):
    """Enough workgroups, none without keys, and the cache is not read by each row of a group by itself."""
    batch, heads, kv_heads, keys = sizes
    device = device_of(name)
    cache = pa.KVCache(batch, kv_heads, keys, 128, dtype=kind, device=device)
    cache.total = keys
    with Planned() as launches:
        pa.decode_attention(device.empty((batch, heads, 1, 128)), cache)
    ((shader, workgroups),) = only(launches, "decode_split")
    constants, group = shader.constants, heads // kv_heads
    row_tiles = -(-group // constants["ROWS"])
    splits = workgroups / (batch * kv_heads * row_tiles)
    taken = constants["WORKGROUP"] // constants["LANES"] * constants["KEYS_PER_GROUP"]
    assert 1 <= splits <= -(-keys // taken)
    assert workgroups >= min(32, keys // taken), shader.label
    # Lanes of 32 numbers of the queries each: with eight of them two rows of 128 fit.
    assert constants["ROWS"] >= min(group, 2), shader.label


@on_every_gpu
def test_workgroups_of_products(name):
    """MiniLM's products, and those of a language model for one token and for many."""
    device = device_of(name)
    x, weight = device.empty((512, 384)), device.empty((384, 1536))
    with Planned() as launches:
        nn.linear(x, weight, device.empty((1536,)))
        matrix = nn.pack_quantized([device.empty((1536 * 576 * 20 // 128,), "uint32")], [1536], 576, "Q4_1")
        for count in (1, 200):
            x, norm = device.empty((count, 576)), device.empty((576,))
            nn.logits(x, norm, matrix, state=None, count=count)
    found = only(launches, "linear", "logits")
    assert len(found) == 3
    for shader, workgroups in found:
        assert workgroups >= 32, shader.label
