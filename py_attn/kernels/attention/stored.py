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
    sequences : tuple of int
        How many packed sequences, in the order of :func:`by_size`; () for a batch.
    """

    heads: int
    length: int
    sequences: tuple[int, ...] = ()

    def count(self, all_heads: int) -> int:
        """The turns that all heads take."""
        return -(-all_heads // self.heads) * max(1, len(self.sequences))


class Turn(NamedTuple):
    """What one pair of launches goes through; no sequences in a batch."""

    first_head: int
    heads: int
    first_sequence: int
    sequences: int


def turns(options: Options, at_a_time: Turns) -> Iterator[Turn]:
    """The turns of a call, in order."""
    heads = options.problem.batch * options.problem.kv_heads
    for first in range(0, heads, at_a_time.heads):
        begin = 0
        for count in at_a_time.sequences or (0,):
            yield Turn(first, min(at_a_time.heads, heads - first), begin, count)
            begin += count


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


def by_size(options: Options) -> Array:
    """The packed sequences in the order in which they go through, those with most scores first.

    The last workgroups of a launch then take little time, and so does the last turn.
    """
    sizes = stored_vec4s(options)
    assert sizes is not None
    return np.argsort(-sizes, stable=True)


def places(options: Options, at_a_time: Turns) -> Array:
    """The packed sequences in that order, and where each one's gradients lie in their head: [sequences, 2].

    Places count in vec4s.
    """
    order, sizes = by_size(options), stored_vec4s(options)
    assert sizes is not None
    sizes = sizes[order]
    ends = np.concatenate([np.cumsum(each) for each in _split(sizes, at_a_time.sequences)])
    return np.stack([order, ends - sizes], 1)


def choose_turns(options: Options, room: int) -> Turns | None:
    """The fewest turns that store at most ``room`` bytes each.

    None where a head of a sequence does not fit, where there is nothing to store, and for packed sequences
    whose lengths only the GPU knows.
    """
    p, sizes = options.problem, stored_vec4s(options)
    all_heads = p.batch * p.kv_heads
    if sizes is None or not all_heads * sizes.max():
        return None
    if options.sequences is not None:
        sizes = sizes[by_size(options)]
    found = []
    for times in range(1, all_heads + 1):
        # All of about the same number of heads.
        heads = -(-all_heads // times)
        most = room // (16 * p.group * heads)
        if sizes.max() <= most:
            counts = () if options.sequences is None else tuple(_runs(sizes, most))
            found.append(Turns(heads, max(int(each.sum()) for each in _split(sizes, counts)), counts))
    return min(found, key=lambda turns: turns.count(all_heads), default=None)


def _split(sizes: Array, counts: tuple[int, ...]) -> list[Array]:
    """The sizes of each turn's sequences."""
    return np.split(sizes, np.cumsum(counts)[:-1]) if counts else [sizes]


def _runs(sizes: Array, most: int) -> Iterator[int]:
    """How many of ``sizes`` that follow each other are at most ``most`` together."""
    ends, begin, used = np.cumsum(sizes), 0, 0
    while begin < len(sizes):
        end = int(np.searchsorted(ends, used + most, side="right"))
        yield end - begin
        begin, used = end, int(ends[end - 1])
