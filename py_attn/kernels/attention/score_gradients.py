"""Gradients of what is added to the scores, or looked up for them: masks, and the tensors of a score_mod."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from py_attn.gpu.kernel import Arg, Kernel, Launch, NewTensor, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor, contiguous_strides
from py_attn.kernels.attention.options import Call, Options
from py_attn.kernels.attention.packing import TILES, plan_tile_table, tile_slots
from py_attn.kernels.mods import MOD_PARAMS
from py_attn.kernels.operands import Operand, pad4
from py_attn.kernels.scores import SCORE_PARAMS
from py_attn.kernels.sums import plan_sum
from py_attn.tracing import Lookup

_COMMON = {
    **SCORE_PARAMS,
    **MOD_PARAMS,
    "value_strides": "vec4<u32>",
    "grad_strides": "vec4<u32>",
    "value_first": "u32",
    "grad_first": "u32",
    "parts": "u32",
    "part_length": "u32",
}
_AXES = Kernel(
    "axes_gradient",
    "attention/axes_gradient.wgsl",
    ParamsLayout(**_COMMON, shape="vec4<u32>", strides="vec4<u32>", sums="vec4<u32>", elements="u32"),
)
_LOOKUPS = Kernel(
    "lookup_gradient", "attention/lookup_gradient.wgsl", ParamsLayout(**_COMMON, tiles="u32", units="u32")
)
_WORKGROUP = 64
_TILE_ROWS = 16
# Invocations or workgroups that fill a GPU, and floats that their partial sums may take, 16 MiB.
_ENOUGH_INVOCATIONS = 1 << 15
_ENOUGH_WORKGROUPS = 1 << 10
_MOST_PARTIAL_SUMS = 1 << 22
_INDICES = ("b", "h", "q_idx", "kv_idx")


class _Sum(NamedTuple):
    """One gradient to compute: of a tensor of this shape, which score_mod reads there, or of the mask."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    lookups: tuple[Lookup, ...]


class Wanted(NamedTuple):
    """The gradients that a call asks for beside those of query, key and value.

    Attributes
    ----------
    mask : bool
    captured : tuple of Tensor
        Tensors that score_mod looks things up in.
    """

    mask: bool = False
    captured: tuple[Tensor, ...] = ()

    def names(self) -> tuple[str, ...]:
        """Those of the plan's tensors that hold them."""
        return (*(("d_mask",) if self.mask else ()), *(f"d_captured_{n}" for n in range(len(self.captured))))

    def check(self, options: Options) -> None:
        """Raise unless there is something to differentiate.

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        """
        if self.mask and options.mask_kind in ("none", "bool"):
            given = "none" if options.mask is None else "one of booleans"
            raise ValueError(f"mask_gradient: expected a mask of floats, got {given}")
        read = {lookup.tensor for lookup in options.mods.lookups}
        for n, tensor in enumerate(self.captured):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"captured[{n}]: expected a Tensor, got {type(tensor).__name__}")
            if not tensor.kind.floating:
                raise TypeError(f"captured[{n}]: expected a Tensor of floats, got {tensor.dtype}")
            if n not in read:
                raise ValueError(
                    f"captured[{n}]: the score does not depend on it; expected a tensor that score_mod "
                    "itself indexes (not a view of it), each given once"
                )

    def sums(self, options: Options) -> list[_Sum]:
        """What is to be computed, checked before."""
        found = []
        if self.mask:
            assert options.mask is not None
            found.append(_Sum("d_mask", options.mask.shape, options.mask.dtype, ()))
        for n, tensor in enumerate(self.captured):
            lookups = tuple(lookup for lookup in options.mods.lookups if lookup.tensor == n)
            found.append(_Sum(f"d_captured_{n}", tensor.shape, tensor.dtype, lookups))
        return found

    def results(self, made: Mapping[str, Tensor]) -> list[Tensor]:
        """The gradients in the shapes of the tensors."""
        shapes = [made["mask"].shape] if self.mask else []
        shapes += [tensor.shape for tensor in self.captured]
        return [made[name].reshape(*shape) for name, shape in zip(self.names(), shapes, strict=True)]


NOTHING_ELSE = Wanted()


class _Axes(NamedTuple):
    """How the axes of a gradient lie among [B, Hq, Sq, Sk].

    Attributes
    ----------
    shape, strides : tuple of int
        Lengths and strides of the gradient along these four; length 1 where it lacks an axis.
    sums : tuple of int
        Lengths of the axes that are summed up, else 1.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    sums: tuple[int, ...]


def plan_score_gradient(
    call: Call, grad: Operand, row_values: Arg, wanted: _Sum
) -> tuple[list[NewTensor], list[Launch]]:
    """What one of these gradients makes and launches."""
    length, limits = math.prod(wanted.shape), call.device.info.limits
    total = NewTensor(wanted.name, (length,), wanted.dtype, pad4(length))
    if not length:
        return [total], []
    makes, launches = [total], []
    axes = _axes_of(wanted, call.options)
    tiles = None
    if axes is None and call.options.sequences is not None:
        table, launched = plan_tile_table(call, _TILE_ROWS, "query", f"{wanted.name}_tiles")
        makes.append(table.as_scratch)
        launches.append(launched)
        tiles = tile_slots(call.options.problem.queries, call.options.sequences, _TILE_ROWS)
    parts = _parts_of(call.options, length, axes, tiles)
    # A single part in float32 is the result itself.
    summed = parts > 1 or wanted.dtype != "float32"
    out = f"{wanted.name}_parts" if summed else wanted.name
    if summed:
        makes.append(NewTensor(out, (parts, pad4(length))).as_scratch)
    args = [*call.options.args(), Arg(grad.name, grad.arg.type, tensor="grad_out"), row_values]
    if tiles is not None:
        args.append(Arg(TILES.name, TILES.type, tensor=f"{wanted.name}_tiles"))
    args.append(Arg("out", "f32", writes=True, tensor=out))
    if axes is not None:
        launches.append(_launch_axes(call, grad, wanted, args, parts, axes))
    else:
        launches.append(_launch_lookups(call, grad, wanted, args, parts, tiles))
    if summed:
        launches.append(plan_sum(out, parts, total, limits))
    return makes, launches


def _axes_of(wanted: _Sum, options: Options) -> _Axes | None:
    """The axes of a gradient whose indices are those of the score themselves; None of any other."""
    scores, missing = options.problem.score_shape, 4 - len(wanted.shape)
    steps = contiguous_strides(wanted.shape)
    if not wanted.lookups:
        shape = (1,) * missing + wanted.shape
        sums = tuple(n if own == 1 else 1 for own, n in zip(shape, scores, strict=True))
        return _Axes(shape, (0,) * missing + steps, sums)
    names = wanted.lookups[0].axes
    if names is None or len(wanted.lookups) > 1 or options.sequences is not None:
        return None
    lengths, strides = dict(zip(names, wanted.shape, strict=True)), dict(zip(names, steps, strict=True))
    if any(lengths.get(name, n) < n for name, n in zip(_INDICES, scores, strict=True)):
        return None  # what is out of bounds reads the last element
    return _Axes(
        tuple(lengths.get(name, 1) for name in _INDICES),
        tuple(strides.get(name, 0) for name in _INDICES),
        tuple(1 if name in names else n for name, n in zip(_INDICES, scores, strict=True)),
    )


def _parts_of(options: Options, length: int, axes: _Axes | None, tiles: int | None) -> int:
    """How many workgroups share the sum of one element."""
    if axes is not None:
        lanes = _lanes(axes)
        useful, enough = math.prod(axes.sums) // (8 * lanes), _ENOUGH_INVOCATIONS // (lanes * length)
    else:
        useful, enough = _units(options, tiles), _ENOUGH_WORKGROUPS
    return max(1, min(useful, enough, _MOST_PARTIAL_SUMS // pad4(length)))


def _lanes(axes: _Axes) -> int:
    """How many invocations of a workgroup share the sum of one element."""
    return _WORKGROUP if math.prod(axes.sums) >= _WORKGROUP else 1


def _units(options: Options, tiles: int | None) -> int:
    """Rows of scores, or heads of tiles of packed sequences' rows."""
    p = options.problem
    return p.heads * (p.batch * p.queries if tiles is None else tiles)


def _launch_axes(call: Call, grad: Operand, wanted: _Sum, args: list[Arg], parts: int, axes: _Axes) -> Launch:
    lanes, length = _lanes(axes), math.prod(wanted.shape)
    factor = f"score_mod_slope_{wanted.lookups[0].number}({{}})" if wanted.lookups else "1.0"
    return launch(
        _AXES,
        args,
        call.tensors,
        call.device.info.limits,
        variant="lookup" if wanted.lookups else "mask",
        workgroups=parts * -(-length // (_WORKGROUP // lanes)),
        params={**_params(call, grad, parts, length), **axes._asdict(), "elements": length},
        constants=_constants(call.options, grad) | {"LANES": lanes, "factor": factor},
    )


def _launch_lookups(
    call: Call, grad: Operand, wanted: _Sum, args: list[Arg], parts: int, tiles: int | None
) -> Launch:
    numbers = tuple(lookup.number for lookup in wanted.lookups)
    return launch(
        _LOOKUPS,
        args,
        call.tensors,
        call.device.info.limits,
        variant="lookup",
        workgroups=parts,
        params={
            **_params(call, grad, parts, math.prod(wanted.shape)),
            "tiles": tiles or 0,
            "units": _units(call.options, tiles),
        },
        constants=_constants(call.options, grad) | {"TILE_ROWS": _TILE_ROWS, "lookups": numbers},
    )


def _params(call: Call, grad: Operand, parts: int, length: int) -> dict[str, object]:
    options = call.options
    assert options.value is not None
    return {
        **options.score_params(),
        "value_strides": options.value.strides,
        "grad_strides": grad.strides,
        "parts": parts,
        "part_length": pad4(length),
    }


def _constants(options: Options, grad: Operand) -> dict[str, object]:
    return options.constants() | {
        **grad.constants(),
        "dtypes": options.dtypes(grad.dtype),
        **options.value_constants(),
        "WORKGROUP": _WORKGROUP,
    }
