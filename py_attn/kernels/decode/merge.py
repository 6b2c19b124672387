"""Attention over all keys from attention over parts of them, by the parts' LSEs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from py_attn.gpu.binding import Limits
from py_attn.gpu.kernel import Arg, Kernel, Launch, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor, contiguous_strides
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.checks import find_device, float_tensor, shape_of
from py_attn.kernels.lse import LSE_PARAMS, lse_plane, new_lse, row_parts_params
from py_attn.kernels.operands import Operand, in_vec4s, new_operand, operand, output_type, padded_rows
from py_attn.kernels.sinks import sink_constants

_SIDES = ("first", "second")
_MERGE = Kernel(
    "merge",
    "decode/merge.wgsl",
    ParamsLayout(
        **{f"{side}_{kind}_strides": "vec4<u32>" for side in _SIDES for kind in ("out", "lse")},
        **{f"{side}_{kind}_first": "u32" for side in _SIDES for kind in ("out", "lse")},
        **{f"{side}_lse_plane": "u32" for side in _SIDES},
        **{f"{side}_lse_unit": "f32" for side in _SIDES},
        batch="u32",
        heads="u32",
        queries="u32",
        empty_lse="f32",
        **LSE_PARAMS,
    ),
)
_WORKGROUP = 64


def merge(partials: Any, *, return_lse: bool = False) -> Any:
    """Attention over all keys, from the results over parts of them and their LSEs.

    Each part's keys were attended to by the same queries, and no key belongs to two parts. Of cascades and
    shared prefixes: attention over the prefix is computed once for all sequences that begin with it, and over
    the rest for each of them. A learned sink (``sinks``) is given to one of the parts only.

    Parameters
    ----------
    partials : sequence of (out, lse)
        Two or more pairs, as :func:`attention` and :func:`decode_attention` return them with
        ``return_lse=True``: outputs [B, H, S, Dv] of any float dtypes, and LSEs [B, H, S] float32 (natural
        log). An LSE of -inf belongs to a part that saw nothing, whose output is not looked at. Tensors, which
        may be views, or arrays.
    return_lse : bool
        Also return the LSE over all keys.

    Returns
    -------
    Tensor or (Tensor, Tensor)
        [B, H, S, Dv] in the first output's dtype; LSE [B, H, S] float32. With l_p the parts' LSEs,
        lse = log Σ exp(l_p) and out = Σ exp(l_p - lse) · out_p, whatever the order of the parts. A row that
        no part saw is 0 with LSE -inf.

    Raises
    ------
    ValueError, TypeError
        Naming the part, what was given and what was expected.

    Notes
    -----
    Section 3.1 of FlashAttention (Dao et al., arXiv 2205.14135); FlashInfer (arXiv 2501.01005) calls an
    output with its LSE an attention state, and this ``merge_states``.
    """
    pairs = _pairs(partials)
    names = [(f"partials[{n}] out", f"partials[{n}] lse") for n in range(len(pairs))]
    tensors = {
        name: x for both, pair in zip(names, pairs, strict=True) for name, x in zip(both, pair, strict=True)
    }

    def make() -> Planned:
        _check_shapes(tensors, names)
        device = find_device(*tensors.values())
        given = {name: float_tensor(name, x, device) for name, x in tensors.items()}
        for _, lse in names:
            if given[lse].dtype != "float32":
                raise TypeError(f"{lse}: expected float32, got {given[lse].dtype}")
        return Planned(device, _plan(given, names, return_lse), given)

    made = run_call("merge", tensors, (return_lse,), make)
    return (made["out"], made["lse"]) if return_lse else made["out"]


def _pairs(partials: Any) -> list[tuple[Any, Any]]:
    if not isinstance(partials, (list, tuple)) or len(partials) < 2:
        got = f"{len(partials)} of them" if isinstance(partials, (list, tuple)) else type(partials).__name__
        raise ValueError(f"partials: expected two or more pairs (out, lse), got {got}")
    for n, pair in enumerate(partials):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise ValueError(
                f"partials[{n}]: expected a pair (out, lse), as attention returns with return_lse=True, got "
                f"{type(pair).__name__}"
            )
    return [(out, lse) for out, lse in partials]


def _check_shapes(tensors: Mapping[str, Any], names: list[tuple[str, str]]) -> None:
    expected = shape_of(names[0][0], tensors[names[0][0]])
    if len(expected) != 4 or expected[3] < 1:
        raise ValueError(f"{names[0][0]}: expected [B, H, S, Dv], got {list(expected)}")
    for out, lse in names:
        if (shape := shape_of(out, tensors[out])) != expected:
            raise ValueError(f"{out}: expected the first's {list(expected)}, got {list(shape)}")
        if (shape := shape_of(lse, tensors[lse])) != expected[:3]:
            raise ValueError(f"{lse}: expected [B, H, S] = {list(expected[:3])}, got {list(shape)}")


def _plan(given: Mapping[str, Tensor], names: list[tuple[str, str]], return_lse: bool) -> Plan:
    """Merge the parts one after the other; what lies between is float32."""
    first = given[names[0][0]]
    limits = first.device.info.limits
    row_parts = [given[lse].storage(lse).row_parts for _, lse in names]
    # An LSE without its row_max is in natural units, and then all of them are taken so.
    natural = not all(found is not None and not found.natural for found in row_parts)
    parts = [_given_part(given, *both, natural, limits) for both in names]
    makes: list[NewTensor] = []
    launches: list[Launch] = []
    merged = parts[0]
    for n, part in enumerate(parts[1:], 1):
        is_last = n == len(parts) - 1
        dtype, prefix = (first.dtype, "") if is_last else ("float32", f"merged {n} ")
        out = padded_rows(f"{prefix}out", first.shape, dtype)
        lse = new_lse(f"{prefix}lse", first.shape[:3], limits, natural=natural)
        written = lse if return_lse or not is_last else None
        made = [out, written] if written else [out]
        makes += made if is_last else [each.as_scratch for each in made]
        if 0 not in first.shape:
            launches.append(_launch(given, limits, (merged, part), out, written, natural))
        merged = _made_part(out, lse, natural)
    return Plan(tuple(makes), tuple(launches), main=max(0, len(launches) - 1))


class _Part(NamedTuple):
    """A result with its LSE, given or made by an earlier launch: names, and how the tensors are read."""

    out_name: str
    lse_name: str
    out: Operand
    lse_strides: tuple[int, ...]
    lse_plane: object
    lse_unit: object


def _given_part(given: Mapping[str, Tensor], out: str, lse: str, natural: bool, limits: Limits) -> _Part:
    read = row_parts_params(given[lse], limits, natural=natural)
    strides = (*given[lse].strides, 0)
    return _Part(out, lse, operand("out", given[out]), strides, read["lse_plane"], read["lse_unit"])


def _made_part(out: NewTensor, lse: NewTensor, natural: bool) -> _Part:
    plane = lse_plane(lse)
    # Where there was no room for row_max, there is the LSE alone, in natural units.
    unit = 1.0 if plane or natural else math.log2(math.e)
    strides = (*contiguous_strides(lse.shape), 0)
    return _Part(out.name, lse.name, new_operand("out", out), strides, plane, unit)


def _launch(
    given: Mapping[str, Tensor],
    limits: Limits,
    parts: tuple[_Part, _Part],
    out: NewTensor,
    lse: NewTensor | None,
    natural: bool,
) -> Launch:
    args: list[Arg] = []
    params: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for side, part in zip(_SIDES, parts, strict=True):
        args.append(Arg(f"{side}_out", part.out.arg.type, tensor=part.out_name))
        args.append(Arg(f"{side}_lse", "f32", tensor=part.lse_name))
        params[f"{side}_out_strides"] = part.out.strides
        params[f"{side}_lse_strides"] = part.lse_strides
        params[f"{side}_lse_plane"] = part.lse_plane
        params[f"{side}_lse_unit"] = part.lse_unit
        constants |= {f"{side}_dtype": part.out.dtype, f"{side}_packed": part.out.packed}
    args.append(Arg("out", output_type(out.dtype), writes=True, tensor=out.name))
    if lse:
        args.append(Arg("lse", "f32", writes=True, tensor=lse.name))
    batch, heads, queries, dim = out.shape
    dtypes = *(part.out.dtype for part in parts), out.dtype
    return launch(
        _MERGE,
        args,
        given,
        limits,
        variant=out.dtype,
        workgroups=-(-batch * heads * queries * in_vec4s(dim) // _WORKGROUP),
        params={
            **params,
            "batch": batch,
            "heads": heads,
            "queries": queries,
            "empty_lse": -math.inf,
            "lse_plane": lse_plane(lse),
        },
        constants={
            **constants,
            "out_dtype": out.dtype,
            "dtypes": dtypes,
            **sink_constants(None, dtypes),
            "DV": dim,
            "DV4": in_vec4s(dim),
            "WORKGROUP": _WORKGROUP,
            "natural": natural,
            "return_lse": lse is not None,
        },
        grid_name="partials",
    )
