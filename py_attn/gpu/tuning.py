"""Autotuning: which of several candidates is the fastest on this adapter.

A kernel that has a choice asks :meth:`Tuner.pick` with the shape bucket of the call (shapes that the tuner
treats alike) and functions that record each candidate. Until a bucket has been measured the answer is None,
and the kernel follows its static table. The bridge keeps the choices, under the adapter's name, for later
visits.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from py_attn.gpu.bridge import Bridge
from py_attn.gpu.program import record as record_program
from py_attn.gpu.queue import Queue

#: The candidates of a shape bucket: the name of each, and what records it once.
Candidates = Mapping[str, Callable[[], object]]

#: Whether there is time for so many seconds more.
HasTime = Callable[[float], bool]

#: Seconds that autotuning in idle time may take, all buckets of a device's life together.
BUDGET_S = 2.0
#: Idle time begins after so many seconds without a call.
IDLE_S = 0.3
# A program is long enough for clocks that tick every 100 µs.
_PROGRAM_US = 2000.0
_MAX_RUNS = 64
# A GPU's clock falls to a fraction within milliseconds of idleness; after so much work it has risen again.
_WARMUP_US = 40_000.0
_MAX_WARMUP_RUNS = 32
# A candidate must beat the static choice by more than measurements differ.
_GAIN = 0.97
# The fastest so many are measured once more at the end, one right after the other, and the static choice
# before and after them.
_FINALISTS = 3
# Seconds that a measurement takes once the pipeline is there: three times warming and measuring, and waiting.
_FINAL_S = 0.15
_FINALS_S = (_FINALISTS + 2) * _FINAL_S
_MAX_BUCKETS = 64
# Rises when the candidates of kernels change, or how they are measured: choices of before are forgotten.
_EDITION = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurement of a shape bucket.

    Attributes
    ----------
    key : str
        The bucket.
    choice : str
        The candidate that calls of this bucket take from now on.
    us : dict
        Microseconds by candidate, on the GPU's clock where there is one, without candidates that failed or
        for which there was no time.
    """

    key: str
    choice: str
    us: dict[str, float]


class Tuner:
    """The measured choices of a device.

    Attributes
    ----------
    enabled : bool
        Whether kernels follow measured choices, and new buckets are measured in idle time.
    version : int
        Rises whenever choices change; plans depend on it.
    """

    def __init__(self, queue: Queue, bridge: Bridge) -> None:
        self.enabled = True
        self.version = 0
        self._queue = queue
        self._info = queue.bridge.info
        self._bridge = bridge
        self._choices: dict[str, str] = {}
        self._wanted: dict[str, Callable[[], Candidates]] = {}
        self._spent = 0.0
        # The event loop in which autotuning waits for idle time.
        self._waiting: asyncio.AbstractEventLoop | None = None
        self._busy = False
        # Kept so that the loop does not drop it.
        self._task: asyncio.Task[None] | None = None

    @property
    def choices(self) -> Mapping[str, str]:
        """The choices so far, by bucket."""
        return dict(self._choices)

    async def load(self) -> None:
        """Load the choices of earlier visits."""
        text = await self._bridge.load_note(self._name)
        try:
            found = json.loads(text) if text else {}
        except (ValueError, RecursionError):
            found = {}
        if isinstance(found, dict):
            self._choices |= {str(key): str(choice) for key, choice in found.items()}
            self.version += 1

    async def forget(self) -> None:
        """Forget all choices, also those kept for later visits, and the buckets that wait to be measured."""
        self._choices.clear()
        self._wanted.clear()
        self.version += 1
        await self._bridge.save_note(self._name, "{}")

    @property
    def _name(self) -> str:
        info = self._info
        subgroups = f"subgroups of {info.subgroup_min_size} to {info.subgroup_max_size}"
        return f"choices ({_EDITION}) of {info}, {subgroups}"

    def pick(self, key: str, candidates: Callable[[], Candidates]) -> str | None:
        """The candidate for bucket ``key``, or None; an unknown bucket is measured later.

        ``candidates`` makes everything that the measurement needs, the static choice first.
        """
        choice = self._choices.get(key)
        if choice is None and not self._busy and len(self._wanted) < _MAX_BUCKETS:
            self._wanted.setdefault(key, candidates)
            self._wait_for_idle_time()
        return choice

    async def tune(self, seconds: float) -> list[Measured]:
        """Measure the buckets that wait for it, as far as the time allows."""
        deadline = time.monotonic() + seconds
        return await self._measure(lambda more: time.monotonic() + more < deadline)

    # In idle time

    def _wait_for_idle_time(self) -> None:
        # A software adapter's compiler alone takes longer than the budget.
        if self._info.software or self._spent >= BUDGET_S:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._waiting is loop:
            return
        self._waiting = loop
        loop.call_later(IDLE_S, self._when_idle, loop, self._queue.recorded)

    def _when_idle(self, loop: asyncio.AbstractEventLoop, recorded: int) -> None:
        queue = self._queue
        if queue.lost or not self.enabled or not self._wanted:
            self._waiting = None
        elif queue.recorded != recorded or queue.is_recording or self._busy:
            loop.call_later(IDLE_S, self._when_idle, loop, queue.recorded)
        else:
            self._waiting = None
            self._task = loop.create_task(self._spend())

    async def _spend(self) -> None:
        begun, recorded = time.monotonic(), self._queue.recorded
        deadline = begun + BUDGET_S - self._spent
        try:
            await self._measure(
                lambda more: self._queue.recorded == recorded and time.monotonic() + more < deadline
            )
        finally:
            self._spent += time.monotonic() - begun
        if self._wanted:
            self._wait_for_idle_time()

    # Measuring

    async def _measure(self, has_time: HasTime) -> list[Measured]:
        if self._busy:
            return []
        self._busy = True
        found = []
        try:
            while self._wanted and has_time(0.0):
                key = next(iter(self._wanted))
                measured = await self._measure_bucket(key, self._wanted[key](), has_time)
                if measured is None:
                    break
                # The bucket may be gone when choices were forgotten meanwhile.
                self._wanted.pop(key, None)
                self._choices[key] = measured.choice
                self.version += 1
                found.append(measured)
        finally:
            self._busy = False
        if found:
            await self._bridge.save_note(self._name, json.dumps(self._choices))
        return found

    async def _measure_bucket(self, key: str, candidates: Candidates, has_time: HasTime) -> Measured | None:
        """Find the fastest candidate; None when there was not enough time to compare, so that it waits on."""
        us: dict[str, float] = {}
        static = next(iter(candidates))
        longest = 0.0
        for name, record in candidates.items():
            # Another candidate, whose pipeline is yet to be compiled, takes about as long as the longest so
            # far, and the finalists are measured again.
            if not has_time(longest + _FINALS_S if us else 0.0):
                break
            begun = time.monotonic()
            taken = await self._time(record, us.get(static))
            longest = max(longest, time.monotonic() - begun)
            if taken is not None:
                us[name] = taken
            elif name == static:
                return None
        if len(us) < min(2, len(candidates)):
            return None
        # While a pipeline is compiled the GPU's clock may fall, and take 0.3 s to rise again, so that what
        # was measured next ran slower. Now all pipelines are there.
        fastest = sorted(us, key=us.__getitem__)[:_FINALISTS]
        for name in [*dict.fromkeys([static, *fastest]), static] if len(us) > 1 else ():
            if not has_time(_FINAL_S):
                return None
            again = await self._time(candidates[name], None)
            if again is not None:
                us[name] = min(us[name], again)
        best = min(us, key=us.__getitem__)
        return Measured(key, best if us[best] < _GAIN * us[static] else static, us)

    async def _time(self, record: Callable[[], object], to_beat: float | None) -> float | None:
        """Microseconds of one run, the best of three times several; None where it fails."""
        first = await self._run(record, 1)
        if first is None:
            return None
        # The first run is a warm-up: its time may include compiling the pipeline.
        once = await self._run(record, 1)
        if once is None or (to_beat is not None and once > 3 * to_beat):
            return once
        runs = max(1, min(_MAX_RUNS, int(_PROGRAM_US / max(once, 1.0))))
        warmup_runs = min(_MAX_WARMUP_RUNS, int(_WARMUP_US / max(once * runs, 1.0)))
        times = [await self._run(record, runs, warmup_runs) for _ in range(3)]
        return min((t for t in times if t is not None), default=None)

    async def _run(self, record: Callable[[], object], runs: int, warmup_runs: int = 0) -> float | None:
        """Microseconds of one of ``runs`` in a row, after ``warmup_runs`` such rows; None where it fails."""
        queue = self._queue
        if queue.lost or queue.is_recording:
            return None
        recorded = queue.recorded
        with record_program(queue) as program:
            for _ in range(runs):
                record()
        queue.recorded = recorded
        try:
            timing = await program.time_after(warmup_runs)
            errors = await queue.take_errors(program.dispatches)
        finally:
            program.destroy()
        return None if errors else (timing.wall_us if timing.gpu_us is None else timing.gpu_us) / runs
