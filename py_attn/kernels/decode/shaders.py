"""The shaders of decode: the pass over the splits and the one that combines them."""

from __future__ import annotations

import functools
from typing import Any

from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import SUBGROUP_ID, Binding, Shader, render
from py_attn.kernels.attention.options import SCORE_PARAMS, Operand, output_type, pad4
from py_attn.kernels.decode.cache import KVCache
from py_attn.kernels.decode.config import Shape, power_of_two
from py_attn.kernels.mods import MOD_PARAMS, Mods
from py_attn.kernels.quantization import turboquant
from py_attn.kernels.sinks import SINK_PARAMS, sink_binding, sink_constants

SPLIT_PARAMS = ParamsLayout(
    **SCORE_PARAMS,
    kv_heads="u32",
    chunks="u32",
    splits="u32",
    split_first="u32",
    split_span="u32",
    split_stride="u32",
    first_key="u32",
    start="u32",
    capacity="u32",
    kept="u32",
    dropped="i32",
    query_place="i32",
    **MOD_PARAMS,
    **SINK_PARAMS,
)
REDUCE_PARAMS = ParamsLayout(
    rows="u32", splits="u32", heads="u32", queries="u32", empty_lse="f32", **SINK_PARAMS
)
_REDUCE_WORKGROUP = 256
# Columns of a workgroup of the reduction, in vec4s: what memory gives at one go.
_REDUCE_COLUMNS = 8


def _row_type(dtype: str, form: turboquant.Format | None, wide: bool) -> str:
    if form:
        return "u32"
    return "vec4<u32>" if wide else output_type(dtype)


def split_shader(
    cache: KVCache,
    query: Operand,
    mods: Mods,
    laid_out: Shape,
    *,
    wide: tuple[bool, bool],
    softcap: bool,
    rotates: bool,
    out_dtype: str,
    write_lse: bool,
    sinks: str | None,
) -> Shader:
    """The pass over the splits.

    Parameters
    ----------
    wide : (bool, bool)
        Whether keys and values are read eight numbers at a go.
    rotates : bool
        Whether it rotates the query.
    out_dtype : str
        Of what it writes: the result of one split, or parts of it in float32.
    sinks : str or None
        The sinks' dtype.
    """
    dims = query.tensor.shape[3], cache.value_head_dim
    d4, dv4 = (pad4(dim) // 4 for dim in dims)
    key_form, value_form = cache.key_format, cache.value_format
    bindings = [
        query.binding,
        Binding("key", _row_type(cache.dtype[0], key_form, wide[0])),
        Binding("value", _row_type(cache.dtype[1], value_form, wide[1])),
        *mods.bindings(),
    ]
    if sinks:
        bindings.append(sink_binding(sinks))
    bindings.append(Binding("out", output_type(out_dtype), writes=True))
    if write_lse:
        bindings.append(Binding("lse", "f32", writes=True))
    dtypes = query.tensor.dtype, *cache.dtype, out_dtype, *mods.captured
    constants = {
        "query_dtype": query.tensor.dtype,
        "query_packed": query.packed,
        "key_dtype": cache.dtype[0],
        "value_dtype": cache.dtype[1],
        # From one row of the cache to the next: words of codes, or elements.
        "KEY_PITCH": key_form.words if key_form else 4 * d4,
        "VALUE_PITCH": value_form.words if value_form else 4 * dv4,
        "key_wide": wide[0],
        "value_wide": wide[1],
        "out_dtype": out_dtype,
        "dtypes": dtypes,
        "softcap": softcap,
        **mods.constants(),
        **sink_constants(sinks, dtypes),
        "has_kept": cache.sink_tokens > 0,
        "D": dims[0],
        "D4": d4,
        "DV": dims[1],
        "DV4": dv4,
        **laid_out.constants(),
        "subgroup_ids": laid_out.subgroups and SUBGROUP_ID in cache.device.info.features,
        "rotates": rotates,
        "unrolled": not cache.device.info.software,
        "write_lse": write_lse,
    }
    return _render_split(tuple(bindings), tuple(constants.items()), key_form, value_form)


@functools.lru_cache(maxsize=128)
def _render_split(
    bindings: tuple[Binding, ...],
    constants: tuple[tuple[str, Any], ...],
    key_form: turboquant.Format | None,
    value_form: turboquant.Format | None,
) -> Shader:
    values = dict(constants)
    rows = values["ROWS"]
    return render(
        "decode/split.wgsl",
        "decode_split",
        f"{rows}-row{'s' if rows > 1 else ''}{', subgroup' if values['subgroups'] else ''}",
        params=SPLIT_PARAMS,
        bindings=bindings,
        constants=values
        | {
            "key_row": key_form.row() if key_form else None,
            "value_row": value_form.row() if value_form else None,
            "mask_kind": "none",
            "masks": values["has_mask_mod"],
            "has_lengths": False,
            "in_cache": True,
            **turboquant.ROTATION,
        },
        enable=("subgroups",) if values["subgroups"] else (),
        requires=(SUBGROUP_ID,) if values["subgroup_ids"] else (),
    )


def reduce_columns(dim: int, rotates: bool) -> int:
    """Columns of a workgroup of the reduction, in vec4s; all that are rotated together."""
    dv4 = pad4(dim) // 4
    return dv4 if rotates else min(_REDUCE_COLUMNS, power_of_two(dv4))


@functools.lru_cache(maxsize=32)
def reduce_shader(
    dtype: str, dim: int, *, write_lse: bool, sinks_dtype: str | None, rotates: bool, subgroup_ids: bool
) -> Shader:
    """The pass that combines the splits into rows of ``dim`` numbers; with ``rotates`` it turns them back."""
    bindings = [Binding("partial_out", "vec4<f32>"), Binding("partial_lse", "f32")]
    if sinks_dtype:
        bindings.append(sink_binding(sinks_dtype))
    bindings.append(Binding("out", output_type(dtype), writes=True))
    if write_lse:
        bindings.append(Binding("lse", "f32", writes=True))
    return render(
        "decode/reduce.wgsl",
        "decode_reduce",
        f"{dtype}, subgroup" if rotates else dtype,
        params=REDUCE_PARAMS,
        bindings=tuple(bindings),
        constants={
            "out_dtype": dtype,
            "dtypes": (dtype,),
            **sink_constants(sinks_dtype, (dtype,)),
            "D": dim,
            "DV4": pad4(dim) // 4,
            "COLUMNS": reduce_columns(dim, rotates),
            "WORKGROUP": _REDUCE_WORKGROUP,
            "write_lse": write_lse,
            "rotates": rotates,
            "subgroup_ids": subgroup_ids,
            **turboquant.ROTATION,
        },
        enable=("subgroups",) if rotates else (),
        requires=(SUBGROUP_ID,) if subgroup_ids else (),
    )
