"""What the browser's compiler says about kernels with subgroup matrices, on an adapter without them.

Stand-ins take the matrices' place (tests/matrix_stand_ins.py), so that all else is checked: types, and that
what must be uniform in a subgroup is.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.page.compiler import errors_in
from py_attn.kernels.attention.config import Config
from py_attn.kernels.attention.matrix import TILES
from tests.matrix_stand_ins import without_matrices
from tests.test_matrix import launched
from tests.test_tiled_codes import KEYWORDS, decoded


def text_of(launch, *arguments, **keywords):
    """The text of a recorded launch. Its device needs an event loop, and this thread has Playwright's."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(launch, *arguments, **keywords).result().wgsl


@pytest.mark.parametrize("keywords", KEYWORDS, ids=lambda keywords: "-".join(keywords) or "plain")
def test_decode_of_tiles(lab, keywords):
    assert lab.call(errors_in, without_matrices(text_of(decoded, **keywords))) == []


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_attention(lab, tile):
    shapes = [(2, 4, 300, 64)] * 3
    for keywords in ({}, {"causal": True, "return_lse": True}, {"window": (30, 0), "softcap": 5.0}):
        wgsl = text_of(launched, *shapes, variant=Config("matrix", tile), **keywords)
        assert lab.call(errors_in, without_matrices(wgsl)) == []


@pytest.mark.parametrize("shape", [(2, 4, 300, 64), (1, 2, 300, 128), (1, 2, 40, 33)], ids=str)
def test_attention_of_float32(lab, shape):
    for keywords in ({}, {"causal": True, "return_lse": True}, {"window": (30, 0)}):
        wgsl = text_of(launched, *[shape] * 3, dtype="float32", **keywords)
        assert lab.call(errors_in, without_matrices(wgsl)) == []


def test_an_offset_that_differs_in_a_subgroup_is_refused(lab):
    own, lanes = "let subgroup = subgroup_number % 4u;", "let subgroup = subgroup_lane / 8u;"
    wgsl = text_of(decoded)
    assert own in wgsl
    errors = lab.call(errors_in, without_matrices(wgsl.replace(own, lanes)))
    assert any("to be uniform" in error for error in errors)
