"""Choosing tokens and comparing distributions in plain numpy: the reference of ``kernels/nn``.

Logits are one row, [vocabulary]. Where the largest logit is NaN or infinite, or all are minus infinity, there
are no probabilities: log-probabilities are NaN, and the first of the largest logits is chosen.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


def random_bits(seed: int, position: int, ids: npt.ArrayLike) -> npt.NDArray[np.uint32]:
    """The first word of PCG3D(seed, position, id) for each of the ids.

    Jarzynski & Olano 2020, Hash Functions for GPU Rendering, https://jcgt.org/published/0009/03/02/
    """
    x, y, z = np.broadcast_arrays(np.uint32(seed), np.uint32(position), np.asarray(ids, np.uint32))
    with np.errstate(over="ignore"):
        x, y, z = (v * np.uint32(1664525) + np.uint32(1013904223) for v in (x, y, z))
        for last in (False, True):
            x = x + y * z
            y = y + z * x
            z = z + x * y
            if not last:
                x, y, z = (v ^ v >> np.uint32(16) for v in (x, y, z))
    return x


def gumbel_noise(seed: int, position: int, ids: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """-log(-log(u)) for each of the ids, with u = ((bits >> 8) + 0.5) / 2^24 of its random bits."""
    uniform = ((random_bits(seed, position, ids) >> np.uint32(8)) + np.float64(0.5)) / (1 << 24)
    noise: npt.NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


def has_probabilities(logits: Array) -> bool:
    """Whether the largest logit is finite."""
    return bool(np.isfinite(logits.max()))


def log_softmax(logits: Array, dtype: npt.DTypeLike = np.float64) -> Array:
    """The log-probabilities of a row."""
    x = np.asarray(logits, dtype)
    if not has_probabilities(x):
        return np.full(x.shape, np.nan, dtype)
    shifted = x - x.max()
    result: Array = shifted - np.log(np.exp(shifted).sum())
    return result


def staying(
    logits: Array, temperature: float, top_k: int | None = None, top_p: float | None = None
) -> npt.NDArray[np.bool_]:
    """Which ids top-k, then top-p leave; those that tie with the last one that stays, stay too."""
    x = np.asarray(logits, np.float64)
    stays = ~np.isneginf(x)
    if top_k is not None and top_k < x.size:
        stays &= x >= np.sort(x)[-top_k]
    if top_p is not None and top_p < 1:
        weights = np.where(stays, np.exp((x - x.max()) / temperature), 0)
        order = np.argsort(-weights, kind="stable")
        sums = weights[order].cumsum()
        last = order[np.searchsorted(sums, top_p * sums[-1])]
        stays &= x >= x[last]
    return stays


def scores(
    logits: Array,
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
    *,
    seed: int,
    position: int,
) -> npt.NDArray[np.float64]:
    """What an id is chosen by, the largest wins; minus infinity for those that cannot be chosen."""
    x = np.asarray(logits, np.float64)
    noisy = (x - x.max()) / temperature + gumbel_noise(seed, position, np.arange(x.size))
    return np.where(staying(x, temperature, top_k, top_p), noisy, -np.inf)


def choose_token(
    logits: Array,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    *,
    seed: int = 0,
    position: int = 0,
) -> int:
    """The id that is chosen: see :func:`py_attn.kernels.nn.choose_token`."""
    x = np.asarray(logits, np.float64)
    if temperature == 0 or not has_probabilities(x):
        return int(np.argmax(x))
    return int(np.argmax(scores(x, temperature, top_k, top_p, seed=seed, position=position)))


def alternatives(logits: Array, count: int = 10) -> tuple[Array, Array]:
    """Ids and log-probabilities of the likeliest tokens; the smaller id first of two equally likely ones."""
    x = np.asarray(logits, np.float64)
    order = np.argsort(-x, kind="stable")
    # NaN counts as the largest; argsort puts it last.
    order = np.concatenate([order[np.isnan(x[order])], order[~np.isnan(x[order])]])
    ids = np.full(count, 0xFFFFFFFF, np.uint32)
    values = np.full(count, -np.inf)
    first = order[:count]
    ids[: first.size], values[: first.size] = first, log_softmax(x)[first]
    return ids, values


def token_statistics(logits: Array, targets: Array, dtype: npt.DTypeLike = np.float64) -> Array:
    """[n, 3]: each target's log-probability, the id of the likeliest token, the entropy in nats."""
    rows = []
    for row, target in zip(logits, targets, strict=True):
        log_probs = log_softmax(row, dtype)
        probabilities = np.exp(log_probs)
        possible = probabilities != 0
        entropy = -(probabilities[possible] * log_probs[possible]).sum()
        value = log_probs[target] if target < row.size else np.nan
        rows.append((value, np.argmax(row), entropy))
    return np.array(rows, dtype).reshape(-1, 3)


def compare_distributions(logits_a: Array, logits_b: Array, dtype: npt.DTypeLike = np.float64) -> Array:
    """[n, 3]: KL(a‖b) in nats, and the ids of the likeliest tokens."""
    rows = []
    for a, b in zip(logits_a, logits_b, strict=True):
        log_a, log_b = log_softmax(a, dtype), log_softmax(b, dtype)
        possible = ~np.isneginf(log_a)
        difference = log_a[possible] - log_b[possible]
        # Infinite, and not NaN, also where a's probability underflows to 0.
        is_infinite = np.isposinf(difference).any()
        divergence = np.inf if is_infinite else (np.exp(log_a[possible]) * difference).sum()
        rows.append((divergence, np.argmax(a), np.argmax(b)))
    return np.array(rows, dtype).reshape(-1, 3)
