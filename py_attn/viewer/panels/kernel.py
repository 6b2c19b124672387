"""Kernel timings: the times of upload, compilation, dispatch and read-back of a call, and its error."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import py_attn as pa
from py_attn.gpu.tensor import Tensor
from py_attn.gpu.timing import DispatchTiming, Timer
from py_attn.kernels.attention.config import VARIANTS
from py_attn.viewer.methods import method
from py_attn.viewer.panels.accuracy import compare, errors, rows_of, sampled_rows
from py_attn.viewer.panels.operations import OPERATIONS, first_positions
from py_attn.viewer.sources.source import Array, Layer, Masking
from py_attn.viewer.viewer import Progress, Viewer

PARTS = ("upload", "compile", "dispatch", "readback")


@method(notebook=True)
async def measure(
    viewer: Viewer, layer: int, variant: str, repeats: int = 10, progress: Progress | None = None
) -> dict[str, Any]:
    """Time the layer's attention, or one of :data:`OPERATIONS` where ``variant`` names it.

    Every repetition uploads and compiles anew; ``progress(variant, done, repeats)``.

    Returns
    -------
    dict
        ``parts``: for each of upload, compile, dispatch and readback {"median", "low", "high"} in
        microseconds (low and high are the quartiles), without a device only for dispatch; ``clock``: "gpu"
        when the dispatches were timed by timestamp queries, else "wall"; ``variant``, ``kernel``,
        ``workgroups``, ``wgsl``, ``constants`` of the main shader; ``error``, ``plain``: largest absolute
        error of the kernel, and of numpy in float32, against float64; ``ok``: whether the error is at most
        twice plain; ``rows`` of ``allRows`` were compared.
    """
    source, chosen = viewer.base_layer(layer)
    if not 1 <= repeats <= 1000:
        raise ValueError(f"repeats: expected 1 to 1000, got {repeats}")
    if viewer.device is None:
        return measure_reference(await chosen.host(), source.masking, repeats)
    if variant in OPERATIONS:
        return await measure_operation(viewer.device, chosen, variant, repeats, progress)
    return await measure_attention(viewer.device, chosen, source.masking, variant, repeats, progress)


async def measure_attention(
    device: pa.Device,
    layer: Layer,
    masking: Masking,
    variant: Any,
    repeats: int,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time :func:`py_attn.attention`."""
    if variant not in VARIANTS:
        raise ValueError(f"variant: expected {', '.join(VARIANTS[:-1])} or {VARIANTS[-1]}, got {variant!r}")
    arrays = await layer.host()
    keywords = masking.keywords()
    masks = [keywords.pop("mask")] if "mask" in keywords else []

    def run(tensors: list[Tensor]) -> tuple[Tensor]:
        mask = tensors[3] if masks else None
        return (pa.attention(*tensors[:3], mask=mask, variant=variant, **keywords),)

    call = _Call(variant, "attention", (*arrays, *masks), lambda _, tensors: tensors, run)
    measured = await _repeat(device, call, repeats, progress)
    return measured.answer | compare(measured.results[0], arrays, masking)


async def measure_operation(
    device: pa.Device, layer: Layer, name: str, repeats: int, progress: Progress | None = None
) -> dict[str, Any]:
    """Time one of :data:`OPERATIONS` on the layer's first positions; ``variant`` is its name."""
    operation = OPERATIONS[name]
    everything = await layer.host()
    arrays = first_positions(everything)
    call = _Call(name, operation.kernel, arrays, operation.prepare, operation.run)
    measured = await _repeat(device, call, repeats, progress)
    return {
        **measured.answer,
        "variant": name,
        "rows": arrays[0].shape[2],
        "allRows": everything[0].shape[2],
        **errors(measured.results, await operation.exact(arrays, measured.prepared)),
    }


class _Call(NamedTuple):
    """What is timed: the upload of ``arrays`` and ``run``, not ``prepare``; ``kernel`` is the main kernel."""

    name: str
    kernel: str
    arrays: Sequence[Array]
    prepare: Callable[[pa.Device, list[Tensor]], Any]
    run: Callable[[Any], tuple[Tensor, ...]]


class _Measured(NamedTuple):
    """The result of the last repetition, and the part of the answer that depends on all repetitions."""

    answer: dict[str, Any]
    results: list[Array]
    prepared: Any


async def _repeat(device: pa.Device, call: _Call, repeats: int, progress: Progress | None) -> _Measured:
    samples: dict[str, list[float]] = defaultdict(list)
    for number in range(repeats):
        if progress:
            progress(call.name, number, repeats)
        await device.synchronize()
        begun = time.perf_counter()
        tensors = [device.tensor(array) for array in call.arrays]
        await device.synchronize()
        samples["upload"].append(1e6 * (time.perf_counter() - begun))
        prepared = call.prepare(device, tensors)
        await device.synchronize()
        device.clear_pipelines()
        with device.timer() as timer:
            outputs = call.run(prepared)
        timed = await read_timer(timer, call.kernel)
        samples["compile"].append(timed.compile_us)
        samples["dispatch"].append(timed.dispatch_us)
        begun = time.perf_counter()
        results = [await output.numpy() for output in outputs]
        samples["readback"].append(1e6 * (time.perf_counter() - begun))
    main = timed.main
    answer = {
        "variant": main.variant,
        "kernel": main.kernel
        if timed.dispatches == 1
        else f"{main.kernel}, one of {timed.dispatches} dispatches",
        "repeats": repeats,
        "clock": timed.clock,
        "parts": {part: spread(samples[part]) for part in PARTS},
        "workgroups": list(main.workgroups),
        "wgsl": main.shader.wgsl,
        "constants": {name: str(value) for name, value in main.shader.constants.items()},
    }
    return _Measured(answer, results, prepared)


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


def measure_reference(arrays: tuple[Array, Array, Array], masking: Masking, repeats: int) -> dict[str, Any]:
    """Time numpy in float32, where there is no device: all of the time counts as "dispatch"."""
    query, _, _ = arrays
    rows = sampled_rows(query)
    times = []
    result: Array = np.empty(0)
    for _ in range(repeats):
        begun = time.perf_counter()
        result = rows_of(arrays, masking, rows, np.float32)
        times.append(1e6 * (time.perf_counter() - begun))
    exact = rows_of(arrays, masking, rows, np.float64)
    error = float(np.abs(result - exact).max())
    return {
        "variant": "numpy",
        "kernel": "reference",
        "repeats": repeats,
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
