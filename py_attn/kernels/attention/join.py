"""The pass that joins tiles of attention which were computed in pieces (see ``cut_of`` in ``_tiles.py``)."""

from __future__ import annotations

import functools
import math

from py_attn.gpu.device import Device
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, Shader, render
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.options import Inputs, operand, output_type, pad4
from py_attn.kernels.attention.tiles import Cut, Tile
from py_attn.kernels.forms import Launch
from py_attn.kernels.sinks import SINK_PARAMS, sink_binding, sink_constants, sink_params

#: What find_query_tile in lib/query_tile.wgsl needs to know: how many tiles are whole, how many are cut
#: and into how many pieces, and the keys of a piece.
CUT_PARAMS = {"whole": "u32", "cut": "u32", "pieces": "u32", "piece_keys": "u32"}
#: What pieces leave: of each row its sums, and behind them the maximum and the total.
PIECES = Binding("pieces", "vec4<f32>", writes=True)
_PARAMS = ParamsLayout(
    **CUT_PARAMS,
    **SINK_PARAMS,
    out_strides="vec4<u32>",
    batch="u32",
    heads="u32",
    queries="u32",
    tiles="u32",
    empty_lse="f32",
)
_WORKGROUP = 256


def cut_params(cut: Cut | None, tiles: int) -> dict[str, int]:
    """Values of ``CUT_PARAMS`` for so many tiles in all."""
    cut = cut or Cut(0, 0, 0)
    return {"whole": tiles - cut.tiles, "cut": cut.tiles, "pieces": cut.pieces, "piece_keys": cut.keys}


def empty_pieces(device: Device, cut: Cut, tile_rows: int, dim: int) -> Tensor:
    """Memory for what ``PIECES`` holds."""
    return device.empty((cut.tiles * cut.pieces * tile_rows, pad4(dim) + 4))


def plan_join(
    inputs: Inputs, cut: Cut, tile: Tile, tiles: int, out: Tensor, sinks_first: int, *, return_lse: bool
) -> Launch:
    """Its launch, a head having so many tiles; its buffers are pieces, sinks, output and LSE."""
    p, sinks = inputs.problem, inputs.sinks
    dim4 = pad4(p.value_head_dim) // 4
    params = _PARAMS.pack(
        **cut_params(cut, tiles * p.heads * p.batch),
        **sink_params(sinks, sinks_first),
        out_strides=operand("out", out).strides,
        batch=p.batch,
        heads=p.heads,
        queries=p.queries,
        tiles=tiles,
        empty_lse=-math.inf,
    )
    shader = _shader(out.dtype, dim4, tile.queries, return_lse, sinks.dtype if sinks is not None else None)
    workgroups = -(-cut.tiles * tile.queries * dim4 // _WORKGROUP)
    return Launch(shader, params, inputs.device.grid(workgroups, "query"))


@functools.lru_cache(maxsize=32)
def _shader(dtype: str, dim4: int, tile_rows: int, return_lse: bool, sinks_dtype: str | None) -> Shader:
    bindings = [Binding(PIECES.name, PIECES.type)]
    if sinks_dtype:
        bindings.append(sink_binding(sinks_dtype))
    bindings.append(Binding("out", output_type(dtype), writes=True))
    if return_lse:
        bindings.append(Binding("lse", "f32", writes=True))
    return render(
        "attention/join.wgsl",
        "attention_join",
        dtype,
        params=_PARAMS,
        bindings=tuple(bindings),
        constants={
            "out_dtype": dtype,
            "dtypes": (dtype,),
            **sink_constants(sinks_dtype, (dtype,)),
            "DV4": dim4,
            "BQ": tile_rows,
            "WORKGROUP": _WORKGROUP,
            "return_lse": return_lse,
        },
    )
