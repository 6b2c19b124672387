"""What the attention kernels would dispatch: params, bindings, workgroups. On a recording bridge."""

import asyncio
import dataclasses
import heapq
import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import py_attn as pa
from py_attn.gpu import device as gpu_device
from py_attn.kernels.attention import backward_config
from py_attn.kernels.attention.config import Config
from py_attn.kernels.attention.options import resolve
from py_attn.kernels.attention.tiles import (
    CANDIDATES,
    SOFTWARE,
    TailSplit,
    Tile,
    choose_tail_split,
    tiles_for,
)
from py_attn.kernels.attention.work import Work, choose_tile, time_of, work_of
from py_attn.kernels.decode.config import choose_splits, split_range
from tests.recording_bridge import LIMITS, RecordingBridge

UNBOUNDED = 1 << 30
LOG2_E = math.log2(math.e)


def device_on(bridge):
    return asyncio.run(gpu_device.request_device(bridge))


def plan(device, call, *arguments, **options):
    """The dispatches of one call as (shader, params by name, workgroups, buffers by name)."""
    device.flush()
    bridge = device._bridge
    before = len(bridge.programs)
    with device.record() as program:
        call(*arguments, **options)
    program.submit()
    found = []
    for recorded, launch in zip(program.dispatches, bridge.programs[before:][0], strict=True):
        shader = recorded.shader
        names = [binding.name for binding in shader.bindings]
        found.append(
            (
                shader,
                shader.params.unpack(launch.params),
                launch.workgroups,
                dict(zip(names, launch.buffers, strict=True)),
            )
        )
    return found


def attention_plan(device, *inputs, **options):
    (found,) = plan(device, pa.attention, *inputs, **options)
    return found


@pytest.fixture
def inputs(device):
    """query [2, 4, 5, 8], key [2, 2, 7, 8] and value [2, 2, 7, 6]."""
    return [device.empty(shape) for shape in ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6))]


# pa.attention


def test_sizes_strides_and_bindings(device, inputs):
    shader, params, workgroups, buffers = attention_plan(device, *inputs, return_lse=True)
    assert shader.label == "attention/naive"
    wanted = {
        "batch": 2, "heads": 4, "group": 2, "queries": 5, "keys": 7, "rows": 40, "tiles": 0,
        "query_first": 0, "key_first": 0, "value_first": 0,
        "query_strides": [160, 40, 8, 1], "key_strides": [112, 56, 8, 1], "value_strides": [84, 42, 6, 1],
        # The output's rows of 6 are 8 apart.
        "out_strides": [160, 40, 8, 1], "mask_strides": [0, 0, 0, 0],
        "window_left": UNBOUNDED, "window_right": UNBOUNDED, "top_left": 0, "empty_lse": -math.inf,
    }  # fmt: skip
    assert {name: params[name] for name in wanted} == wanted
    assert params["query_scale"] == pytest.approx(LOG2_E / math.sqrt(8))
    assert workgroups == (1, 1, 1)
    assert list(buffers) == ["query", "key", "value", "out", "lse"]
    assert [(offset, size) for _, offset, size in buffers.values()] == [
        (0, 1280), (0, 896), (0, 672), (0, 1280), (0, 480),
    ]  # fmt: skip
    assert [handle for handle, *_ in buffers.values()][:3] == [t._storage.handle for t in inputs]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"causal": True}, (UNBOUNDED, 0, 0)),
        ({"causal": "bottom-right"}, (UNBOUNDED, 0, 0)),
        ({"causal": "top-left"}, (UNBOUNDED, 0, 1)),
        ({"window": 3}, (3, 3, 0)),
        ({"window": (3, 4)}, (3, 4, 0)),
        ({"window": (None, 4)}, (UNBOUNDED, 4, 0)),
        ({"window": (0, None)}, (0, UNBOUNDED, 0)),
        ({"window": [2, 9], "causal": True}, (2, 0, 0)),
        ({"window": 5, "causal": "top-left"}, (5, 0, 1)),
        ({"window": 1 << 40}, (UNBOUNDED, UNBOUNDED, 0)),
        ({"causal": True, "query_offset": 3}, (UNBOUNDED, 3, 1)),
        ({"window": (2, 1), "query_offset": 4}, (-2, 5, 1)),
        ({"causal": True, "query_offset": 1 << 40}, (UNBOUNDED, UNBOUNDED, 1)),
    ],
)
def test_windows(device, inputs, options, wanted):
    _, params, *_ = attention_plan(device, *inputs, **options)
    assert (params["window_left"], params["window_right"], params["top_left"]) == wanted


@pytest.mark.parametrize(
    ("options", "query_scale", "score_scale"),
    [
        ({"scale": 0.5}, 0.5 * LOG2_E, 0),
        ({"scale": -2}, -2 * LOG2_E, 0),
        ({"scale": 0}, 0, 0),
        ({"scale": np.float32(0.25), "softcap": None}, 0.25 * LOG2_E, 0),
        ({"scale": 3.0, "softcap": 6}, 0.5, 6 * LOG2_E),
        ({"scale": 3.0, "softcap": 0}, 3 * LOG2_E, 0),
    ],
)
def test_scales(device, inputs, options, query_scale, score_scale):
    _, params, *_ = attention_plan(device, *inputs, **options)
    assert params["query_scale"] == pytest.approx(query_scale)
    assert params["score_scale"] == pytest.approx(score_scale)


def test_views_are_strides_and_offsets(device):
    base = device.empty((3, 20, 4, 10))
    query = base[1:, 2::3, :, 1:9].transpose(0, 2, 1, 3)
    key = base[:2, :5, :2].transpose(0, 2, 1, 3)[..., 2:10]
    shader, params, _, buffers = attention_plan(device, query, key, key)
    assert params["query_strides"] == [800, 10, 120, 1]
    assert params["query_first"] == 800 + 80 + 1
    assert params["key_strides"] == [800, 10, 40, 1]
    assert params["key_first"] == 2
    assert (shader.constants["query_packed"], shader.constants["key_packed"]) == (False, False)
    assert {handle for handle, *_ in list(buffers.values())[:3]} == {base._storage.handle}


def test_axes_of_length_one_have_no_stride(device):
    # Their strides must not decide over the packed reading.
    query = device.empty((1, 1, 5, 7), pitch=9)[..., :4]
    _, params, *_ = attention_plan(device, query, query, query)
    assert params["query_strides"] == [0, 0, 9, 1]


@pytest.mark.parametrize(
    ("dtype", "dim", "pitch", "binding"),
    [
        ("float32", 8, 8, "vec4<f32>"), ("float32", 6, 8, "f32"), ("float32", 8, 9, "f32"),
        ("float16", 8, 8, "vec2<u32>"), ("bfloat16", 8, 12, "vec2<u32>"), ("float16", 5, 5, "u32"),
    ],
)  # fmt: skip
def test_aligned_rows_are_read_four_at_a_time(device, dtype, dim, pitch, binding):
    query = device.empty((1, 1, 5, dim), dtype, pitch=pitch)
    shader, *_ = attention_plan(device, query, query, query)
    assert shader.bindings[0].type == binding
    assert shader.constants["query_packed"] == (binding in ("vec4<f32>", "vec2<u32>"))


def test_layout_bshd_is_strides_only(device):
    query, key = device.empty((2, 5, 4, 8)), device.empty((2, 7, 2, 8))
    _, params, *_ = attention_plan(device, query, key, key, layout="BSHD")
    assert (params["heads"], params["queries"], params["keys"], params["group"]) == (4, 5, 7, 2)
    assert params["query_strides"] == [160, 8, 32, 1]
    assert params["out_strides"] == [160, 8, 32, 1]
    out = pa.attention(query, key, key, layout="BSHD")
    assert out.shape == (2, 5, 4, 8)
    assert out.is_contiguous


def test_output_is_in_the_querys_dtype(device):
    query, key = device.empty((1, 2, 5, 8), "bfloat16"), device.empty((1, 1, 7, 8), "float16")
    out, lse = pa.attention(query, key, key, return_lse=True)
    assert (out.dtype, out.shape, lse.dtype, lse.shape) == ("bfloat16", (1, 2, 5, 8), "float32", (1, 2, 5))


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((), [0, 0, 0, 0]),
        ((7,), [0, 0, 0, 1]),
        ((5, 7), [0, 0, 7, 1]),
        ((5, 1), [0, 0, 1, 0]),
        ((1, 4, 1, 7), [0, 7, 0, 1]),
        ((2, 1, 1, 1), [1, 0, 0, 0]),
        ((2, 4, 5, 7), [140, 35, 7, 1]),
    ],
)
@pytest.mark.parametrize("dtype", ["bool", "float32", "float16"])
def test_masks_are_never_expanded(device, bridge, inputs, shape, strides, dtype):
    mask = np.ones(shape, dtype)
    before = device.memory_allocated()
    shader, params, _, buffers = attention_plan(device, *inputs, mask=mask)
    assert params["mask_strides"] == strides
    assert buffers["mask"][2] == -(-max(mask.nbytes, 1) // 16) * 16
    assert shader.constants["mask_kind"] == dtype
    assert device.memory_allocated() == before


def test_masks_may_be_views(device, inputs):
    mask = device.empty((9, 10, 4), "bool")[2:9, ::2].transpose(2, 1, 0)
    _, params, *_ = attention_plan(device, *inputs, mask=mask)
    assert params["mask_strides"] == [0, 1, 8, 40]
    assert params["mask_first"] == 80


def test_lengths(device, bridge, inputs):
    shader, params, _, buffers = attention_plan(device, *inputs, kv_lengths=[3, 7])
    assert shader.constants["has_lengths"] is True
    assert (params["lengths_first"], params["lengths_stride"]) == (0, 1)
    assert np.frombuffer(bridge.memory[buffers["lengths"][0]], np.int32)[:2].tolist() == [3, 7]
    given = device.tensor(np.array([9, 1, 9, 2], np.uint32))[1::2]
    _, params, *_ = attention_plan(device, *inputs, kv_lengths=given)
    assert (params["lengths_first"], params["lengths_stride"]) == (1, 2)


@pytest.mark.parametrize("shape", [(2, 4, 0, 8), (0, 4, 5, 8)])
def test_nothing_to_compute_dispatches_nothing(device, bridge, shape):
    query = device.empty(shape)
    key = device.empty((shape[0], 2, 7, 8))
    out, lse = pa.attention(query, key, key, return_lse=True)
    device.flush()
    assert bridge.programs == []
    assert out.shape == shape
    assert lse.shape == shape[:3]


def test_no_keys_is_something_to_compute(device):
    # The output is zeros then, and somebody has to write them.
    key = device.empty((2, 2, 0, 8))
    _, params, workgroups, _ = attention_plan(device, device.empty((2, 4, 5, 8)), key, key)
    assert params["keys"] == 0
    assert workgroups == (1, 1, 1)


# Workgroups and limits


def test_grids_beyond_one_dimension(device):
    query = device.empty((1, 1, 64 * 65_535 + 1, 1), "float16")
    key = device.empty((1, 1, 1, 1), "float16")
    _, params, (x, y, z), _ = attention_plan(device, query, key, key)
    assert z == 1
    assert max(x, y) <= 65_535
    assert 65_536 <= x * y < 65_536 + y
    assert params["rows"] == 64 * 65_535 + 1


@pytest.mark.parametrize("workgroups", [1, 9, 10, 11, 99, 100])
def test_any_grid_has_room_and_little_waste(workgroups):
    device = device_on(RecordingBridge(maxComputeWorkgroupsPerDimension=10))
    x, y, z = device.grid(workgroups, "query")
    assert workgroups <= x * y * z < workgroups + y
    assert max(x, y, z) <= 10


def test_three_sizes_of_a_grid_stay():
    device = device_on(RecordingBridge(maxComputeWorkgroupsPerDimension=10))
    assert device.grid((10, 1, 9), "query") == (10, 1, 9)
    for sizes in ((1, 11, 1), (1, 1), (2, 2, 2, 2)):
        with pytest.raises(ValueError, match=r"query: expected a number .* 10 each, got \("):
            device.grid(sizes, "query")


def test_grids_beyond_all_dimensions_are_refused():
    device = device_on(RecordingBridge(maxComputeWorkgroupsPerDimension=10))
    with pytest.raises(ValueError, match="query: 101 workgroups needed, this device allows 100"):
        device.grid(101, "query")


def test_a_large_buffer_is_bound_in_part():
    device = device_on(RecordingBridge(maxStorageBufferBindingSize=4096))
    base = device.empty((10, 1, 100, 8))
    view = base[7:8, :, 3:90]
    _, params, _, buffers = attention_plan(device, view, view, view)
    handle, offset, size = buffers["query"]
    first = 4 * (7 * 800 + 3 * 8)
    assert handle == base._storage.handle
    assert offset % LIMITS["minStorageBufferOffsetAlignment"] == 0
    assert offset + 4 * params["query_first"] == first
    assert first + 4 * 87 * 8 <= offset + size <= base._storage.nbytes
    assert size <= 4096


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_views_beyond_the_binding_limit_are_refused(name):
    bridge = RecordingBridge(maxStorageBufferBindingSize=4096)
    device = device_on(bridge)
    small, large = device.empty((1, 1, 9, 8)), device.empty((1, 1, 300, 8))
    key = large if name in ("key", "value") else small
    arrays = {"query": small, "key": key, "value": key} | {name: large}
    with pytest.raises(ValueError, match=r"(query|key): the view spans 9,600 bytes, this device binds 4,096"):
        pa.attention(*arrays.values())
    device.flush()
    assert bridge.programs == []


# Variants and tiles


@pytest.mark.parametrize(
    ("adapter", "variant", "chosen"),
    [
        ({"software": True, "subgroup_size": 4}, "auto", "rows"),
        ({"software": False}, "auto", "tiled"),
        ({"software": False, "subgroup_size": 8}, "auto", "subgroup"),
        # The tiles of subgroups of 4 are too small.
        ({"software": False, "subgroup_size": 4}, "auto", "tiled"),
        ({"software": False, "subgroup_size": 4}, "subgroup", "subgroup"),
        ({"software": False, "subgroup_size": 2}, "auto", "tiled"),
        ({"software": True, "subgroup_size": 4}, "subgroup", "subgroup"),
        ({"software": True}, "tiled", "tiled"),
        ({"software": False, "subgroup_size": 32}, "naive", "naive"),
        ({"software": False, "subgroup_size": 32}, "rows", "rows"),
        # Where not even the smallest tile has room, the simple kernel still has.
        ({"software": False, "maxComputeWorkgroupStorageSize": 512}, "auto", "naive"),
    ],
)
def test_variants(adapter, variant, chosen):
    device = device_on(RecordingBridge(**adapter))
    query = device.empty((1, 2, 100, 64))
    shader, params, workgroups, _ = attention_plan(device, query, query, query, variant=variant)
    assert shader.variant == chosen
    assert params["tiles"] == (0 if chosen == "naive" else -(-100 // shader.constants["BQ"]))
    assert workgroups[0] == (4 if chosen == "naive" else 2 * params["tiles"])


@pytest.mark.parametrize(
    ("variant", "keys", "options", "fills_up"),
    [
        ("subgroup", 256, {}, False),
        ("subgroup", 257, {}, True),
        ("tiled", 256, {"softcap": 5.0}, False),
        ("tiled", 300, {"softcap": 5.0}, True),
        ("rows", 100, {}, False),
        ("rows", 102, {}, True),
        ("naive", 101, {}, False),
        # Which keys there are is known on the GPU only.
        ("subgroup", 256, {"kv_lengths": [256]}, True),
        ("naive", 256, {"kv_lengths": [256]}, False),
        # What is hidden in other ways is looked at afterwards.
        ("subgroup", 257, {"causal": True}, False),
        ("rows", 102, {"window": 5}, False),
        ("tiled", 300, {"score_mod": lambda score, b, h, q, k: score - k}, False),
    ],
)
def test_whether_the_last_key_fills_up_a_step(variant, keys, options, fills_up):
    device = device_on(RecordingBridge(software=False, subgroup_size=32))
    query, key = device.empty((1, 2, 100, 64)), device.empty((1, 2, keys, 64))
    shader, *_ = attention_plan(device, query, key, key, variant=variant, **options)
    assert shader.constants["fills_up"] == fills_up
    packed = device.empty((256, 2, 64))
    *_, (shader, *_) = plan(
        device, pa.varlen_attention, packed, packed, packed, [0, 128, 256], [0, 128, 256], variant=variant
    )
    assert shader.constants["fills_up"] == (variant != "naive")


_PRODUCT = re.compile(r"s\[(\d+)u\]\[(\d)\] = fma\(factors\[(\d)\]\[(\d)\], columns\[(\d)\]\[(\d)\], ")


@pytest.mark.parametrize("options", [{}, {"causal": True}], ids=["all", "causal"])
@pytest.mark.parametrize(("head_dim", "queries"), [(64, 512), (96, 2048), (128, 4096), (128, 1024)])
def test_successive_products_share_a_row_or_a_column(head_dim, queries, options):
    # Whatever the order is: all rows times all columns of an invocation, each into its own sum.
    device = device_on(
        RecordingBridge(software=False, subgroup_size=32, maxComputeWorkgroupStorageSize=1 << 16)
    )
    x = device.empty((1, 32, queries, head_dim))
    shader, *_ = plan(device, pa.attention, x, x, x, **options)[0]
    rows, columns = shader.constants["ROWS"], shader.constants["BK"] // shader.constants["TX"]
    products = []
    for at, place, *operands in (map(int, found) for found in _PRODUCT.findall(shader.wgsl)):
        row, column = 4 * operands[0] + operands[1], 4 * operands[2] + operands[3]
        assert (at, place) == (row * columns // 4 + column // 4, column % 4)
        products.append((row, column))
    assert products
    for first in range(0, len(products), rows * columns):
        block = products[first : first + rows * columns]
        assert sorted(block) == [(row, column) for row in range(rows) for column in range(columns)]
        apart = [a for a, b in itertools.pairwise(block) if a[0] != b[0] and a[1] != b[1]]
        assert len(apart) < columns // 4


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("software", "variant", "chosen"),
    [
        (True, "auto", "rows"),
        (False, "auto", "stored"),
        (True, "tiled", "tiled"),
        (False, "tiled", "tiled"),
        (True, "stored", "stored"),
        (False, "rows", "rows"),
    ],
)
def test_variants_of_gradients(software, variant, chosen, packed):
    device = device_on(RecordingBridge(software=software, maxStorageBuffersPerShaderStage=9))
    size, lse = ((100, 2, 64), (2, 100)) if packed else ((1, 2, 100, 64), (1, 2, 100))
    x, row_lse = device.empty(size), device.empty(lse)
    arguments = [x, x, x, x, x, row_lse, *([[0, 40, 100]] * 2 if packed else [])]
    call = pa.varlen_attention_backward if packed else pa.attention_backward
    launched = [each for each in plan(device, call, *arguments, variant=variant) if "BQ" in each[0].constants]
    assert [shader.variant for shader, *_ in launched] == {
        "rows": ["query rows", "key rows"],
        "tiled": ["query", "key"],
        "stored": ["key stored", "query stored"],
    }[chosen]
    for shader, params, workgroups, _ in launched:
        rows = shader.constants["BQ"]
        assert params["tiles"] == (100 // rows + 2 if packed else -(-100 // rows))
        assert workgroups[0] == 2 * params["tiles"]
        assert ("var<workgroup>" in shader.wgsl) == (chosen != "rows")
        assert ("workgroupBarrier" in shader.wgsl) == (chosen != "rows")


def test_other_variants_of_gradients_are_refused():
    x, lse = np.ones((1, 2, 5, 8), np.float32), np.ones((1, 2, 5), np.float32)
    device_on(RecordingBridge())
    with pytest.raises(ValueError, match=r"^variant: expected one of auto, rows, tiled, stored, got"):
        pa.attention_backward(x, x, x, x, x, lse, variant="naive")


def stored_launches(bridge, heads=1, group=1, rows=4096, dim=64, **options):
    """Variant, first head, number of heads and workgroups of each launch that stores or reads gradients."""
    device = device_on(bridge)
    query, key = device.empty((2, heads * group, rows, dim)), device.empty((2, heads, rows, dim))
    lse = device.empty((2, heads * group, rows))
    launched = plan(device, pa.attention_backward, query, query, key, key, query, lse, **options)
    return [
        (shader.variant, params["first_head"], params["launched_heads"], workgroups[0])
        for shader, params, workgroups, _ in launched
        if shader.variant.endswith("stored")
    ]


def gpu(**limits):
    """The bridge of a GPU with room enough, but for ``limits``."""
    room = {
        "maxBufferSize": 1 << 31,
        "maxStorageBufferBindingSize": 1 << 31,
        "maxStorageBuffersPerShaderStage": 10,
    }
    return RecordingBridge(software=False, **(room | limits))


def test_stored_gradients_go_through_some_heads_at_a_time():
    # A head of 4,096 × 4,096 takes 64 MiB, so four of the six fit; there are as many launches of three.
    found = stored_launches(gpu(), heads=3)
    assert [each[:3] for each in found] == [
        ("key stored", 0, 3),
        ("query stored", 0, 3),
        ("key stored", 3, 3),
        ("query stored", 3, 3),
    ]
    # Below the diagonal lies a little more than half of them, and eight heads fit.
    causal = stored_launches(gpu(), heads=8, causal=True)
    assert [each[1:3] for each in causal[::2]] == [(0, 8), (8, 8)]
    grouped = stored_launches(gpu(), heads=2, group=2, rows=2048)
    assert [each[1:3] for each in grouped] == [(0, 4), (0, 8)]


@pytest.mark.parametrize(
    ("sizes", "options", "key", "query"),
    [
        ((8, 12, 512, 64), {}, (64, 64), (128, 16)),
        # Tall tiles would compute more beyond the last row, or above the diagonal.
        ((16, 12, 130, 64), {}, (32, 32), (32, 8)),
        ((8, 12, 512, 64), {"causal": True}, (64, 64), (64, 16)),
        ((2, 12, 2048, 64), {"window": (255, 0)}, (64, 64), (32, 8)),
        ((1, 16, 4096, 128), {}, (128, 128), (128, 32)),
        ((8, 12, 300, 128), {}, (64, 64), (32, 16)),
        # Nothing is stored.
        ((8, 12, 512, 32), {}, (64, 64), (64, 64)),
        ((16, 12, 160, 32), {}, (32, 32), (32, 32)),
        # Code for each score would take long to compile: fewer scores for an invocation.
        ((8, 12, 512, 64), {"score_mod": lambda score, b, h, q, k: score * 0.5}, (64, 64), (64, 16)),
    ],
)
def test_gradients_take_the_tile_for_their_rows_and_columns(sizes, options, key, query):
    device = device_on(gpu(maxComputeWorkgroupStorageSize=49152, maxComputeInvocationsPerWorkgroup=1024))
    x, lse = device.empty(sizes), device.empty(sizes[:3])
    found = plan(device, pa.attention_backward, x, x, x, x, x, lse, **options)
    tiles = {shader.variant.split()[0]: shader.constants for shader, *_ in found if "BQ" in shader.constants}
    assert {side: (tiles[side]["BQ"], tiles[side]["BK"]) for side in ("key", "query")} == {
        "key": key,
        "query": query,
    }


@pytest.mark.parametrize(
    ("dim", "options", "rows"),
    [
        (64, {}, None),
        (80, {}, 128),
        (128, {"causal": True}, 128),
        (128, {"causal": True, "window": 700}, 64),
        (256, {}, 64),
        (512, {}, None),
        # What a score was before its softmax is not stored.
        (128, {"softcap": 5.0}, None),
        (128, {"score_mod": lambda score, b, h, q, k: score * 0.5}, None),
    ],
)
def test_key_and_value_have_a_launch_each_where_that_is_faster(dim, options, rows):
    device = device_on(gpu(maxComputeWorkgroupStorageSize=49152, maxComputeInvocationsPerWorkgroup=1024))
    x, lse = device.empty((1, 16, 2048, dim)), device.empty((1, 16, 2048))
    launched = plan(device, pa.attention_backward, x, x, x, x, x, lse, **options)
    names = [shader.variant for shader, *_ in launched if shader.name == "attention_backward"]
    if dim == 512:
        assert names == ["query", "key"]
        return
    turn = ["value stored", "key stored", "query stored"][rows is None :]
    assert names == turn * (len(names) // len(turn))
    if rows is None:
        return
    of_variant = {shader.variant: (shader, buffers) for shader, _, _, buffers in launched}
    # The second puts gradients in the place of the weights that the first has stored; the third reads them.
    assert len({of_variant[name][1]["score_gradients"] for name in turn}) == 1
    for name, written, other in (("value", "d_value", "d_key"), ("key", "d_key", "d_value")):
        shader, buffers = of_variant[f"{name} stored"]
        assert shader.constants["BQ"] == rows
        assert written in buffers
        assert other not in buffers


def test_gradients_are_not_stored_where_there_is_no_room():
    assert not stored_launches(gpu(), rows=16384)
    assert not stored_launches(gpu(), rows=256, dim=32)
    assert stored_launches(gpu(), rows=256, dim=32, variant="stored")
    # Launches of one head would leave cores idle.
    assert not stored_launches(gpu(maxStorageBufferBindingSize=64 << 20), heads=3)
    assert not stored_launches(gpu(maxStorageBuffersPerShaderStage=8), rows=256, kv_lengths=[3, 256])
    with pytest.raises(
        ValueError, match=r"^variant: .* has no room for the scores' gradients that 'stored' keeps"
    ):
        stored_launches(gpu(), rows=16384, variant="stored")
    device = device_on(gpu())
    x, lse = device.empty((100, 2, 64)), device.empty((2, 100))
    lengths = device.tensor([0, 40, 100])
    with pytest.raises(ValueError, match=r"^variant: 'stored' needs the lengths of packed sequences"):
        pa.varlen_attention_backward(x, x, x, x, x, lse, lengths, lengths, variant="stored")
    assert not stored_of_packed(gpu(), [40, 60], on_gpu=True)
    assert stored_of_packed(gpu(maxStorageBuffersPerShaderStage=9), [40, 60])
    assert not stored_of_packed(gpu(maxStorageBuffersPerShaderStage=8), [40, 60])
    assert not stored_of_packed(gpu(), [16384, 7])


def stored_of_packed(bridge, lengths, heads=2, group=1, on_gpu=False):
    """Variant, first slot and head, heads and workgroups of each launch that stores or reads gradients."""
    device = device_on(bridge)
    total = sum(lengths)
    query, key = device.empty((total, heads * group, 64)), device.empty((total, heads, 64))
    edges = np.cumsum([0, *lengths], dtype=np.int32)
    cu = device.tensor(edges) if on_gpu else edges
    tensors = query, query, key, key, query, device.empty((heads * group, total)), cu, cu
    launched = plan(device, pa.varlen_attention_backward, *tensors)
    return [
        (shader.variant, *(params[name] for name in ("first_slot", "first_head", "launched_heads")), count[0])
        for shader, params, count, _ in launched
        if shader.variant.endswith("stored")
    ]


def test_stored_gradients_of_packed_sequences_go_through_some_of_them_at_a_time():
    ((_, *key), (_, *query)) = stored_of_packed(gpu(), [40, 0, 60], heads=3, group=2)
    assert (key[:3], query[:3]) == ([0, 0, 3], [0, 0, 6])
    # A head of 4,096 × 4,096 takes 64 MiB, so all four heads of a sequence go through at a time.
    found = stored_of_packed(gpu(), [4096] * 6, heads=4)
    assert [each[2:4] for each in found[::2]] == [(0, 4)] * 6
    key_tiles = [each[1] for each in found[::2]]
    assert key_tiles == [n * key_tiles[1] for n in range(6)]
    # Three heads of a sequence leave room unused; four sequences of one head do not.
    found = stored_of_packed(gpu(), [4096] * 4, heads=3)
    assert [each[1:4] for each in found] == [
        (0, 0, 1), (0, 0, 1), (0, 1, 1), (0, 1, 1), (0, 2, 1), (0, 2, 1)
    ]  # fmt: skip


def test_few_queries_on_a_software_adapter_stay_textbook():
    device = device_on(RecordingBridge(software=True))
    query, key = device.empty((1, 2, 15, 64)), device.empty((1, 2, 100, 64))
    assert attention_plan(device, query, key, key)[0].variant == "naive"


@pytest.mark.parametrize(
    ("adapter", "variant", "message"),
    [
        ({}, "subgroup", "variant: subgroup needs subgroups of 4 or more, which fake lacks"),
        ({"subgroup_size": 2}, "subgroup", "variant: subgroup needs subgroups of 4 or more"),
        (
            {"subgroup_size": 32, "maxComputeWorkgroupStorageSize": 512},
            "subgroup",
            "variant: subgroup needs more workgroup memory",
        ),
        ({"maxComputeWorkgroupStorageSize": 512}, "tiled", "variant: tiled .* needs more workgroup memory"),
        ({}, "matrix", "variant: matrix needs"),
        ({}, "fast", "variant: expected one of auto, naive, rows, tiled, subgroup, matrix, got 'fast'"),
        ({}, None, "variant: expected one of"),
    ],
)
def test_variants_that_the_adapter_lacks(adapter, variant, message):
    bridge = RecordingBridge(**adapter)
    device = device_on(bridge)
    query = device.empty((1, 2, 100, 64))
    with pytest.raises(ValueError, match=message):
        pa.attention(query, query, query, variant=variant)
    device.flush()
    assert bridge.programs == []


@pytest.mark.parametrize("memory", [16 << 10, 32 << 10, 48 << 10])
@pytest.mark.parametrize("subgroup", [0, 4, 8, 32, 128])
@pytest.mark.parametrize("software", [False, True])
def test_tiles_fit_the_adapter(memory, subgroup, software):
    limits = LIMITS | {"maxComputeWorkgroupStorageSize": memory}
    for d4 in (1, 2, 8, 16, 17, 32, 64, 128):
        for dv4 in (1, 3, 16, 32, 128):
            tiles = tiles_for(d4, dv4, limits, subgroup, software)
            assert tiles or dv4 > 32
            for tile in tiles:
                assert tile.workgroup_bytes(d4, dv4) <= memory
                assert tile.tx * tile.ty <= limits["maxComputeInvocationsPerWorkgroup"]
                # What lib/tiles.wgsl stands on.
                assert tile.rows % 4 == 0
                assert tile.depth4 % 2 == 0
                assert tile.tx % 4 == 0
                assert tile.keys % (4 * tile.tx) == 0
                assert tile.keys % (tile.buffers * tile.value_keys) == 0
                assert tile.value_keys % tile.tx == 0
                if subgroup:
                    # The row maximum goes through shuffles among tx neighbours.
                    assert tile.tx <= subgroup
                    assert subgroup % tile.tx == 0


@pytest.mark.parametrize("memory", [16 << 10, 32 << 10, 48 << 10])
@pytest.mark.parametrize("software", [False, True])
@pytest.mark.parametrize("dims", [(4, 4), (20, 36), (64, 64), (80, 128), (256, 256), (512, 512)])
def test_tiles_of_gradients_fit_the_adapter(memory, software, dims):
    info = RecordingBridge(software=software, maxComputeWorkgroupStorageSize=memory).info
    device = device_on(RecordingBridge())
    query, value = (device.empty((1, 2, 100, dim)) for dim in dims)
    options = resolve(query, query, value, slope=True).options
    for side, separate in (("query", False), ("key", False), ("key", True)):
        for tile in backward_config.fitting_tiles(options, info, side, separate):
            summed = dims[0] if side == "query" else max(dims)
            assert tile.workgroup_bytes(max(dims) // 4, summed // 4) <= memory
            assert tile.tx * tile.ty <= info.limits["maxComputeInvocationsPerWorkgroup"]
            # What lib/tiles.wgsl stands on.
            assert tile.rows % 4 == tile.depth4 % 2 == tile.tx % 4 == tile.value_keys % tile.tx == 0
            assert tile.keys % (4 * tile.tx) == tile.keys % (tile.buffers * tile.value_keys) == 0
            assert not tile.query_resident
            assert separate or tile.buffers == 1
    for tile in backward_config.product_tiles(options, info):
        assert 16 * tile.value_keys * (dims[0] // 4 + tile.queries // 4 + 1) <= memory
        assert tile.keys == tile.value_keys


def test_head_dims_up_to_128_have_a_tile_everywhere():
    for d4 in range(1, 33):
        assert tiles_for(d4, d4, LIMITS)
        assert tiles_for(d4, d4, LIMITS, 4)


def test_tiles_follow_the_rows_and_the_heads():
    tiles = tiles_for(32, 32, LIMITS | {"maxComputeWorkgroupStorageSize": 48 << 10})
    assert choose_tile(Work(4096, 4096, 16), tiles).queries == 128
    assert choose_tile(Work(4096, 4096, 1), tiles).queries <= 32
    assert choose_tile(Work(1, 64, 1000), tiles).queries == 8
    assert choose_tile(Work(1, 64, 1000), {}) is None


_DESKTOP = LIMITS | {"maxComputeWorkgroupStorageSize": 48 << 10}


@pytest.mark.parametrize(
    ("head_dim", "work", "expected"),
    [
        # All of a tile's keys are there, or as many as of smaller tiles.
        (32, Work(128, 128, 384), (64, 64)),
        (32, Work(33, 33, 384), (64, 64)),
        (64, Work(512, 512, 96), (128, 128)),
        (64, Work(500, 500, 96), (128, 128)),
        (128, Work(4096, 4096, 16), (128, 128)),
        # A third of them would not be.
        (32, Work(96, 96, 384), (64, 32)),
        (64, Work(257, 257, 192), (64, 64)),
        (64, Work(130, 130, 192), (32, 32)),
        # Nor that of a head dim for which the tile with fewer keys is much slower.
        (24, Work(160, 160, 96), (64, 64)),
        # Under a causal mask tall tiles compute more above the diagonal.
        (64, Work(256, 256, 96), (128, 128)),
        (64, Work(256, 256, 96, None, 0), (64, 64)),
        (128, Work(4096, 4096, 16, None, 0), (128, 128)),
        # A row of a window sees few keys, those of a tile's rows together more.
        (64, Work(1024, 1024, 96, 255, 0), (64, 64)),
        (64, Work(1024, 1024, 96, 16, 0), (16, 32)),
        (64, Work(2048, 2048, 24, 1023, 0), (128, 128)),
        (64, Work(1024, 1024, 96, 5000, 5000), (128, 128)),
        # Smaller tiles would leave cores idle.
        (64, Work(900, 900, 12), (128, 128)),
    ],
)
def test_tiles_do_not_reach_far_beyond_the_last_row_and_key(head_dim, work, expected):
    d4 = head_dim // 4
    hides = (work.before, work.after) != (None, None)
    tile = choose_tile(work, tiles_for(d4, d4, _DESKTOP, 32), split_keys=0 if hides else work.columns)
    assert (tile.queries, tile.keys) == expected


BOUNDS = st.none() | st.integers(-60, 60)


@given(st.integers(0, 90), st.integers(0, 90), BOUNDS, BOUNDS, st.sampled_from([*SOFTWARE]))
def test_what_tiles_compute_is_counted(rows, columns, before, after, tile):
    """Against one tile after the other, from the first to the last column that one of its rows sees."""
    count = 0
    for first in range(0, rows, tile.queries):
        last = min(first + tile.queries, rows) - 1
        begin = 0 if before is None else max(0, first - before)
        end = columns if after is None else min(columns, last + after + 1)
        count += len(range(begin, end, tile.keys)) * tile.keys * tile.queries
    assert Work(rows, columns, 1, before, after).computed(tile) == count


def test_work_of_both_sides():
    device = device_on(RecordingBridge())
    query, key = device.empty((2, 6, 10, 8)), device.empty((2, 3, 40, 8))

    def work(side, **options):
        return work_of(resolve(query, key, key, **options).options, 12, side)

    assert work("query") == Work(10, 40, 12)
    assert work("key") == Work(40, 10, 12)
    # The last query sees all keys, the first one 31.
    assert work("query", causal=True) == Work(10, 40, 12, None, 30)
    assert work("key", causal=True) == Work(40, 10, 12, 30, None)
    assert work("query", causal="top-left", window=(4, 2)) == Work(10, 40, 12, 4, 0)
    assert work("key", window=(4, 2)) == Work(40, 10, 12, 32, -26)


@given(
    st.builds(
        Work,
        st.integers(1, 3000),
        st.integers(0, 3000),
        st.integers(1, 2000),
        st.none() | st.integers(-100, 3000),
        st.none() | st.integers(-100, 3000),
        st.booleans(),
    ),
    st.integers(1, 128),
    st.booleans(),
)
def test_the_tile_that_is_taken_computes_the_least_for_its_speed(work, d4, float32):
    tiles = tiles_for(d4, d4, _DESKTOP, 32, float32=float32)
    tile = choose_tile(work, tiles)
    first = next(t for t in tiles if not t.too_tall(work.rows) and busy(t, work))
    assert busy(tile, work)
    assert time_of(work, tile, tiles) <= time_of(work, first, tiles)


def busy(tile, work):
    return tile.queries <= 32 or work.heads * -(-work.rows // tile.queries) >= 128


@pytest.mark.parametrize(
    ("head_dim", "mean", "expected"),
    [
        (32, 80, (64, 32)),
        (32, 250, (64, 64)),
        (64, 100, (64, 32)),
        (64, 250, (64, 64)),
        (64, 1000, (128, 128)),
        # Lengths of a whole number of tiles would not count: those of sequences vary around it.
        (64, 128, (64, 64)),
    ],
)
def test_the_tile_of_packed_sequences_is_for_their_mean_length(head_dim, mean, expected):
    bridge = RecordingBridge(software=False, subgroup_size=32, maxComputeWorkgroupStorageSize=48 << 10)
    device = device_on(bridge)
    x = device.empty((32 * mean, 12, head_dim))
    ends = device.tensor(np.arange(33, dtype=np.int32) * mean)
    pa.varlen_attention(x, x, x, ends, ends)
    device.flush()
    sizes = re.findall(r"const (?:BQ|BK): u32 = (\d+)u;", bridge.programs[-1][-1].wgsl)
    assert tuple(int(size) for size in sizes) == expected


def test_a_tile_that_was_measured_with_float32_is_for_that_alone():
    tiles, half = [*tiles_for(8, 8, _DESKTOP, 32)], [*tiles_for(8, 8, _DESKTOP, 32, float32=False)]
    assert (tiles[0].queries, tiles[0].keys, tiles[0].tx) == (64, 64, 16)
    assert half == tiles[1:]


def test_a_call_takes_the_tile_for_its_keys():
    bridge = RecordingBridge(software=False, subgroup_size=32, maxComputeWorkgroupStorageSize=48 << 10)
    device = device_on(bridge)

    def tile_of(keys, dtype="float32", **options):
        query, key = device.empty((4, 48, 128, 32), dtype), device.empty((4, 48, keys, 32), dtype)
        pa.attention(query, key, key, **options)
        device.flush()
        sizes = re.findall(r"const (?:BQ|BK): u32 = (\d+)u;", bridge.programs[-1][-1].wgsl)
        return tuple(int(size) for size in sizes)

    assert tile_of(128) == (64, 64)
    assert tile_of(77) == (64, 32)
    assert tile_of(128, causal=True, window=(3, 0)) == (16, 32)
    assert tile_of(128, "float16") == (64, 64)


_LARGE = next(tile for tile in CANDIDATES.values() if tile.buffers == 2)


def makespan(tiles, keys, tile, split, cores=132):
    """Steps until all is done, each core taking the next workgroup when it is done with one."""
    steps = -(-keys // tile.keys)
    work = [steps] * tiles
    if split:
        long = split.keys // tile.keys
        short = steps - long * (split.splits - 1)
        work[tiles - split.tiles :] = [long] * (split.tiles * (split.splits - 1)) + [short] * split.tiles
    busy = [0] * cores
    for n in work:
        heapq.heapreplace(busy, busy[0] + n)
    return max(busy)


def best_split(tiles, keys):
    """The split of the last round with the shortest makespan of all, or None if there is none.

    More than two splits for each core, on average, do not count: their partial results take memory.
    """
    last_round, steps = tiles % 132, -(-keys // _LARGE.keys)
    every = (TailSplit(last_round, -(-steps // n), n * _LARGE.keys) for n in range(1, steps))
    small = [split for split in every if split.tiles * split.splits <= 2 * 132]
    return min(small, key=lambda split: makespan(last_round, keys, _LARGE, split), default=None)


def check_split(tiles, keys):
    """Where some split saves two steps, one is made and none is better; where none does, none is made."""
    split, best = choose_tail_split(tiles, keys, _LARGE), best_split(tiles, keys)
    last_round = tiles % 132
    whole = makespan(last_round, keys, _LARGE, None)
    shortest = makespan(last_round, keys, _LARGE, best) if best else whole
    if split is None:
        assert shortest > whole - 2
        return
    assert split.tiles == last_round
    assert split.keys % _LARGE.keys == 0
    assert (split.splits - 1) * split.keys < keys <= split.splits * split.keys
    assert split.tiles * split.splits <= 2 * 132
    assert makespan(last_round, keys, _LARGE, split) == shortest <= whole - 2
    # The rounds before it take as long as they did.
    assert makespan(tiles, keys, _LARGE, None) - makespan(tiles, keys, _LARGE, split) == whole - shortest


@given(st.integers(1, 1000), st.integers(1, 20_000))
# A last round of 89 tiles and 7 steps: only splits of one step would save two, and these are 623.
@example(881, 769)
def test_a_split_saves_steps_and_loses_no_key(tiles, keys):
    check_split(tiles, keys)


@pytest.mark.parametrize("steps", range(1, 33))
def test_every_last_round_of_a_few_steps_is_split_where_that_saves_some(steps):
    for last_round in range(1, 132):
        check_split(132 + last_round, steps * _LARGE.keys)


def test_what_is_not_split():
    assert choose_tail_split(512, 4096, _LARGE) == (116, 2, 29 * 128)
    assert choose_tail_split(132, 4096, _LARGE) is None
    assert choose_tail_split(512, 4096, dataclasses.replace(_LARGE, buffers=1)) is None
    assert choose_tail_split(512, 128, _LARGE) is None
    assert choose_tail_split(0, 4096, _LARGE) is None


@pytest.mark.parametrize(
    ("tiles", "keys", "expected"),
    [
        (192, 2048, (60, 2, 8 * 128)),
        (96, 1024, (96, 2, 6 * 128)),
        (288, 1024, (24, 4, 2 * 128)),
        (288, 2048, (24, 6, 3 * 128)),
        (320, 2048, (56, 3, 7 * 128)),
        (416, 4096, (20, 7, 5 * 128)),
        (384, 512, None),
        (512, 4096, (116, 2, 29 * 128)),
        (250, 8192, (118, 2, 58 * 128)),
        # Two steps saved.
        (288, 384, (24, 3, 1 * 128)),
    ],
)
def test_splits_of_some_shapes(tiles, keys, expected):
    assert choose_tail_split(tiles, keys, _LARGE) == expected


def test_splits_of_tiles_are_joined():
    room = {"maxComputeWorkgroupStorageSize": 48 << 10}
    bridge = RecordingBridge(software=False, subgroup_size=32, features=("subgroup_id",), **room)
    device = device_on(bridge)
    query, key = device.empty((1, 12, 2000, 128)), device.empty((1, 12, 2100, 128))
    kept = pa.attention(query, key, key, return_lse=True)
    pa.attention(query, key, key, causal=True)
    pa.attention(query, key, key, window=500)
    device.flush()
    assert [tensor.shape for tensor in kept] == [(1, 12, 2000, 128), (1, 12, 2000)]
    tiled, join, *rest = [launch for program in bridge.programs for launch in program]
    assert [launch.label for launch in (tiled, join)] == ["attention/subgroup", "attention_join/float32"]
    assert ["join" in launch.label for launch in rest] == [False, False]
    tiles, split = 12 * 16, choose_tail_split(12 * 16, 2100, _LARGE)
    assert tiled.workgroups[0] == tiles + split.tiles * (split.splits - 1)
    assert tiled.buffers[-1][0] == join.buffers[0][0]
    assert tiled.buffers[-1][2] == split.tiles * split.splits * 128 * 33 * 16
    assert [b[0] for b in join.buffers[1:]] == [b[0] for b in tiled.buffers[3:5]]


def test_few_rows_take_large_tiles_where_these_can_be_split():
    tiles = tiles_for(16, 16, LIMITS | {"maxComputeWorkgroupStorageSize": 48 << 10})
    assert choose_tile(Work(1024, 1024, 12), tiles).queries == 64
    assert choose_tile(Work(1024, 1024, 12), tiles, split_keys=1024).queries == 128
    assert choose_tile(Work(128, 1024, 12), tiles, split_keys=1024).queries < 128


def test_a_configuration_in_place_of_a_variant_is_what_runs(device, inputs):
    tile = Tile(4, 2, 4, 16, 2, 4, True)
    shader, params, workgroups, _ = attention_plan(device, *inputs, variant=Config("tiled", tile))
    assert shader.constants["BQ"] == 8
    assert params["tiles"] == 1
    assert workgroups == (2 * 4, 1, 1)


# pa.attention_weights


def test_weights_of_a_window(device, inputs):
    query, key, _ = inputs
    lse = device.empty((4, 5, 2)).transpose(2, 0, 1)
    (found,) = plan(
        device, pa.attention_weights, query, key, lse,
        rows=slice(1, 5, 2), columns=slice(-3, None), heads=[3, -4], causal=True,
    )  # fmt: skip
    _, params, workgroups, buffers = found
    wanted = {
        "rows": 2, "row_begin": 1, "row_step": 2, "columns": 3, "column_begin": 4, "column_step": 1,
        "width": 3, "height": 2, "chosen_heads": 2, "pictures": 4, "window_right": 0,
        "lse_strides": [1, 10, 2, 0], "queries": 5, "keys": 7,
    }  # fmt: skip
    assert {name: params[name] for name in wanted} == wanted
    assert workgroups == (4, 1, 1)
    heads = device._bridge.memory[buffers["heads"][0]]
    assert np.frombuffer(heads, np.uint32)[:2].tolist() == [3, 0]


def test_weights_of_nothing(device, bridge, inputs):
    query, key, _ = inputs
    lse = device.empty((2, 4, 5))
    for shown in (
        {"rows": slice(5, 5)},
        {"columns": slice(3, 1)},
        {"heads": []},
        {"rows": slice(9, 12), "size": (2, 2)},
    ):
        assert 0 in pa.attention_weights(query, key, lse, **shown).shape
    device.flush()
    assert bridge.programs == []


def test_weights_times_gradients(device, inputs):
    query, key, value = inputs
    lse, grad = device.empty((2, 4, 5)), device.empty((2, 4, 5, value.shape[3]), "float16")
    given = {"value": value, "grad_out": grad}
    (found,) = plan(device, pa.attention_weights, query, key, lse, **given)
    assert found[0].constants["gradients"]
    assert list(found[3]) == ["query", "key", "value", "heads", "grad", "lse", "out"]
    for wrong, message in (
        ({"value": value}, "grad_out: expected value with it"),
        ({"grad_out": grad}, "grad_out: expected value with it"),
        (given | {"colormap": "magma"}, "colormap: gradients have signs"),
        (given | {"grad_out": lse}, "grad_out: expected the output's shape"),
    ):
        with pytest.raises(ValueError, match=message):
            pa.attention_weights(query, key, lse, **wrong)


def test_colours_and_thumbnails(device, inputs):
    query, key, _ = inputs
    lse = device.empty((2, 4, 5))
    out = pa.attention_weights(query, key, lse, size=(100, 30), colormap="magma")
    assert (out.shape, out.dtype) == ((2, 4, 100, 30), "uint32")
    (found,) = plan(device, pa.attention_weights, query, key, lse, size=(100, 30), pool="mean")
    shader, params, workgroups, _ = found
    assert (params["width"], params["height"]) == (30, 100)
    assert workgroups == (8 * 13 * 4, 1, 1)
    assert shader.constants["pool"] == "mean"


# KVCache and pa.decode_attention


def slots_written(device, cache, count):
    rows = device.empty((cache.batch, cache.kv_heads, count, cache.head_dim))
    found = plan(device, cache.append, rows, rows)
    assert [shader.name for shader, *_ in found] == ["cache_append"] * 2
    params = found[0][1]
    return [(params["first_slot"] + n) % params["capacity"] for n in range(params["count"])]


@pytest.mark.parametrize("capacity", [1, 2, 5, 8])
@pytest.mark.parametrize("appends", [[3, 3, 3], [1] * 20, [8], [9], [20, 1], [5, 16, 2], [7, 8, 9, 1]])
def test_a_ring_keeps_the_newest_in_order(device, capacity, appends):
    cache = pa.KVCache(1, 1, capacity, 4)
    slots, newest = {}, 0
    for count in appends:
        written = slots_written(device, cache, count)
        assert len(set(written)) == min(count, capacity)
        first = newest + count - len(written)
        slots |= {slot: first + n for n, slot in enumerate(written)}
        newest += count
        assert cache.length == min(newest, capacity)
        # Chronological order is slot (start + n) mod capacity.
        held = [slots[(cache.start + n) % capacity] for n in range(cache.length)]
        assert held == list(range(newest - cache.length, newest))


@pytest.mark.parametrize(("capacity", "sink_tokens"), [(2, 1), (5, 2), (8, 7), (8, 3)])
@pytest.mark.parametrize("appends", [[3, 3, 3], [1] * 20, [8], [9], [20, 1], [5, 16, 2], [1, 30, 8, 9, 1]])
def test_a_ring_keeps_its_sink_tokens(device, capacity, sink_tokens, appends):
    cache = pa.KVCache(1, 1, capacity, 4, sink_tokens=sink_tokens)
    slots, total = {}, 0
    for count in appends:
        rows = device.empty((1, 1, count, 4))
        found = plan(device, cache.append, rows, rows)
        for _, params, *_ in found[: len(found) // 2]:
            assert params["kept"] == sink_tokens
            first = params["source_first"] // 4
            for n in range(params["count"]):
                slot = params["first_slot"] + n
                if slot >= sink_tokens:
                    slot = sink_tokens + (slot - sink_tokens) % (capacity - sink_tokens)
                slots[slot] = total + first + n
        total += count
        assert (cache.total, cache.length) == (total, min(total, capacity))
        # In order of positions: the sink tokens, then the ring from `start` on; see lib/cache.wgsl.
        places = [n if n < sink_tokens else cache.start + n for n in range(cache.length)]
        held = [slots[p if p < capacity else p - (capacity - sink_tokens)] for p in places]
        kept = list(range(min(sink_tokens, total)))
        assert held == kept + list(range(total - (cache.length - len(kept)), total))


@pytest.mark.parametrize(("sink_tokens", "error"), [(8, ValueError), (-1, ValueError), (1.5, TypeError)])
def test_sink_tokens_leave_room(device, sink_tokens, error):
    with pytest.raises(error, match="sink_tokens: expected"):
        pa.KVCache(1, 1, 8, 4, sink_tokens=sink_tokens)


def test_only_what_stays_is_written(device):
    cache = pa.KVCache(1, 1, 4, 4)
    rows = device.empty((1, 1, 11, 4))
    (_, params, workgroups, _), _ = plan(device, cache.append, rows, rows)
    assert params["source_first"] == 7 * 4
    assert (params["count"], workgroups) == (4, (1, 1, 1))


def test_cache_memory():
    device = device_on(RecordingBridge())
    cache = pa.KVCache(2, 3, 10, 5, value_head_dim=8, dtype=("float16", "float32"))
    # Rows are padded to a multiple of 4 elements.
    assert cache.nbytes == 2 * 3 * 10 * (8 * 2 + 8 * 4)
    assert device.memory_allocated() == cache.nbytes
    assert "length=0 of 10" in repr(cache)
    cache.destroy()
    assert device.memory_allocated() == 0


@pytest.fixture
def cache(device):
    """3 KV heads, 100 of 128 positions."""
    cache = pa.KVCache(2, 3, 128, 16, value_head_dim=8)
    cache.append(device.empty((2, 3, 100, 16)), device.empty((2, 3, 100, 8)))
    return cache


def test_one_split_writes_the_result(device, cache):
    (found,) = plan(device, pa.decode_attention, device.empty((2, 6, 1, 16)), cache, splits=1)
    shader, params, workgroups, buffers = found
    assert shader.name == "decode_split"
    wanted = {"splits": 1, "split_span": 100, "first_key": 0, "start": 0, "capacity": 128, "keys": 100,
              "kv_heads": 3, "group": 2, "row_tiles": 1, "window_right": 0}  # fmt: skip
    assert {name: params[name] for name in wanted} == wanted
    assert workgroups == (1, 3, 2)
    assert list(buffers) == ["query", "key", "value", "out"]
    # Both heads of a group share a workgroup, so that keys and values are read once.
    assert shader.constants["ROWS"] == 2


def test_splits_are_combined(device, cache):
    query = device.empty((2, 6, 1, 16))
    split, reduce = plan(device, pa.decode_attention, query, cache, splits=7, return_lse=True)
    assert [shader.name for shader, *_ in (split, reduce)] == ["decode_split", "decode_reduce"]
    assert [split[1][name] for name in ("splits", "split_first", "split_span")] == [7, 15, 15]
    assert split[2] == (7, 3, 2)
    wanted = {"rows": 12, "splits": 7, "heads": 6, "queries": 1, "empty_lse": -math.inf}
    assert {name: reduce[1][name] for name in wanted} == wanted
    assert split[3]["out"][0] == reduce[3]["partial_out"][0]
    assert split[3]["partial_rows"][0] == reduce[3]["partial_rows"][0]
    partial, lse = pa.decode_partials(query, cache, splits=7)
    assert (partial.shape, partial.dtype, lse.shape) == ((2, 6, 1, 7, 8), "float32", (2, 6, 1, 7))


@pytest.mark.parametrize(("splits", "in_one_turn"), [(63, False), (64, True), (65, False)])
def test_splits_that_the_reduction_reads_in_one_turn(device, splits, in_one_turn):
    cache, keys = pa.KVCache(2, 3, 100, 32), device.empty((2, 3, 100, 32))
    cache.append(keys, keys)
    _, reduce = plan(device, pa.decode_attention, device.empty((2, 6, 1, 32)), cache, splits=splits)
    constants, wgsl = reduce[0].constants, reduce[0].wgsl
    assert (2 * constants["WORKGROUP"] // constants["COLUMNS"] == splits) == in_one_turn
    assert ("for (var s = thread_index / COLUMNS;" in wgsl) != in_one_turn


@pytest.mark.parametrize("queries", [1, 12])
def test_where_a_dimension_of_the_grid_is_too_short_workgroups_count_themselves(queries):
    device = device_on(RecordingBridge(maxComputeWorkgroupsPerDimension=20))
    query, keys = device.empty((2, 6, queries, 16)), device.empty((2, 3, 100, 16))
    cache = pa.KVCache(2, 3, 128, 16)
    cache.append(keys, keys)
    for splits in (1, 21):
        split, *_ = plan(device, pa.decode_attention, query, cache, splits=splits)
        shader, params, (x, y, z), _ = split
        wanted = splits * params["row_tiles"]
        if wanted <= 20:
            assert (x, y, z) == (wanted, 3, 2)
            assert "let b = workgroup.z;" in shader.wgsl
        else:
            assert 6 * wanted <= x * y < 6 * wanted + y
            assert (z, max(x, y) <= 20) == (1, True)
            assert "let b = work / params.splits / params.row_tiles / params.kv_heads;" in shader.wgsl


@pytest.mark.parametrize(("queries", "divides"), [(1, False), (3, True)])
def test_a_decode_of_one_position_divides_by_nothing_that_only_params_know(device, cache, queries, divides):
    # But for its steps, whose number it finds while memory is on its way.
    split, *_ = plan(device, pa.decode_attention, device.empty((2, 6, queries, 16)), cache, splits=3)
    divisors = set(re.findall(r"[/%] (params\.\w+)", split[0].wgsl)) - {"params.split_stride"}
    assert bool(divisors) == divides


@pytest.mark.parametrize(
    ("software", "dtype", "head_dim", "written_out", "prefetches"),
    [
        (True, "float32", 32, True, False),
        (True, "float32", 256, True, False),
        (True, "float32", 512, False, False),
        (True, "float16", 128, True, False),
        (True, "turboquant4", 64, True, False),
        (True, "turboquant4", 512, False, False),
        (False, "turboquant4", 64, True, True),
        (False, "float32", 512, True, True),
    ],
)
def test_a_software_adapter_decodes_with_few_loops_and_loads_once(
    software, dtype, head_dim, written_out, prefetches
):
    device = device_on(RecordingBridge(software=software, subgroup_size=4, features=("subgroups",)))
    cache = pa.KVCache(1, 2, 64, head_dim, dtype=dtype)
    cache.append(*(device.empty((1, 2, 8, head_dim)) for _ in "kv"))
    launches = plan(device, pa.decode_attention, device.empty((1, 4, 1, head_dim)), cache, splits=1)
    (wgsl,) = [shader.wgsl for shader, *_ in launches if shader.name == "decode_split"]
    # Loops over an invocation's arrays end at a constant; what goes through all keys again is always a loop.
    assert (re.search(r"for \(var n = 0u; n < \d+u;", wgsl) is None) == written_out
    assert ("next_k" in wgsl) == prefetches


def paired(device, cache, shape, **options):
    """Whether the steps of a decode go in pairs, and how many a split takes."""
    split, *_ = plan(device, pa.decode_attention, device.empty(shape), cache, **options)
    params = split[1]
    wgsl, span = split[0].wgsl, min(params["keys"] - params["first_key"], params["split_span"])
    return "var pair = 0u" in wgsl, -(-span // params["split_stride"])


@pytest.mark.parametrize(
    ("keys", "window", "found"),
    [
        (20, None, (False, 1)),
        (40, None, (True, 2)),
        (80, None, (False, 3)),
        (150, None, (True, 5)),
        (170, None, (True, 6)),
        (150, 45, (True, 2)),
        (150, 0, (False, 1)),
    ],
)
def test_float32_takes_steps_in_pairs(keys, window, found):
    device = device_on(RecordingBridge(software=False, subgroup_size=4, features=("subgroups",)))
    cache = pa.KVCache(4, 33, 170, 32)
    cache.append(*(device.empty((4, 33, keys, 32)) for _ in "kv"))
    assert paired(device, cache, (4, 33, 1, 32), window=window) == found


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", ("float32", "float16"), "q8_0", "q4_0", "turboquant2"]
)
@pytest.mark.parametrize("software", [False, True])
def test_only_float32_on_a_gpu_takes_steps_in_pairs(dtype, software):
    device = device_on(RecordingBridge(software=software, subgroup_size=32, features=("subgroups",)))
    cache = pa.KVCache(1, 8, 32768, 128, dtype=dtype)
    cache.append(*(device.empty((1, 8, 32768, 128)) for _ in "kv"))
    pairs, _ = paired(device, cache, (1, 32, 1, 128))
    assert pairs == (dtype == "float32" and not software)
    # Splits that a call names may well have an odd number of steps.
    assert not paired(device, cache, (1, 32, 1, 128), splits=32)[0]


@pytest.mark.parametrize(
    ("dtype", "head_dim", "rows"),
    [
        ("float32", 64, {1: 1, 8: 8, 9: 5, 12: 6, 16: 8, 20: 7}),
        ("float32", 128, {4: 4, 7: 7, 8: 8, 9: 5, 16: 8}),
        ("float32", 256, {4: 4, 8: 4, 5: 4}),
        ("float16", 64, {1: 1, 4: 4, 5: 5, 6: 3, 8: 4, 10: 4, 16: 4}),
        ("bfloat16", 128, {3: 3, 5: 5, 7: 4, 9: 3}),
        ("turboquant2", 64, {8: 8, 16: 16}),
    ],
)
def test_workgroups_of_a_gpu_share_many_rows_evenly(dtype, head_dim, rows):
    device = device_on(RecordingBridge(software=False, subgroup_size=32, features=("subgroups",)))
    cache = pa.KVCache(1, 2, 512, head_dim, dtype=dtype)
    cache.append(*(device.empty((1, 2, 512, head_dim)) for _ in "kv"))
    for count, wanted in rows.items():
        split, *_ = plan(device, pa.decode_attention, device.empty((1, 2 * count, 1, head_dim)), cache)
        assert (split[0].constants["ROWS"], split[1]["row_tiles"]) == (wanted, -(-count // wanted))


def test_splits_of_many_keys_take_blocks_in_turn(device):
    cache = pa.KVCache(1, 2, 4096, 16)
    cache.append(device.empty((1, 2, 4096, 16)), device.empty((1, 2, 4096, 16)))
    query = device.empty((1, 4, 1, 16))
    split, _ = plan(device, pa.decode_attention, query, cache, splits=7)
    shape = split[0].constants
    block = shape["WORKGROUP"] // shape["LANES"] * shape["KEYS_PER_GROUP"]
    wanted = {"split_first": block, "split_span": 4096, "split_stride": 7 * block}
    assert {name: split[1][name] for name in wanted} == wanted
    (split,) = plan(device, pa.decode_partials, query, cache, splits=7)
    wanted = {"split_first": 586, "split_span": 586, "split_stride": block}
    assert {name: split[1][name] for name in wanted} == wanted


def test_splits_are_not_more_than_the_keys(device, cache):
    partial, _ = pa.decode_partials(device.empty((2, 6, 1, 16)), cache, splits=1000)
    assert partial.shape == (2, 6, 1, 100, 8)
    partial, _ = pa.decode_partials(device.empty((2, 6, 1, 16)), cache, splits=1000, window=(9, None))
    assert partial.shape == (2, 6, 1, 10, 8)


@pytest.mark.parametrize(
    ("queries", "window", "first"), [(1, 9, 90), (3, (9, None), 88), (1, 0, 99), (1, 500, 0), (5, None, 0)]
)
def test_a_window_leaves_keys_out(device, cache, queries, window, first):
    (found,) = plan(
        device, pa.decode_attention, device.empty((2, 6, queries, 16)), cache, window=window, splits=1
    )
    assert found[1]["first_key"] == first
    assert found[1]["split_span"] == 100 - first


def test_no_queries(device, bridge, cache):
    for window in (None, 0):
        out, lse = pa.decode_attention(device.empty((2, 6, 0, 16)), cache, window=window, return_lse=True)
        assert out.shape == (2, 6, 0, 8)
        assert lse.shape == (2, 6, 0)


@given(st.integers(1, 1 << 20), st.sampled_from([8, 32, 64, 128]), st.integers(1, 5000), st.booleans())
def test_split_counts(keys, block, workgroups, software):
    splits = choose_splits(keys, block, workgroups, software)
    assert 1 <= splits <= 1024
    # Every split has a block to itself, and the busiest no more than it must have.
    assert (splits - 1) * block < keys
    assert software or splits > 1 or workgroups > 1 or keys <= block


@given(st.integers(0, 5000), st.integers(1, 70), st.sampled_from([8, 32, 64, 128]), st.booleans())
def test_each_key_belongs_to_one_split(keys, splits, block, in_runs):
    taken = split_range(keys, splits, block, in_runs=in_runs)
    seen = [0] * keys
    for split in range(splits):
        begin = split * taken.split_first
        end = min(begin + taken.split_span, keys)
        for first in range(begin, end, taken.split_stride):
            for key in range(first, min(first + block, end)):
                seen[key] += 1
    assert seen == [1] * keys


def test_many_heads_of_a_group_take_several_workgroups(device):
    cache = pa.KVCache(1, 1, 8, 512)
    cache.append(device.empty((1, 1, 3, 512)), device.empty((1, 1, 3, 512)))
    (found,) = plan(device, pa.decode_attention, device.empty((1, 40, 2, 512)), cache, splits=1)
    shader, params, workgroups, _ = found
    assert params["row_tiles"] == -(-80 // shader.constants["ROWS"]) == workgroups[0]
