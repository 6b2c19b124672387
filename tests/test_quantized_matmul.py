"""The tiled product of quantised weights with many tokens: when it is chosen, and what it needs."""

import asyncio

import pytest

from py_attn.gpu.device import request_device
from py_attn.kernels import nn
from py_attn.kernels.nn.quantized_matmul import TILES, MatmulConfig, configure_matmul
from py_attn.kernels.steps import new_state
from tests.recording_bridge import RecordingBridge

DESKTOP = {
    "software": False,
    "maxComputeInvocationsPerWorkgroup": 1024,
    "maxComputeWorkgroupSizeX": 1024,
    "maxComputeWorkgroupStorageSize": 49152,
}


def device_on(**adapter):
    bridge = RecordingBridge(**adapter)
    return bridge, asyncio.run(request_device(bridge))


def matrix(device, rows, inner, form="Q4_1"):
    words = rows * inner // 32 * (5 if form == "Q4_1" else 9)
    return nn.QuantizedMatrix(device.empty((words,), "uint32"), rows, inner, form)


def last_launch(bridge, device):
    device.flush()
    return bridge.programs[-1][-1]


@pytest.mark.parametrize(
    ("adapter", "count", "tiled"), [(DESKTOP, 16, True), (DESKTOP, 15, False), ({}, 512, False)]
)
def test_many_tokens_on_a_gpu_are_tiled(adapter, count, tiled):
    bridge, device = device_on(**adapter)
    norm, x = device.empty((64,)), device.empty((600, 64))
    nn.gated_linear(x, norm, matrix(device, 96, 64), new_state(device), count=count)
    assert ("stage:" in last_launch(bridge, device).wgsl) == tiled


@pytest.mark.parametrize(
    ("rows", "count", "tile", "workgroups"),
    [
        (49152, 512, (64, 64), 6144),
        (3072, 512, (64, 64), 384),
        (960, 512, (64, 64), 120),
        (576, 512, (32, 32), 288),
        (576, 200, (32, 32), 126),
        (577, 17, (16, 32), 38),
    ],
)
def test_small_matrices_have_small_tiles(rows, count, tile, workgroups):
    bridge, device = device_on(**DESKTOP)
    config = configure_matmul(device.info, rows, count)
    assert (config.tile_tokens, config.tile_rows) == tile
    nn.logits(device.empty((600, 64)), device.empty((64,)), matrix(device, rows, 64, "Q8_0"), count=count)
    launch = last_launch(bridge, device)
    assert launch.workgroups == (workgroups, 1, 1)
    assert launch.label == f"logits/Q8_0, {config.label}"


def test_tiles_fit_the_smallest_adapters():
    _, device = device_on(software=False)
    for rows in (64, 576, 3072, 49152):
        config = configure_matmul(device.info, rows, 512)
        assert config.fits(device.info)
        assert config.workgroup <= 256
    assert not MatmulConfig(128, 128, 8, 8, 1).fits(device.info)


@pytest.mark.parametrize("config", TILES, ids=lambda config: config.label)
@pytest.mark.parametrize("form", ["Q4_1", "Q8_0"])
def test_workgroup_memory_is_what_the_shader_declares(config, form):
    bridge, device = device_on(**DESKTOP)
    norm, x = device.empty((64,)), device.empty((600, 64))
    nn.logits(x, norm, matrix(device, 96, 64, form), count=20, config=config)
    wgsl = last_launch(bridge, device).wgsl
    sizes = {
        name: int(line.rsplit(",", 1)[1].rstrip("u>; "))
        for name in ("stage", "squares_of")
        for line in wgsl.splitlines()
        if line.startswith(f"var<workgroup> {name}:")
    }
    assert 16 * sizes["stage"] + 4 * sizes["squares_of"] == config.workgroup_memory()
    assert "{{" not in wgsl
    assert "//#" not in wgsl


def test_inputs_of_splits_are_refused(device):
    inputs = device.empty((1, 2, 1, 3, 32)), device.empty((1, 2, 1, 3, 2))
    with pytest.raises(ValueError, match="config: expected a LinearConfig for inputs of splits"):
        nn.add_projection(
            device.empty((9, 96)), inputs, matrix(device, 96, 64), new_state(device), heads=2, config=TILES[0]
        )
