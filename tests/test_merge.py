"""`pa.merge`: its reference, its plan, and what it refuses. No GPU."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import py_attn as pa
from tests.test_plans import plan

SHAPE = (2, 4, 5, 8)


def part(shape=SHAPE):
    return np.ones(shape), np.ones(shape[:3])


@settings(max_examples=30)
@given(
    st.integers(0, 1 << 20),
    st.lists(st.integers(1, 9), min_size=2, max_size=5),
    st.sampled_from((1.0, 40.0)),
)
def test_the_reference_gives_attention_over_all_keys(seed, counts, size):
    random = np.random.default_rng(seed)
    query = size * random.standard_normal((2, 3, 4, 8))
    keys, values = (random.standard_normal((2, 3, sum(counts), 8)) for _ in range(2))
    ends = np.cumsum(counts)
    parts = [
        pa.reference.attention(query, keys[:, :, end - n : end], values[:, :, end - n : end], return_lse=True)
        for n, end in zip(counts, ends, strict=True)
    ]
    # One that saw nothing changes nothing, even where its output is NaN.
    parts.insert(1, (np.full((2, 3, 4, 8), np.nan), np.full((2, 3, 4), -np.inf)))
    merged = pa.reference.merge(parts, return_lse=True)
    whole = pa.reference.attention(query, keys, values, return_lse=True)
    for ours, theirs in zip(merged, whole, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_a_row_that_no_part_saw():
    nothing = np.full((1, 1, 1, 2), np.nan), np.full((1, 1, 1), -np.inf)
    out, lse = pa.reference.merge([nothing, nothing], return_lse=True)
    assert (out == 0).all()
    assert np.isneginf(lse).all()


def test_two_parts_are_merged_in_one_launch(device):
    query = device.empty((2, 4, 1, 16))
    key = device.empty((2, 2, 7, 16))
    parts = [pa.attention(query, key, key, return_lse=True) for _ in range(2)]
    ((shader, params, workgroups, buffers),) = plan(device, pa.merge, parts, return_lse=True)
    assert list(buffers) == ["first_out", "first_lse", "second_out", "second_lse", "out", "lse"]
    assert workgroups == (1, 1, 1)
    # Maxima and sums lie behind the LSEs, in units of log2.
    wanted = {"first_lse_plane": 8, "second_lse_plane": 8, "first_lse_unit": 1.0, "lse_plane": 8,
              "batch": 2, "heads": 4, "queries": 1}  # fmt: skip
    assert {name: params[name] for name in wanted} == wanted
    assert shader.name == "merge"
    out, lse = pa.merge(parts, return_lse=True)
    assert (out.shape, out.dtype, lse.shape, lse.dtype) == ((2, 4, 1, 16), "float32", (2, 4, 1), "float32")


def test_several_parts_are_float32_until_the_last(device):
    parts = [(device.empty(SHAPE, "float16"), device.empty(SHAPE[:3])) for _ in range(4)]
    found = plan(device, pa.merge, parts)
    assert [shader.variant for shader, *_ in found] == ["float32", "float32", "float16"]
    # LSEs that came without their maxima are in natural units.
    assert [p["first_lse_plane"] for _, p, *_ in found] == [0, 40, 40]
    assert pa.merge(parts).dtype == "float16"
    count = len(device.plans)
    pa.merge(parts)
    assert len(device.plans) == count


def test_views_and_nothing_at_all(device):
    out, lse = device.empty((3, 4, 1, 8)), device.empty((3, 4, 1))
    turned = out.transpose(2, 1, 0, 3), lse.transpose(2, 1, 0)
    ((_, params, _, _),) = plan(device, pa.merge, [turned, turned])
    assert params["first_lse_strides"] == [1, 1, 4, 0]
    assert params["first_out_strides"] == [0, 8, 32, 1]
    empty = device.empty((2, 4, 0, 8)), device.empty((2, 4, 0))
    assert pa.merge([empty, empty], return_lse=True)[0].shape == (2, 4, 0, 8)


LSE = np.ones(SHAPE[:3])
WRONG = [
    (None, ValueError, r"partials: expected two or more pairs .*, got NoneType"),
    ([part()], ValueError, r"partials: expected two or more pairs .*, got 1 of them"),
    ([part(), LSE], ValueError, r"partials\[1\]: expected a pair \(out, lse\)"),
    ([part(), part((2, 4, 5, 6))], ValueError, r"partials\[1\] out: expected the first's \[2, 4, 5, 8\]"),
    ([part(), (part()[0], LSE[0])], ValueError, r"partials\[1\] lse: expected \[B, H, S\] = \[2, 4, 5\]"),
    ([part((4, 5, 8)), part()], ValueError, r"partials\[0\] out: expected \[B, H, S, Dv\], got \[4, 5, 8\]"),
    ([part(), (np.ones(SHAPE, np.int32), LSE)], TypeError, r"partials\[1\] out: expected float32"),
    ([part(), (part()[0], np.float16(LSE))], TypeError, r"partials\[1\] lse: expected float32, got float16"),
]  # fmt: skip


@pytest.mark.parametrize(("partials", "error", "message"), WRONG)
def test_wrong_arguments(device, bridge, partials, error, message):
    with pytest.raises(error, match=f"^{message}"):
        pa.merge(partials)
    device.flush()
    assert bridge.programs == []


def test_what_is_destroyed_is_named(device):
    parts = [(device.empty(SHAPE), device.empty(SHAPE[:3])) for _ in range(2)]
    pa.merge(parts)
    parts[1][1].destroy()
    with pytest.raises(ValueError, match=r"^partials\[1\] lse: the tensor was destroyed"):
        pa.merge(parts)
