"""The build's list of the first map's pipelines, against what real adapters need."""

import asyncio
import json

import pytest

from py_attn.gpu.device import request_device
from py_attn.viewer import Viewer
from py_attn.viewer.methods import METHODS
from scripts.common import ROOT
from scripts.packing import write_pipelines
from tests.adapters import ADAPTERS
from tests.recording_bridge import RecordingBridge

SAMPLE = (ROOT / "web" / "public" / "sample" / "minilm.npz").read_bytes()


async def draw(bridge):
    viewer = Viewer(lambda: request_device(bridge))
    await viewer.call("connect", {})
    await viewer.call("open_sample", {"data": SAMPLE})
    for name in ("legend", "window"):
        await viewer.call(name, METHODS[name].start)


@pytest.fixture(scope="module")
def listed():
    return json.loads(asyncio.run(write_pipelines(RecordingBridge, draw)))


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
async def test_the_list_has_what_an_adapter_needs(adapter, listed):
    bridge = RecordingBridge()
    bridge.info = adapter.info()
    await draw(bridge)
    # As web/src/runtime/early-pipelines.js chooses.
    chosen = next(
        one["sources"]
        for one in listed
        if one["software"] == adapter.software
        and one["subgroup_size"] <= adapter.subgroups[0]
        and set(one["features"]) <= set(adapter.features)
    )
    assert [tuple(one.values()) for one in chosen] == list(bridge.pipelines.values())
