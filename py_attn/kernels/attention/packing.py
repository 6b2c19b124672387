"""Packed sequences: cu_seqlens, and which workgroup serves which tile of which sequence."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from py_attn.gpu.device import Device
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, Shader, render
from py_attn.gpu.tensor import Tensor, as_tensor
from py_attn.kernels.attention.options import Inputs, Packing

#: How a kernel declares the table of :func:`tile_table`, which lib/sequences.wgsl reads.
TILES = Binding("tiles", "vec4<u32>")
_PARAMS = ParamsLayout(
    sequences="u32",
    queries="u32",
    keys="u32",
    tile_rows="u32",
    by_key="u32",
    slots="u32",
    query_first="u32",
    query_stride="u32",
    key_first="u32",
    key_stride="u32",
)
_WORKGROUP = 64


def check_cu_seqlens(name: str, value: Any, total: int) -> int:
    """Check cu_seqlens and return the number of sequences.

    Raises
    ------
    TypeError, ValueError
        Unless they are integers that begin with 0, never fall and end with ``total``. A Tensor's values
        stay on the GPU, where they are clamped instead.
    """
    if isinstance(value, Tensor):
        value.storage(name)
        if value.dtype not in ("int32", "uint32"):
            raise TypeError(f"{name}: expected integers, got {value.dtype}")
        shape: tuple[int, ...] = value.shape
    else:
        numbers = np.asarray(value)
        if numbers.dtype.kind not in "iu":
            raise TypeError(f"{name}: expected integers, got {numbers.dtype}")
        shape = numbers.shape
    if len(shape) != 1 or shape[0] < 2:
        raise ValueError(
            f"{name}: expected shape [sequences + 1] with at least one sequence, got {list(shape)}"
        )
    if not isinstance(value, Tensor):
        if numbers[0] != 0 or numbers[-1] != total:
            raise ValueError(
                f"{name}: expected to begin with 0 and end with the {total} packed rows, "
                f"got {numbers[0]} … {numbers[-1]}"
            )
        if (np.diff(numbers.astype(np.int64)) < 0).any():
            at = int(np.argmax(np.diff(numbers.astype(np.int64)) < 0))
            raise ValueError(
                f"{name}: expected values that never fall, got {numbers[at]} and then {numbers[at + 1]}"
            )
    return shape[0] - 1


def pack(cu_seqlens_q: Any, cu_seqlens_k: Any, queries: int, keys: int, device: Device) -> Packing:
    """Check and upload the cu_seqlens of both sides."""
    sequences = check_cu_seqlens("cu_seqlens_q", cu_seqlens_q, queries)
    others = check_cu_seqlens("cu_seqlens_k", cu_seqlens_k, keys)
    if others != sequences:
        raise ValueError(f"cu_seqlens_k: expected the {sequences} sequences of cu_seqlens_q, got {others}")
    return Packing(
        as_tensor("cu_seqlens_q", cu_seqlens_q, device, "int32"),
        as_tensor("cu_seqlens_k", cu_seqlens_k, device, "int32"),
        sequences,
    )


def tile_slots(total: int, packing: Packing, tile_rows: int) -> int:
    """At least as many slots as there can be tiles: every sequence may end in a partial one."""
    return total // tile_rows + packing.sequences


def tile_table(inputs: Inputs, tile_rows: int, side: str) -> Tensor:
    """What every slot serves, uint32 [slots, 2, 4]; see attention/varlen_tiles.wgsl.

    Parameters
    ----------
    tile_rows : int
        Rows of a tile.
    side : str
        "query" or "key": whose rows the tiles are.
    """
    packing, p, device = inputs.packing, inputs.problem, inputs.device
    assert packing is not None
    slots = tile_slots(p.queries if side == "query" else p.keys, packing, tile_rows)
    table = device.empty((slots, 2, 4), "uint32")
    named = (("cu_seqlens_q", packing.queries), ("cu_seqlens_k", packing.keys), ("tiles", table))
    bound = [device.bind(tensor, name) for name, tensor in named]
    params = _PARAMS.pack(
        sequences=packing.sequences,
        queries=p.queries,
        keys=p.keys,
        tile_rows=tile_rows,
        by_key=int(side == "key"),
        slots=slots,
        query_first=bound[0].first,
        query_stride=packing.queries.strides[0],
        key_first=bound[1].first,
        key_stride=packing.keys.strides[0],
    )
    device.dispatch(_table_shader(), params, bound, device.grid(-(-slots // _WORKGROUP), "cu_seqlens_q"))
    return table


@functools.cache
def _table_shader() -> Shader:
    return render(
        "attention/varlen_tiles.wgsl",
        "varlen_tiles",
        "table",
        params=_PARAMS,
        bindings=(
            Binding("cu_queries", "i32"),
            Binding("cu_keys", "i32"),
            Binding("tiles", TILES.type, writes=True),
        ),
        constants={"WORKGROUP": _WORKGROUP},
    )
