"""Clocks: warm-up, medians of GPU time in one pass, wall time per call.

GPU time is the difference of two timestamps around one compute pass with many calls, divided by their number.
It includes the time between calls. Passes are so long that their beginning and end (some 20 µs on a GPU) and
rounding of timestamps to 100 µs by the browser hardly matter. Where there are no timestamps, wall time is
used in their place, and passes are long enough for the browser's messages to hardly matter either.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median

from py_attn.gpu.device import Device
from py_attn.gpu.program import Program


@dataclass(frozen=True)
class Budget:
    """How long to measure.

    Microseconds of one pass and of the warm-up runs right before it, seconds of warm-up and of all passes,
    and the largest number of passes.
    """

    pass_us: float
    lead_us: float
    warm_s: float
    total_s: float
    passes: int


#: The most calls of a program, each with results of its own; a pass runs the program several times over.
_MOST_CALLS = 64
#: A GPU's clock falls within milliseconds of idleness. So each measurement and each pass begin with warm-up
#: runs of the same work: between passes the browser's processes exchange messages for longer than a pass.
HARDWARE = Budget(pass_us=30_000, lead_us=60_000, warm_s=0.35, total_s=1.2, passes=25)
SOFTWARE = Budget(pass_us=40_000, lead_us=0, warm_s=0.05, total_s=0.9, passes=7)


def budget(device: Device) -> Budget:
    """The budget for hardware or software adapters."""
    return SOFTWARE if device.info.software else HARDWARE


@dataclass(frozen=True)
class Sample:
    """Medians over passes, in microseconds per call; ``calls`` are those of a pass."""

    gpu_us: float
    low_us: float
    high_us: float
    calls: int
    passes: int
    timestamps: bool


async def pass_us(program: Program, lead: int = 0, times: int = 1) -> tuple[float, bool]:
    """A pass of ``times`` runs of the program: microseconds, and whether they are from the GPU's clock.

    ``lead`` passes precede it without a pause, to warm up.
    """
    for _ in range(lead):
        program.submit(times)
    clock = await program.time(times)
    return (clock.wall_us, False) if clock.gpu_us is None else (clock.gpu_us, True)


async def gpu_time(
    device: Device,
    call: Callable[[int], object],
    *,
    calls: int | None = None,
    limits: Budget | None = None,
) -> Sample:
    """Time ``call(n)`` on the GPU, n counting up so that inputs can rotate.

    Parameters
    ----------
    call : callable
        Records one call; what it returns is kept until the program is.
    calls : int, optional
        Calls of a pass; as many as fill the budget's pass unless given.
    limits : Budget, optional
        How long to measure; :func:`budget` of the device unless given.
    """
    limits = limits or budget(device)
    times = 1
    if calls is None:
        wanted = max(1, round(limits.pass_us / max(await _probe(device, call), 1.0)))
        calls = min(_MOST_CALLS, wanted)
        times = round(wanted / calls)
    program = recorded(device, call, calls)
    try:
        samples, timestamps = [], True
        begun = time.perf_counter()
        while time.perf_counter() - begun < limits.warm_s or not samples:
            samples.append((await pass_us(program, times=times))[0])
        # Alone a pass may have been slow. After others its real time shows how many fill lead_us.
        lead = 0
        for _ in range(3 if limits.lead_us else 0):
            lead = min(200, round(limits.lead_us / max(min(samples), 1.0)))
            samples.append((await pass_us(program, lead, times))[0])
        samples.clear()
        begun = time.perf_counter()
        while len(samples) < limits.passes:
            us, timestamps = await pass_us(program, lead, times)
            samples.append(us / (calls * times))
            if time.perf_counter() - begun > limits.total_s and len(samples) >= 3:
                break
    finally:
        program.destroy()
    ordered = sorted(samples)
    low, high = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
    return Sample(median(samples), low, high, calls * times, len(samples), timestamps)


def recorded(device: Device, call: Callable[[int], object], calls: int) -> Program:
    """A program of ``calls`` calls."""
    with device.record() as program:
        for n in range(calls):
            call(n)
    return program


async def _probe(device: Device, call: Callable[[int], object]) -> float:
    """Roughly how long one call takes; it also compiles and touches all memory."""
    program = recorded(device, call, 1)
    try:
        await pass_us(program)
        lead = 0 if device.info.software else 20
        return min([(await pass_us(program, lead))[0] for _ in range(2)])
    finally:
        program.destroy()


@dataclass(frozen=True)
class Wall:
    """Wall time of one call, in microseconds: alone, and each of many in a row."""

    alone_us: float
    row_us: float
    calls: int


async def wall_time(
    call: Callable[[int], object], finish: Callable[[], Awaitable[object]], *, seconds: float, most: int = 200
) -> Wall:
    """The time that a user waits: from the call until the GPU is done with it.

    The peers are measured by the same steps (``wallTime`` in ``web/src/bench/clocks.js``): warm-up calls,
    then calls that are waited for one by one, then calls in a row with one wait at the end.
    """
    for n in range(3):
        call(n)
    await finish()
    alone, begun = [], time.perf_counter()
    while len(alone) < 3 or (time.perf_counter() - begun < seconds and len(alone) < 30):
        start = time.perf_counter()
        call(len(alone))
        await finish()
        alone.append(time.perf_counter() - start)
    calls = max(2, min(most, round(seconds / 3 / median(alone))))
    rows = []
    for _ in range(3):
        start = time.perf_counter()
        for n in range(calls):
            call(n)
        await finish()
        rows.append((time.perf_counter() - start) / calls)
    return Wall(1e6 * median(alone), 1e6 * median(rows), calls)
