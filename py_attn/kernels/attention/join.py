"""The launch that joins tiles of attention which were computed in pieces (see ``cut_of`` in ``tiles.py``)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from py_attn.gpu.bridge import AdapterInfo
from py_attn.gpu.kernel import Arg, Kernel, Launch, NewTensor, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.options import Options
from py_attn.kernels.attention.tiles import Cut
from py_attn.kernels.lse import LSE_PARAMS, lse_plane
from py_attn.kernels.operands import in_vec4s, output_type, pad4
from py_attn.kernels.sinks import SINK_PARAMS, sink_args, sink_constants

#: What find_query_tile in lib/query_tile.wgsl needs to know: how many tiles are whole, how many are cut
#: and into how many pieces, and the keys of a piece.
CUT_PARAMS = {"whole": "u32", "cut": "u32", "pieces": "u32", "piece_keys": "u32"}
_JOIN = Kernel(
    "attention_join",
    "attention/join.wgsl",
    ParamsLayout(
        **CUT_PARAMS,
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


def cut_params(cut: Cut | None, tiles: int) -> dict[str, int]:
    """Values of ``CUT_PARAMS`` for so many tiles in all."""
    cut = cut or Cut(0, 0, 0)
    return {"whole": tiles - cut.tiles, "cut": cut.tiles, "pieces": cut.pieces, "piece_keys": cut.keys}


def pieces_arg(*, writes: bool) -> Arg:
    """What pieces leave: of each row its sums, and behind them the maximum and the total."""
    return Arg("pieces", "vec4<f32>", writes=writes)


def new_pieces(cut: Cut, tile_rows: int, dim: int) -> NewTensor:
    """Memory for them."""
    return NewTensor("pieces", (cut.tiles * cut.pieces * tile_rows, pad4(dim) + 4))


def plan_join(
    options: Options,
    tensors: Mapping[str, Tensor],
    info: AdapterInfo,
    cut: Cut,
    tile_rows: int,
    tiles: int,
    lse: NewTensor | None,
) -> Launch:
    """The second launch, a head having ``tiles`` tiles of ``tile_rows`` rows."""
    p, dtype, sinks_dtype = options.problem, options.query.dtype, options.sinks_dtype
    dim4 = in_vec4s(p.value_head_dim)
    args = [pieces_arg(writes=False), *sink_args(sinks_dtype), Arg("out", output_type(dtype), writes=True)]
    if lse:
        args.append(Arg("lse", "f32", writes=True))
    return launch(
        _JOIN,
        args,
        tensors,
        info.limits,
        variant=dtype,
        workgroups=-(-cut.tiles * tile_rows * dim4 // _WORKGROUP),
        params={
            **cut_params(cut, tiles * p.heads * p.batch),
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
