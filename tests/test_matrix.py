"""The variant on subgroup matrices: what it needs, what it declares, and what it says where it cannot run."""

import re

import numpy as np
import pytest

import py_attn as pa
from py_attn.gpu.bridge import AdapterInfo, MatrixConfig
from py_attn.kernels.attention.config import Config, device_variants
from py_attn.kernels.attention.matrix import TILES, MatrixTile
from tests.matrix_stand_ins import without_matrices
from tests.recording_bridge import LIMITS, MATRIX_ADAPTER, RecordingBridge
from tests.test_device import device_on
from tests.test_shaders import naga
from tests.workgroup_text import workgroup_memory

_FEATURES, (_CONFIG,) = MATRIX_ADAPTER["features"], MATRIX_ADAPTER["matrix_configs"]


def launches(*shapes, dtype="float16", variant="matrix", limits=None, **keywords):
    """The dispatches of a call on an adapter with matrices, and with other ``limits`` where given."""
    bridge = RecordingBridge(**MATRIX_ADAPTER | (limits or {}))
    device = device_on(bridge)
    tensors = [device.empty(shape, dtype) for shape in shapes]
    kept = pa.attention(*tensors, variant=variant, **keywords)
    device.flush()
    assert kept is not None
    return bridge.programs[0]


def launched(*shapes, **keywords):
    """The first of them, in float16 the only one."""
    return launches(*shapes, **keywords)[0]


@pytest.mark.parametrize("dims", [(16, 16), (64, 64), (128, 128), (40, 24), (7, 5), (256, 256)])
def test_a_call_asks_for_what_it_uses(dims):
    d, dv = dims
    launch = launched((1, 4, 100, d), (1, 2, 150, d), (1, 2, 150, dv), return_lse=True)
    assert launch.label.endswith("attention/matrix")
    assert launch.wgsl.startswith(
        "enable f16;\nenable subgroups;\nenable chromium_experimental_subgroup_matrix;\nrequires subgroup_id;"
    )
    assert workgroup_memory(launch.wgsl) <= 48 << 10
    assert launch.workgroups == (4, 1, -(-100 // 64))


@pytest.mark.parametrize(
    ("dv", "entry"), [(64, "vec4<u32>"), (24, "vec4<u32>"), (20, "vec2<u32>"), (7, "vec2<u32>")]
)
def test_outputs_are_stored_as_wide_as_rows_allow(dv, entry):
    for keywords in ({}, {"causal": True}, {"layout": "BSHD"}):
        launch = launched((1, 2, 20, 16), (1, 2, 20, 16), (1, 2, 20, dv), **keywords)
        assert f"var<storage, read_write> out: array<{entry}>;" in launch.wgsl


@pytest.mark.parametrize("tile", [*TILES, MatrixTile(2, 32, in_turn=True), MatrixTile(2, 32, team=2)])
def test_tiles_know_their_memory(tile):
    shapes = ((1, 1, 64, 96), (1, 1, 64, 96), (1, 1, 64, 48))
    # One of the two flags is only declared where keys are hidden.
    for keywords, not_declared in (({"causal": True}, 0), ({}, 16)):
        launch = launched(*shapes, variant=Config("matrix", tile), **keywords)
        assert workgroup_memory(launch.wgsl) + not_declared == tile.workgroup_bytes(96, 48)


def _banks(pitch, lines, words):
    """Banks, of 32 a word wide, of these words of lines that are ``pitch`` entries of 16 bytes apart."""
    return [(line * 4 * pitch + word) % 32 for line in lines for word in words]


@pytest.mark.parametrize("tile", TILES)
def test_no_bank_of_workgroup_memory_is_met_twice(tile):
    """As NVIDIA's cores store sums and load halves: 32 numbers, 16 pairs or 8 times 16 bytes at a time.

    Invocation ``l`` has the sums of row ``l // 4`` in columns ``2 (l % 4)`` and the next one ("Matrix
    Fragments for mma.m16n8k16" in https://docs.nvidia.com/cuda/parallel-thread-execution/). Stored row by row
    these are a pair, and four rows go together; by columns each is stored alone, with those of three others.
    """
    wgsl = launched(*[(1, 1, 256, 64)] * 3, variant=Config("matrix", tile)).wgsl
    stores = set(re.findall(r"subgroupMatrixStore<(\w+)>\(&scores\[number\], \d+u, s_\w+, (\d+)u\)", wgsl))
    loads = set(re.findall(r"let \w+ = subgroupMatrixLoad<\w+, \w+>\(&[^,]+, \d+u, (\d+)u\)", wgsl))
    assert len(stores) == 1
    assert loads
    for layout, pitch in stores:
        lines = range(4) if layout == "row_major" else range(0, 8, 2)
        assert len(set(_banks(int(pitch), lines, range(8)))) == 32
    for pitch in loads:
        assert len(set(_banks(int(pitch), range(8), range(4)))) == 32


@pytest.mark.parametrize(
    "fields", [(8, 16, False, 2), (3, 16, False, 2), (8, 32, False, 3), (4, 24), (4, 0), (2, 64)]
)
def test_numbers_of_a_tile_go_together(fields):
    with pytest.raises(ValueError, match="expected a team of 1 or 2 that divides the subgroups, and keys"):
        MatrixTile(*fields)


@pytest.mark.parametrize(
    ("keywords", "has_steady_turns"),
    [
        ({}, True),
        ({"causal": True, "scale": 1e-6}, True),
        # Moving turns scale before they mask and look for a maximum, so that any scale will do.
        ({"window": (30, 0), "scale": -0.5}, True),
        ({"scale": 0.0}, True),
        ({"causal": True, "scale": 1e-42}, True),
        # What comes between the scale and the exponent.
        ({"softcap": 3.0}, False),
        ({"mask": np.ones((100, 150), bool)}, False),
        ({"score_mod": lambda score, b, h, q, k: score + 1}, False),
    ],
)
def test_references_stay_where_scores_are_only_scaled(keywords, has_steady_turns):
    launch = launched((1, 4, 100, 64), (1, 2, 150, 64), (1, 2, 150, 64), **keywords)
    assert ("fma(s[0], vec4<f32>(params.query_scale)" in launch.wgsl) == has_steady_turns


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((1, 16, 4096, 128), MatrixTile(8, 32, team=2)),
        ((1, 16, 1024, 128), MatrixTile(4, 32)),
        ((2, 16, 2048, 96), MatrixTile(8, 32, team=2)),
        ((1, 8, 1024, 96), MatrixTile(4, 32)),
        ((1, 16, 4096, 64), MatrixTile(8, 32, in_turn=True)),
        ((8, 12, 512, 64), MatrixTile(4, 32, in_turn=True, team=2)),
        ((1, 12, 1024, 64), MatrixTile(4, 32)),
        ((32, 12, 128, 32), MatrixTile(4, 16)),
        ((1, 16, 4096, 256), MatrixTile(8, 16)),
        ((1, 4, 4096, 256), MatrixTile(4, 16)),
    ],
)
def test_tall_tiles_are_for_many_rows(shape, tile):
    launch = launched(shape, shape, shape)
    constants = tile.constants()
    for name in ("BQ", "BK", "WORKGROUP"):
        assert f"const {name}: u32 = {constants[name]}u;" in launch.wgsl
    assert ("var<workgroup> values" not in launch.wgsl) == tile.in_turn
    assert ("var<workgroup> weights" in launch.wgsl) == (tile.team > 1 and not tile.in_turn)
    assert ("acc_1_0" in launch.wgsl) == (tile.team > 1)
    assert np.prod(launch.workgroups) == shape[0] * shape[1] * -(-shape[2] // tile.queries)


@pytest.mark.parametrize(
    ("d", "dv", "tile"),
    [
        (64, 64, MatrixTile(4, 32, in_turn=True)),
        (64, 40, MatrixTile(4, 32, in_turn=True, team=2)),
        (40, 24, MatrixTile(4, 32)),
        (24, 40, MatrixTile(8, 32, in_turn=True)),
        (128, 128, MatrixTile(8, 32)),
        (128, 104, MatrixTile(8, 32, team=2)),
        (96, 96, MatrixTile(8, 16)),
    ],
)
def test_naga_takes_all_but_the_matrices(d, dv, tile):
    wgsl = {}
    shapes = (2, 4, 100, d), (2, 2, 150, d), (2, 2, 150, dv)
    for keywords in (
        {},
        {"causal": True, "return_lse": True},
        {"window": (30, 0), "softcap": 5.0},
        {"mask": np.ones((2, 1, 100, 150), bool)},
        {"mask": np.zeros((100, 150), np.float32), "sinks": np.zeros(4, np.float32), "return_lse": True},
        {"kv_lengths": np.array([150, 70], np.int32), "causal": "top-left"},
        {"score_mod": lambda score, b, h, q, kv: score - 0.1 * h * (q - kv)},
    ):
        text = launched(*shapes, variant=Config("matrix", tile), **keywords).wgsl
        wgsl[", ".join(keywords) or "plain"] = without_matrices(text)
    assert naga(wgsl) == {}


@pytest.mark.parametrize("tile", TILES)
def test_offsets_of_matrices_are_constant(tile):
    # Tint puts a branch around a load or store whose offset it does not know to be in bounds.
    wgsl = launched(*[(1, 1, 64, 64)] * 3, variant=Config("matrix", tile)).wgsl
    calls = re.findall(r"subgroupMatrix(?:Load<[^>]+>|Store<\w+>)\(&[^,]+, ([^,]+),", wgsl)
    assert len(calls) > 20
    assert all(re.fullmatch(r"\d+u", offset) for offset in calls)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"features": ()},
            "variant: matrix needs shader-f16, subgroups, chromium-experimental-subgroup-matrix",
        ),
        ({"features": _FEATURES[1:]}, "variant: matrix needs shader-f16, which fake lacks"),
        (
            {"matrix_configs": (MatrixConfig("f16", "f16", 8, 8, 8),)},
            "variant: matrix needs subgroup matrices of f16 with f32 sums, 16×16×16, which fake lacks",
        ),
        ({"subgroup_size": 64}, "variant: matrix needs subgroups of 32, which fake lacks"),
        ({"maxComputeWorkgroupStorageSize": 512}, "variant: matrix with head dims 64 and 64 needs more"),
    ],
)
def test_what_the_adapter_lacks_is_named(changed, message):
    bridge = RecordingBridge(**(MATRIX_ADAPTER | changed))
    device = device_on(bridge)
    query = device.empty((1, 2, 100, 64), "float16")
    with pytest.raises(ValueError, match=message):
        pa.attention(query, query, query, variant="matrix")
    device.flush()
    assert bridge.programs == []


def test_inputs_that_do_not_fit_are_named():
    device = device_on(RecordingBridge(**MATRIX_ADAPTER))
    half, full = device.empty((1, 2, 10, 64), "float16"), device.empty((1, 2, 10, 64))
    with pytest.raises(ValueError, match="float16 query, key and value, got key in float32"):
        pa.attention(half, full, half, variant="matrix")
    wide = device.empty((1, 2, 10, 272), "float16")
    with pytest.raises(ValueError, match="head dims up to 256, got 272 and 272"):
        pa.attention(wide, wide, wide, variant="matrix")
    packed = device.empty((10, 2, 64), "float16")
    begins = np.array([0, 10], np.int32)
    with pytest.raises(ValueError, match=r"variant: matrix is for pa\.attention"):
        pa.varlen_attention(packed, packed, packed, begins, begins, variant="matrix")


def test_it_is_listed_for_float16_only_and_never_chosen():
    device = device_on(RecordingBridge(**MATRIX_ADAPTER))
    assert device_variants(device) == ["subgroup", "tiled", "naive"]
    assert device_variants(device, "float16") == ["matrix", "subgroup", "tiled", "naive"]
    assert "matrix" not in device_variants(device_on(RecordingBridge()), "float16")


def test_configs_come_from_plain_data():
    plain = {
        "vendor": "v",
        "architecture": "",
        "description": "",
        "software": False,
        "features": ["subgroups"],
    }
    info = AdapterInfo.from_plain(plain | {"limits": LIMITS, "matrix_configs": [["f16", "f32", 16, 16, 16]]})
    assert info.matrix_configs == (_CONFIG,)
    assert AdapterInfo.from_plain(plain | {"limits": LIMITS}).matrix_configs == ()
