"""What every attention kernel does with its arguments before it plans a dispatch."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from py_attn.arguments import Masking, Problem, check_layout, check_mask_shape, resolve
from py_attn.gpu.device import Device
from py_attn.gpu.shader import Binding
from py_attn.gpu.tensor import Tensor, as_tensor
from py_attn.kernels.checks import check_lengths, check_mask_dtype, find_device, float_tensor, shape_of
from py_attn.kernels.forms import form_of
from py_attn.kernels.mods import Mods, trace_mods
from py_attn.kernels.sinks import check_sinks

LOG2_E = math.log2(math.e)
# No sequence is longer than this, so positions and distances stay within an i32.
UNBOUNDED = 1 << 30

# What lib/score.wgsl reads, and where the operands lie; the strides are (batch, head, row, element).
SCORE_PARAMS = {
    "query_strides": "vec4<u32>",
    "key_strides": "vec4<u32>",
    "mask_strides": "vec4<u32>",
    "query_first": "u32",
    "key_first": "u32",
    "mask_first": "u32",
    "lengths_first": "u32",
    "lengths_stride": "u32",
    "batch": "u32",
    "heads": "u32",
    "group": "u32",
    "queries": "u32",
    "keys": "u32",
    "window_left": "i32",
    "window_right": "i32",
    "top_left": "u32",
    "query_scale": "f32",
    "score_scale": "f32",
    "empty_lse": "f32",
}


@dataclass(slots=True)
class Operand:
    """A tensor seen as [B, H, S, D] and how a kernel's binding reads it."""

    name: str
    tensor: Tensor
    strides: tuple[int, ...]
    packed: bool

    @property
    def binding(self) -> Binding:
        """The WGSL declaration: four elements an entry where rows are contiguous and aligned."""
        half = self.tensor.kind.itemsize == 2
        if self.packed:
            return Binding(self.name, "vec2<u32>" if half else "vec4<f32>")
        return Binding(self.name, "u32" if half else "f32")


def operand(name: str, tensor: Tensor) -> Operand:
    """See a [B, H, S, D] tensor as a kernel's operand."""
    strides = tuple(0 if n == 1 else s for n, s in zip(tensor.shape, tensor.strides, strict=True))
    width = tensor.shape[3]
    packed = (
        width % 4 == 0 and strides[3] == 1 and tensor.offset % 4 == 0 and not any(s % 4 for s in strides[:3])
    )
    return Operand(name, tensor, strides, packed)


def output_type(dtype: str) -> str:
    """The WGSL element of an output whose rows are padded to multiples of 4 elements."""
    return "vec4<f32>" if dtype == "float32" else "vec2<u32>"


def pad4(n: int) -> int:
    """The next multiple of 4."""
    return -(-n // 4) * 4


@dataclass(slots=True)
class Packing:
    """Where the sequences of a packed call begin: cu_seqlens of queries and keys, int32 [sequences + 1]."""

    queries: Tensor
    keys: Tensor
    sequences: int


@dataclass(slots=True)
class Inputs:
    """Checked arguments of an attention kernel, on the device and seen as [B, H, S, D]."""

    device: Device
    problem: Problem
    query: Operand
    key: Operand
    value: Operand | None
    mask: Tensor | None
    lengths: Tensor | None
    swapped: bool
    mods: Mods
    packing: Packing | None = None
    sinks: Tensor | None = None
    # What was planned for calls of this form, by what else the plan depends on.
    plans: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def mask_kind(self) -> str:
        """Jinja2's ``mask_kind``: "none", "bool" or a float dtype."""
        return "none" if self.mask is None else self.mask.dtype

    @property
    def masked_one_by_one(self) -> bool:
        """Whether a kernel runs code of some length for each score."""
        return self.mask is not None or bool(self.mods.wgsl)

    def as_bhsd(self, tensor: Tensor) -> Tensor:
        """A tensor in the caller's layout seen as [B, H, S, D], and the other way round."""
        return tensor.transpose(0, 2, 1, 3) if self.swapped else tensor

    def operands(self) -> list[Operand]:
        """Query, key and, where there is one, value."""
        return [self.query, self.key, *([self.value] if self.value else [])]

    def dtypes(self) -> tuple[str, ...]:
        """All dtypes that a kernel reads."""
        read = {self.mask_kind, *self.mods.captured, *(x.tensor.dtype for x in self.operands())}
        return tuple(sorted(read))

    def constants(self) -> dict[str, object]:
        """Template variables that every kernel with scores needs."""
        found: dict[str, object] = {}
        for x in self.operands():
            found[f"{x.name}_dtype"] = x.tensor.dtype
            found[f"{x.name}_packed"] = x.packed
        found["dtypes"] = self.dtypes()
        found["softcap"] = bool(self.problem.masking.softcap)
        found["mask_kind"] = self.mask_kind
        found["has_lengths"] = self.lengths is not None
        found["varlen"] = self.packing is not None
        found |= self.mods.constants()
        found["masks"] = self.mask is not None or self.mods.has_mask_mod
        found["in_cache"] = found["has_kept"] = False
        found["D"] = self.problem.head_dim
        found["D4"] = pad4(self.problem.head_dim) // 4
        return found

    def bindings(self) -> list[Binding]:
        """Declarations of the inputs in the order of :meth:`tensors`."""
        found = [x.binding for x in self.operands()]
        if self.mask is not None:
            found.append(Binding("mask", {"bool": "u32", "float32": "f32"}.get(self.mask_kind, "u32")))
        if self.lengths is not None:
            found.append(Binding("lengths", "i32"))
        return found + self.mods.bindings()

    def tensors(self) -> list[tuple[str, Tensor]]:
        """The inputs by name in the order of :meth:`bindings`."""
        found = [(x.name, x.tensor) for x in self.operands()]
        found += [
            (name, t) for name, t in (("mask", self.mask), ("kv_lengths", self.lengths)) if t is not None
        ]
        found += [(f"captured_{n}", tensor) for n, tensor in enumerate(self.mods.tensors)]
        return found


def prepare(
    query: object,
    key: object,
    value: object | None,
    *,
    mask: object = None,
    causal: object = False,
    window: object = None,
    scale: object = None,
    softcap: object = None,
    kv_lengths: object = None,
    query_offset: object = None,
    layout: object = "BHSD",
    score_mod: object = None,
    mask_mod: object = None,
    prob_mod: object = None,
    sinks: object = None,
    slope: bool = False,
) -> Inputs:
    """Check everything, then upload what is not on the device yet.

    ``slope`` asks for the derivative of ``score_mod`` too. A ``prob_mod`` gives what stands in for each
    probability, also those of hidden keys; only the naive variant knows it.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.
    """
    form = None
    if isinstance(query, Tensor) and score_mod is None and mask_mod is None and prob_mod is None:
        options = causal, window, scale, softcap, query_offset, layout, slope
        form = form_of((query, key, value, mask, kv_lengths, sinks), options)
        known = _recall(form, query, key, value, mask, kv_lengths, sinks)
        if known is not None:
            return known
    swapped = check_layout(layout) == "BSHD"
    device = find_device(query, key, value, mask, kv_lengths)
    given = {"query": query, "key": key} | ({} if value is None else {"value": value})
    shapes = {name: shape_of(name, x) for name, x in given.items()}
    if swapped:
        shapes = {n: (s[0], s[2], s[1], s[3]) if len(s) == 4 else s for n, s in shapes.items()}
    problem = resolve(
        shapes["query"],
        shapes["key"],
        shapes.get("value"),
        causal=causal,
        window=window,
        scale=scale,
        softcap=softcap,
        query_offset=query_offset,
    )
    if max(problem.queries, problem.keys) >= UNBOUNDED:
        raise ValueError(f"key: expected fewer than {UNBOUNDED:,} queries and keys")
    if mask is not None:
        check_mask_shape(shape_of("mask", mask), problem.score_shape)
        check_mask_dtype(mask)
    if kv_lengths is not None:
        check_lengths(kv_lengths, problem.batch, problem.keys)
    check_sinks(sinks, problem.heads)
    mods = trace_mods(score_mod, mask_mod, device, prob_mod=prob_mod, slope=slope)
    operands = {}
    for name, x in given.items():
        tensor = float_tensor(name, x, device)
        operands[name] = operand(name, tensor.transpose(0, 2, 1, 3) if swapped else tensor)
    inputs = Inputs(
        device,
        problem,
        operands["query"],
        operands["key"],
        operands.get("value"),
        None if mask is None else as_tensor("mask", mask, device),
        None if kv_lengths is None else as_tensor("kv_lengths", kv_lengths, device, "int32"),
        swapped,
        mods,
        sinks=None if sinks is None else float_tensor("sinks", sinks, device),
    )
    if form is not None:
        views = tuple(_View(x.tensor.shape, x.tensor.strides, x.strides, x.packed) for x in operands.values())
        device.remember(form, _Known(problem, swapped, views, inputs.plans))
    return inputs


class _View(NamedTuple):
    """How an operand lies in its tensor's buffer."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    operand_strides: tuple[int, ...]
    packed: bool


class _Known(NamedTuple):
    """What was checked for one call without mods holds for all calls of its form."""

    problem: Problem
    swapped: bool
    views: tuple[_View, ...]
    plans: dict[Hashable, Any]


def _recall(
    form: Hashable | None, query: Tensor, key: Any, value: Any, mask: Any, lengths: Any, sinks: Any
) -> Inputs | None:
    """The inputs of a call whose form was checked before, if its tensors can be used."""
    device = query.device
    known: _Known | None = device.known(form)
    if known is None or device.lost:
        return None
    if not all(x is None or x.lives_on(device) for x in (query, key, value, mask, lengths, sinks)):
        return None
    operands = [
        Operand(
            name,
            Tensor(x._storage, x.kind, view.shape, view.strides, x.offset),
            view.operand_strides,
            view.packed,
        )
        for name, x, view in zip(("query", "key", "value"), (query, key, value), known.views, strict=False)
    ]
    return Inputs(
        device,
        known.problem,
        operands[0],
        operands[1],
        operands[2] if value is not None else None,
        mask,
        lengths,
        known.swapped,
        Mods(),
        sinks=sinks,
        plans=known.plans,
    )


def padded_output(inputs: Inputs, shape: Sequence[int], dtype: str) -> Tensor:
    """An output seen as [B, H, S, D], lying in the caller's layout, its rows padded to whole vec4s."""
    batch, heads, rows, dim = shape
    lying = (batch, rows, heads, dim) if inputs.swapped else (batch, heads, rows, dim)
    return inputs.as_bhsd(inputs.device.empty(lying, dtype, pitch=pad4(dim)))


def output_like(name: str, value: object, expected: tuple[int, ...], inputs: Inputs) -> Operand:
    """``value``, which must have the shape of the output, seen as [B, Hq, Sq, Dv]."""
    shape = shape_of(name, value)
    wanted = (expected[0], expected[2], expected[1], expected[3]) if inputs.swapped else expected
    if tuple(shape) != wanted:
        raise ValueError(f"{name}: expected the output's shape {list(wanted)}, got {list(shape)}")
    tensor = float_tensor(name, value, inputs.device)
    return operand("grad" if name == "grad_out" else name, inputs.as_bhsd(tensor))


def check_lse(lse: object, inputs: Inputs) -> Tensor:
    """The LSE [B, Hq, Sq] as a float32 tensor."""
    p = inputs.problem
    expected = (p.batch, p.heads, p.queries)
    shape = shape_of("lse", lse)
    if tuple(shape) != expected:
        raise ValueError(f"lse: expected [B, Hq, Sq] = {list(expected)}, got {list(shape)}")
    tensor = float_tensor("lse", lse, inputs.device)
    if tensor.dtype != "float32":
        raise TypeError(f"lse: expected float32, got {tensor.dtype}")
    return tensor


def score_params(inputs: Inputs, firsts: dict[str, int]) -> dict[str, object]:
    """Values of ``SCORE_PARAMS``; ``firsts`` holds each binding's first element by the input's name."""
    problem = inputs.problem
    return {
        "query_strides": inputs.query.strides,
        "key_strides": inputs.key.strides,
        "mask_strides": _broadcast_strides(inputs.mask),
        "query_first": firsts["query"],
        "key_first": firsts["key"],
        "mask_first": firsts.get("mask", 0),
        "lengths_first": firsts.get("kv_lengths", 0),
        "lengths_stride": inputs.lengths.strides[0] if inputs.lengths is not None else 0,
        "batch": inputs.packing.sequences if inputs.packing else problem.batch,
        "heads": problem.heads,
        "group": problem.group,
        "queries": problem.queries,
        "keys": problem.keys,
        **masking_params(problem.masking, natural=inputs.mods.has_score_mod),
    }


def masking_params(masking: Masking, *, natural: bool = False) -> dict[str, object]:
    """The params of a masking: window, alignment and the scales, in units of log2 unless ``natural``."""
    cap = masking.softcap
    unit = 1.0 if natural else LOG2_E
    return {
        "window_left": _bounded(masking.window_left),
        "window_right": _bounded(masking.window_right),
        "top_left": int(masking.top_left),
        "query_scale": masking.scale / cap if cap else masking.scale * unit,
        "score_scale": cap * unit,
        "empty_lse": -math.inf,
    }


def _bounded(side: int | None) -> int:
    return UNBOUNDED if side is None else max(-UNBOUNDED, min(side, UNBOUNDED))


def _broadcast_strides(mask: Tensor | None) -> Sequence[int]:
    if mask is None:
        return (0, 0, 0, 0)
    strides = [0 if n == 1 else s for n, s in zip(mask.shape, mask.strides, strict=True)]
    return [0] * (4 - len(strides)) + strides
