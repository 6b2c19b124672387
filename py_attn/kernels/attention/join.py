"""The launch that joins the splits of the last tiles of attention: see ``choose_tail_split`` in ``tiles``."""

from __future__ import annotations

import math

from py_attn.gpu.kernel import Arg, Kernel, Launch, NewTensor, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.kernels.attention.options import Call
from py_attn.kernels.attention.tiles import TailSplit
from py_attn.kernels.lse import LSE_PARAMS, lse_plane
from py_attn.kernels.operands import in_vec4s, output_type, pad4
from py_attn.kernels.sinks import SINK_PARAMS, sink_args, sink_constants

#: What find_query_tile in lib/query_tile.wgsl needs to know: how many tiles are computed whole, how many are
#: split along the keys and into how many splits, and the keys of a split.
SPLIT_PARAMS = {"whole_tiles": "u32", "split_tiles": "u32", "splits": "u32", "split_keys": "u32"}
_JOIN = Kernel(
    "attention_join",
    "attention/join.wgsl",
    ParamsLayout(
        **SPLIT_PARAMS,
        **SINK_PARAMS,
        **LSE_PARAMS,
        out_strides="vec4<u32>",
        batch="u32",
        heads="u32",
        queries="u32",
        tiles="u32",
        empty_lse="f32",
    ),
)
_WORKGROUP = 256


def split_params(tail: TailSplit | None, tiles: int) -> dict[str, int]:
    """Values of ``SPLIT_PARAMS`` for so many tiles in all."""
    tail = tail or TailSplit(0, 0, 0)
    return {
        "whole_tiles": tiles - tail.tiles,
        "split_tiles": tail.tiles,
        "splits": tail.splits,
        "split_keys": tail.keys,
    }


def partials_arg(*, writes: bool) -> Arg:
    """The partial results of the splits: of each row its acc, and behind that its row_max and row_sum."""
    return Arg("partials", "vec4<f32>", writes=writes)


def new_partials(tail: TailSplit, tile_rows: int, dim: int) -> NewTensor:
    """The memory that they take."""
    return NewTensor("partials", (tail.tiles * tail.splits * tile_rows, pad4(dim) + 4))


def plan_join(call: Call, tail: TailSplit, tile_rows: int, tiles: int, lse: NewTensor | None) -> Launch:
    """Plan the second launch; a head has ``tiles`` tiles of ``tile_rows`` rows."""
    options, p = call.options, call.options.problem
    dtype, sinks_dtype = options.query.dtype, options.sinks_dtype
    dim4 = in_vec4s(p.value_head_dim)
    args = [partials_arg(writes=False), *sink_args(sinks_dtype), Arg("out", output_type(dtype), writes=True)]
    if lse:
        args.append(Arg("lse", "f32", writes=True))
    return launch(
        _JOIN,
        args,
        call.tensors,
        call.device.info.limits,
        variant=dtype,
        workgroups=-(-tail.tiles * tile_rows * dim4 // _WORKGROUP),
        params={
            **split_params(tail, tiles * p.heads * p.batch),
            **options.sink_params(),
            "lse_plane": lse_plane(lse),
            "out_strides": options.result_strides(options.out_shape),
            "batch": p.batch,
            "heads": p.heads,
            "queries": p.queries,
            "tiles": tiles,
            "empty_lse": -math.inf,
        },
        constants={
            "out_dtype": dtype,
            "dtypes": (dtype,),
            **sink_constants(sinks_dtype, (dtype,)),
            "DV4": dim4,
            "BQ": tile_rows,
            "WORKGROUP": _WORKGROUP,
            "natural": options.natural,
            "return_lse": lse is not None,
        },
    )
