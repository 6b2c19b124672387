"""How a backward pass stores the gradients of scores: whose go through at a time, and where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from py_attn.kernels.attention.options import Options
from py_attn.kernels.scores import bounded

Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Turns:
    """What goes through at a time, so that the gradients of its scores fit in memory.

    Attributes
    ----------
    heads : int
        How many key/value heads, counted through the batch.
    length : int
        The vec4s in which the gradients of a head find room.
    sequences : tuple of tuple of int
        The packed sequences of each part that goes through at a time, those with most scores first: the last
        workgroups of a launch then take little time, and so does the last part. () for a batch.
    """

    heads: int
    length: int
    sequences: tuple[tuple[int, ...], ...] = ()

    def count(self, all_heads: int) -> int:
        """The turns that all heads take."""
        return -(-all_heads // self.heads) * max(1, len(self.sequences))


class Turn(NamedTuple):
    """What a pair of launches goes through: some heads, and a part of the packed sequences (0 in a batch)."""

    first_head: int
    heads: int
    part: int


def turns(options: Options, at_a_time: Turns) -> Iterator[Turn]:
    """The turns of a call, in order."""
    heads = options.problem.batch * options.problem.kv_heads
    for first in range(0, heads, at_a_time.heads):
        for part in range(max(1, len(at_a_time.sequences))):
            yield Turn(first, min(at_a_time.heads, heads - first), part)


def stored_vec4s(options: Options) -> Array | None:
    """The vec4s that the gradients of a head's scores take, of each sequence; see lib/stored_scores.wgsl.

    None for packed sequences whose lengths only the GPU knows.
    """
    p = options.problem
    lengths = ((p.queries, p.keys),) if options.sequences is None else options.lengths
    if lengths is None:
        return None
    queries, keys = np.array(lengths, np.int64).T
    fours = -(-queries // 4)
    if p.masking.window_right is None:
        return np.asarray(keys * fours)
    # Shorter kv_lengths only move the triangle's edge towards smaller keys, where it leaves more out.
    edge = (0 if p.masking.top_left else keys - queries) + bounded(p.masking.window_right)
    rows = np.clip(4 * fours + edge, 0, keys)
    left_out = _sum_of_fours(np.maximum(0, rows - edge)) - _sum_of_fours(np.maximum(0, -edge))
    return np.asarray(rows * fours - left_out)


def _sum_of_fours(count: Array) -> Array:
    """The sum of n // 4 over all n below ``count``."""
    fours = count // 4
    return fours * (2 * fours + count % 4 - 2)


def places(options: Options, at_a_time: Turns) -> Array:
    """The packed sequences in their order, and where each one's gradients lie in their head: [sequences, 2].

    Places count in vec4s.
    """
    sizes = stored_vec4s(options)
    assert sizes is not None
    parts = [np.array(part) for part in at_a_time.sequences]
    return np.concatenate([np.stack([part, np.cumsum(sizes[part]) - sizes[part]], 1) for part in parts])


def choose_turns(options: Options, room: int) -> Turns | None:
    """The fewest turns that store at most ``room`` bytes each.

    None where a head of a sequence does not fit, where there is nothing to store, and for packed sequences
    whose lengths only the GPU knows.
    """
    p, sizes = options.problem, stored_vec4s(options)
    all_heads = p.batch * p.kv_heads
    if sizes is None or not all_heads * sizes.max():
        return None
    largest, order = int(sizes.max()), np.argsort(-sizes, stable=True)
    best: Turns | None = None
    for times in range(1, all_heads + 1):
        if best and times >= best.count(all_heads):
            break
        # All of about the same number of heads.
        heads = -(-all_heads // times)
        most = room // (16 * p.group * heads)
        if largest > most:
            continue
        if options.sequences is None:
            found = Turns(heads, largest)
        else:
            parts = list(_runs(order, sizes, most))
            length = max(int(sizes[part].sum()) for part in parts)
            found = Turns(heads, length, tuple(tuple(part.tolist()) for part in parts))
        if best is None or found.count(all_heads) < best.count(all_heads):
            best = found
    return best


def _runs(order: Array, sizes: Array, most: int) -> Iterator[Array]:
    """Runs of ``order`` whose ``sizes`` are at most ``most`` together."""
    ends, begin, used = np.cumsum(sizes[order]), 0, 0
    while begin < len(order):
        end = int(np.searchsorted(ends, used + most, side="right"))
        yield order[begin:end]
        begin, used = end, int(ends[end - 1])
