"""The tiled product of quantised weights with many tokens, in a browser, against its float64 reference."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.page.quantized import check_add, check_gated, check_logits, check_qkv
from py_attn.kernels.nn.quantized_matmul import TILES

FORMATS = ("Q4_1", "Q8_0")
FLOATS = ("float32", "float16", "bfloat16")


def tile(tokens, rows, tokens_each, rows_each, slices, *, unrolled=False):
    return {
        "tile_tokens": tokens,
        "tile_rows": rows,
        "tokens_each": tokens_each,
        "rows_each": rows_each,
        "slices": slices,
        "unrolled": unrolled,
    }


#: Those that are chosen on GPUs, and others; loops are written out in one only, which takes long to compile.
CONFIGS = (
    *(dataclasses.asdict(config) | {"unrolled": False} for config in TILES),
    tile(16, 16, 4, 4, 1, unrolled=True),
    tile(8, 16, 4, 8, 32),
    tile(64, 32, 8, 4, 1),
    tile(16, 64, 4, 4, 2),
    tile(4, 4, 4, 4, 8),
    tile(48, 32, 4, 4, 2),
)

seeds = st.integers(0, 1 << 20)
formats = st.sampled_from(FORMATS)
configs = st.sampled_from(CONFIGS)
counts = st.sampled_from((1, 2, 16, 17, 33, 64, 70))
positions = st.sampled_from((0, 0, 1, 5, 30))
inners = st.sampled_from((32, 64, 96, 160, 288, 576))
sizes = st.sampled_from((1.0, 1.0, 1e-3, 100.0))


@settings(max_examples=11)
@given(
    seed=seeds, format=formats, inner=inners, count=counts, position=positions, config=configs, size=sizes,
    head_dim=st.sampled_from((2, 6, 20, 32, 64)), kv_heads=st.integers(1, 3), group=st.integers(1, 3),
    dtypes=st.tuples(st.sampled_from(FLOATS), st.sampled_from(FLOATS)),
    capacity=st.sampled_from((None, 1, 7, 40, 100)), kept=st.integers(0, 3),
)  # fmt: skip
def test_project_qkv(lab, kv_heads, group, capacity, kept, dtypes, **case):
    case |= {"heads": kv_heads * group, "kv_heads": kv_heads, "capacity": capacity}
    case["kept"] = min(kept, (capacity or 1) - 1)
    case["dtypes"] = list(dtypes) if capacity else ["float32"] * 2
    lab.check(check_qkv, [case])


@settings(max_examples=12)
@given(
    seed=seeds, format=formats, head_dim=st.sampled_from((32, 64, 96)), heads=st.integers(1, 5), count=counts,
    position=positions, config=configs, scaled=st.booleans(),
    rows=st.lists(st.integers(1, 70), min_size=1, max_size=2),
)  # fmt: skip
def test_add_projection(lab, head_dim, heads, **case):
    lab.check(check_add, [case | {"heads": heads, "inner": heads * head_dim, "splits": None}])


@settings(max_examples=12)
@given(
    seed=seeds, format=formats, inner=inners, rows=st.integers(1, 90), count=counts, position=positions,
    config=configs, size=sizes,
)  # fmt: skip
def test_gated_linear(lab, **case):
    lab.check(check_gated, [case])


@settings(max_examples=12)
@given(
    seed=seeds, format=formats, inner=inners, rows=st.integers(1, 300), count=counts, config=configs,
    size=sizes, position=st.none() | positions, first_row=st.integers(0, 6),
)  # fmt: skip
def test_logits(lab, **case):
    lab.check(check_logits, [case])


@pytest.mark.quick("64-64-8-4-2-False", "16-16-4-4-1-True", "48-32-4-4-2-False")
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: "-".join(map(str, config.values())))
def test_sums_of_smollm2(lab, config):
    """Every configuration sums over as many numbers as SmolLM2-135M, for more tokens than a tile has."""
    shared = {"seed": 1, "count": 70, "position": 3, "config": config}
    layer = shared | {"format": "Q4_1", "inner": 576}
    qkv = {"head_dim": 64, "heads": 3, "kv_heads": 1, "dtypes": ["float16", "float16"]}
    lab.check(check_qkv, [layer | qkv | {"capacity": 128, "kept": 0}])
    add = layer | {"rows": [150], "heads": 9, "splits": None}
    lab.check(check_add, [add | {"scaled": True}, add | {"inner": 1536, "scaled": False}])
    lab.check(check_gated, [layer | {"rows": 150}])
    lab.check(check_logits, [shared | {"format": "Q8_0", "inner": 576, "rows": 150, "first_row": 0}])
