"""Every tile of the table against the one that a call takes: ``bench.html?tiles=1``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from bench.clocks import Budget, gpu_time
from bench.runs import Run
from py_attn.kernels.attention import backward, backward_config
from py_attn.kernels.attention.config import Config, config_for_tile, configure, fitting_tiles
from py_attn.kernels.attention.matrix import TILES as MATRIX_TILES
from py_attn.kernels.attention.options import Call, resolve
from py_attn.kernels.attention.tiles import Tile, name_of
from py_attn.kernels.attention.varlen import resolve_packed

Timed = Callable[[int], object]

#: The first round only tells which tiles are worth a measurement; it needs a few passes.
_ROUGH = Budget(pass_us=10_000, lead_us=20_000, warm_s=0.05, total_s=0.2, passes=5)
#: Tiles that the first round finds slower than the fastest by more than this are not measured again.
_CLOSE = 1.15
_MOST_CLOSE = 4
CHOSEN = "chosen"
#: The launch for the value's gradient where key and value have a launch each, with the same tile.
_VALUE_ALONE = "value stored"


def has_tiles(run: Run) -> bool:
    """Whether the workload's kernels have a tile to choose."""
    return run.workload.kind != "decode"


async def compare_tiles(run: Run) -> dict[str, Any]:
    """Time the workload as it is called, and with every tile of the table that the adapter can run.

    Returns
    -------
    dict
        ``chosen``, the name of the tile that the call takes (of backward, its two) where it has one; ``us``,
        the time of each candidate by name; ``ratio``, the chosen one's time over that of the fastest, both
        measured again, in turns; ``best``, that one's name.
    """
    candidates = {CHOSEN: run.call, **dict(_candidates(run))}
    us = {}
    for name, call in candidates.items():
        us[name] = (await gpu_time(run.device, call, limits=_ROUGH)).gpu_us
    fastest = min(us.values())
    close = sorted((time, name) for name, time in us.items() if time <= _CLOSE * fastest)
    names = [CHOSEN, *(name for _, name in close if name != CHOSEN)][: 1 + _MOST_CLOSE]
    again: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(2):
        for name in names:
            again[name].append((await gpu_time(run.device, candidates[name])).gpu_us)
    for name, times in again.items():
        us[name] = min(times)
    best = min(names, key=lambda name: us[name])
    chosen = us.pop(CHOSEN)
    return {
        "chosen": _chosen(run),
        "us": us,
        "ratio": chosen / (us[best] if best != CHOSEN else chosen),
        "best": _chosen(run) if best == CHOSEN else best,
    }


def _chosen(run: Run) -> str:
    """The names of the tiles in what a call dispatches, in order; variants for kernels without tiles."""
    with run.device.record() as program:
        kept = run.call(0)
    shaders = [dispatch.shader for dispatch in program.dispatches]
    program.destroy()
    del kept
    if any(shader.variant == _VALUE_ALONE for shader in shaders):
        # The launch for the key has the tile of that for the value.
        shaders = [shader for shader in shaders if shader.variant != "key stored"]
    found = [_name(shader.variant, shader.constants) for shader in shaders if "BQ" in shader.constants]
    return "; ".join(dict.fromkeys(found))


def _name(variant: str, constants: Mapping[str, Any]) -> str:
    if "SUBGROUPS" in constants:
        return _name_of_matrices(constants)
    if "DEPTH4" not in constants:
        return variant
    fields = ("TX", "TY", "ROWS", "BK", "DEPTH4", "VALUE_KEYS", "query_resident", "BUFFERS")
    return f"{variant} {name_of(Tile(*(constants[field] for field in fields)))}"


def _name_of_matrices(constants: Mapping[str, Any]) -> str:
    turns = ", in turn" if constants.get("in_turn") else ""
    pairs = ", in pairs" if constants.get("team", 1) > 1 else ""
    return f"matrix {constants['BQ']}x{constants['BK']}{turns}{pairs}"


def _candidates(run: Run) -> Iterator[tuple[str, Timed]]:
    """The name of each tile and how a call with it is recorded."""
    if run.workload.kind == "backward":
        yield from _of_backward(run)
        return
    info, options = run.device.info, _resolved(run, 0).options
    if run.workload.variant == "matrix":
        p = options.problem
        # float32 has one tile for each float32 tile, which are not compared.
        for tile in MATRIX_TILES if run.workload.dtype == "float16" else ():
            if tile.fits(p.head_dim, p.value_head_dim, info.limits):
                yield _name_of_matrices(tile.constants()), _with(run, Config("matrix", tile))
        return
    for variant in ("subgroup", "tiled") if info.subgroup_min_size >= 4 else ("tiled",):
        for tile in fitting_tiles(options, info, variant):
            yield f"{variant} {name_of(tile)}", _with(run, config_for_tile(options, info, variant, tile))
    for variant in ("rows", "naive") if info.software else ():
        yield variant, _with(run, configure(options, info, variant))


def _of_backward(run: Run) -> Iterator[tuple[str, Timed]]:
    """Each side's tiles beside the static choice of the other side, in both forms that have tiles."""
    info, options = run.device.info, _resolved(run, 0).options
    for form, ending in (("tiled", ""), ("stored", " stored")):
        try:
            static = backward_config.configure(options, info, form)
        except ValueError:
            # There is no room for what that stores.
            continue
        for side in ("query", "key"):
            of_product = side == "query" and static.stored
            tiles = (
                backward_config.product_tiles(options, info)
                if of_product
                else backward_config.fitting_tiles(options, info, side)
            )
            for tile in tiles:
                # Tiles of the key side are for both gradients in one launch.
                config = replace(static, **{side: tile}, separate=static.separate and side == "query")
                yield f"{side}{ending} {name_of(tile)}", _with_backward(run, config)
        if static.stored and backward_config.may_separate(options):
            for tile in backward_config.fitting_tiles(options, info, "key", separate=True):
                config = replace(static, key=tile, separate=True)
                yield f"{_VALUE_ALONE} {name_of(tile)}", _with_backward(run, config)


def _with_backward(run: Run, config: backward_config.BackwardConfig) -> Timed:
    def call(n: int) -> object:
        given = run.inputs[n % run.sets]
        results = [given[name] for name in ("grad", "out", "lse")]
        if run.workload.lengths:
            results = [x[None] for x in results]
        planned = backward.plan_call(_resolved(run, n), *results, variant=config)
        return run.device.run(planned.plan, planned.tensors)

    return call


def _resolved(run: Run, n: int) -> Call:
    """The checked arguments of the n-th call."""
    w, given = run.workload, run.inputs[n % run.sets]
    tensors, slope = (given["query"], given["key"], given["value"]), w.kind == "backward"
    if w.lengths:
        cu = given["cu"]
        return resolve_packed(*tensors, cu, cu, causal=w.causal, slope=slope, layout="BSHD")
    return resolve(*tensors, causal=w.causal, slope=slope)


def _with(run: Run, config: Config) -> Timed:
    def call(n: int) -> object:
        kept, run.variant = run.variant, config
        try:
            return run.call(n)
        finally:
            run.variant = kept

    return call
