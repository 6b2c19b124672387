"""Rotary position embeddings (RoPE: Su et al., arXiv 2104.09864) by tables of cosines and sines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from py_attn.arguments import check_bool, check_int
from py_attn.gpu.binding import Limits
from py_attn.gpu.kernel import Arg, Kernel, Launch, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.checks import find_device, float_tensor, integer_tensor, shape_of
from py_attn.kernels.operands import Operand, in_vec4s, operand, output_type, padded_rows, scalar_type

#: What lib/rotary.wgsl reads.
ROTARY_PARAMS = {
    "cos_strides": "vec2<u32>",
    "sin_strides": "vec2<u32>",
    "cos_table_first": "u32",
    "sin_table_first": "u32",
    "table_positions": "u32",
    "first_position": "i32",
    "not_a_number": "f32",
}
_WORKGROUP = 64
_ROTARY = Kernel(
    "rotary",
    "decode/rotary.wgsl",
    ParamsLayout(
        source_strides="vec4<u32>",
        source_first="u32",
        batch="u32",
        heads="u32",
        count="u32",
        totals_first="u32",
        positions_first="u32",
        positions_strides="vec2<u32>",
        **ROTARY_PARAMS,
    ),
)


class Rotary(NamedTuple):
    """Tables of cosines and sines, and which numbers of a row are pairs.

    Attributes
    ----------
    names : (str, str)
        What the tables are called among a call's tensors.
    interleaved : bool
    """

    names: tuple[str, str]
    interleaved: bool

    def args(self, tensors: Mapping[str, Tensor]) -> list[Arg]:
        """How a kernel declares the tables."""
        return [
            Arg(buffer, scalar_type(tensors[name].dtype), tensor=name)
            for buffer, name in zip(("cos_table", "sin_table"), self.names, strict=True)
        ]

    def params(self, tensors: Mapping[str, Tensor], first_position: int) -> dict[str, Any]:
        """Values of ``ROTARY_PARAMS`` but for the tables' first elements."""
        cos, sin = (tensors[name] for name in self.names)
        return {
            "cos_strides": cos.strides,
            "sin_strides": sin.strides,
            "table_positions": cos.shape[0],
            "first_position": first_position,
            "not_a_number": math.nan,
        }

    def constants(self, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Template variables; the tables' dtypes belong to ``dtypes`` too."""
        cos, sin = (tensors[name] for name in self.names)
        return {
            "cos_dtype": cos.dtype,
            "sin_dtype": sin.dtype,
            "interleaved": self.interleaved,
            "ROTARY_DIM": 2 * cos.shape[1],
        }

    def dtypes(self, tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Of the tables."""
        return tuple(tensors[name].dtype for name in self.names)

    def upload(self, tensors: dict[str, Any], device: Any) -> None:
        """Bring the tables among ``tensors`` to the device."""
        for name in self.names:
            tensors[name] = float_tensor(name, tensors[name], device)


#: As the keyword ``rotary`` of appends and decodes names them.
_OF_KEYWORD = ("rotary (cos)", "rotary (sin)")


def tables_of(rotary: object) -> dict[str, Any]:
    """The tables of the keyword ``rotary`` by the names that calls use; None without it.

    Raises
    ------
    TypeError, ValueError
        When it is no pair.
    """
    if rotary is None:
        return dict.fromkeys(_OF_KEYWORD)
    if not isinstance(rotary, (tuple, list)):
        raise TypeError(f"rotary: expected (cos, sin), got {type(rotary).__name__}")
    if len(rotary) != 2:
        raise ValueError(f"rotary: expected (cos, sin), got {len(rotary)} values")
    return dict(zip(_OF_KEYWORD, rotary, strict=True))


def check_keyword(
    tables: Mapping[str, Any], interleaved: object, head_dim: int, end: int | None
) -> Rotary | None:
    """What the keywords ``rotary`` and ``rotary_interleaved`` ask for, None where no table was given.

    Parameters
    ----------
    tables : mapping
        As of :func:`tables_of`.
    end : int or None
        Positions that the tables must have; None where only the GPU knows.
    """
    kind = check_bool("rotary_interleaved", interleaved)
    if tables[_OF_KEYWORD[0]] is None and tables[_OF_KEYWORD[1]] is None:
        return None
    check_tables({name: tables[name] for name in _OF_KEYWORD}, head_dim, end)
    return Rotary(_OF_KEYWORD, kind)


def check_tables(tables: Mapping[str, Any], head_dim: int, end: int | None) -> None:
    """Check a table of cosines and one of sines [positions, n], by their names.

    Raises
    ------
    ValueError, TypeError
        For other shapes, 2n above ``head_dim``, or fewer positions than ``end``.
    """
    (cos, _), (sin, _) = tables.items()
    shapes = {name: shape_of(name, table) for name, table in tables.items()}
    shape = shapes[cos]
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"{cos}: expected [positions, rotary_dim / 2], got {list(shape)}")
    if 2 * shape[1] > head_dim:
        raise ValueError(
            f"{cos}: expected at most {head_dim // 2} columns, one for each pair of the head dim {head_dim}, "
            f"got {shape[1]}"
        )
    if shapes[sin] != shape:
        raise ValueError(f"{sin}: expected the shape {list(shape)} of the cosines, got {list(shapes[sin])}")
    if end is not None and end > shape[0]:
        raise ValueError(
            f"{cos}: expected a row for each of the positions 0 to {end - 1}, got {shape[0]} rows"
        )
    for name, table in tables.items():
        kind = table.kind.floating if isinstance(table, Tensor) else _is_float(table)
        if not kind:
            raise TypeError(f"{name}: expected floating numbers")


def _is_float(table: Any) -> bool:
    dtype = np.asarray(table).dtype
    return dtype.kind == "f" or dtype.name == "bfloat16"


def rotary(x: Any, cos: Any, sin: Any, *, positions: Any = 0, interleaved: bool = False) -> Tensor:
    """Rotary position embeddings: pairs of each head's numbers turn by an angle that grows with the position.

    Parameters
    ----------
    x : Tensor or array_like
        [B, H, S, D], queries or keys of any float dtype.
    cos, sin : Tensor or array_like
        [max_positions, rotary_dim / 2] of floats: of the angle by which each pair turns at each position,
        usually position · base^(-2i / rotary_dim). Of a head's numbers only the first
        rotary_dim <= D turn.
    positions : int, or Tensor or array_like of int
        The position of the first row; [B]: that of each batch element's first row; or [B, S] or [1, S]: that
        of each row.
    interleaved : bool
        Whether the pairs are the numbers 2i and 2i + 1 (GPT-J, the paper); else i and i + rotary_dim / 2
        (GPT-NeoX, Hugging Face's Llama).

    Returns
    -------
    Tensor
        [B, H, S, D] in the dtype of ``x``: of a pair (u, v) it has u·cos - v·sin and u·sin + v·cos. A row
        whose position the tables do not have is NaN, where the position is known only on the GPU.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected; before anything is dispatched for a
        position that the tables do not have, unless ``positions`` is a Tensor.

    Notes
    -----
    RoFormer (Su et al., arXiv 2104.09864). The gradient turns back: ``rotary(grad, cos, -sin)``.
    """
    place = None if _is_number(positions) else positions
    tensors = {"x": x, "cos": cos, "sin": sin, "positions": place}
    first = positions if place is None else 0

    def make() -> Planned:
        shape = shape_of("x", x)
        if len(shape) != 4 or not shape[3]:
            raise ValueError(f"x: expected [B, H, S, D >= 1], got {list(shape)}")
        kind = check_bool("interleaved", interleaved)
        end = _check_positions(positions, shape[0], shape[2])
        check_tables({"cos": cos, "sin": sin}, shape[3], end)
        given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        device = find_device(*given.values())
        found = Rotary(("cos", "sin"), kind)
        given["x"] = float_tensor("x", x, device)
        found.upload(given, device)
        if place is not None:
            given["positions"] = integer_tensor("positions", place, device)
        out = padded_rows("out", shape, given["x"].dtype)
        launches = []
        if 0 not in shape:
            source = operand("source", given["x"])
            launches.append(
                launch_rotary(
                    source, out, found, given, device.info.limits, name="x", first_position=int(first)
                )
            )
        return Planned(device, Plan((out,), tuple(launches)), given)

    return run_call("rotary", tensors, (first, interleaved), make)["out"]


def _is_number(positions: object) -> bool:
    return not isinstance(positions, Tensor) and np.ndim(positions) == 0  # type: ignore[arg-type]


def _check_positions(positions: Any, batch: int, count: int) -> int | None:
    """Check ``positions``; how many positions the tables must have, None where only the GPU knows."""
    if _is_number(positions):
        first = check_int("positions", positions)
        if first < 0:
            raise ValueError(f"positions: expected at least 0, got {first}")
        return first + count
    shape = shape_of("positions", positions)
    if shape not in ((batch,), (batch, count), (1, count)):
        raise ValueError(
            f"positions: expected a number, [{batch}], one a batch element, or [{batch}, {count}], one a "
            f"row, got {list(shape)}"
        )
    if isinstance(positions, Tensor):
        if positions.dtype not in ("int32", "uint32"):
            raise TypeError(f"positions: expected integers, got {positions.dtype}")
        return None
    values = np.asarray(positions)
    if values.dtype.kind not in "iu":
        raise TypeError(f"positions: expected integers, got {values.dtype}")
    if not values.size:
        return 0
    if values.min() < 0:
        raise ValueError(f"positions: expected at least 0, got {values.min()}")
    return int(values.max()) + (count if values.ndim == 1 else 1)


def launch_rotary(
    source: Operand,
    out: NewTensor,
    rotary: Rotary,
    tensors: Mapping[str, Tensor],
    limits: Limits,
    *,
    name: str,
    first_position: int = 0,
) -> Launch:
    """Plan turning rows [B, H, S, D], called ``name`` in the call, from ``first_position`` on.

    With a tensor "positions" among ``tensors`` that says where rows stand, as of :func:`rotary`; with
    "totals" [B] the rows are the last of so many positions of each batch element.
    """
    batch, heads, count, dim = source.shape
    positions, has_totals = tensors.get("positions"), "totals" in tensors
    strides = (0, 0)
    if positions is not None:
        steps = [0 if n == 1 else s for n, s in zip(positions.shape, positions.strides, strict=True)]
        strides = (steps[0], steps[1] if len(steps) > 1 else 0)
    return launch(
        _ROTARY,
        [
            Arg("source", source.arg.type, tensor=name),
            *([Arg("totals", "i32")] if has_totals else []),
            *([Arg("positions", "i32")] if positions is not None else []),
            *rotary.args(tensors),
            Arg("out", output_type(out.dtype), writes=True, tensor=out.name),
        ],
        tensors,
        limits,
        variant="interleaved" if rotary.interleaved else "halves",
        workgroups=-(-batch * heads * count * in_vec4s(dim) // _WORKGROUP),
        params={
            "source_strides": source.strides,
            "batch": batch,
            "heads": heads,
            "count": count,
            "positions_strides": strides,
            **rotary.params(tensors, first_position),
        },
        constants={
            "source_dtype": source.dtype,
            "source_packed": source.packed,
            "out_dtype": out.dtype,
            "dtypes": (source.dtype, out.dtype, *rotary.dtypes(tensors)),
            "has_totals": has_totals,
            "has_positions": positions is not None,
            "from_first": positions is not None and positions.ndim == 1,
            "D": dim,
            "D4": in_vec4s(dim),
            "WORKGROUP": _WORKGROUP,
            **rotary.constants(tensors),
        },
        grid_name=name,
    )
