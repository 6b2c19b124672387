"""A visitor's own kernels: a WGSL text in the place of a built-in kernel, checked, timed and compared."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any, NamedTuple

from py_attn.gpu.binding import Workgroups, grid
from py_attn.gpu.bridge import AdapterInfo
from py_attn.gpu.kernel import Launch, Plan
from py_attn.gpu.shader import Shader, from_text
from py_attn.viewer.methods import method
from py_attn.viewer.panels.kernel import Call, Runs, measure_call, subject
from py_attn.viewer.viewer import Progress, Viewer

#: Texts longer than this are no kernels; the compiler would take minutes.
MAX_TEXT = 200_000
_CONSTANT = re.compile(r"^\s*const\s+([A-Z][A-Z0-9_]*)\s*:\s*u32\s*=\s*(\d+)u?\s*;", re.MULTILINE)


@method()
async def check_wgsl(viewer: Viewer, wgsl: str) -> dict[str, Any]:
    """What the WGSL compiler says about a text.

    Returns
    -------
    dict
        ``messages``: {"kind": "error", "warning" or "info", "message", "line", "column"} of each, from 1 on
        and 0 where there is no place.

    Raises
    ------
    ValueError
        Without a GPU, or for a text of more than :data:`MAX_TEXT` characters.
    """
    device = _device(viewer, wgsl)
    return {"messages": [asdict(message) for message in await device.check_wgsl(wgsl)]}


@method()
async def run_wgsl(
    viewer: Viewer,
    layer: int,
    of: str,
    wgsl: str,
    name: str,
    repeats: int = 10,
    progress: Progress | None = None,
) -> dict[str, Any] | None:
    """Time a text in the place of the kernel that it was forked from, with the same plan and inputs.

    Parameters
    ----------
    of : str
        The row of the panel that it was forked from: a variant of attention, or an operation.
    wgsl : str
        The whole text, with its declarations.
    name : str
        The visitor's name for it.

    Returns
    -------
    dict or None
        As of :func:`py_attn.viewer.panels.kernel.measure`, with ``fixed``: what of the plan stays although
        a constant was changed, "" for nothing.

    Raises
    ------
    ValueError
        Without a GPU, for a text that is too long, or where ``of`` is unknown.
    ShaderError, GPUValidationError
        When the text does not compile, or does not fit the buffers that it gets.
    """
    device = _device(viewer, wgsl)
    source, chosen = viewer.base_layer(layer)
    runs = Runs(viewer, repeats, progress)
    call = (await subject(chosen, source.masking, of))._replace(name=name)
    own = Own(call, wgsl, name, device.info)
    answer = await measure_call(device, call, runs, own)
    return None if answer is None else {**answer, "variant": name, "fixed": own.fixed}


@method()
async def wgsl_cell(viewer: Viewer, layer: int, of: str, wgsl: str, name: str) -> dict[str, Any]:
    """Python source that runs the text on random input of the same shape, and compares with float64.

    It needs py_attn alone, so it runs in a notebook as well as in the console; see
    :func:`py_attn.viewer.cell.cell`.
    """
    from py_attn.viewer.cell import Fork, cell

    device = _device(viewer, wgsl)
    source, chosen = viewer.base_layer(layer)
    call = await subject(chosen, source.masking, of)
    own = Own(call, wgsl, name, device.info)
    prepared = call.prepare(device, [device.tensor(array) for array in call.arrays])
    with device.rewriting(own.watch):
        call.run(prepared)
    await device.synchronize()
    if own.regrid.params is not None:
        raise ValueError("BQ was changed, and params with it. Copy with BQ as it was.")
    assert own.planned is not None
    shapes = [tuple(array.shape) for array in call.arrays[:3]]
    fork = Fork(name, wgsl, of, own.planned, own.regrid.workgroups, shapes)
    return {"source": cell(fork, source.masking)}


def _device(viewer: Viewer, wgsl: str) -> Any:
    if viewer.device is None:
        raise ValueError("WGSL runs on WebGPU only, which is not here")
    if len(wgsl) > MAX_TEXT:
        raise ValueError(f"The text has {len(wgsl):,} characters; {MAX_TEXT:,} are the most.")
    return viewer.device


class Own:
    """The main launch of a call with a text in the place of its shader; a function from plan to plan.

    Attributes
    ----------
    fixed : str
        What of the plan stays although a constant was changed, as a sentence.
    planned : Launch or None
        The launch that was replaced last.
    """

    def __init__(self, call: Call, wgsl: str, name: str, info: AdapterInfo) -> None:
        self.wgsl, self.name = wgsl, name
        self.fixed = ""
        self.planned: Launch | None = None
        self.regrid = Regrid(None, None)
        self._kernel, self._limits = call.kernel, info.limits

    def __call__(self, plan: Plan) -> Plan:
        if not self._is_main(plan):
            return plan
        self.watch(plan)
        planned = plan.launches[plan.main]
        launches = list(plan.launches)
        params, workgroups = planned.params, planned.workgroups
        if self.regrid.workgroups is not None:
            workgroups = grid(self.regrid.workgroups, "workgroups", self._limits)
        if self.regrid.params is not None:
            params = self.regrid.params
        launches[plan.main] = planned._replace(
            shader=self.shader(planned.shader), params=params, workgroups=workgroups
        )
        return plan._replace(launches=tuple(launches))

    def watch(self, plan: Plan) -> Plan:
        """Only note what would be replaced."""
        if self._is_main(plan):
            self.planned = plan.launches[plan.main]
            self.regrid, self.fixed = regrid(self.planned, self.wgsl, splits=len(plan.launches) > 1)
        return plan

    def _is_main(self, plan: Plan) -> bool:
        return bool(plan.launches) and plan.launches[plan.main].shader.name == self._kernel

    def shader(self, other: Shader) -> Shader:
        """The text as a shader with the params and buffers of another."""
        constants = {**other.constants, **constants_in(self.wgsl)}
        return from_text(
            self.wgsl, other.name, self.name,
            params=other.params, bindings=other.bindings, constants=constants, header=False,
        )  # fmt: skip


class Regrid(NamedTuple):
    """The workgroups and the params that follow from changed constants, None for as planned."""

    workgroups: Workgroups | None
    params: bytes | None


def constants_in(wgsl: str) -> dict[str, int]:
    """The ``const NAME: u32 = …;`` of a text."""
    return {name: int(value) for name, value in _CONSTANT.findall(wgsl)}


def regrid(planned: Launch, wgsl: str, *, splits: bool) -> tuple[Regrid, str]:
    """What follows from the constants that ``wgsl`` has changed: the grid, and a sentence on what stays.

    The grid follows ``WORKGROUP`` where an invocation computes one row (variant "naive"), and ``BQ``, the
    query rows of a workgroup, where tiles of rows are computed whole.
    """
    changed = {
        name: value
        for name, value in constants_in(wgsl).items()
        if isinstance(planned.shader.constants.get(name), int) and planned.shader.constants[name] != value
    }
    params = planned.shader.params.unpack(planned.params)
    is_attention = planned.shader.name == "attention" and not splits
    if is_attention and not params["tiles"] and changed.get("WORKGROUP"):
        return Regrid(-(-params["rows"] // changed["WORKGROUP"]), None), ""
    if is_attention and params["tiles"] and changed.get("BQ"):
        tiles = -(-params["queries"] // changed["BQ"])
        x, y, z = planned.workgroups
        others = x * y * z // params["tiles"]
        whole = {"tiles": tiles, "whole_tiles": tiles * others}
        # Where a kernel finds its tile by its place in the grid, z counts the tiles.
        sizes = (x, y, tiles) if "workgroup.z" in planned.shader.wgsl else tiles * others
        return Regrid(sizes, planned.shader.params.pack(**(params | whole))), ""
    count = planned.workgroups[0] * planned.workgroups[1] * planned.workgroups[2]
    fixed = (
        f"{' and '.join(changed)} {'were' if len(changed) > 1 else 'was'} changed in the text; "
        f"the number of workgroups stays {count:,}, and so do buffers and params."
        if changed
        else ""
    )
    return Regrid(None, None), fixed
