"""Calls of public functions: one plan serves all calls with the same plan key, each on its own tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from py_attn.gpu.device import Device
from py_attn.gpu.kernel import Plan, plan_key
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.packed import with_packed


class Planned(NamedTuple):
    """A plan and the tensors of the call that it was made for, all on the device."""

    device: Device
    plan: Plan
    tensors: Mapping[str, Tensor]


def run_call(
    kernel: str,
    tensors: Mapping[str, Any],
    options: Sequence[Any],
    make: Callable[[], Planned],
) -> dict[str, Tensor]:
    """Run the plan of an earlier call with this plan key, else that which ``make`` returns after all checks.

    Parameters
    ----------
    kernel : str
        The family, the first part of the plan's key.
    tensors : mapping
        The call's tensors, arrays and Nones by the names that plans use.
    options : sequence
        All other arguments that the plan depends on.
    make : callable
        Checks the arguments, uploads arrays and plans.

    Returns
    -------
    dict
        The tensors of the call and those that the plan made, by name.
    """
    device: Device | None = None
    for x in tensors.values():
        if type(x) is Tensor:
            device = x.device
            break
    key = None
    if device is not None:
        tuner = device.tuner
        key = plan_key(kernel, tuple(tensors.values()), (*options, tuner.enabled, tuner.version))
        kept = device.plans.get(key) if key is not None else None
        if kept is not None:
            return device.run(kept.plan, tensors, kept)
    planned = make()
    if key is not None:
        planned.device.plans.keep(key, planned.plan)
    return planned.device.run(planned.plan, with_packed(*planned))
