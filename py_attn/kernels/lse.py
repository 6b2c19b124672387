"""The LSE of each row, and behind it the row's maximum and sum, which one float32 cannot hold together.

At a maximum of -1e8 neighbouring float32 numbers are 8 apart, so that exp(score - lse) would lose the
logarithm of the sum. Kernels therefore write row_max and row_sum behind all LSEs, in the same buffer
(store_lse in lib/row_end.wgsl), and those that take an LSE read them there (lib/row_parts.wgsl). Views of an
LSE still find them; of a copy, or an array that was read back and uploaded again, there is the LSE alone.
"""

from __future__ import annotations

import math

from py_attn.gpu.binding import Limits
from py_attn.gpu.kernel import NewTensor
from py_attn.gpu.tensor import RowParts, Tensor

#: What lib/row_end.wgsl needs where it writes an LSE.
LSE_PARAMS = {"lse_plane": "u32"}
#: What lib/row_parts.wgsl needs.
ROW_PARTS_PARAMS = {"lse_plane": "u32", "lse_unit": "f32"}


def new_lse(name: str, shape: tuple[int, ...], limits: Limits, *, natural: bool) -> NewTensor:
    """An LSE to be written, with room for row_max and row_sum behind it where a binding may hold them.

    Parameters
    ----------
    natural : bool
        Whether the kernel's scores, and so row_max, are in natural units; else in units of log2.
    """
    rows = math.prod(shape)
    fits = 0 < 12 * rows <= limits["maxStorageBufferBindingSize"]
    return NewTensor(name, shape, row_parts=RowParts(rows, natural) if fits else None)


def lse_plane(lse: NewTensor | None) -> int:
    """Elements from a row's LSE to its row_max, and on to its row_sum; 0 where there is only the LSE."""
    return lse.row_parts.distance if lse and lse.row_parts else 0


def row_parts_params(lse: Tensor | None, limits: Limits, *, natural: bool) -> dict[str, object]:
    """Values of ``ROW_PARTS_PARAMS`` for a kernel whose scores are in natural units or in units of log2."""
    if lse is None:
        return {"lse_plane": 0, "lse_unit": 1.0}
    storage = lse.storage("lse")
    # Of a buffer larger than a binding may be, only the range that the view spans is bound.
    parts = storage.row_parts if storage.nbytes <= limits["maxStorageBufferBindingSize"] else None
    # From the units of row_max, or of the LSE itself, to the kernel's.
    given = parts.natural if parts else True
    unit = 1.0 if given == natural else math.log(2) if natural else math.log2(math.e)
    return {"lse_plane": parts.distance if parts else 0, "lse_unit": unit}
