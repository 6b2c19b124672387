"""Which of several ways to compute the same is the fastest here: measured once for a class of shapes.

A kernel that has a choice asks :meth:`Tuner.pick` with the class of the call and how each way would be
recorded. Until the class was measured the answer is None and the kernel goes by its static table. What was
measured is kept by the bridge, under the adapter's name, for later visits.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py_attn.gpu.bridge import Bridge, BridgeError

if TYPE_CHECKING:
    from py_attn.gpu.device import Device
    from py_attn.gpu.program import Program

#: The ways of a class: what each is called, and what records it once.
Ways = Mapping[str, Callable[[], object]]

#: Whether there is time for so many seconds more.
GoesOn = Callable[[float], bool]

#: Seconds that measuring unasked may take, all classes of a device's life together.
BUDGET_S = 2.0
#: Nobody may have called anything for so long before measuring begins unasked.
IDLE_S = 0.3
# A program is long enough for clocks that tick every 100 µs.
_PROGRAM_US = 2000.0
_MOST_RUNS = 64
# A GPU's clock falls to a fraction within milliseconds of idleness; behind so much work it has risen again.
_LEAD_US = 40_000.0
_MOST_LEADS = 32
# Another way than the static one must be faster by more than measurements differ.
_GAIN = 0.95
_MOST_CLASSES = 64


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured for a class of shapes.

    Attributes
    ----------
    key : str
        The class.
    choice : str
        The way that calls of this class take from now on.
    us : dict
        Microseconds by way, on the GPU's clock where there is one; without those that failed or that the
        time did not suffice for.
    """

    key: str
    choice: str
    us: dict[str, float]


class Tuner:
    """A device's choices."""

    def __init__(self, device: Device, bridge: Bridge) -> None:
        self._device = device
        self._bridge = bridge
        self._choices: dict[str, str] = {}
        self._wanted: dict[str, Callable[[], Ways]] = {}
        self._spent = 0.0
        # The event loop in which measuring unasked waits for its moment.
        self._waiting: asyncio.AbstractEventLoop | None = None
        self._busy = False
        # Kept so that the loop does not drop it.
        self._task: asyncio.Task[None] | None = None

    @property
    def choices(self) -> Mapping[str, str]:
        """What was chosen so far, by class."""
        return dict(self._choices)

    async def load(self) -> None:
        """Fetch what earlier visits measured."""
        text = await self._bridge.load_note(self._name)
        try:
            found = json.loads(text) if text else {}
        except ValueError:
            found = {}
        if isinstance(found, dict):
            self._choices |= {str(key): str(choice) for key, choice in found.items()}

    async def forget(self) -> None:
        """Forget all choices, also those kept for later visits, and what was yet to be measured."""
        self._choices.clear()
        self._wanted.clear()
        await self._bridge.save_note(self._name, "{}")

    @property
    def _name(self) -> str:
        info = self._device.info
        return f"choices of {info}, subgroups of {info.subgroup_min_size} to {info.subgroup_max_size}"

    def pick(self, key: str, ways: Callable[[], Ways]) -> str | None:
        """The way for class ``key``, or None; an unknown class is measured later.

        ``ways`` makes everything that the measurement needs, the static choice first.
        """
        choice = self._choices.get(key)
        if choice is None and not self._busy and len(self._wanted) < _MOST_CLASSES:
            self._wanted.setdefault(key, ways)
            self._plan()
        return choice

    async def tune(self, seconds: float) -> list[Measured]:
        """Measure the classes that were asked for, as far as the time goes."""
        deadline = time.monotonic() + seconds
        return await self._measure(lambda more: time.monotonic() + more < deadline)

    # Unasked, while nothing else happens

    def _plan(self) -> None:
        device = self._device
        # A CPU's compiler alone takes longer than the budget.
        if device.info.software or self._spent >= BUDGET_S:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._waiting is loop:
            return
        self._waiting = loop
        loop.call_later(IDLE_S, self._when_idle, loop, device.calls)

    def _when_idle(self, loop: asyncio.AbstractEventLoop, calls: int) -> None:
        device = self._device
        if device.lost or not device.autotune or not self._wanted:
            self._waiting = None
        elif device.calls != calls or device.is_recording or self._busy:
            loop.call_later(IDLE_S, self._when_idle, loop, device.calls)
        else:
            self._waiting = None
            self._task = loop.create_task(self._spend())

    async def _spend(self) -> None:
        begun, calls = time.monotonic(), self._device.calls
        deadline = begun + BUDGET_S - self._spent
        try:
            await self._measure(
                lambda more: self._device.calls == calls and time.monotonic() + more < deadline
            )
        finally:
            self._spent += time.monotonic() - begun
        if self._wanted:
            self._plan()

    # Measuring

    async def _measure(self, goes_on: GoesOn) -> list[Measured]:
        if self._busy:
            return []
        self._busy = True
        found = []
        try:
            while self._wanted and goes_on(0.0):
                key = next(iter(self._wanted))
                measured = await self._measure_class(key, self._wanted[key](), goes_on)
                if measured is None:
                    break
                del self._wanted[key]
                self._choices[key] = measured.choice
                found.append(measured)
        finally:
            self._busy = False
        if found:
            await self._bridge.save_note(self._name, json.dumps(self._choices))
        return found

    async def _measure_class(self, key: str, ways: Ways, goes_on: GoesOn) -> Measured | None:
        """The fastest way; None when the time did not suffice to compare any."""
        us: dict[str, float] = {}
        static = next(iter(ways))
        longest = again_s = 0.0
        for name, record in ways.items():
            # Another one, whose pipeline is yet to be made, takes about as long as the longest so far, and
            # the static one may come once more.
            if not goes_on(longest + again_s):
                break
            begun = time.monotonic()
            taken = await self._time(record, us.get(static))
            longest = max(longest, time.monotonic() - begun)
            if name == static:
                again_s = longest
            if taken is not None:
                us[name] = taken
            elif name == static:
                return None
        if len(us) < min(2, len(ways)):
            return None
        best = min(us, key=us.__getitem__)
        if best != static:
            # Once more, in case that everything ran slower at first.
            again = await self._time(ways[static], None)
            if again is not None:
                us[static] = min(us[static], again)
        return Measured(key, best if us[best] < _GAIN * us[static] else static, us)

    async def _time(self, record: Callable[[], object], to_beat: float | None) -> float | None:
        """Microseconds of one run, the best of three times several; None where it fails."""
        first = await self._run(record, 1)
        if first is None:
            return None
        # The first run warms up; it may count the making of the pipeline.
        once = await self._run(record, 1)
        if once is None or (to_beat is not None and once > 3 * to_beat):
            return once
        runs = max(1, min(_MOST_RUNS, int(_PROGRAM_US / max(once, 1.0))))
        leads = min(_MOST_LEADS, int(_LEAD_US / max(once * runs, 1.0)))
        times = [await self._run(record, runs, leads) for _ in range(3)]
        return min((t for t in times if t is not None), default=None)

    async def _run(self, record: Callable[[], object], runs: int, leads: int = 0) -> float | None:
        """Microseconds of one of ``runs`` in a row, behind ``leads`` times as many; None where it fails."""
        device = self._device
        if device.lost or device.is_recording:
            return None
        calls = device.calls
        with device.record() as program:
            for _ in range(runs):
                record()
        device.calls = calls
        try:
            clock, errors = await device.time_apart(program, leads)
        finally:
            program.destroy()
        return None if errors else (clock.wall_us if clock.gpu_us is None else clock.gpu_us) / runs


def split_errors(
    program: Program, errors: Sequence[BridgeError]
) -> tuple[list[BridgeError], list[BridgeError]]:
    """Those of ``errors`` that ``program`` made, and the others."""
    labels = {dispatch.shader.label for dispatch in program.dispatches}
    mine = [error for error in errors if error.label.split(" #")[0] in labels]
    return mine, [error for error in errors if error not in mine]
