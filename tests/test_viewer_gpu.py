"""The viewer on the recording bridge: what it would run on a GPU."""

import asyncio

import numpy as np
import pytest

from py_attn.errors import DeviceLostError, GPUOutOfMemoryError
from py_attn.gpu.bridge import BridgeError
from py_attn.gpu.device import request_device
from py_attn.viewer import Viewer
from py_attn.viewer.sources.source import Layer, Source
from tests.recording_bridge import RecordingBridge
from tests.viewers import call

SHAPE = {"length": 40, "heads": 4, "kv_heads": 2, "head_dim": 16}


@pytest.fixture
def viewer(device):
    made = Viewer()
    made.use(device)
    call(made, "open_synthetic", **SHAPE, mask="alibi", window=9, softcap=4.0)
    return made


def labels(bridge):
    return [launch.label.split("/")[0] for launch in bridge.launches]


def test_a_map_is_attention_once_and_then_only_windows(viewer, bridge):
    answer = call(viewer, "overview", layer=0)
    assert answer["rgba"].shape == (4 * 40 * 40 * 4,)
    assert answer["rgba"].dtype == np.uint8
    call(viewer, "window", layer=0, head=1, rows=[0, 10], columns=[5, 15], size=[100, 100])
    call(viewer, "row", layer=0, head=1, query=3)
    assert labels(bridge) == ["attention", *["attention_weights"] * 3]


def test_no_picture_is_larger_than_what_is_asked_for(viewer, bridge):
    call(viewer, "window", layer=0, head=0, rows=[0, 40], columns=[0, 40], size=[8, 6])
    largest = max(size for launch in bridge.programs[-1] for _, _, size in launch.buffers[-1:])
    assert largest == 8 * 6 * 4


def test_decoding_appends_what_is_new(viewer, bridge):
    call(viewer, "decode_open", layer=0, capacity=40)
    call(viewer, "decode_step", position=5, head=0, splits=2)
    first = labels(bridge)
    call(viewer, "decode_step", position=6, head=0, splits=2)
    assert first.count("cache_append") == 2  # keys and values
    assert labels(bridge)[len(first) :].count("cache_append") == 2
    assert "decode_reduce" in first


def test_measuring_compiles_and_uploads_anew_each_time(viewer, bridge):
    answer = call(viewer, "measure", layer=0, variant="naive", repeats=3)
    assert answer["variant"] == "naive"
    assert set(answer["parts"]) == {"upload", "compile", "dispatch", "readback"}
    assert "@compute" in answer["wgsl"]
    assert not answer["ok"]  # the recording bridge computes nothing
    with pytest.raises(ValueError, match="repeats: expected 1 to 1000, got 0"):
        call(viewer, "measure", layer=0, variant="naive", repeats=0)
    with pytest.raises(ValueError, match="variant: expected"):
        call(viewer, "measure", layer=0, variant="fastest", repeats=1)


def test_all_dispatches_of_a_call_are_timed_together():
    """Where tiles are cut, another kernel joins them after the attention kernel."""
    room = {"maxComputeWorkgroupStorageSize": 48 << 10}
    bridge = RecordingBridge(software=False, subgroup_size=32, features=("subgroup_id",), **room)
    viewer = Viewer(lambda: request_device(bridge))
    call(viewer, "connect")
    call(viewer, "open_synthetic", length=2000, heads=12, kv_heads=12, head_dim=128, mask="none")
    answer = call(viewer, "measure", layer=0, variant="subgroup", repeats=1)
    assert labels(bridge) == ["attention", "attention_join"]
    assert (answer["variant"], answer["kernel"]) == ("subgroup", "attention, one of 2 dispatches")
    assert "fn main" in answer["wgsl"]
    assert answer["parts"]["dispatch"]["median"] >= 20  # the bridge says 10 µs or more for each


def test_a_lost_device_is_an_exception_of_its_own(viewer, device):
    device.destroy()
    with pytest.raises(DeviceLostError):
        call(viewer, "overview", layer=0)


def test_what_is_open_is_shown_again_on_a_new_device(viewer):
    given = (
        "tensor = device.tensor(np.zeros(40, np.float32))\ndef score_mod(s, b, h, q, k): return s + tensor[k]"
    )
    assert call(viewer, "edit", text=given)["error"] is None
    before = viewer.source
    viewer.use(asyncio.run(request_device(RecordingBridge())))
    answer = call(viewer, "open_again")
    assert answer["title"] == before.title
    assert answer["edited"] == ["score_mod"]
    # What the text captures is on the new device, and the rest is what it was.
    assert viewer.source.masking.mods is not before.masking.mods
    assert viewer.source.layers is before.layers
    assert call(viewer, "overview", layer=0)["rgba"].shape == (4 * 40 * 40 * 4,)


def test_nothing_is_shown_again_where_it_was_on_the_device_that_is_lost(viewer, device):
    assert call(Viewer(), "open_again") is None
    tensor = device.tensor(np.zeros((1, 2, 5, 4), np.float32))
    viewer.open(Source("text", "a", list("abcde"), [Layer(tensor, tensor, tensor)]))
    assert call(viewer, "open_again")["title"] == "a"
    viewer.use(asyncio.run(request_device(RecordingBridge())))
    assert call(viewer, "open_again") is None


def test_what_there_was_no_room_for_is_uploaded_again(viewer, bridge):
    create = bridge.create_buffer

    def lacks_room(size, label):
        bridge.errors.append(BridgeError("out-of-memory", label, "no room"))
        return create(size, label)

    bridge.create_buffer = lacks_room
    with pytest.raises(GPUOutOfMemoryError, match="no room"):
        call(viewer, "window", layer=0, head=1, rows=[0, 10], columns=[5, 15], size=[100, 100])
    bridge.create_buffer = create
    written = len(bridge.launches)
    call(viewer, "window", layer=0, head=1, rows=[0, 10], columns=[5, 15], size=[100, 100])
    assert "attention" in labels(bridge)[written:]
