"""The measured choice of tiles: what is asked for, measured, kept and used. On a recording bridge."""

import asyncio
import itertools
import json
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

import py_attn as pa
from py_attn.gpu import device as gpu_device
from py_attn.gpu import tuning
from py_attn.gpu.bridge import BridgeError, RawTiming
from py_attn.kernels.attention.tiles import CANDIDATES
from tests.recording_bridge import RecordingBridge

DESKTOP = {
    "software": False,
    "subgroup_size": 32,
    "maxComputeWorkgroupStorageSize": 49152,
    "maxComputeInvocationsPerWorkgroup": 1024,
    "maxComputeWorkgroupSizeX": 1024,
    "maxComputeWorkgroupSizeY": 1024,
}
FAST = next(iter(CANDIDATES))


class ClockedBridge(RecordingBridge):
    """Every program takes as long as `us` says of its first shader's tile."""

    def __init__(self, us, **adapter):
        super().__init__(**adapter)
        self.us = us
        self.timed = []

    def submit_timed(self, program, params, together=False, times=1):
        ticket = super().submit_timed(program, params, together, times)
        launches = self.programs[-1]
        self.timed.append(launches[0].wgsl)
        self._clocks = getattr(self, "_clocks", {}) | {ticket: self.us(launches[0]) * len(launches)}
        return ticket

    async def timings(self, ticket):
        await super().timings(ticket)
        return [RawTiming(self._clocks.pop(ticket), 1e6)]


def rows_of(launch):
    """Query rows of the launch's tile."""
    (line,) = [line for line in launch.wgsl.splitlines() if line.startswith("const BQ")]
    return int(line.split(" = ")[1].rstrip("u;"))


def call(device, queries=512, **options):
    x = device.empty((2, 32, queries, 64))
    return pa.attention(x, x, x, **options)


def tile_of_last(bridge, device):
    device.flush()
    return rows_of(bridge.programs[-1][-1])


def run(coroutine):
    return asyncio.run(coroutine)


class SteppedLoop(asyncio.SelectorEventLoop):
    """Its clock stands still while anything runs, and goes on to the next timer when nothing else is left."""

    def __init__(self):
        super().__init__()
        self._now = 0.0

    def time(self):
        return self._now

    def _run_once(self):
        if not self._ready and self._scheduled:
            self._now = max(self._now, self._scheduled[0].when())
        super()._run_once()


def run_stepped(coroutine):
    """Run it with a clock that does not depend on how long anything takes on this machine."""
    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        return runner.run(coroutine)


@pytest.fixture(autouse=True)
def no_default(monkeypatch):
    monkeypatch.setattr(gpu_device, "_default", None)


@pytest.fixture(autouse=True)
def still_clock(monkeypatch):
    """What a measurement takes here is no part of the time it may take; a test says otherwise by itself."""
    monkeypatch.setattr(tuning, "time", SimpleNamespace(monotonic=lambda: 0.0))


def prefers(rows):
    return ClockedBridge(lambda launch: 100.0 if rows_of(launch) == rows else 300.0, **DESKTOP)


def test_what_is_faster_is_used_from_then_on():
    bridge = prefers(32)
    device = run(pa.request_device(bridge))
    call(device)
    before = tile_of_last(bridge, device)
    assert before == 128
    (measured,) = run(device.tune())
    assert measured.us["static"] == 300.0
    assert measured.us[measured.choice] == 100.0
    assert measured.key == "attention 64/64 float32/float32/float32 512x512x64/1 full"
    call(device)
    assert tile_of_last(bridge, device) == 32
    # The same class: sizes that agree to a power of two.
    call(device, 300)
    assert tile_of_last(bridge, device) == 32
    assert run(device.tune()) == []


def test_the_static_choice_is_that_of_the_class_not_of_the_call_which_asked():
    bridge = prefers(128)
    device = run(pa.request_device(bridge))
    # 130 rows and keys would leave half of the tile empty that is the best for 256.
    call(device, 130)
    assert tile_of_last(bridge, device) < 128
    (measured,) = run(device.tune())
    assert (measured.choice, measured.us["static"]) == ("static", 100.0)
    call(device, 130)
    assert tile_of_last(bridge, device) < 128
    call(device, 256)
    assert tile_of_last(bridge, device) == 128


def test_windows_are_not_measured():
    bridge = prefers(32)
    device = run(pa.request_device(bridge))
    call(device, 512, window=100)
    call(device, 512, window=(None, 3), causal=True)
    assert tile_of_last(bridge, device) == 128
    (measured,) = run(device.tune())
    assert measured.key.endswith("causal")
    call(device, 512, window=300)
    assert tile_of_last(bridge, device) == 128


def test_nothing_is_timed_on_zeros():
    written = []

    class Watched(ClockedBridge):
        def write_buffer(self, buffer, offset, data):
            super().write_buffer(buffer, offset, data)
            written.append(np.frombuffer(bytes(data), np.float32))

    bridge = Watched(lambda launch: 100.0, **DESKTOP)
    device = run(pa.request_device(bridge))
    call(device)
    device.flush()
    written.clear()
    run(device.tune())
    assert [numbers.size for numbers in written] == [64 * 512 * 64] * 3
    for numbers in written:
        assert abs(numbers.mean()) < 0.02
        assert abs(numbers.std() - 1) < 0.02


def test_other_classes_stay_static_until_they_are_measured():
    bridge = prefers(32)
    device = run(pa.request_device(bridge))
    call(device)
    run(device.tune())
    call(device, causal=True)
    assert tile_of_last(bridge, device) == 128
    call(device, variant="subgroup")
    assert tile_of_last(bridge, device) == 128
    device.autotune = False
    call(device)
    assert tile_of_last(bridge, device) == 128
    assert len(device.tuner.choices) == 1


def test_each_time_is_taken_behind_other_work():
    bridge = prefers(32)
    device = run(pa.request_device(bridge))
    call(device)
    run(device.tune())
    # At 300 µs each six calls make a program, which goes 22 times before it is timed, to fill 40 ms. Three
    # times, and again before and after the finalists.
    lengths = [len(program) for program in bridge.programs if program[0].wgsl == bridge.timed[0]]
    assert lengths.count(6) == 3 * 3 * (22 + 1)


def test_what_ran_slowly_at_first_is_measured_again():
    seen = []

    def us(launch):
        seen.append(rows_of(launch))
        others = any(rows != 128 for rows in seen)
        return 200.0 if rows_of(launch) == 32 else 100.0 if others else 300.0

    bridge = ClockedBridge(us, **DESKTOP)
    device = run(pa.request_device(bridge))
    call(device)
    (measured,) = run(device.tune())
    assert (measured.choice, measured.us["static"]) == ("static", 100.0)


def test_time_is_left_for_the_finalists_to_be_measured_again():
    device = run(pa.request_device(prefers(32)))
    now, left_for = 0.0, []

    async def time(record, to_beat):
        nonlocal now
        now += record()
        return 100.0 if to_beat is None else 50.0

    def has_time(seconds):
        left_for.append(seconds)
        return True

    candidates = {"static": lambda: 1.0, "slow to make": lambda: 3.0, "other": lambda: 2.0}
    with (
        mock.patch.object(tuning.time, "monotonic", side_effect=lambda: now),
        mock.patch.object(device.tuner, "_time", time),
    ):
        run(device.tuner._measure_bucket("bucket", candidates, has_time))
    # Before each candidate, the longest so far and the final: three finalists, and twice the static choice.
    assert left_for == [0.0, 1.0 + 5 * 0.15, 3.0 + 5 * 0.15, *4 * [0.15]]
    assert now == 1.0 + 3.0 + 2.0 + (1.0 + 3.0 + 2.0) + 1.0


@pytest.mark.parametrize("measurements", [2, 3, 4])
def test_without_time_for_the_final_nothing_is_chosen(measurements):
    device = run(pa.request_device(prefers(32)))
    taken = []

    async def time(record, to_beat):
        taken.append(record())
        return {"static": 100.0, "other": 50.0}[taken[-1]]

    candidates = {name: lambda name=name: name for name in ("static", "other")}
    with mock.patch.object(device.tuner, "_time", time):
        measured = run(
            device.tuner._measure_bucket("bucket", candidates, lambda _: len(taken) < measurements)
        )
    assert measured is None
    assert taken == ["static", "other", "static", "other"][:measurements]


def test_a_clock_that_rises_late_does_not_count_against_the_static_choice():
    # Compiling the second candidate made the clock fall, which has risen when the static choice comes again.
    device = run(pa.request_device(prefers(32)))
    times = {"static": [400.0, 400.0, 100.0], "other": [300.0, 120.0]}

    async def time(record, to_beat):
        return times[record()].pop(0)

    candidates = {name: lambda name=name: name for name in times}
    with mock.patch.object(device.tuner, "_time", time):
        measured = run(device.tuner._measure_bucket("bucket", candidates, lambda seconds: True))
    assert (measured.choice, measured.us) == ("static", {"static": 100.0, "other": 120.0})


def test_what_ran_slowly_when_it_was_compiled_may_still_win():
    device = run(pa.request_device(prefers(32)))
    times = {
        "static": [100.0, 99.0, 99.0],
        "other": [150.0, 60.0],
        "slow": [500.0, 480.0],
        "slowest": [600.0],
    }

    async def time(record, to_beat):
        return times[record()].pop(0)

    candidates = {name: lambda name=name: name for name in times}
    with mock.patch.object(device.tuner, "_time", time):
        measured = run(device.tuner._measure_bucket("bucket", candidates, lambda seconds: True))
    assert measured.choice == "other"
    assert measured.us == {"static": 99.0, "other": 60.0, "slow": 480.0, "slowest": 600.0}


@pytest.mark.parametrize(("heads", "rounded"), [(1, 1), (12, 12), (17, 18), (384, 384), (1020, 1024)])
def test_heads_of_a_class_agree_to_an_eighth(heads, rounded):
    bridge = prefers(32)
    device = run(pa.request_device(bridge))
    x = device.empty((1, heads, 128, 64))
    pa.attention(x, x, x)
    (measured,) = run(device.tune())
    assert measured.key == f"attention 64/64 float32/float32/float32 128x128x{rounded}/1 full"


def test_a_small_gain_is_none():
    bridge = ClockedBridge(lambda launch: 97.0 if rows_of(launch) == 32 else 100.0, **DESKTOP)
    device = run(pa.request_device(bridge))
    call(device)
    (measured,) = run(device.tune())
    assert measured.choice == "static"


def test_choices_last_until_the_next_visit():
    bridge = prefers(32)
    device = run(pa.request_device(bridge))
    call(device)
    (measured,) = run(device.tune())
    ((name, text),) = bridge.notes.items()
    assert "fake" in name
    assert json.loads(text) == {measured.key: measured.choice}
    again = prefers(32)
    again.notes = bridge.notes
    device = run(pa.request_device(again))
    call(device)
    assert tile_of_last(again, device) == 32
    assert run(device.tune()) == []
    with mock.patch.object(tuning, "_EDITION", tuning._EDITION + 1):
        later = prefers(32)
        later.notes = bridge.notes
        assert dict(run(pa.request_device(later)).tuner.choices) == {}
    run(device.tuner.forget())
    call(device)
    assert tile_of_last(again, device) == 128


@pytest.mark.parametrize("text", ["", "no json", "[1, 2]", '{"a": 3}', '{"attention": "tiled 9x9"}'])
def test_notes_that_mean_nothing_are_ignored(text):
    bridge = prefers(32)
    device = run(pa.request_device(bridge))
    bridge.notes = {device.tuner._name: text}
    device = run(pa.request_device(bridge))
    call(device)
    assert tile_of_last(bridge, device) == 128


def test_a_choice_that_is_no_candidate_any_more_is_ignored():
    bridge = prefers(32)
    device = run(pa.request_device(bridge))
    key = "attention 64/64 float32/float32/float32 512x512x64/1 full"
    bridge.notes = {device.tuner._name: json.dumps({key: "subgroup 1x1 of old"})}
    device = run(pa.request_device(bridge))
    call(device)
    assert tile_of_last(bridge, device) == 128


def test_time_that_does_not_suffice_leaves_the_class_for_later():
    bridge = prefers(32)
    device = run(pa.request_device(bridge))
    call(device)
    assert run(device.tune(0.0)) == []
    with mock.patch.object(tuning.time, "monotonic", side_effect=itertools.count()):
        # Each look at the clock takes a second: one way is measured, and there is none to compare it with.
        assert run(device.tune(5.0)) == []
    assert len(run(device.tune())) == 1


def test_a_way_that_fails_is_left_out_and_nobody_else_hears_of_it():
    bridge = prefers(32)
    device = run(pa.request_device(bridge))
    call(device)
    synchronize = bridge.synchronize

    async def failing():
        errors = await synchronize()
        if bridge.timed and "const BQ: u32 = 32u" in bridge.timed[-1]:
            label = bridge.programs[-1][0].label
            errors.append(BridgeError("shader", label, "too much", 3))
        return errors

    bridge.synchronize = failing
    bridge.errors = [BridgeError("validation", "someone else", "that is theirs")]
    (measured,) = run(device.tune())
    assert measured.choice == "static"
    assert 100.0 not in measured.us.values()
    # What others did wrong is told to those who wait for it.
    bridge.timed.clear()
    with pytest.raises(pa.GPUValidationError, match="that is theirs"):
        run(device.synchronize())
    run(device.synchronize())


def test_nothing_is_held_on_to():
    bridge = prefers(32)
    device = run(pa.request_device(bridge))
    before = device.memory_allocated()
    call(device)
    device.flush()
    assert device.memory_allocated() == before
    run(device.tune())
    assert device.memory_allocated() == before


def measured_unasked(bridge, then=None, seconds=0.3):
    """A device that was called, and that nobody called for a while."""

    async def visit():
        device = await pa.request_device(bridge)
        call(device)
        if then:
            then(device)
        await asyncio.sleep(seconds)
        return device

    with mock.patch.object(tuning, "IDLE_S", 0.02):
        return run_stepped(visit())


def test_measured_while_nothing_else_happens():
    device = measured_unasked(prefers(32))
    assert len(device.tuner.choices) == 1
    assert device.calls == 1


def switch_off(device):
    device.autotune = False


@pytest.mark.parametrize(
    ("adapter", "then"),
    [(DESKTOP, switch_off), ({"software": True, "subgroup_size": 4}, None), (DESKTOP, pa.Device.destroy)],
)
def test_not_measured_unasked(adapter, then):
    bridge = ClockedBridge(lambda launch: 1.0, **adapter)
    device = measured_unasked(bridge, then, 0.1)
    assert dict(device.tuner.choices) == {}
    assert bridge.timed == []


def test_measuring_makes_way_for_calls():
    bridge = prefers(32)

    async def visit():
        device = await pa.request_device(bridge)
        call(device)
        for _ in range(20):
            await asyncio.sleep(0.01)
            call(device, causal=True)
        seen = len(bridge.timed)
        await asyncio.sleep(0.3)
        return seen, device

    with mock.patch.object(tuning, "IDLE_S", 0.05):
        during, device = run_stepped(visit())
    assert during == 0
    assert len(device.tuner.choices) == 2


def test_the_budget_is_for_all_classes_together():
    bridge = prefers(32)
    with mock.patch.object(tuning, "BUDGET_S", 0.0):
        device = measured_unasked(bridge, seconds=0.1)
    assert bridge.timed == []
    assert len(run(device.tune())) == 1


def test_seconds_are_checked():
    device = run(pa.request_device(prefers(32)))
    with pytest.raises(TypeError, match="seconds: expected a number"):
        run(device.tune("2"))


def test_candidates_differ_and_fit_somewhere():
    assert len(set(CANDIDATES.values())) == len(CANDIDATES)
    for tile in CANDIDATES.values():
        assert tile.keys % (4 * tile.tx) == 0
        assert tile.fits(
            32 if tile.depth4 < 8 and not tile.query_resident else 8,
            32,
            RecordingBridge(**DESKTOP).info.limits,
        )
