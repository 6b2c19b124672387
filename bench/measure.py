"""The steps that the page calls: ``ceilings``, ``workloads``, ``measure``, ``processor`` (one tiny call)."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

import numpy as np

import py_attn as pa
from bench import ceilings as _ceilings
from bench.clocks import gpu_time, recorded, wall_time
from bench.runs import Check, Options, Run
from bench.tiles import compare_tiles, has_tiles
from bench.workloads import Workload, workloads
from py_attn.gpu.device import Device
from py_attn.kernels.attention.config import device_variants

_ULPS = 4 * float(np.finfo(np.float32).eps)
#: The bound for quantised caches: the relative mean square error that the output may have.
_QUANTISED_LOSS = 0.04
_TUNE_S = 10.0


async def ceilings() -> dict[str, Any]:
    """The adapter's ceilings."""
    return await _ceilings.ceilings(_device())


def _device() -> pa.Device:
    """The page's device, with autotuning in idle time off, as the device is idle while peers are measured."""
    device = pa.default_device()
    device.autotune = False
    return device


def listed(size: str, only: list[str], tiles: bool = False) -> list[dict[str, Any]]:
    """The workloads as plain data; those of ``matrix`` only where the adapter has what it needs.

    Names that begin with "model" are those of ``bench/language.py``. With ``tiles`` decode is left out, which
    has none, unless it is named.
    """
    named = [name for name in only if not name.startswith("model")]
    if only and not named:
        return []
    matrix = "matrix" in device_variants(pa.default_device(), "float16")
    found = [w for w in workloads(size, named) if w.variant != "matrix" or matrix or named]
    return [w.plain() for w in found if named or not tiles or w.kind != "decode"]


async def measure(name: str, size: str, options: dict[str, Any]) -> dict[str, Any]:
    """Check a workload, then time it.

    Parameters
    ----------
    options : dict
        ``variant``; ``tile``: fields of the tile to replace, as JSON; ``splits``; ``tune``, ``naive``,
        ``wall``, ``samples``, ``tiles``: whether to let the device choose its tiles, time the naive kernel,
        measure wall times, return the reference's rows, and time every tile of the table.

    Returns
    -------
    dict
        ``gpu_us`` with quartiles, ``rate`` (TFLOP/s, or GB/s of the cache for decode), ``naive_us``,
        ``wall`` {"alone_us", "row_us"}, ``replay`` likewise for a recorded program, ``error``, ``bound``,
        ``ok``, ``sets``, ``tuned`` (what the device measured to choose its tiles), ``tiles`` as of
        :func:`bench.tiles.compare_tiles`, and ``expected`` (rows of the reference, for the peers).
    """
    device = _device()
    (workload,) = workloads(size, [name])
    tile = json.loads(options["tile"]) if options.get("tile") else {}
    asked = Options(options.get("variant") or "", options.get("splits"), tile)
    begun = time.perf_counter()
    run = Run(device, workload, asked)
    await device.synchronize()
    made = time.perf_counter()
    try:
        tuned = await _tune(run, options)
        check = await run.check()
        checked = time.perf_counter()
        result = {
            **_verdict(workload, check),
            "name": name,
            "sets": run.sets,
            "tuned": tuned,
            "make_s": made - begun,
            "check_s": checked - made,
            **await _times(run, options),
        }
        if options.get("tiles") and has_tiles(run):
            result["tiles"] = await compare_tiles(run)
        if options.get("samples") and workload.kind in ("attention", "decode"):
            result["expected"] = [row.tolist() for row in check.exact]
            result["rows"] = [list(row) for row in run.rows()]
    finally:
        run.destroy()
        await device.synchronize()
    return result


async def _tune(run: Run, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Tune the device now, so that it does not tune between two timed passes."""
    device = run.device
    device.autotune = not options.get("tile") and options.get("tune", True)
    if device.info.software or not device.autotune:
        return []
    run.call(0)
    await device.synchronize()
    return [dataclasses.asdict(measured) for measured in await device.tune(_TUNE_S)]


async def _times(run: Run, options: dict[str, Any]) -> dict[str, Any]:
    device, workload = run.device, run.workload
    with device.timer() as timer:
        run.call(0)
    (timed,) = await timer.plans()
    sample = await gpu_time(device, run.call)
    found: dict[str, Any] = {
        "gpu_us": sample.gpu_us,
        "low_us": sample.low_us,
        "high_us": sample.high_us,
        "calls": sample.calls,
        "passes": sample.passes,
        "clock": "gpu" if sample.timestamps else "wall",
        "rate": _rate(workload, sample.gpu_us),
        "ran": [f"{row.kernel}/{row.variant}" for row in timed.dispatches],
        "tile": _tile_text(timed.shader.constants),
    }
    if options.get("naive", True) and run.has_naive:
        naive = await gpu_time(device, run.naive)
        found["naive_us"] = naive.gpu_us
    if options.get("wall", True):
        seconds = 0.6 if device.info.software else 0.4
        wall = await wall_time(run.call, device.synchronize, seconds=seconds)
        found["wall"] = dataclasses.asdict(wall)
        programs = [recorded(device, lambda _, n=n: run.call(n), 1) for n in range(run.sets)]
        replay = await wall_time(
            lambda n: programs[n % run.sets].submit(), device.synchronize, seconds=seconds
        )
        for program in programs:
            program.destroy()
        found["replay"] = dataclasses.asdict(replay)
    return found


def _rate(workload: Workload, us: float) -> float:
    if workload.kind == "decode":
        return workload.cache_bytes / us / 1e3
    return workload.flops / us / 1e6


def _verdict(workload: Workload, check: Check) -> dict[str, Any]:
    """The largest error over the sampled rows, and whether it is within the bound of the design."""
    got, exact, single = (np.concatenate([np.ravel(x) for x in part]) for part in dataclasses.astuple(check))
    error, plain = np.abs(got - exact).max(), np.abs(single - exact).max()
    if workload.dtype.startswith(("turboquant", "uniform")):
        loss = float(((got - exact) ** 2).mean() / (exact**2).mean())
        return {
            "error": loss,
            "bound": _QUANTISED_LOSS,
            "ok": loss <= _QUANTISED_LOSS,
            "error_is": "relative",
        }
    bound = 2 * plain + _ULPS * np.abs(exact).max()
    if workload.dtype == "float16" and workload.kind == "attention":
        # The output is stored as float16, and the matrix variant rounds the probabilities to it.
        bound += 2**-10 * np.abs(exact).max()
    return {"error": float(error), "bound": float(bound), "ok": bool(error <= bound), "error_is": "absolute"}


def _tile_text(constants: Any) -> str:
    names = ("TX", "BQ", "BK", "ROWS", "DEPTH4", "VALUE_KEYS", "WORKGROUP")
    return " ".join(f"{name}={constants[name]}" for name in names if name in constants)


async def processor() -> dict[str, float]:
    """What one tiny call takes besides the GPU, in microseconds.

    Returns
    -------
    dict
        ``call_us`` and ``submit_300_us``: CPU time of Python and JavaScript until a ``pa.attention``, or a
        recorded program of 300 of them, is in the GPU's queue. ``awaited_us`` and ``read_us``: from a
        ``pa.attention`` until Python knows that it is done, and until it has the output.
    """
    device = pa.default_device()
    tensor = device.tensor(np.ones((1, 1, 4, 4), np.float32))

    async def submitted() -> None:
        pa.attention(tensor, tensor, tensor)
        device.flush()

    async def awaited() -> None:
        pa.attention(tensor, tensor, tensor)
        await device.synchronize()

    async def read() -> None:
        await pa.attention(tensor, tensor, tensor).numpy()

    found = {
        "call_us": await _each(device, submitted, 20, 30),
        "awaited_us": await _each(device, awaited, 20, 30),
        "read_us": await _each(device, read, 20, 30),
    }
    with device.record() as program:
        for _ in range(300):
            pa.attention(tensor, tensor, tensor)

    async def submit() -> None:
        program.submit()

    found["submit_300_us"] = await _each(device, submit, 1, 20)
    program.destroy()
    return found


async def _each(device: Device, work: Callable[[], Awaitable[object]], calls: int, rounds: int) -> float:
    """The median over rounds, each with an idle GPU at first, of a call's mean time in microseconds."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        for _ in range(calls):
            await work()
        times.append((time.perf_counter() - begun) / calls)
        await device.synchronize()
    return 1e6 * median(times)
