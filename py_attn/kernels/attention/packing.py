"""Packed sequences: cu_seqlens, and which workgroup serves which tile of which sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from py_attn.gpu.device import as_tensor
from py_attn.gpu.kernel import Arg, Kernel, Launch, NewTensor, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.options import Call

#: How a kernel declares the table of :func:`plan_tile_table`, which lib/sequences.wgsl reads.
TILES = Arg("tiles", "vec4<u32>")
#: The order of packed sequences, and where the gradients of their scores lie in their head, see stored.py.
SCORE_PLACES = "score_places"
_TABLE = Kernel(
    "varlen_tiles",
    "attention/varlen_tiles.wgsl",
    ParamsLayout(
        sequences="u32",
        queries="u32",
        keys="u32",
        tile_rows="u32",
        by_key="u32",
        slots="u32",
        cu_queries_first="u32",
        query_stride="u32",
        cu_keys_first="u32",
        key_stride="u32",
    ),
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


def split_at_gaps(
    cu_seqlens: Mapping[str, Any], used: Mapping[str, Any], totals: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """cu_seqlens of three sequences for each one: what is used, queries without keys, keys without queries.

    Parameters
    ----------
    cu_seqlens : mapping
        ``cu_seqlens_q`` and ``cu_seqlens_k``, not on the device.
    used : mapping
        ``seqused_q`` and ``seqused_k``, [sequences] or None.
    totals : mapping
        The packed rows, by the names of ``cu_seqlens``.

    Raises
    ------
    TypeError, ValueError
        For tensors of the device, whose values would have to be read back, and for numbers that do not fit.
    """
    ends = {}
    for (name, cu), (used_name, lengths) in zip(cu_seqlens.items(), used.items(), strict=True):
        for n, x in ((name, cu), (used_name, lengths)):
            if isinstance(x, Tensor):
                raise TypeError(
                    f"{n}: expected an array or a list where seqused is given, got a Tensor: "
                    "read it first, with `await tensor.numpy()`"
                )
        sequences = check_cu_seqlens(name, cu, totals[name])
        edges = np.asarray(cu).astype(np.int64)
        room = np.diff(edges)
        numbers = room if lengths is None else np.asarray(lengths)
        if numbers.dtype.kind not in "iu":
            raise TypeError(f"{used_name}: expected integers, got {numbers.dtype}")
        if numbers.shape != (sequences,):
            raise ValueError(f"{used_name}: expected shape [{sequences}], got {list(numbers.shape)}")
        if (numbers < 0).any() or (numbers > room).any():
            at = int(np.argmax((numbers < 0) | (numbers > room)))
            raise ValueError(f"{used_name}: expected 0 to {room[at]} for sequence {at}, got {numbers[at]}")
        used_end = edges[:-1] + numbers
        middle = edges[1:] if name == "cu_seqlens_q" else used_end
        ends[name] = np.append(0, np.stack([used_end, middle, edges[1:]], 1)).astype(np.int32)
    return ends


def pack(call: Call, cu_seqlens_q: Any, cu_seqlens_k: Any) -> Call:
    """Check and upload the cu_seqlens of both sides, and make ``call`` one of packed sequences.

    Raises
    ------
    TypeError, ValueError
        As of :func:`check_cu_seqlens`, or when the two differ in length.
    """
    p, device = call.options.problem, call.device
    sequences = check_cu_seqlens("cu_seqlens_q", cu_seqlens_q, p.queries)
    others = check_cu_seqlens("cu_seqlens_k", cu_seqlens_k, p.keys)
    if others != sequences:
        raise ValueError(f"cu_seqlens_k: expected the {sequences} sequences of cu_seqlens_q, got {others}")
    given = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
    tensors = {name: as_tensor(name, x, device, "int32") for name, x in given.items()}
    lengths = None
    if not any(isinstance(x, Tensor) for x in given.values()):
        of_queries, of_keys = (np.diff(np.asarray(x).astype(np.int64)).tolist() for x in given.values())
        lengths = tuple(zip(of_queries, of_keys, strict=True))
    return call.with_({"sequences": sequences, "lengths": lengths}, tensors)


def tile_slots(total: int, sequences: int, tile_rows: int) -> int:
    """At least as many slots as there can be tiles: each sequence may end in a tile that is not full."""
    return total // tile_rows + sequences


def slots_of(lengths: Sequence[int], tile_rows: int) -> int:
    """The slots of sequences of these lengths."""
    return sum(-(-length // tile_rows) for length in lengths)


def usual_length(total: int, sequences: int | None) -> int:
    """The rows or keys for which a tile is chosen: of a packed call the mean of its sequences, else all."""
    return total if sequences is None else max(1, -(-total // sequences))


def plan_tile_table(
    call: Call, tile_rows: int, side: str, name: str, *, stores_scores: bool = False
) -> tuple[NewTensor, Launch]:
    """The table of packed tiles, uint32 [slots, 2, 4], and the launch that fills it; see varlen_tiles.wgsl.

    Parameters
    ----------
    tile_rows : int
        Rows of a tile.
    side : str
        "query" or "key": whose rows the tiles are.
    name : str
        Of the table among the plan's tensors.
    stores_scores : bool
        Whether the table has the sequences in another order, and tells where the gradients of their scores
        lie, both from the tensor ``score_places``, uint32 [sequences, 2].
    """
    p, sequences, tensors = call.options.problem, call.options.sequences, call.tensors
    assert sequences is not None
    slots = tile_slots(p.queries if side == "query" else p.keys, sequences, tile_rows)
    table = launch(
        _TABLE,
        [
            Arg("cu_queries", "i32", tensor="cu_seqlens_q"),
            Arg("cu_keys", "i32", tensor="cu_seqlens_k"),
            *([Arg(SCORE_PLACES, "vec2<u32>")] if stores_scores else []),
            Arg("tiles", TILES.type, writes=True, tensor=name),
        ],
        tensors,
        call.device.info.limits,
        variant="table",
        workgroups=-(-slots // _WORKGROUP),
        params={
            "sequences": sequences,
            "queries": p.queries,
            "keys": p.keys,
            "tile_rows": tile_rows,
            "by_key": int(side == "key"),
            "slots": slots,
            "query_stride": tensors["cu_seqlens_q"].strides[0],
            "key_stride": tensors["cu_seqlens_k"].strides[0],
        },
        constants={"WORKGROUP": _WORKGROUP, "stores_scores": stores_scores},
        grid_name="cu_seqlens_q",
    )
    return NewTensor(name, (slots, 2, 4), "uint32"), table
