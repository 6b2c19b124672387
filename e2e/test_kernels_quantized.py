"""The kernels with quantised weights in a real browser, on random sizes, against their float64 reference."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.page.quantized import check_add, check_gated, check_logits, check_qkv, check_weights

FORMATS = ("Q4_1", "Q8_0")
FLOATS = ("float32", "float16", "bfloat16")
#: Every way to share rows: alone, by workgroup memory, by shuffles (in subgroups of at least four).
CONFIGS = (
    None,
    {
        "lanes": 1,
        "rows_each": 2,
        "tokens_each": 1,
        "words": 4,
        "ahead": 1,
        "workgroup": 64,
        "subgroups": False,
    },
    {
        "lanes": 1,
        "rows_each": 6,
        "tokens_each": 3,
        "words": 1,
        "ahead": 2,
        "workgroup": 16,
        "subgroups": False,
    },
    {
        "lanes": 32,
        "rows_each": 2,
        "tokens_each": 1,
        "words": 1,
        "ahead": 3,
        "workgroup": 128,
        "subgroups": False,
    },
    {
        "lanes": 16,
        "rows_each": 4,
        "tokens_each": 4,
        "words": 1,
        "ahead": 1,
        "workgroup": 64,
        "subgroups": False,
    },
    {
        "lanes": 4,
        "rows_each": 2,
        "tokens_each": 1,
        "words": 1,
        "ahead": 2,
        "workgroup": 32,
        "subgroups": True,
    },
    {
        "lanes": 2,
        "rows_each": 4,
        "tokens_each": 2,
        "words": 4,
        "ahead": 1,
        "workgroup": 64,
        "subgroups": True,
    },
)

seeds = st.integers(0, 1 << 20)
formats = st.sampled_from(FORMATS)
configs = st.sampled_from(CONFIGS)
counts = st.sampled_from((1, 1, 1, 2, 3, 4, 5, 9))
positions = st.sampled_from((0, 0, 1, 5, 30))
inners = st.sampled_from((32, 64, 96, 160, 288, 576))
sizes = st.sampled_from((1.0, 1.0, 1e-3, 100.0))


@settings(max_examples=20)
@given(
    seed=seeds, format=formats, inner=inners, count=counts, position=positions, interleave=st.booleans(),
    rows=st.lists(st.integers(1, 9), min_size=1, max_size=3),
)  # fmt: skip
def test_weights_are_widened_exactly(lab, rows, interleave, **case):
    rows = [rows[0]] * len(rows) if interleave else rows
    lab.check(check_weights, [case | {"rows": rows, "interleave": interleave}])


@settings(max_examples=20)
@given(
    seed=seeds, format=formats, inner=inners, count=counts, position=positions, config=configs, size=sizes,
    head_dim=st.sampled_from((2, 6, 20, 32, 64)), kv_heads=st.integers(1, 3), group=st.integers(1, 3),
    dtypes=st.tuples(st.sampled_from(FLOATS), st.sampled_from(FLOATS)),
    capacity=st.sampled_from((None, 1, 4, 7, 40)), kept=st.integers(0, 3),
)  # fmt: skip
def test_project_qkv(lab, kv_heads, group, capacity, kept, dtypes, **case):
    case |= {"heads": kv_heads * group, "kv_heads": kv_heads, "capacity": capacity}
    case["kept"] = min(kept, (capacity or 1) - 1)
    case["dtypes"] = list(dtypes) if capacity else ["float32"] * 2
    lab.check(check_qkv, [case])


@settings(max_examples=20)
@given(
    seed=seeds, format=formats, head_dim=st.sampled_from((32, 64, 96)), heads=st.integers(1, 5), count=counts,
    position=positions, config=configs, scaled=st.booleans(),
    rows=st.lists(st.integers(1, 70), min_size=1, max_size=2),
    splits=st.sampled_from((None, None, 1, 2, 3, 7, 8, 16)),
)  # fmt: skip
def test_add_projection(lab, head_dim, heads, splits, count, **case):
    case |= {"heads": heads, "inner": heads * head_dim, "splits": splits, "count": 1 if splits else count}
    lab.check(check_add, [case])


@settings(max_examples=20)
@given(
    seed=seeds, format=formats, inner=inners, rows=st.integers(1, 90), count=counts, position=positions,
    config=configs, size=sizes,
)  # fmt: skip
def test_gated_linear(lab, **case):
    lab.check(check_gated, [case])


@settings(max_examples=20)
@given(
    seed=seeds, format=formats, inner=inners, rows=st.integers(1, 300), count=counts, config=configs,
    size=sizes, position=st.none() | positions, first_row=st.integers(0, 6),
)  # fmt: skip
def test_logits(lab, **case):
    lab.check(check_logits, [case])


@pytest.mark.quick("None", "*True}")
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_sizes_of_smollm2(lab, config):
    """Every configuration on the sizes of SmolLM2-135M."""
    shared = {"seed": 1, "count": 1, "position": 3, "config": config}
    layer = shared | {"format": "Q4_1", "inner": 576}
    qkv = {"head_dim": 64, "heads": 9, "kv_heads": 3, "dtypes": ["float16", "float16"]}
    lab.check(check_qkv, [layer | qkv | {"capacity": 64, "kept": 0}])
    lab.check(check_add, [layer | {"rows": [576], "heads": 9, "splits": 8, "scaled": True}])
    lab.check(
        check_add, [layer | {"rows": [576], "inner": 1536, "heads": 9, "splits": None, "scaled": False}]
    )
    lab.check(check_gated, [layer | {"rows": 1536}])
    lab.check(check_logits, [shared | {"format": "Q8_0", "inner": 576, "rows": 1000, "first_row": 0}])
