"""The angles of rotary position embeddings (RoPE: Su et al., arXiv 2104.09864), shared with the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def rope_table(positions: npt.ArrayLike, head_dim: int, base: float = 1e4) -> npt.NDArray[Any]:
    """Cosine and sine of position · base^(-2i / head_dim), in float64.

    Parameters
    ----------
    positions : array
        [tokens].
    head_dim : int
        Even.
    base : float

    Returns
    -------
    array
        [tokens, head_dim / 2, 2].
    """
    angles = np.asarray(positions)[:, None] * float(base) ** (-np.arange(0, head_dim, 2) / head_dim)
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)
