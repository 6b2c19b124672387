"""How strongly each head does what a label says, from its weights; and how spread out they are.

Every figure comes from sums over the keys of a row, which a kernel makes on the GPU
(:mod:`py_attn.kernels.maps.row_sums`) or :func:`row_sums` makes in numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn.findings.labels import LABELS, shown
from py_attn.findings.tokens import KEY_SETS, key_sets

Array = npt.NDArray[Any]

#: The sums of a row of weights p: Σp, Σp·log₂p and Σp², and then Σp over the keys of each label.
SUMS = ("total", "logs", "squares", *KEY_SETS)

#: A label needs as many: if a causal text ends in a full stop, a single query sees that, and proves nothing.
FEWEST_ROWS = 3


@dataclass(frozen=True)
class HeadScores:
    """What the weights of some heads say; every array has the heads' shape.

    Attributes
    ----------
    labels : dict of str to array
        For each label of :data:`py_attn.findings.LABELS` a score from 0 to 1, float64; NaN where the text has
        no keys that the label could be about.
    entropy : array
        Mean entropy of a row in bits, float64.
    sparsity : array
        Mean sparsity of a row by Hoyer 2004 (JMLR 5): 0 for equal weights, 1 for a single one; float64.
    rows : dict of str to int
        How many rows each score is a mean over, at most, among all heads.
    """

    labels: dict[str, Array]
    entropy: Array
    sparsity: Array
    rows: dict[str, int]

    def shown(self, *head: int) -> list[tuple[str, float]]:
        """The labels of one head with their scores, the highest first; see :func:`py_attn.findings.shown`.

        A mean over fewer than :data:`FEWEST_ROWS` rows shows nothing.
        """
        enough = (name for name, rows in self.rows.items() if rows >= FEWEST_ROWS)
        return shown({name: float(self.labels[name][head]) for name in enough})


def row_sums(weights: Array, sets: Mapping[str, Array]) -> Array:
    """The sums of each row, in float64; negative weights count as 0.

    Parameters
    ----------
    weights : array
        [..., r, n].
    sets : mapping
        Which keys each label is about, bool [r, n]; see :func:`py_attn.findings.tokens.key_sets`.

    Returns
    -------
    array
        float64 [..., r, len(SUMS)].
    """
    p = np.maximum(np.asarray(weights, np.float64), 0.0)
    logs = np.log2(p, out=np.zeros_like(p), where=p > 0)
    parts = [p.sum(-1), (p * logs).sum(-1), (p * p).sum(-1)]
    parts += [np.einsum("...rn,rn->...r", p, sets[name].astype(np.float64)) for name in KEY_SETS]
    return np.stack(parts, axis=-1)


def scores_of(sums: Array, visible: Array, sets: Mapping[str, Array]) -> HeadScores:
    """The scores of heads from the sums of their rows.

    Parameters
    ----------
    sums : array
        [..., r, len(SUMS)], see :func:`row_sums`.
    visible : array
        bool [..., r, n], or what broadcasts to it: which keys a query may see.
    sets : mapping
        Which keys each label is about, bool [r, n].
    """
    sums = np.asarray(sums, np.float64)
    heads = sums.shape[:-2]
    total, logs, squares = (sums[..., n] for n in range(3))
    keys = visible.sum(-1)
    seeing = (total > 0) & (keys > 0)
    safe_total, safe_keys = np.where(seeing, total, 1.0), np.maximum(keys, 1)
    labels, rows = {}, {}
    for index, name in enumerate(KEY_SETS):
        chance = (visible & sets[name]).sum(-1) / safe_keys
        counted = seeing & (chance > 0) & (chance < 1)
        share = sums[..., 3 + index] / safe_total
        labels[name] = np.clip(_ratio(share - chance, 1 - chance, counted), 0.0, 1.0)
        rows[name] = int(counted.sum(-1).max(initial=0))
    counted = seeing & (keys > 1)
    bits = np.maximum(np.log2(safe_total) - logs / safe_total, 0.0)
    root = np.sqrt(np.maximum(safe_keys, 2))
    length = np.sqrt(np.where(seeing, squares, 1.0))
    hoyer = (root - safe_total / np.where(length > 0, length, 1.0)) / (root - 1)
    spread = np.clip(_ratio(bits, np.log2(np.maximum(safe_keys, 2)), counted), 0.0, 1.0)
    labels |= {"broad": spread, "narrow": 1 - spread}
    rows |= dict.fromkeys(("broad", "narrow"), int(counted.sum(-1).max(initial=0)))
    entropy = _ratio(bits, np.ones_like(bits), counted)
    sparsity = np.clip(_ratio(hoyer, np.ones_like(hoyer), counted), 0.0, 1.0)
    ordered = {label.name: np.broadcast_to(labels[label.name], heads) for label in LABELS}
    return HeadScores(ordered, entropy, sparsity, rows)


def _ratio(above: Array, below: Array, counted: Array) -> Array:
    """Σ above / Σ below over the rows that count; NaN where there is none."""
    zero = np.zeros(())
    top, bottom = (np.where(counted, part, zero).sum(-1) for part in (above, below))
    ratio: Array = np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=bottom > 0)
    return ratio


def head_scores(
    weights: Any, tokens: Sequence[str], *, causal: bool | None = None, visible: Any = None
) -> HeadScores:
    """How strongly each head does what the labels say.

    Parameters
    ----------
    weights : array_like
        Attention probabilities [..., n, n]: queries by keys, for any number of heads. Rows need not sum to 1.
    tokens : sequence of str
        The text of each position, [n].
    causal : bool, optional
        Whether queries see no later keys. Unless given, they do not where no head has any weight there.
    visible : array_like, optional
        bool [..., n, n], or what broadcasts to it: which keys a query may see. Unless given, all of them, and
        those up to the query where the weights are causal. A score compares a head with one that spreads its
        weight evenly over these.

    Raises
    ------
    ValueError
        For weights that are not square, or another number of tokens.

    Notes
    -----
    Let p be the share of a row's weight on the keys that a label is about, and c the share of these keys
    among those that the query may see, which is what a head without preference would give them. The score is
    Σ(p − c) / Σ(1 − c), at least 0, over the rows with 0 < c < 1: the others have no such key, or no choice.
    This is the form of Cohen's kappa (1960): 0 for chance, and 1 where all the weight is on these keys.
    "broad" is ΣH / Σlog₂k over the rows with k > 1 visible keys, where H is a row's entropy in bits; "narrow"
    is 1 less that.
    """
    p = np.asarray(weights, np.float64)
    if p.ndim < 2 or p.shape[-1] != p.shape[-2] or not p.shape[-1]:
        raise ValueError(f"weights: expected a square last pair of axes [..., n, n], got {list(p.shape)}")
    n = p.shape[-1]
    if isinstance(tokens, str) or len(tokens) != n:
        raise ValueError(f"tokens: expected a list of {n:,} strings, one per position, got {len(tokens):,}")
    hidden = np.triu(np.ones((n, n), np.bool_), 1)
    if causal is None:
        causal = not (p * hidden).any()
    seen = ~hidden if causal else np.ones((n, n), np.bool_)
    if visible is not None:
        seen = np.asarray(visible, np.bool_) & seen
    sets = key_sets(tokens, np.arange(n), causal=causal)
    return scores_of(row_sums(p, sets), seen, sets)


def head_labels(
    weights: Any, tokens: Sequence[str], *, causal: bool | None = None, visible: Any = None
) -> list[list[tuple[str, float]]]:
    """The labels of each head with their scores, the highest first; arguments as for :func:`head_scores`.

    Returns
    -------
    list
        For each head, with all leading axes of ``weights`` as one, a list of (name, score).
    """
    found = head_scores(weights, tokens, causal=causal, visible=visible)
    shape = found.entropy.shape
    return [found.shown(*head) for head in np.ndindex(*shape)]
