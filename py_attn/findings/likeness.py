"""How alike the maps of heads are: distances, an order in which like heads stand together, and groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def head_distances(maps: Any) -> Array:
    """Distances between heads: the root of the mean Jensen–Shannon divergence of their rows, in bits.

    As in Clark et al. 2019 (arXiv 1906.04341, section 6), with the root, which makes it a metric (Endres &
    Schindelin 2003), and from 0 to 1.

    Parameters
    ----------
    maps : array_like
        [heads, rows, keys], not negative; each row is divided by its sum. Rows that are zero in either of two
        heads count as equal where both are, else as different as can be.

    Returns
    -------
    array
        float64 [heads, heads], symmetric, 0 on the diagonal.
    """
    p = np.maximum(np.asarray(maps, np.float64), 0.0)
    if p.ndim != 3:
        raise ValueError(f"maps: expected [heads, rows, keys], got {list(p.shape)}")
    heads, rows, _ = p.shape
    total = p.sum(-1, keepdims=True)
    p = np.divide(p, total, out=np.zeros_like(p), where=total > 0)
    seeing = total[..., 0] > 0
    entropy = _entropy(p)
    distances = np.zeros((heads, heads))
    for a in range(heads - 1):
        mixed = _entropy((p[a] + p[a + 1 :]) / 2)
        divergence = np.clip(mixed - (entropy[a] + entropy[a + 1 :]) / 2, 0.0, 1.0)
        divergence = np.where(seeing[a] & seeing[a + 1 :], divergence, seeing[a] != seeing[a + 1 :])
        distances[a, a + 1 :] = np.sqrt(divergence.sum(-1) / max(rows, 1))
    return distances + distances.T


def _entropy(p: Array) -> Array:
    logs = np.log2(p, out=np.zeros_like(p), where=p > 0)
    entropy: Array = -np.einsum("...n,...n->...", p, logs)
    return entropy


def head_groups(distances: Any, *, largest: float = 0.5) -> tuple[Array, Array]:
    """Groups of like heads by average linkage (UPGMA; Sokal & Michener 1958), and an order of all heads.

    Parameters
    ----------
    distances : array_like
        [n, n], see :func:`head_distances`.
    largest : float
        Groups are joined as long as the mean distance between their heads is no larger than this.

    Returns
    -------
    groups : array
        int64 [n]: the number of each head's group, counted from 0 along ``order``.
    order : array
        int64 [n]: the heads in the order of the tree's leaves. Where two branches meet, those of their ends
        that are closest to each other do (Gruvaeus & Wainer 1972).
    """
    given = np.asarray(distances, np.float64)
    n = len(given)
    if given.shape != (n, n):
        raise ValueError(f"distances: expected [n, n], got {list(given.shape)}")
    between = given.copy()
    np.fill_diagonal(between, np.inf)
    branches: dict[int, list[int]] = {head: [head] for head in range(n)}
    parts = [[head] for head in range(n)]
    for _ in range(n - 1):
        a, b = sorted(int(x) for x in np.unravel_index(np.argmin(between), between.shape))
        height, sizes = between[a, b], (len(branches[a]), len(branches[b]))
        if height <= largest:
            parts = [part for part in parts if part[0] not in (*branches[a], *branches[b])]
            parts.append(branches[a] + branches[b])
        joined = np.average(between[[a, b]], axis=0, weights=sizes)
        between[a], between[:, a] = joined, joined
        between[b], between[:, b] = np.inf, np.inf
        between[a, a] = np.inf
        branches[a] = _joined(branches[a], branches.pop(b), given)
    order = np.array(next(iter(branches.values()), []), np.int64)
    groups, place = np.zeros(n, np.int64), {head: index for index, head in enumerate(order.tolist())}
    for number, part in enumerate(sorted(parts, key=lambda part: min(place[head] for head in part))):
        groups[part] = number
    return groups, order


def _joined(a: list[int], b: list[int], distances: Array) -> list[int]:
    choices = [(x, y) for x in (a, a[::-1]) for y in (b, b[::-1])]
    first, second = min(choices, key=lambda pair: distances[pair[0][-1], pair[1][0]])
    return first + second
