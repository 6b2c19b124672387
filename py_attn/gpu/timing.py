"""Times of dispatches, and of all dispatches of a plan's run together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from py_attn.gpu.queue import Queue, Timed
from py_attn.gpu.shader import Shader


@dataclass(frozen=True, slots=True)
class DispatchTiming:
    """One dispatch.

    Attributes
    ----------
    kernel, variant : str
    gpu_us : float or None
        Microseconds between two timestamp queries around the dispatch; None where there are none.
    wall_us : float
        Microseconds from its submission, or from the end of the one before, until it was done as
        JavaScript saw it: it includes the browser's own messaging.
    compile_us : float or None
        Microseconds of wall time to make the pipeline; None when it was made before.
    workgroups : tuple of int
    shader : Shader
    run : int
        Which of the runs that are timed it belongs to, from 1 on.
    is_main : bool
        Whether this dispatch names the run.
    """

    kernel: str
    variant: str
    gpu_us: float | None
    wall_us: float
    compile_us: float | None
    workgroups: tuple[int, int, int]
    shader: Shader
    run: int
    is_main: bool


@dataclass(frozen=True, slots=True)
class PlanTiming:
    """All dispatches of one run of a plan: what one call of a public function cost.

    Attributes
    ----------
    dispatches : tuple of DispatchTiming
        In order.
    """

    dispatches: tuple[DispatchTiming, ...]

    @property
    def main(self) -> DispatchTiming:
        """The dispatch that names the run."""
        return next((row for row in self.dispatches if row.is_main), self.dispatches[0])

    @property
    def kernel(self) -> str:
        """The main shader's kernel."""
        return self.main.kernel

    @property
    def variant(self) -> str:
        """The main shader's variant."""
        return self.main.variant

    @property
    def shader(self) -> Shader:
        """The main shader."""
        return self.main.shader

    @property
    def gpu_us(self) -> float | None:
        """Microseconds of all dispatches by timestamp queries; None where there are none."""
        times = [row.gpu_us for row in self.dispatches]
        known = [time for time in times if time is not None]
        return sum(known) if len(known) == len(times) else None

    @property
    def wall_us(self) -> float:
        """Microseconds of all dispatches as JavaScript saw them."""
        return sum(row.wall_us for row in self.dispatches)

    @property
    def compile_us(self) -> float | None:
        """Microseconds of wall time to make the pipelines; None when all were made before."""
        times = [row.compile_us for row in self.dispatches if row.compile_us is not None]
        return sum(times) if times else None


class Timer:
    """Collects the dispatches made inside ``with device.timer() as timer``."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._submitted: Timed = []

    @contextmanager
    def running(self) -> Iterator[Timer]:
        """Time what is called inside."""
        with self._queue.time(self._submitted):
            yield self

    async def results(self) -> list[DispatchTiming]:
        """Wait for the timed dispatches and return their times in the order of the calls.

        Raises
        ------
        PyAttnError
            When one of them failed.
        """
        self._queue.flush()
        submitted = self._submitted.copy()
        self._submitted.clear()
        rows: list[DispatchTiming] = []
        run = 0
        for ticket, dispatches in submitted:
            raw = await self._queue.bridge.timings(ticket)
            for dispatch, clock in zip(dispatches, raw, strict=True):
                run += dispatch.begins_run
                compile_us = await self._queue.pipelines.take_compile_us(dispatch)
                rows.append(
                    DispatchTiming(
                        dispatch.shader.name,
                        dispatch.shader.variant,
                        clock.gpu_us,
                        clock.wall_us,
                        compile_us,
                        dispatch.workgroups,
                        dispatch.shader,
                        run,
                        dispatch.is_main,
                    )
                )
        await self._queue.raise_errors()
        return rows

    async def plans(self) -> list[PlanTiming]:
        """As :meth:`results`, with the dispatches of each call together.

        Raises
        ------
        PyAttnError
            When one of them failed.
        """
        by_run = itertools.groupby(await self.results(), key=lambda row: row.run)
        return [PlanTiming(tuple(rows)) for _, rows in by_run]
