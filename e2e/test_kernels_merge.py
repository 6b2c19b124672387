"""`pa.merge` in the page against the float64 reference."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.kernel_cases import FLOATS, VIEWS
from e2e.page.merge import check_given, check_parts


def given_case(**changes):
    case = {
        "seed": 1, "batch": 2, "heads": 3, "queries": 5, "value_head_dim": 12, "parts": 3, "dtype": "float32",
        "view": "plain", "size": 3.0,
    }  # fmt: skip
    return case | changes


@pytest.fixture(scope="module")
def check(lab, error_ratios):
    """Run cases of one check in the page; every ratio must be at most 1."""

    def run(function, *cases):
        for answer in lab.check(function, cases):
            error_ratios.note([], "merge", max(answer.values()))

    return run


@settings(max_examples=15)
@given(
    case=st.builds(
        given_case,
        seed=st.integers(0, 1 << 20),
        batch=st.integers(1, 3),
        heads=st.integers(1, 9),
        queries=st.integers(1, 40),
        value_head_dim=st.sampled_from((1, 3, 16, 64, 129, 512)),
        parts=st.integers(2, 6),
        dtype=st.sampled_from(FLOATS),
        view=st.sampled_from(VIEWS),
        size=st.sampled_from((0.1, 3.0, 80.0)),
    )
)
def test_anything(check, case):
    check(check_given, case)


def test_parts_of_the_keys(check):
    case = {"batch": 2, "heads": 3, "queries": 4, "size": 1.0, "seed": 3}
    kinds = [
        ["plain"] * 3, ["mod"] * 3, ["plain", "mod", "plain"], ["hidden", "plain", "hidden"],
        ["plain", "hidden", "mod"],
    ]  # fmt: skip
    check(
        check_parts,
        *(
            case | {"ends": [5, 20, 33], "kinds": kind, "size": size}
            for kind in kinds
            for size in (1.0, 30.0)
        ),
        case | {"ends": [30, 31], "kinds": ["plain", "plain"]},
    )


def test_a_prefix_that_all_sequences_share(lab):
    # The prefix is attended to once, by the queries of all sequences as rows of one.
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.inputs import normal
device = pa.default_device()
random = np.random.default_rng(5)
query = device.tensor(normal(random, (3, 4, 1, 16), "float32"))
prefix = normal(random, (1, 2, 20, 16), "float32")
rest = normal(random, (3, 2, 7, 16), "float32")
cache = pa.KVCache(3, 2, 32, 16)
cache.append(rest, rest)
out, lse = pa.attention(query.transpose(2, 1, 0, 3), prefix, prefix, return_lse=True)
shared = out.transpose(2, 1, 0, 3), lse.transpose(2, 1, 0)
merged = await pa.merge([shared, pa.decode_attention(query, cache, return_lse=True)]).numpy()
keys = np.concatenate([prefix.repeat(3, 0), rest], 2)
float(np.abs(merged - pa.reference.attention(await query.numpy(), keys, keys)).max())
""") == pytest.approx(0, abs=1e-6)  # fmt: skip
