"""Caches whose entries lie in blocks of a pool, which block tables give to batch elements.

PagedAttention: Kwon et al., arXiv 2309.06180.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from py_attn.gpu.kernel import Arg
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.checks import shape_of

#: What lib/pages.wgsl reads.
PAGE_PARAMS = {"block_table_first": "u32", "block_table_strides": "vec2<u32>", "blocks": "u32"}
TABLE = "block_table"


def page_args(tensors: Mapping[str, Tensor]) -> list[Arg]:
    """How a kernel declares the block table among ``tensors``, if there is one."""
    return [Arg(TABLE, "u32")] if TABLE in tensors else []


def page_params(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Values of ``PAGE_PARAMS`` but for the first element; none without a table."""
    if TABLE not in tensors:
        return {}
    table, pool = tensors[TABLE], tensors["cache keys"]
    return {"block_table_strides": table.strides, "blocks": pool.shape[0]}


def page_constants(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Template variables: whether there are pages, and how many entries a block has."""
    if TABLE not in tensors:
        return {"has_pages": False}
    return {"has_pages": True, "BLOCK_SIZE": tensors["cache keys"].shape[2]}


def check_table(table: Any, blocks: int, shape: tuple[int, int] | None = None) -> tuple[int, int]:
    """The shape [B, max_blocks] of a block table; an array's numbers are also checked to be blocks, or -1.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.
    """
    found = shape_of(TABLE, table)
    wanted = "[B, max_blocks]" if shape is None else str(list(shape))
    if len(found) != 2 or 0 in found or (shape is not None and found != shape):
        raise ValueError(f"{TABLE}: expected {wanted}, got {list(found)}")
    if isinstance(table, Tensor):
        if table.dtype not in ("int32", "uint32"):
            raise TypeError(f"{TABLE}: expected integers, got {table.dtype}")
    else:
        values = np.asarray(table)
        if values.dtype.kind not in "iu":
            raise TypeError(f"{TABLE}: expected integers, got {values.dtype}")
        outside = (values < -1) | (values >= blocks)
        if outside.any():
            where = np.argwhere(outside)[0].tolist()
            raise ValueError(
                f"{TABLE}: expected blocks from 0 to {blocks - 1}, or -1 for none, got "
                f"{values[tuple(where)]} at {where}"
            )
    return found[0], found[1]
