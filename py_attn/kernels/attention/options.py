"""What a call of attention asks for: its arguments, checked once and frozen, and its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from py_attn.arguments import Problem, check_layout, check_mask_shape
from py_attn.arguments import resolve as resolve_problem
from py_attn.gpu.device import Device, as_tensor
from py_attn.gpu.kernel import Arg, NewTensor
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.checks import check_lengths, check_mask_dtype, find_device, float_tensor, shape_of
from py_attn.kernels.mods import Mods, trace_mods
from py_attn.kernels.operands import (
    Operand,
    in_vec4s,
    new_operand,
    operand,
    padded_rows,
    strided,
)
from py_attn.kernels.scores import UNBOUNDED, masking_params
from py_attn.kernels.sinks import check_sinks

_MASK_ELEMENTS = {"bool": "u32", "float32": "f32"}


@dataclass(frozen=True, slots=True)
class Options:
    """The checked arguments of a call, without its tensors' contents.

    Attributes
    ----------
    problem : Problem
        Sizes and masking.
    swapped : bool
        Whether the caller's layout is "BSHD".
    query, key, value : Operand
        Seen as [B, H, S, D]; no value where a kernel reads none.
    mask : Operand or None
        Its strides are those of [B, Hq, Sq, Sk], 0 along axes that it broadcasts.
    lengths_stride : int or None
        None without kv_lengths.
    sinks_dtype : str or None
    sinks_stride : int
    mods : Mods
    sequences : int or None
        Of a packed call.
    lengths : tuple of (int, int) or None
        The queries and keys of each packed sequence, where they need not be read back from the GPU.
    """

    problem: Problem
    swapped: bool
    query: Operand
    key: Operand
    value: Operand | None
    mask: Operand | None
    lengths_stride: int | None
    sinks_dtype: str | None
    sinks_stride: int
    mods: Mods
    sequences: int | None = None
    lengths: tuple[tuple[int, int], ...] | None = None

    @property
    def mask_kind(self) -> str:
        """Jinja2's ``mask_kind``: "none", "bool" or a float dtype."""
        return self.mask.dtype if self.mask else "none"

    @property
    def natural(self) -> bool:
        """Whether scores are in natural units, see lib/score.wgsl; else in units of log2."""
        return self.mods.has_score_mod or self.mask_kind not in ("none", "bool")

    @property
    def runs_code_per_score(self) -> bool:
        """Whether a kernel runs code of some length for each score."""
        return self.mask is not None or bool(self.mods.wgsl)

    @property
    def hides(self) -> bool:
        """Whether a tile that a row needs may hold keys that it does not see. Lengths are where tiles end."""
        masking = self.problem.masking
        return self.runs_code_per_score or (masking.window_left, masking.window_right) != (None, None)

    @property
    def out_shape(self) -> tuple[int, int, int, int]:
        """The output seen as [B, Hq, Sq, Dv]."""
        p = self.problem
        return p.batch, p.heads, p.queries, p.value_head_dim

    @property
    def lse_shape(self) -> tuple[int, int, int]:
        """[B, Hq, Sq]."""
        return self.out_shape[:3]

    def operands(self) -> list[Operand]:
        """Query, key and, where there is one, value."""
        return [self.query, self.key, *([self.value] if self.value else [])]

    @property
    def all_float32(self) -> bool:
        """Whether all operands are float32."""
        return all(x.dtype == "float32" for x in self.operands())

    def dtypes(self, *others: str) -> tuple[str, ...]:
        """All dtypes that a kernel reads, ``others`` among them."""
        read = {self.mask_kind, *self.mods.captured, *(x.dtype for x in self.operands()), *others}
        return tuple(sorted(read))

    def args(self) -> list[Arg]:
        """The inputs as a kernel declares them: operands, mask, lengths, and tensors that mods look up."""
        found = [x.arg for x in self.operands()]
        if self.mask:
            found.append(Arg("mask", _MASK_ELEMENTS.get(self.mask_kind, "u32")))
        if self.lengths_stride is not None:
            found.append(Arg("lengths", "i32", tensor="kv_lengths"))
        return found + self.mods.args()

    def constants(self) -> dict[str, Any]:
        """Template variables that every kernel with scores needs."""
        found: dict[str, Any] = {}
        for x in self.operands():
            found |= x.constants()
        found["dtypes"] = self.dtypes()
        found["softcap"] = bool(self.problem.masking.softcap)
        found["mask_kind"] = self.mask_kind
        found["natural"] = self.natural
        found["has_lengths"] = self.lengths_stride is not None
        found["varlen"] = self.sequences is not None
        found |= self.mods.constants()
        found["masks"] = self.mask is not None or self.mods.has_mask_mod
        found["hides"] = self.hides
        found["in_cache"] = found["has_kept"] = False
        found["D"] = self.problem.head_dim
        found["D4"] = in_vec4s(self.problem.head_dim)
        return found

    def value_constants(self) -> dict[str, Any]:
        """Template variables of kernels that read values."""
        return {"DV": self.problem.value_head_dim, "DV4": in_vec4s(self.problem.value_head_dim)}

    def score_params(self) -> dict[str, object]:
        """Values of ``SCORE_PARAMS``, without the first elements."""
        problem = self.problem
        return {
            "query_strides": self.query.strides,
            "key_strides": self.key.strides,
            "mask_strides": self.mask.strides if self.mask else (0, 0, 0, 0),
            "lengths_stride": self.lengths_stride or 0,
            "batch": problem.batch if self.sequences is None else self.sequences,
            "heads": problem.heads,
            "group": problem.group,
            "queries": problem.queries,
            "keys": problem.keys,
            **masking_params(problem.masking, natural=self.natural),
        }

    def sink_params(self) -> dict[str, object]:
        """The value of ``sinks_stride``."""
        return {"sinks_stride": self.sinks_stride}

    def result(self, name: str, shape: Sequence[int], dtype: str) -> NewTensor:
        """A result seen as [B, H, S, D], lying in the caller's layout."""
        batch, heads, rows, dim = shape
        lying = (batch, rows, heads, dim) if self.swapped else (batch, heads, rows, dim)
        return padded_rows(name, lying, dtype)

    def result_strides(self, shape: Sequence[int]) -> tuple[int, int, int, int]:
        """The strides of such a result, seen as [B, H, S, D]."""
        lying = new_operand("result", self.result("result", shape, "float32"))
        first, second, third, fourth = lying.strides
        return (first, third, second, fourth) if self.swapped else (first, second, third, fourth)


class Keywords(NamedTuple):
    """The keywords of a call as they were given, in the order in which its plan key holds them."""

    causal: object
    window: object
    scale: object
    softcap: object
    query_offset: object
    layout: object
    score_mod: object
    mask_mod: object


class Call(NamedTuple):
    """Checked arguments: where the call runs, what it asks, and its tensors by name, all on the device."""

    device: Device
    options: Options
    tensors: Mapping[str, Tensor]

    def with_(self, changes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Call:
        """The same with other options and more tensors."""
        return Call(self.device, replace(self.options, **changes), {**self.tensors, **tensors})


def resolve(
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
    differentiated: Sequence[Tensor] = (),
    buffers: int = 5,
) -> Call:
    """Check everything, then upload what is not on the device yet.

    ``slope`` asks for the derivative of ``score_mod`` too, and ``differentiated`` for those with respect to
    what it looks up in these tensors. A ``prob_mod`` gives what stands in for each probability, also those of
    hidden keys; only the naive variant knows it. ``buffers`` is how many the kernels bind at most, beside the
    mask, the lengths, the sinks and the tensors that the functions look things up in.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.
    """
    swapped = check_layout(layout) == "BSHD"
    device = find_device(query, key, value, mask, kv_lengths)
    given = {"query": query, "key": key} | ({} if value is None else {"value": value})
    shapes = {name: shape_of(name, x) for name, x in given.items()}
    if swapped:
        shapes = {n: (s[0], s[2], s[1], s[3]) if len(s) == 4 else s for n, s in shapes.items()}
    problem = resolve_problem(
        shapes["query"],
        shapes["key"],
        shapes.get("value"),
        causal=causal,
        window=window,
        scale=scale,
        softcap=softcap,
        query_offset=query_offset,
        may_share=True,
    )
    if max(problem.queries, problem.keys) >= UNBOUNDED:
        raise ValueError(f"key: expected fewer than {UNBOUNDED:,} queries and keys")
    if mask is not None:
        check_mask_shape(shape_of("mask", mask), problem.score_shape)
        check_mask_dtype(mask)
    if kv_lengths is not None:
        check_lengths(kv_lengths, problem.batch, problem.keys)
    check_sinks(sinks, problem.heads)
    mods, tensors = trace_mods(
        score_mod,
        mask_mod,
        device,
        prob_mod=prob_mod,
        slope=slope,
        differentiated=differentiated,
        others=buffers + sum(x is not None for x in (mask, kv_lengths, None if slope else sinks)),
    )
    for name, x in given.items():
        tensors[name] = as_bhsd(float_tensor(name, x, device), swapped)
    if mask is not None:
        tensors["mask"] = as_tensor("mask", mask, device)
    if kv_lengths is not None:
        tensors["kv_lengths"] = as_tensor("kv_lengths", kv_lengths, device, "int32")
    if sinks is not None:
        tensors["sinks"] = float_tensor("sinks", sinks, device)
    operands = {name: operand(name, tensors[name]) for name in given}
    options = Options(
        problem=problem,
        swapped=swapped,
        query=operands["query"],
        key=operands["key"],
        value=operands.get("value"),
        mask=None if mask is None else _mask_operand(tensors["mask"]),
        lengths_stride=None if kv_lengths is None else tensors["kv_lengths"].strides[0],
        sinks_dtype=None if sinks is None else tensors["sinks"].dtype,
        sinks_stride=0 if sinks is None else tensors["sinks"].strides[0],
        mods=mods,
    )
    return Call(device, options, tensors)


def as_bhsd(tensor: Tensor, swapped: bool) -> Tensor:
    """A tensor in the caller's layout seen as [B, H, S, D], and the other way round."""
    return tensor.transpose(0, 2, 1, 3) if swapped else tensor


def _mask_operand(mask: Tensor) -> Operand:
    return Operand("mask", mask.dtype, mask.shape, strided(mask), "single")


def resolve_like_output(name: str, value: object, call: Call) -> tuple[Operand, Tensor]:
    """``value``, which must have the shape of the output, seen as [B, Hq, Sq, Dv].

    Raises
    ------
    ValueError, TypeError
        When it has another shape or no floating dtype.
    """
    shape = shape_of(name, value)
    b, h, s, d = call.options.out_shape
    wanted = (b, s, h, d) if call.options.swapped else (b, h, s, d)
    if tuple(shape) != wanted:
        raise ValueError(f"{name}: expected the output's shape {list(wanted)}, got {list(shape)}")
    tensor = as_bhsd(float_tensor(name, value, call.device), call.options.swapped)
    return operand("grad" if name == "grad_out" else name, tensor), tensor


def resolve_lse(lse: object, call: Call, name: str = "lse") -> Tensor:
    """The LSE [B, Hq, Sq], or its gradient, as a float32 tensor.

    Raises
    ------
    ValueError, TypeError
        When it has another shape or dtype.
    """
    expected = call.options.lse_shape
    shape = shape_of(name, lse)
    if tuple(shape) != expected:
        raise ValueError(f"{name}: expected [B, Hq, Sq] = {list(expected)}, got {list(shape)}")
    tensor = float_tensor(name, lse, call.device)
    if tensor.dtype != "float32":
        raise TypeError(f"{name}: expected float32, got {tensor.dtype}")
    return tensor
