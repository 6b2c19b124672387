"""Kernel timings: the times of upload, compilation, dispatch and read-back of a call, and its error."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import py_attn as pa
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.config import VARIANTS
from py_attn.viewer.methods import method
from py_attn.viewer.panels.accuracy import compare, errors, rows_of, sampled_rows
from py_attn.viewer.panels.operations import OPERATIONS, first_positions
from py_attn.viewer.sources.source import Array, Layer, Masking
from py_attn.viewer.viewer import Progress, Viewer

if TYPE_CHECKING:
    from py_attn.gpu.replacing import Rewrite
    from py_attn.gpu.timing import DispatchTiming, Timer

PARTS = ("upload", "compile", "dispatch", "readback")


@method(notebook=True)
async def measure(
    viewer: Viewer, layer: int, variant: str, repeats: int = 10, progress: Progress | None = None
) -> dict[str, Any] | None:
    """Time the layer's attention, or one of :data:`OPERATIONS` where ``variant`` names it.

    Every repetition uploads and compiles anew; ``progress(variant, done, repeats)``. In the last one, from
    which the error is taken, outputs are filled with NaN before the kernel runs.

    Returns
    -------
    dict or None
        ``parts``: for each of upload, compile, dispatch and readback {"median", "low", "high"} in
        microseconds (low and high are the quartiles), without a device only for dispatch; ``clock``: "gpu"
        when the dispatches were timed by timestamp queries, else "wall"; ``variant``, ``kernel``,
        ``workgroups``, ``wgsl``, ``constants`` of the main shader; ``error``, ``plain``: largest absolute
        error of the kernel, and of numpy in float32, against float64; ``ok``: whether the error is at most
        twice plain; ``rows`` of ``allRows`` were compared. None after :func:`cancel_measure`.
    """
    source, chosen = viewer.base_layer(layer)
    runs = Runs(viewer, repeats, progress)
    if viewer.device is None:
        return await measure_reference(await chosen.host(), source.masking, runs)
    return await measure_call(viewer.device, await subject(chosen, source.masking, variant), runs)


@method(notebook=True)
async def cancel_measure(viewer: Viewer) -> None:
    """End the measurement that is in progress, once its current run is over."""
    viewer.measuring += 1


class Runs:
    """How often a call is timed, whom that is told, and whether it was cancelled meanwhile."""

    def __init__(self, viewer: Viewer, repeats: int, progress: Progress | None) -> None:
        if not 1 <= repeats <= 1000:
            raise ValueError(f"repeats: expected 1 to 1000, got {repeats}")
        self.repeats = repeats
        self._viewer, self._progress, self._begun = viewer, progress, viewer.measuring

    async def numbers(self, name: str) -> AsyncIterator[int]:
        """The numbers of the runs, up to the one at which they were cancelled."""
        for number in range(self.repeats):
            await asyncio.sleep(0)  # so that a call to cancel is heard
            if self.cancelled:
                return
            if self._progress:
                self._progress(name, number, self.repeats)
            yield number

    @property
    def cancelled(self) -> bool:
        """Whether :func:`cancel_measure` was called since."""
        return self._viewer.measuring != self._begun


class Call(NamedTuple):
    """What is timed: the upload of ``arrays`` and ``run``, not ``prepare``; ``kernel`` is the main kernel.

    ``errors`` takes the results and what was prepared, and returns the error against float64.
    """

    name: str
    kernel: str
    arrays: Sequence[Array]
    prepare: Callable[[pa.Device, list[Tensor]], Any]
    run: Callable[[Any], tuple[Tensor, ...]]
    errors: Callable[[list[Array], Any], Any]


async def subject(layer: Layer, masking: Masking, variant: Any) -> Call:
    """The call that a row of the panel stands for: a variant of attention, or one of :data:`OPERATIONS`.

    Raises
    ------
    ValueError
        When there is no such row.
    """
    arrays = await layer.host()
    if variant in OPERATIONS:
        return _operation(arrays, variant)
    if variant not in VARIANTS:
        raise ValueError(f"variant: expected {', '.join(VARIANTS[:-1])} or {VARIANTS[-1]}, got {variant!r}")
    keywords = masking.keywords()
    masks = [keywords.pop("mask")] if "mask" in keywords else []

    def run(tensors: list[Tensor]) -> tuple[Tensor]:
        mask = tensors[3] if masks else None
        return (pa.attention(*tensors[:3], mask=mask, variant=variant, **keywords),)

    async def check(results: list[Array], _: Any) -> dict[str, Any]:
        return compare(results[0], arrays, masking)

    return Call(variant, "attention", (*arrays, *masks), lambda _, tensors: tensors, run, check)


def _operation(everything: tuple[Array, Array, Array], name: str) -> Call:
    """One of :data:`OPERATIONS` on the layer's first positions."""
    operation = OPERATIONS[name]
    arrays = first_positions(everything)
    counts = {"variant": name, "rows": arrays[0].shape[2], "allRows": everything[0].shape[2]}

    async def check(results: list[Array], prepared: Any) -> dict[str, Any]:
        return counts | errors(results, await operation.exact(arrays, prepared))

    return Call(name, operation.kernel, arrays, operation.prepare, operation.run, check)


async def measure_call(
    device: pa.Device, call: Call, runs: Runs, rewrite: Rewrite | None = None
) -> dict[str, Any] | None:
    """Time a call as :func:`measure` does; with ``rewrite``, on the plans that it gives."""
    samples: dict[str, list[float]] = defaultdict(list)
    async for number in runs.numbers(call.name):
        await device.synchronize()
        begun = time.perf_counter()
        tensors = [device.tensor(array) for array in call.arrays]
        await device.synchronize()
        samples["upload"].append(1e6 * (time.perf_counter() - begun))
        prepared = call.prepare(device, tensors)
        await device.synchronize()
        device.clear_pipelines()
        with (
            device.timer() as timer,
            _poisoned(device, number == runs.repeats - 1),
            device.rewriting(rewrite) if rewrite else nullcontext(),
        ):
            outputs = call.run(prepared)
        timed = await read_timer(timer, call.kernel)
        samples["compile"].append(timed.compile_us)
        samples["dispatch"].append(timed.dispatch_us)
        begun = time.perf_counter()
        results = [await output.numpy() for output in outputs]
        samples["readback"].append(1e6 * (time.perf_counter() - begun))
    if runs.cancelled:
        return None
    main = timed.main
    answer = {
        "variant": main.variant,
        "kernel": main.kernel
        if timed.dispatches == 1
        else f"{main.kernel}, one of {timed.dispatches} dispatches",
        "repeats": runs.repeats,
        "clock": timed.clock,
        "parts": {part: spread(samples[part]) for part in PARTS},
        "workgroups": list(main.workgroups),
        "wgsl": main.shader.wgsl,
        "constants": {name: str(value) for name, value in main.shader.constants.items()},
    }
    found: dict[str, Any] = await call.errors(results, prepared)
    return answer | found


@contextmanager
def _poisoned(device: pa.Device, poisoned: bool) -> Iterator[None]:
    """Outputs that are made inside hold NaN until their kernel writes them."""
    before, device.poison_outputs = device.poison_outputs, poisoned or device.poison_outputs
    try:
        yield
    finally:
        device.poison_outputs = before


class TimedCall(NamedTuple):
    """All dispatches of an operation together, and the main one, by which the operation is named."""

    main: DispatchTiming
    dispatches: int
    compile_us: float
    dispatch_us: float
    clock: str


async def read_timer(timer: Timer, kernel: str) -> TimedCall:
    """A timer's measurements of an operation; its main plan is the one of ``kernel``."""
    plans = await timer.plans()
    return TimedCall(
        main=next(plan.main for plan in plans if plan.kernel == kernel),
        dispatches=sum(len(plan.dispatches) for plan in plans),
        compile_us=sum(plan.compile_us or 0.0 for plan in plans),
        dispatch_us=sum(plan.wall_us if plan.gpu_us is None else plan.gpu_us for plan in plans),
        clock="wall" if any(plan.gpu_us is None for plan in plans) else "gpu",
    )


async def measure_reference(
    arrays: tuple[Array, Array, Array], masking: Masking, runs: Runs
) -> dict[str, Any] | None:
    """Time numpy in float32, where there is no device: all of the time counts as "dispatch"."""
    query, _, _ = arrays
    rows = sampled_rows(query)
    times = []
    result: Array = np.empty(0)
    async for _ in runs.numbers("numpy"):
        begun = time.perf_counter()
        result = rows_of(arrays, masking, rows, np.float32)
        times.append(1e6 * (time.perf_counter() - begun))
    if runs.cancelled:
        return None
    exact = rows_of(arrays, masking, rows, np.float64)
    error = float(np.abs(result - exact).max())
    return {
        "variant": "numpy",
        "kernel": "reference",
        "repeats": runs.repeats,
        "clock": "wall",
        "parts": {"dispatch": spread(times)},
        "workgroups": [],
        "wgsl": "",
        "constants": {},
        "error": error,
        "plain": error,
        "ok": True,
        "rows": len(rows),
        "allRows": query.shape[2],
    }


def spread(samples: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, median, high = (float(x) for x in np.percentile(samples, (25, 50, 75)))
    return {"median": median, "low": low, "high": high}
