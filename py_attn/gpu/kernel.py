"""How a kernel is declared and how a call of it is planned.

A :class:`Kernel` is a template with the layout of its params. :func:`launch` plans one dispatch of it from
one list of :class:`Arg`: the WGSL declarations, the order of the buffers and the params that hold first
elements all follow from that list. What a public function does is a :class:`Plan`: the tensors that it makes
and its launches in order. A plan holds no tensor, so it serves every call with the same :func:`plan_key`;
:meth:`py_attn.gpu.device.Device.run` runs it on the tensors of one call. What that records for the GPU
depends on the buffers alone then, so it is kept with the plan (:class:`KeptPlan`) for calls with the same.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy.typing as npt

from py_attn.gpu.binding import Limits, Workgroups, bind, check_buffer_count, grid
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.recorder import Recorder
from py_attn.gpu.shader import Binding, Shader, render
from py_attn.gpu.tensor import RowParts, Tensor

# Plans that are kept at a time; a sequence that grows needs another one at every step.
_MAX_PLANS = 512
# Recordings of a plan that are kept; calls in a row use the same few buffers again and again.
_MAX_RECORDINGS = 8
_FIRST = "_first"


@dataclass(frozen=True, slots=True)
class Arg(Binding):
    """One storage buffer of a kernel, and which tensor of the call is bound to it.

    Where the kernel's params have a field ``{name}_first``, it gets the view's first element.

    Attributes
    ----------
    name, type, writes
        The WGSL declaration, as of :class:`py_attn.gpu.shader.Binding`.
    tensor : str
        The tensor's name in the call and in error messages; the same as ``name`` unless given.
    """

    tensor: str = ""

    @property
    def source(self) -> str:
        """The tensor's name in the call."""
        return self.tensor or self.name


@dataclass(frozen=True, eq=False)
class Kernel:
    """A template below ``shaders/`` and the layout of its params.

    Attributes
    ----------
    name : str
        The name in timings and errors.
    template : str
        The file's path below ``shaders/``.
    params : ParamsLayout
    """

    name: str
    template: str
    params: ParamsLayout

    @functools.cached_property
    def no_firsts(self) -> dict[str, int]:
        """The params that hold first elements, all 0."""
        return {name: 0 for name in self.params.fields if name.endswith(_FIRST)}


class NewTensor(NamedTuple):
    """A tensor that a plan makes: a result of the call, or what one launch leaves for the next.

    ``pitch`` is the number of elements from one innermost row to the next, where that is more than its
    length; ``row_parts`` says what lies behind the LSEs of a contiguous tensor. ``is_scratch`` says that only
    the launches of the plan use it, so that its buffer serves other calls too.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    pitch: int | None = None
    row_parts: RowParts | None = None
    is_scratch: bool = False

    @property
    def as_scratch(self) -> NewTensor:
        """The same, as scratch."""
        return self._replace(is_scratch=True)


class Constant(NamedTuple):
    """A small read-only tensor that a plan needs, made once for each key and kept with the device."""

    name: str
    key: Hashable
    make: Callable[[], npt.NDArray[Any]]


class Launch(NamedTuple):
    """One dispatch without its buffers; ``tensors`` names these in the order of the shader's bindings."""

    shader: Shader
    params: bytes
    workgroups: tuple[int, int, int]
    tensors: tuple[str, ...]


class Plan(NamedTuple):
    """What one call of a public function does.

    Attributes
    ----------
    makes : tuple of NewTensor
        The tensors that it makes: results, and scratch.
    launches : tuple of Launch
        In the order in which they run; none where there is nothing to compute.
    main : int
        Index of the launch that names the plan in timings.
    constants : tuple of Constant
    """

    makes: tuple[NewTensor, ...]
    launches: tuple[Launch, ...]
    main: int = 0
    constants: tuple[Constant, ...] = ()


def launch(
    kernel: Kernel,
    args: Sequence[Arg],
    tensors: Mapping[str, Tensor],
    limits: Limits,
    *,
    variant: str,
    workgroups: Workgroups,
    params: dict[str, Any],
    constants: Mapping[str, Any],
    enable: tuple[str, ...] = (),
    requires: tuple[str, ...] = (),
    grid_name: str = "query",
) -> Launch:
    """Plan one dispatch.

    Parameters
    ----------
    kernel : Kernel
    args : sequence of Arg
        In the order of the bindings.
    tensors : mapping
        The tensors of the call by name. Those that the plan makes are not among them: they begin at
        element 0.
    limits : mapping
        The adapter's limits.
    variant : str
        The variant's name in timings and errors.
    workgroups : int or tuple of int
        The number of workgroups, which are spread over x and y; or how many there are along x, y and z.
    params : mapping
        Values of the params, without the ``…_first`` fields of ``args``; those of absent tensors are 0.
    constants : mapping
        Template variables with hashable values; upper-case ones become WGSL constants.
    enable, requires : tuple of str
        WGSL's extensions and language features.
    grid_name : str
        The argument whose size is to blame when there are too many workgroups.

    Raises
    ------
    ValueError
        When the device cannot bind so many buffers or so large ones, or run so many workgroups.
    """
    label = f"{kernel.name}/{variant}"
    check_buffer_count(label, len(args), limits)
    first = kernel.no_firsts.copy()
    for arg in args:
        given, field = tensors.get(arg.source), arg.name + _FIRST
        if given is not None and field in first:
            first[field] = bind(given, arg.source, limits).first
    shader = _rendered(kernel, variant, tuple(args), tuple(constants.items()), enable, requires)
    packed = kernel.params.pack(**(first | params))
    return Launch(shader, packed, grid(workgroups, grid_name, limits), tuple(arg.source for arg in args))


@functools.lru_cache(maxsize=1024)
def _rendered(
    kernel: Kernel,
    variant: str,
    args: tuple[Arg, ...],
    constants: tuple[tuple[str, Any], ...],
    enable: tuple[str, ...],
    requires: tuple[str, ...],
) -> Shader:
    return render(
        kernel.template,
        kernel.name,
        variant,
        params=kernel.params,
        bindings=args,
        constants=dict(constants),
        enable=enable,
        requires=requires,
    )


class Recording(NamedTuple):
    """A plan's launches on certain buffers, and the handles of those that are scratch."""

    recorder: Recorder
    scratch: frozenset[int]


class KeptPlan:
    """A plan for all calls with its key, and recordings of those that were made last.

    Attributes
    ----------
    plan : Plan
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._recordings: dict[tuple[int, ...], Recording] = {}

    def recording(self, key: tuple[int, ...]) -> Recording | None:
        """The recording under a key: the pipelines' generation and the handles of the call's buffers."""
        return self._recordings.get(key)

    def keep(self, key: tuple[int, ...], recording: Recording) -> None:
        """Keep a recording; when there are too many, all are forgotten."""
        if len(self._recordings) >= _MAX_RECORDINGS:
            self._recordings.clear()
        self._recordings[key] = recording


class PlanCache:
    """Plans of all kernels by what they depend on."""

    def __init__(self) -> None:
        self._plans: dict[Hashable, KeptPlan] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def get(self, key: Hashable) -> KeptPlan | None:
        """The plan that was kept under ``key``."""
        return self._plans.get(key)

    def keep(self, key: Hashable, plan: Plan) -> None:
        """Keep a plan; when there are too many, all are forgotten and made again as they are needed."""
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        self._plans[key] = KeptPlan(plan)


class Described(tuple[Hashable, ...]):
    """What a plan depends on of an object, each value always of the same type."""

    __slots__ = ()


_PLAIN = frozenset({type(None), bool, int, float, str, Described})


def plan_key(kernel: str, tensors: Sequence[Any], options: Sequence[Any]) -> Hashable | None:
    """What the plan of a call depends on, or None where only tracing or uploading would tell.

    Two calls with the same key differ in nothing but the buffers that their tensors lie in.

    Parameters
    ----------
    kernel : str
        The family.
    tensors : sequence
        Tensors or None; a call with anything else, an array say, has no key.
    options : sequence
        Numbers, strings, booleans, None, slices, frozen dataclasses, :class:`Described`, and tuples or lists
        of them; a call with anything else has no key.
    """
    described: list[Hashable] = []
    for tensor in tensors:
        if tensor is None:
            described.append(None)
        elif type(tensor) is Tensor:
            described.append(tensor.description)
        else:
            return None
    try:
        return kernel, tuple(described), _plain_items(options)
    except _NotPlainError:
        return None


class _NotPlainError(Exception):
    """An option is something else than a plain value."""


def _plain(value: Any) -> Hashable:
    """A plain value, whose own type its caller notes."""
    kind = type(value)
    plain: Hashable = value
    if kind in _PLAIN:
        return plain
    if kind in (tuple, list):
        return _plain_items(value)
    if kind is slice:
        return _plain_items((value.start, value.stop, value.step))
    frozen = dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    if not frozen:
        raise _NotPlainError
    return plain


def _plain_items(values: Sequence[Any]) -> Hashable:
    # The types belong to it: 1, 1.0 and True are equal, but not all of them may be valid.
    kinds = tuple(map(type, values))
    return kinds, tuple(values) if _PLAIN.issuperset(kinds) else tuple(map(_plain, values))


__all__ = [
    "Arg",
    "Constant",
    "Described",
    "KeptPlan",
    "Kernel",
    "Launch",
    "NewTensor",
    "Plan",
    "PlanCache",
    "Recording",
    "launch",
    "plan_key",
]
