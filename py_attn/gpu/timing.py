"""Clocks around dispatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py_attn.gpu.shader import Shader

if TYPE_CHECKING:
    from py_attn.gpu.device import Device
    from py_attn.gpu.program import Dispatch


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
    """

    kernel: str
    variant: str
    gpu_us: float | None
    wall_us: float
    compile_us: float | None
    workgroups: tuple[int, int, int]
    shader: Shader


class Timer:
    """Collects the dispatches made inside ``with device.timer() as timer``."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._submitted: list[tuple[int, Sequence[Dispatch]]] = []

    def _add(self, ticket: int, dispatches: Sequence[Dispatch]) -> None:
        self._submitted.append((ticket, tuple(dispatches)))

    async def results(self) -> list[DispatchTiming]:
        """Wait for the timed dispatches and return their clocks in the order of the calls.

        Raises
        ------
        PyAttnError
            When one of them failed.
        """
        device = self._device
        device.flush()
        submitted, self._submitted = self._submitted, []
        rows: list[DispatchTiming] = []
        for ticket, dispatches in submitted:
            raw = await device._bridge.timings(ticket)
            for dispatch, clock in zip(dispatches, raw, strict=True):
                compile_us = await device._pipelines.take_compile_us(dispatch)
                shader = dispatch.shader
                rows.append(
                    DispatchTiming(
                        shader.name,
                        shader.variant,
                        clock.gpu_us,
                        clock.wall_us,
                        compile_us,
                        dispatch.workgroups,
                        shader,
                    )
                )
        await device._raise_errors()
        return rows
