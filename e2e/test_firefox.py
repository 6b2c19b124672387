"""The built page in Firefox, whose WebGPU is another one: wgpu, with the compiler naga."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.firefox import WEBGPU, Firefox, launched
from e2e.kernel_cases import attention_case, dtypes
from e2e.lab import Lab
from e2e.page.attention import check_attention, check_weights
from e2e.page.decode import check_decode
from e2e.page.extremes import check_extreme, check_extreme_decode
from e2e.page.gradients import HALVES, check_gradients, check_packed
from e2e.page.maps import check_row_sums
from e2e.page.quantization import check_quantize, check_quantized_decode
from e2e.page.quantized import check_add, check_gated, check_logits, check_qkv
from e2e.page.sampling import check_choice, check_statistics
from e2e.page.step import check_program, check_step
from e2e.test_kernels_decode import decode_case
from e2e.test_kernels_gradients import dense
from e2e.test_kernels_sampling import choice, statistics
from e2e.test_kernels_step import step_case
from scripts.firefox import find_firefox

VARIANTS = ("naive", "rows", "tiled")
MASK = {"dtype": "bool", "shape": [2, 1, 19, 37], "rows": "hidden", "transposed": False}
PACKED = {
    "seed": 1,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
    "value_dim": 16,
    "query_lengths": [9, 0, 33],
    "key_lengths": [32, 2, 40],
    "dtype": "float32",
    "on_gpu": True,
    "sinks": False,
    "keywords": {"causal": True},
}
SUMS = {
    "seed": 1,
    "heads": 2,
    "rows": 7,
    "keys": 65,
    "begin": 3,
    "step": 9,
    "sharpness": 1.0,
    "causal": True,
}
STEPS = (("append", 60), ("decode", 1, {"splits": 3}))
LAYER = {"seed": 1, "count": 1, "position": 3, "config": None, "format": "Q4_1", "inner": 576}
QKV = {"head_dim": 64, "heads": 9, "kv_heads": 3, "dtypes": ["float16", "float16"], "capacity": 64, "kept": 0}

#: Some cases of every family of kernels; the tests of each family have the others.
FAMILIES: dict[str, tuple[Callable[..., Any], list[dict[str, Any]]]] = {
    "attention": (
        check_attention,
        [
            case | {"variant": variant}
            for variant in VARIANTS
            for case in (
                attention_case(causal=True, dtypes=dtypes("float16")),
                attention_case(mask=MASK, kv_lengths=[30, 0], softcap=5.0),
                attention_case(window=[9, 2], dtypes=dtypes("bfloat16"), head_dim=64),
            )
        ],
    ),
    "extreme scores": (
        check_extreme,
        [
            {"mask": "-1e9", "variant": "naive", "forms": HALVES[0]},
            {"nan": "key", "variant": "rows", "forms": HALVES[1]},
            {"mod": "log", "variant": "tiled", "forms": HALVES[0]},
        ],
    ),
    "extreme scores in decoding": (
        check_extreme_decode,
        [{"splits": 3, "dtype": "float32", "nan": which} for which in ("query", "value")],
    ),
    "weights": (
        check_weights,
        [
            attention_case(show={"rows": [2, 9], "heads": [3, 1]}, causal=True),
            attention_case(show={"rows": [None], "columns": [None], "size": [5, 7], "pool": "mean"}),
            attention_case(show={"gradient": True}, dtypes=dtypes("float16")),
        ],
    ),
    "sums of rows": (check_row_sums, [SUMS]),
    "gradients": (
        check_gradients,
        [
            dense(keywords={"causal": True}, dtype="float16", mod="relative", forms=HALVES[0]),
            dense(sinks=True, mod="listed", forms=HALVES[1]),
        ],
    ),
    "packed sequences": (check_packed, [PACKED | {"variant": variant} for variant in VARIANTS]),
    "decode": (
        check_decode,
        [decode_case(*STEPS, cache_dtypes=[kind] * 2, query_dtype=kind) for kind in ("float32", "bfloat16")],
    ),
    "steps": (
        check_step,
        [step_case(0, 5, 40), step_case(31, 61, cache_dtypes=["turboquant4"] * 2, head_dim=32)],
    ),
    "programs": (check_program, [step_case(runs=[1, 7, 30], capacity=16)]),
    "queries, keys and values": (check_qkv, [LAYER | QKV, LAYER | QKV | {"count": 20}]),
    "projections": (check_add, [LAYER | {"rows": [576], "heads": 9, "splits": 8, "scaled": True}]),
    "gated products": (check_gated, [LAYER | {"rows": 300}]),
    "logits": (check_logits, [LAYER | {"format": "Q8_0", "rows": 500, "first_row": 0}]),
    "choices": (check_choice, [choice(), choice(temperature=0.7, top_k=40, top_p=0.9)]),
    "statistics": (check_statistics, [statistics()]),
}


@pytest.fixture(scope="module")
def executable():
    found = find_firefox()
    if not found and not os.environ.get("CI"):
        pytest.skip("no Firefox was found; PY_ATTN_FIREFOX may name one")
    assert found, "no Firefox was found: CI installs one"
    return found


@pytest.fixture(scope="module")
def firefox(executable, site_url) -> Iterator[Firefox]:
    """The page in a Firefox with WebGPU; its errors fail the last test."""
    with launched(executable, WEBGPU) as firefox:
        firefox.goto(site_url)
        yield firefox
        assert firefox.errors == []


@pytest.fixture(scope="module")
def lab(firefox) -> Lab:
    lab = Lab(firefox, firefox.evaluate("() => window.pyAttn.ready"))
    firefox.wait_for('#overview[data-painted="1"]')
    lab.install()
    return lab


def test_the_page_starts_and_draws_its_maps(lab, firefox):
    assert lab.info["software"]
    assert firefox.text(".masthead .chip") == "unnamed software adapter"
    assert firefox.evaluate("() => document.querySelector('.banner').hidden")


@pytest.mark.quick("attention", "decode", "steps", "choices")
@pytest.mark.parametrize("family", FAMILIES)
def test_kernels(lab, family):
    lab.check(*FAMILIES[family])


def test_turboquant(lab):
    answers = [
        lab.call(check_quantize, (6, 5, 64), 3, True, "float32", 64, False),
        lab.call(check_quantized_decode, 2, 6, 2, 37, (64, 64), ("turboquant4",) * 2, False, [20, 29], 1, 3),
    ]
    assert all(ratio <= 1 for answer in answers for ratio in answer.values()), answers


def test_an_awaited_call_takes_milliseconds(lab):
    """Firefox looks for finished work every 100 ms, unless something is submitted."""
    times = lab.run("""
import time
import numpy as np
import py_attn as pa
query = pa.default_device().tensor(np.ones((1, 1, 4, 8), np.float32))
times = []
for _ in range(30):
    began = time.perf_counter()
    await pa.attention(query, query, query).numpy()
    times.append(1000 * (time.perf_counter() - began))
times
""")
    assert sorted(times)[len(times) // 2] < 20, times


@pytest.mark.skipif(sys.platform != "linux", reason="here Firefox has WebGPU switched on by itself")
def test_without_webgpu_numpy_computes(executable, site_url):
    with launched(executable, {}) as firefox:
        firefox.goto(site_url)
        info = firefox.evaluate("() => window.pyAttn.ready")
        firefox.wait_for('#overview[data-painted="1"]')
        assert info["adapter"].startswith("none: ")
        assert "numpy reference" in firefox.text(".masthead .chip")
        assert "dom.webgpu.enabled" in firefox.text(".banner")
        assert "Chrome may need" not in firefox.text(".banner")
        total = "window.pyAttn.run('float(pa.reference.attention(*np.ones((3, 1, 1, 2, 2))).sum())')"
        assert firefox.evaluate(f"() => {total}") == 4
        assert firefox.errors == []
