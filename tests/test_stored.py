"""Where a backward pass stores the gradients of scores: shaders/lib/stored_scores.wgsl, in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from py_attn.arguments import Masking
from py_attn.kernels.attention.stored import choose_turns, places, stored_vec4s, turns


@dataclass
class Problem:
    """What of a problem the layout depends on."""

    queries: int
    keys: int
    masking: Masking
    batch: int = 1
    kv_heads: int = 1
    group: int = 1


@dataclass
class Options:
    """The same of options."""

    problem: Problem
    sequences: int | None = None
    lengths: Any = None


def masking(window_right: int | None, top_left: bool = False) -> Masking:
    return Masking(None, window_right, top_left, 1.0, 0.0)


def stored_at(queries: int, length: int, rows: int, mask: Masking) -> list[int]:
    """Where each vec4 of the ``rows`` of a block lies, with 32 bits, of a sequence of ``length`` keys."""
    edge = (0 if mask.top_left else length - queries) + (
        1 << 30 if mask.window_right is None else mask.window_right
    )
    fours, found = -(-queries // 4), []

    def before(key: int) -> int:
        return max(0, key - edge)

    def sum_of_fours(count: int) -> int:
        return count // 4 * (2 * (count // 4) + count % 4 - 2)

    for key in range(rows):
        begin = key * fours + sum_of_fours(before(0)) - sum_of_fours(before(key) + 1)
        found += [(begin + four) % 2**32 for four in range(before(key) // 4, fours)]
    return found


SIZES = st.integers(0, 40)
MASKINGS = st.builds(masking, st.none() | st.integers(-45, 45), st.booleans())


@given(queries=SIZES, keys=SIZES, mask=MASKINGS, data=st.data())
def test_rows_lie_one_behind_the_other(queries, keys, mask, data):
    (size,) = stored_vec4s(Options(Problem(queries, keys, mask))).tolist()
    assert stored_at(queries, keys, keys, mask) == list(range(size))
    # With fewer valid keys, rows leave out more, and still lie within the block.
    length = data.draw(st.integers(0, keys))
    shorter = stored_at(queries, length, keys, mask)
    assert shorter == list(range(len(shorter)))
    assert len(shorter) <= size


@given(
    lengths=st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=8),
    heads=st.integers(1, 5),
    group=st.integers(1, 3),
    room=st.integers(0, 60_000),
    mask=MASKINGS,
)
def test_each_turn_fits(lengths, heads, group, room, mask):
    problem = Problem(40 * len(lengths), 40 * len(lengths), mask, 1, heads, group)
    options: Any = Options(problem, len(lengths), tuple(lengths))
    sizes = stored_vec4s(options).tolist()
    found = choose_turns(options, room)
    if found is None:
        assert max(sizes) == 0 or 16 * group * max(sizes) > room
        return
    assert 16 * group * found.heads * found.length <= room
    order, seen = places(options, found).tolist(), set()
    begins = dict(order)
    assert [s for s, _ in order] == [s for part in found.sequences for s in part]
    assert [sizes[s] for s, _ in order] == sorted(sizes, reverse=True)
    for turn in turns(options, found):
        these = found.sequences[turn.part]
        seen |= {(turn.first_head + n, s) for n in range(turn.heads) for s in these}
        used = 0
        for s in these:
            assert begins[s] == used
            used += sizes[s]
        assert used <= found.length
    assert seen == {(n, s) for n in range(heads) for s in range(len(lengths))}
    assert len(list(turns(options, found))) == found.count(heads)
