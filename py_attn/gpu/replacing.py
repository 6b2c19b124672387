"""A shader of the caller's own in the place of one that a plan runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from py_attn.gpu.binding import Workgroups, grid
from py_attn.gpu.shader import Shader

if TYPE_CHECKING:
    from py_attn.gpu.kernel import Launch, Plan

#: Gives the plan to run in place of another.
Rewrite = Callable[["Plan"], "Plan"]


class Replacement:
    """Puts ``shader`` in the place of those called ``label``; a function from plan to plan.

    Attributes
    ----------
    used : bool
        Whether it has replaced one.
    """

    def __init__(
        self, label: str, shader: Shader, workgroups: Workgroups | None, limits: Mapping[str, int]
    ) -> None:
        self.used = False
        self._label, self._shader, self._workgroups, self._limits = label, shader, workgroups, limits
        self._labels: dict[str, None] = {}

    @property
    def seen(self) -> str:
        """What ran instead, for messages."""
        return f"but {', '.join(self._labels)}" if self._labels else "nor any other kernel"

    def __call__(self, plan: Plan) -> Plan:
        return plan._replace(launches=tuple(map(self._one, plan.launches)))

    def _one(self, launch: Launch) -> Launch:
        self._labels[launch.shader.label] = None
        if launch.shader.label != self._label:
            return launch
        check_fits(self._shader, launch.shader)
        self.used = True
        if self._workgroups is None:
            return launch._replace(shader=self._shader)
        spread = grid(self._workgroups, "workgroups", self._limits)
        return launch._replace(shader=self._shader, workgroups=spread)


def check_fits(shader: Shader, other: Shader) -> None:
    """Raise :class:`ValueError` unless ``shader`` takes the params and buffers of ``other``."""
    if shader.params.fields != other.params.fields:
        raise ValueError(
            f"{shader.label}: its params differ from those of {other.label}; expected {other.params.fields}"
        )
    mine, wanted = ([(one.name, one.writes) for one in each.bindings] for each in (shader, other))
    if mine != wanted:
        raise ValueError(f"{shader.label}: expected the buffers {wanted} of {other.label}, got {mine}")
