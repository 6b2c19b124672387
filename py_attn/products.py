"""Matrix products of the references: in float32 the same on every machine."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: Pyodide's numpy has no BLAS: it adds products up in order by itself.
_HAS_BLAS = sys.platform != "emscripten"


def product(a: Array, b: Array) -> Array:
    """``a @ b``; in float32 each element is summed up in order, with a rounding after every step.

    Tests and the bench measure kernels by the error of plain numpy in float32. How a BLAS sums up, and with
    what error, depends on the processor.
    """
    if not _HAS_BLAS or a.dtype != np.float32:
        whole: Array = a @ b
        return whole
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*batch, a.shape[-2], b.shape[-1]), np.result_type(a, b))
    for n in range(a.shape[-1]):
        total += a[..., :, n, None] * b[..., n, None, :]
    return total
