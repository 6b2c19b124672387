"""One attention call, taken apart: upload, compile, dispatch, read-back, and its error against float64."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import py_attn as pa
from py_attn import reference
from py_attn.viewer.operations import OPERATIONS, Exact, first_positions
from py_attn.viewer.source import Array, Layer, Masking

PARTS = ("upload", "compile", "dispatch", "readback")
#: The float64 reference keeps [rows, keys] scores per head; more than this many are sampled instead.
MAX_SCORES = 4_000_000
#: What two float32 computations may differ by where both are exact to the last digit.
ABSOLUTE = 1e-6


async def measure(
    device: pa.Device,
    layer: Layer,
    masking: Masking,
    variant: str,
    repeats: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Run :func:`py_attn.attention` ``repeats`` times from nothing: no upload and no pipeline is kept.

    Returns
    -------
    dict
        ``parts``: for each of upload, compile, dispatch and readback {"median", "low", "high"} in
        microseconds (low and high are the quartiles); ``clock``: "gpu" when the dispatch was timed by
        timestamp queries, else "wall"; ``error``, ``plain``: largest absolute error of the kernel, and
        of numpy in float32, against float64; ``ok``: error at most twice plain;
        ``rows`` of ``allRows`` compared; ``variant``, ``kernel``,
        ``workgroups``, ``wgsl``, ``constants``.
    """
    arrays = await layer.host()
    samples: dict[str, list[float]] = defaultdict(list)
    result: Array = np.empty(0)
    row = None
    for number in range(repeats):
        if progress:
            progress(variant, number, repeats)
        device.clear_pipelines()
        await device.synchronize()
        begun = time.perf_counter()
        tensors = [device.tensor(array) for array in arrays]
        keywords = masking.keywords()
        if "mask" in keywords:
            keywords["mask"] = device.tensor(keywords["mask"])
        await device.synchronize()
        samples["upload"].append(1e6 * (time.perf_counter() - begun))
        with device.timer() as timer:
            out = pa.attention(*tensors, variant=_variant(variant), **keywords)
        row = (await timer.results())[-1]
        samples["compile"].append(row.compile_us or 0.0)
        samples["dispatch"].append(row.wall_us if row.gpu_us is None else row.gpu_us)
        begun = time.perf_counter()
        result = await out.numpy()
        samples["readback"].append(1e6 * (time.perf_counter() - begun))
    assert row is not None
    return {
        "variant": row.variant,
        "kernel": row.kernel,
        "repeats": repeats,
        "clock": "wall" if row.gpu_us is None else "gpu",
        "parts": {part: spread(samples[part]) for part in PARTS},
        "workgroups": list(row.workgroups),
        "wgsl": row.shader.wgsl,
        "constants": {name: str(value) for name, value in row.shader.constants.items()},
        **compare(result, arrays, masking),
    }


async def measure_operation(
    device: pa.Device,
    layer: Layer,
    name: str,
    repeats: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Run one of :data:`OPERATIONS` on the layer's first positions, from nothing each time.

    Returns
    -------
    dict
        As of :func:`measure`, with the operation's name as ``variant``; ``wgsl`` is its main shader's, times
        are of all its dispatches together.
    """
    operation = OPERATIONS[name]
    everything = await layer.host()
    arrays = first_positions(everything)
    samples: dict[str, list[float]] = defaultdict(list)
    for number in range(repeats):
        if progress:
            progress(name, number, repeats)
        begun = time.perf_counter()
        tensors = [device.tensor(array) for array in arrays]
        await device.synchronize()
        samples["upload"].append(1e6 * (time.perf_counter() - begun))
        prepared = operation.prepare(device, tensors)
        await device.synchronize()
        device.clear_pipelines()
        with device.timer() as timer:
            outputs = operation.run(prepared)
        rows = await timer.results()
        samples["compile"].append(sum(row.compile_us or 0.0 for row in rows))
        samples["dispatch"].append(sum(row.wall_us if row.gpu_us is None else row.gpu_us for row in rows))
        begun = time.perf_counter()
        results = [await output.numpy() for output in outputs]
        samples["readback"].append(1e6 * (time.perf_counter() - begun))
    exact = await operation.exact(arrays, prepared)
    main = next(row for row in rows if row.kernel == operation.kernel)
    return {
        "variant": name,
        "kernel": main.kernel if len(rows) == 1 else f"{main.kernel}, one of {len(rows)} dispatches",
        "repeats": repeats,
        "clock": "wall" if main.gpu_us is None else "gpu",
        "parts": {part: spread(samples[part]) for part in PARTS},
        "workgroups": list(main.workgroups),
        "wgsl": main.shader.wgsl,
        "constants": {key: str(value) for key, value in main.shader.constants.items()},
        "rows": arrays[0].shape[2],
        "allRows": everything[0].shape[2],
        **errors(results, exact),
    }


def errors(results: list[Array], exact: Exact) -> dict[str, Any]:
    """The largest absolute error of several results against float64, what float32 numpy's is, and whether
    each is within twice that.
    """
    compared = []
    for result, wanted, single in zip(results, exact(np.float64), exact(np.float32), strict=True):
        error, plain = (float(np.abs(each - wanted).max()) for each in (result, single))
        bound = 2 * plain + ABSOLUTE * max(1.0, float(np.abs(wanted).max()))
        compared.append((error, plain, error <= bound))
    return {
        "error": max(error for error, _, _ in compared),
        "plain": max(plain for _, plain, _ in compared),
        "ok": all(ok for _, _, ok in compared),
    }


def measure_reference(arrays: tuple[Array, Array, Array], masking: Masking, repeats: int) -> dict[str, Any]:
    """The same for numpy in float32, where there is no device: everything is "dispatch"."""
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


def compare(result: Array, arrays: tuple[Array, Array, Array], masking: Masking) -> dict[str, Any]:
    """The result's largest absolute error against float64, and what plain float32 numpy's is."""
    rows = sampled_rows(arrays[0])
    exact = rows_of(arrays, masking, rows, np.float64)
    plain = float(np.abs(rows_of(arrays, masking, rows, np.float32) - exact).max())
    error = float(np.abs(result[:, :, rows] - exact).max())
    return {
        "error": error,
        "plain": plain,
        "ok": error <= 2 * plain + ABSOLUTE,
        "rows": len(rows),
        "allRows": arrays[0].shape[2],
    }


def sampled_rows(query: Array) -> npt.NDArray[np.intp]:
    """All rows, or as many evenly spread ones as the reference can take; first and last among them."""
    _, heads, length, _ = query.shape
    count = max(2, min(length, MAX_SCORES // (heads * length)))
    return np.unique(np.linspace(0, length - 1, count).round().astype(np.intp))


def rows_of(
    arrays: tuple[Array, Array, Array], masking: Masking, rows: npt.NDArray[np.intp], dtype: npt.DTypeLike
) -> Array:
    """Reference output [1, Hq, rows, D] of some rows, head by head to keep the scores small."""
    query, key, value = arrays
    group = query.shape[1] // key.shape[1]
    heads = []
    for head in range(query.shape[1]):
        kv = slice(head // group, head // group + 1)
        keywords = masking.head_keywords(head, rows, key.shape[2])
        chosen = query[:, head : head + 1][:, :, rows]
        heads.append(reference.attention(chosen, key[:, kv], value[:, kv], compute_dtype=dtype, **keywords))
    return np.concatenate(heads, axis=1)


def _variant(name: str) -> Any:
    if name not in ("auto", "naive", "rows", "tiled", "subgroup", "matrix"):
        raise ValueError(f"variant: expected auto, naive, rows, tiled, subgroup or matrix, got {name!r}")
    return name
