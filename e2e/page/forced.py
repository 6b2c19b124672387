"""Kernels made to run with another configuration than they would choose on this adapter.

All of it patches functions of kernel modules, and nothing else in the tests does.
"""

import contextlib
from unittest import mock

import py_attn as pa
from py_attn.kernels.attention import forward as attention_module
from py_attn.kernels.attention.tiles import CANDIDATES, SOFTWARE, Cut, Tile


@contextlib.contextmanager
def tile_forced(tile, unrolled):
    """The tiled kernels with this tile, whatever the adapter would get."""
    render = attention_module._render
    with contextlib.ExitStack() as stack:
        if tile is not None:
            chosen = Tile(**tile)
            stack.enter_context(mock.patch.object(attention_module, "choose_tile", return_value=chosen))
        if unrolled is not None:
            forced = lambda variant, tile, _, *rest: render(variant, tile, unrolled, *rest)  # noqa: E731
            stack.enter_context(mock.patch.object(attention_module, "_render", forced))
        yield


@contextlib.contextmanager
def last_tiles_cut(cut):
    """The last tiles in pieces as on a GPU: ``cut`` is how many of them, and the steps of a piece."""
    if cut is None:
        yield
        return

    def cut_of(tiles, keys, tile, wide4):
        pieces = -(-keys // (cut[1] * tile.keys))
        return Cut(min(cut[0], tiles), pieces, cut[1] * tile.keys) if pieces else None

    with (
        mock.patch.object(attention_module, "cut_of", cut_of),
        # Plans are kept by what a call looks like, which is the same without the cut.
        mock.patch.object(pa.Device, "known", return_value=None),
    ):
        yield


def smallest_tile_only():
    """The tuner has a single tile to choose, named "small"."""
    return mock.patch.dict(CANDIDATES, {"small": SOFTWARE[-1]}, clear=True)
