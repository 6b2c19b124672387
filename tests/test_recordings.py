"""Calls with the same buffers: their launches are recorded once, and again wherever that would not hold."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import py_attn as pa
from py_attn.gpu import device as gpu_device
from py_attn.gpu.recorder import Recorder
from tests.recording_bridge import RecordingBridge


def zeros(device, *shape):
    return device.tensor(np.zeros(shape, np.float32))


class Calls:
    """A device with the tensors of three calls, and what is held of their results.

    `decode` has two launches and two scratch tensors between them, `backward` three launches and one.
    """

    def __init__(self):
        self.bridge = RecordingBridge()
        self.device = asyncio.run(gpu_device.request_device(self.bridge))
        self.query = zeros(self.device, 1, 2, 1, 8)
        self.cache = pa.KVCache(1, 2, 64, 8, device=self.device)
        self.cache.append(*[zeros(self.device, 1, 2, 64, 8)] * 2)
        self.given = [zeros(self.device, 1, 2, 7, 8) for _ in range(3)]
        self.out, self.lse = pa.attention(*self.given, return_lse=True)
        self.held = []

    def call(self, name):
        """The results of one call."""
        if name == "attention":
            return pa.attention(*self.given, return_lse=True)
        if name == "decode":
            return (pa.decode_attention(self.query, self.cache, splits=2),)
        return pa.attention_backward(self.out, *self.given, self.out, self.lse)

    def launched(self, name):
        """The launches of one call, with what each of their buffers is, and its results."""
        self.device.flush()
        before = len(self.bridge.launches)
        results = self.call(name)
        self.device.flush()
        return self.described(self.bridge.launches[before:], results), results

    def described(self, launches, results):
        inputs = [self.query, *self.cache.tensors.values(), *self.given, self.out, self.lse]
        named = {each._storage.handle: f"input {n}" for n, each in enumerate(inputs)}
        named |= {each._storage.handle: f"result {n}" for n, each in enumerate(results)}
        assert not {each._storage.handle for each in self.held} & named.keys()
        seen = {}
        found = []
        for launch in launches:
            buffers = []
            for handle, *where in launch.buffers:
                # What is held must never be scratch.
                assert handle not in {each._storage.handle for each in self.held}
                role = named.get(handle) or seen.setdefault(handle, f"scratch {len(seen)}")
                buffers.append((role, *where))
            found.append((launch.wgsl, launch.params, launch.workgroups, buffers))
        return found


CALLS = "attention", "decode", "backward"
EXPECTED = {}


def expected(name):
    if name not in EXPECTED:
        EXPECTED[name] = Calls().launched(name)[0]
    return EXPECTED[name]


#: Of the sizes of all scratch and results, some of which are equal.
SIZES = 32, 64, 128, 224, 448, 1344
STEPS = st.one_of(
    st.tuples(st.sampled_from(CALLS), st.booleans()),
    st.tuples(st.just("take"), st.sampled_from(SIZES)),
    st.sampled_from(["drop", "wait", "clear pipelines", "release memory"]).map(lambda what: (what, None)),
    st.tuples(st.just("program"), st.sampled_from(CALLS)),
)


@given(st.lists(STEPS, max_size=30))
def test_a_call_launches_the_same_whatever_came_before(steps):
    calls = Calls()
    device = calls.device
    for what, which in steps:
        if what in CALLS:
            found, results = calls.launched(what)
            assert found == expected(what)
            calls.held += results if which else ()
        elif what == "take":
            calls.held.append(device.empty((which // 4,)))
        elif what == "drop":
            del calls.held[:1]
        elif what == "wait":
            asyncio.run(device.synchronize())
        elif what == "clear pipelines":
            device.clear_pipelines()
        elif what == "release memory":
            device.release_memory()
        else:
            with device.record() as program:
                results = calls.call(which)
            taken = [device.empty((size // 4,)) for size in SIZES]
            before = len(calls.bridge.launches)
            program.submit()
            assert calls.described(calls.bridge.launches[before:], results) == expected(which)
            del taken


@pytest.fixture
def recorded(monkeypatch):
    """The shaders whose dispatches were recorded anew."""
    shaders = []
    add = Recorder.add

    def noting(self, dispatch, *rest):
        shaders.append(dispatch.shader)
        add(self, dispatch, *rest)

    monkeypatch.setattr(Recorder, "add", noting)
    return shaders


@pytest.mark.parametrize("name", CALLS)
def test_calls_in_a_row_are_recorded_a_few_times(name, recorded):
    launches = len(expected(name))
    calls = Calls()
    recorded.clear()
    for _ in range(20):
        # The result before is dropped only after this, so that two sets of buffers alternate.
        result = calls.call(name)
    del result
    # The first with new pipelines, then once for each set, and once more where scratch was a result's buffer.
    assert len(recorded) <= 4 * launches


def test_scratch_takes_no_memory_of_its_own():
    calls = Calls()
    before = calls.device.memory_allocated()
    for _ in range(3):
        result = calls.call("decode")
        assert calls.device.memory_allocated() == before + sum(each._storage.nbytes for each in result)
        del result
    assert calls.device.memory_allocated() == before


def test_a_program_keeps_its_scratch():
    calls = Calls()
    with calls.device.record() as program:
        result = calls.call("decode")
    roles = {role for launch in expected("decode") for role, *_ in launch[3]}
    assert {"scratch 0", "scratch 1"} <= roles
    taken = [calls.device.empty((size // 4,)) for size in SIZES for _ in range(4)]
    program.submit()
    used = {handle for launch in calls.bridge.programs[-1] for handle, *_ in launch.buffers}
    assert not used & {each._storage.handle for each in taken}
    del result


def test_a_broken_pipeline_is_made_again_though_its_launches_were_recorded():
    calls = Calls()
    for _ in range(4):
        calls.call("attention")
    calls.device.flush()
    label = calls.bridge.launches[-1].label
    calls.bridge.errors = [pa.gpu.bridge.BridgeError("shader", label, "no", 1)]
    with pytest.raises(pa.errors.ShaderError, match="no"):
        asyncio.run(calls.device.synchronize())
    made = len(calls.bridge.of("create_pipeline"))
    assert calls.launched("attention")[0] == expected("attention")
    assert len(calls.bridge.of("create_pipeline")) == made + 1


def test_poisoned_scratch_is_poisoned_in_every_call():
    calls = Calls()
    for _ in range(3):
        calls.call("decode")
    calls.device.poison_outputs = True
    for _ in range(2):
        before = len(calls.bridge.of("write_buffer"))
        calls.call("decode")
        written = [entry for entry in calls.bridge.of("write_buffer")[before:] if set(entry[3]) == {0xFF}]
        assert len(written) == 3  # the output and both scratch tensors
