"""`pa.attention_weights` in the page: windows, heads, thumbnails and colours against the reference."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.kernel_cases import FLOATS, attention_case, attention_cases, dtypes, features
from e2e.page.attention import check_weights


@pytest.fixture(scope="module")
def check(lab, error_ratios):
    """Run weights cases in the page; every ratio must be at most 1."""

    def run(*cases):
        answers = lab.check(check_weights, cases)
        for case, answer in zip(cases, answers, strict=True):
            if "weights" in answer:
                error_ratios.note(features(case), "weights", answer["weights"])
        return answers

    return run


def weights_case(show, **changes):
    return attention_case(show=show, **changes)


@st.composite
def weights_cases(draw):
    """Any masking, and any part of the picture."""
    case = draw(attention_cases("naive"))
    if case.get("mask"):
        # A row of nothing but the lowest bias has no meaningful LSE; it has its own test below.
        case["mask"]["rows"] = "hidden"
    part = st.tuples(st.none() | st.integers(-40, 40), st.none() | st.integers(-40, 40), st.integers(1, 5))
    show = {"rows": list(draw(part)), "columns": list(draw(part))}
    head = st.integers(-case["heads"], case["heads"] - 1)
    show["heads"] = draw(st.none() | head | st.lists(head, min_size=1, max_size=5))
    show["gradient"] = draw(st.booleans())
    if draw(st.booleans()) and case["queries"] and case["keys"]:
        # Pooling nothing is nothing; the reference has no such thing.
        show.update(rows=[None], columns=[None])
        show["size"] = [draw(st.integers(1, 40)), draw(st.integers(1, 40))]
        show["pool"] = draw(st.sampled_from(("max", "mean")))
    return case | {"show": show}


@settings(max_examples=24)
@given(case=weights_cases())
def test_anything(check, case):
    check(case)


def test_windows_and_heads(check):
    rows = [[None], [3], [0, 19, 4], [18, 19], [-5, None, 2], [5, 5], [100, 200], [None, None, 100]]
    heads = [None, 0, -1, [3, 1], [2, 2, -4]]
    check(
        *(weights_case({"rows": part, "columns": other}, causal=True) for part in rows for other in rows),
        *(weights_case({"heads": chosen, "rows": [2, 9]}) for chosen in heads),
    )


def test_maskings(check):
    masks = [
        {"dtype": kind, "shape": shape, "rows": "hidden"}
        for kind in ("bool", "float16", "float32")
        for shape in ([4, 19, 37], [37], [2, 1, 1, 37], [19, 1])
    ]
    check(
        *(weights_case({}, mask=mask) for mask in masks),
        *(weights_case({}, causal=c, window=w) for c in (False, True, "top-left") for w in (None, 0, [5, 2])),
        *(weights_case({}, kv_lengths=n, causal=c) for n in ([0, 37], [5, 20]) for c in (False, True)),
        *(weights_case({}, softcap=c, scale=s) for c in (None, 0.5, 30.0) for s in (-1.0, 0.0, 0.2)),
        *(weights_case({}, dtypes=dtypes(kind), layout="BSHD", head_dim=20) for kind in FLOATS),
    )


@pytest.mark.parametrize("pool", ["max", "mean"])
def test_thumbnails(check, pool):
    # Smaller, as large, and larger than the map; also of a part of it.
    sizes = [[1, 1], [7, 9], [19, 37], [18, 36], [19, 1], [64, 64], [1, 100]]
    check(
        *(weights_case({"size": size, "pool": pool}, causal=True) for size in sizes),
        weights_case({"size": [4, 4], "pool": pool, "rows": [3, 17, 2], "columns": [5, 30], "heads": 2}),
    )


@pytest.mark.thorough
def test_a_mean_of_many_weights(check):
    # Few large ones and thousands that are small beside them.
    long = {"batch": 1, "queries": 60, "keys": 6000, "head_dim": 16}
    shown = [{"size": size, "pool": "mean"} for size in ([1, 1], [4, 2])]
    check(*(weights_case(show, **long, scale=scale) for show in shown for scale in (0.5, 1.0, 2.0)))


def test_weights_times_gradients(check):
    check(
        *(weights_case({"gradient": True}, causal=c, softcap=s) for c in (False, True) for s in (None, 2.0)),
        *(weights_case({"gradient": True, "size": [4, 9], "pool": pool}) for pool in ("max", "mean")),
        *(
            weights_case({"gradient": True}, dtypes=dtypes(kind), layout="BSHD", value_head_dim=dim)
            for kind in FLOATS
            for dim in (7, 20)
        ),
    )


@pytest.mark.parametrize("scale", ["linear", "sqrt", "log"])
def test_colors(check, scale):
    answers = check(
        *(
            weights_case(
                {"colormap": name, "color_scale": scale, "color_max": maximum, "size": size}, causal=True
            )
            for name in ("viridis", "magma", "magma_r", "viridis_r")
            for maximum in (1.0, 0.1, 3.0)
            for size in (None, [8, 8])
        )
    )
    # Different colours than numpy's are allowed only where the true weight lies between two colours.
    assert max(answer["colors"] for answer in answers) < 0.02


def test_rows_that_see_only_the_lowest_bias_stay_finite(check, lab):
    # Their LSE says nothing about single weights, but no weight is above 1.
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.inputs import normal
random = np.random.default_rng(5)
query, key = (normal(random, (1, 1, n, 8), "float32") for n in (9, 13))
mask = np.full((9, 13), np.finfo(np.float32).min)
out, lse = pa.attention(query, key, key, mask=mask, return_lse=True)
weights = await pa.attention_weights(query, key, lse, mask=mask).numpy()
even = float(np.abs(await out.numpy() - key.mean(axis=2, keepdims=True)).max())
[bool(((weights >= 0) & (weights <= 1)).all()), even]
""") == [True, pytest.approx(0, abs=1e-6)]  # fmt: skip


def test_rows_sum_to_one_or_nothing(lab):
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.inputs import normal
random = np.random.default_rng(5)
query, key = (normal(random, (1, 2, n, 16), "float32") for n in (40, 300))
mask = random.random((40, 300)) < 0.5
mask[7] = False
lse = pa.attention(query, key, key, mask=mask, return_lse=True)[1]
sums = (await pa.attention_weights(query, key, lse, mask=mask).numpy()).astype(np.float64).sum(-1)
[float(np.abs(np.delete(sums, 7, axis=2) - 1).max()), sums[..., 7].tolist()]
""") == [pytest.approx(0, abs=2e-6), [[0, 0]]]  # fmt: skip


def test_a_long_map_is_never_stored(lab):
    # 16k × 16k weights would take 1 GiB; a window and a thumbnail of them take what they show.
    assert lab.run("""
import numpy as np
import py_attn as pa
from e2e.page.inputs import normal
device = pa.default_device()
before = device.memory_allocated()
key = device.tensor(normal(np.random.default_rng(5), (1, 1, 16384, 4), "float32"))
lse = np.full((1, 1, 16384), np.log(16384), np.float32)
part = pa.attention_weights(key, key, lse, rows=slice(16000, 16008), columns=slice(0, 16384, 512))
got = await part.numpy()
q, k = (await key.numpy())[0, 0][16000:16008].astype(float), (await key.numpy())[0, 0][::512].astype(float)
exact = np.exp(q @ k.T / 2) / 16384
[float((np.abs(got[0, 0] - exact) / exact).max()) < 1e-5, device.memory_allocated() - before < 1 << 19]
""") == [True, True]  # fmt: skip
