"""Rotary position embeddings: the reference, plans, and what is refused. No GPU."""

import numpy as np
import pytest

import py_attn as pa
from py_attn.rope import rope_table
from tests.test_arguments import refused
from tests.test_plans import plan


def tables(positions=20, pairs=4):
    angles = rope_table(np.arange(positions), 2 * pairs)
    return angles[..., 0], angles[..., 1]


def ones(*shape):
    return np.ones(shape)


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_pair_is_a_complex_number_that_is_turned(interleaved):
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 10))
    at = np.array([[0, 7, 3, 3, 19], [4, 0, 1, 2, 3]])
    got = pa.reference.rotary(x, *tables(), positions=at, interleaved=interleaved)
    pairs = [(2 * i, 2 * i + 1) if interleaved else (i, i + 4) for i in range(4)]
    for i, (u, v) in enumerate(pairs):
        angle = at[:, None] * 1e4 ** (-i / 4)
        turned = (x[..., u] + 1j * x[..., v]) * np.exp(1j * angle)
        np.testing.assert_allclose(got[..., u] + 1j * got[..., v], turned, atol=1e-12)
    assert np.array_equal(got[..., 8:], x[..., 8:])


def test_scores_depend_on_distances():
    query, key = np.random.default_rng(1).standard_normal((2, 1, 1, 1, 8))
    scores = []
    for n in range(10):
        turned = (pa.reference.rotary(x, *tables(), positions=at) for x, at in ((query, n + 3), (key, n)))
        scores.append(np.vdot(*turned))
    np.testing.assert_allclose(scores, scores[0])


def test_positions_of_batch_elements():
    x = np.random.default_rng(2).standard_normal((2, 1, 3, 8))
    each = [pa.reference.rotary(x[b : b + 1], *tables(), positions=n)[0] for b, n in enumerate((5, 0))]
    np.testing.assert_array_equal(pa.reference.rotary(x, *tables(), positions=[5, 0]), each)


def test_the_gradient_turns_back():
    x = np.random.default_rng(3).standard_normal((1, 1, 4, 8))
    cos, sin = tables()
    there = pa.reference.rotary(x, cos, sin, positions=2)
    np.testing.assert_allclose(pa.reference.rotary(there, cos, -sin, positions=2), x)


def test_one_launch(device):
    cos, sin = (device.empty((20, 3)) for _ in range(2))
    ((shader, params, workgroups, buffers),) = plan(
        device, pa.rotary, device.empty((2, 3, 5, 8), "float16"), cos, sin, positions=4
    )
    assert list(buffers) == ["source", "cos_table", "sin_table", "out"]
    wanted = {"first_position": 4, "table_positions": 20, "cos_strides": [3, 1], "count": 5}
    assert {name: params[name] for name in wanted} == wanted
    assert np.isnan(params["not_a_number"])
    assert workgroups == (1, 1, 1)
    assert shader.label == "rotary/halves"
    at = device.empty((1, 5), "int32")
    ((_, params, _, buffers),) = plan(device, pa.rotary, device.empty((2, 3, 5, 8)), cos, sin, positions=at)
    assert params["positions_strides"] == [0, 1]
    assert list(buffers)[1] == "positions"
    assert pa.rotary(device.empty((0, 3, 5, 8)), cos, sin).shape == (0, 3, 5, 8)


def test_a_ring_turns_by_positions(device):
    cache = pa.KVCache(2, 3, 10, 8, sink_tokens=2)
    rows = device.empty((2, 3, 7, 8))
    cache.append(rows, rows)
    found = plan(device, cache.append, rows, rows, rotary=tables())
    assert [list(buffers) for *_, buffers in found] == [
        ["source", "cos_table", "sin_table", "cache"], ["source", "cache"]
    ]  # fmt: skip
    assert (found[0][1]["first_position"], found[0][1]["first_slot"]) == (7, 7)
    # Of twelve rows only the newest eight stay.
    twelve = device.empty((2, 3, 12, 8))
    ((_, params, *_), _) = plan(device, cache.append, twelve, twelve, rotary=tables(26))
    assert (params["first_position"], params["first_slot"], params["count"]) == (18, 2, 8)


def test_a_decode_turns_its_query_first(device):
    for ragged in (False, True):
        cache = pa.KVCache(2, 3, 10, 8, ragged=ragged, dtype="turboquant4")
        rows, query = device.empty((2, 3, 7, 8)), device.empty((2, 6, 2, 8), "float16")
        cache.append(rows, rows)
        found = plan(device, pa.decode_attention, query, cache, rotary=tables(), splits=1)
        assert found[0][0].name == "rotary"
        assert ("totals" in found[0][3]) == ragged
        assert found[0][1]["first_position"] == (0 if ragged else 5)
        out = pa.decode_attention(query, cache, rotary=tables(), splits=1)
        assert out.dtype == "float16"


def test_one_plan_serves_every_length_of_a_ragged_cache(device):
    cache, rows, query = (
        pa.KVCache(2, 3, 10, 8, ragged=True), device.empty((2, 3, 1, 8)), device.empty((2, 6, 1, 8))
    )  # fmt: skip
    angles = [device.tensor(table) for table in tables()]
    for _ in range(5):
        cache.append(rows, rows, rotary=angles)
        pa.decode_attention(query, cache, rotary=angles)
    assert len(device.plans) == 2


@pytest.mark.parametrize("kind", ["float32", "turboquant4"])
def test_what_is_off_leaves_no_trace(device, kind):
    cache, rows = pa.KVCache(2, 3, 10, 8, dtype=kind), device.empty((2, 3, 7, 8))
    found = plan(device, cache.append, rows, rows, rotary=None)
    found += plan(device, pa.decode_attention, device.empty((2, 6, 1, 8)), cache, rotary=None)
    for shader, *_ in found:
        for word in ("turned_at4", "cos_table", "first_position"):
            assert word not in shader.wgsl


# Errors

X, COS = (2, 3, 5, 8), (20, 4)
WRONG = [
    ({"x": ones(3, 5, 8)}, ValueError, r"^x: expected \[B, H, S, D >= 1\], got \[3, 5, 8\]"),
    ({"x": ones(2, 3, 5, 0)}, ValueError, "^x: expected"),
    ({"cos": ones(20)}, ValueError, r"^cos: expected \[positions, rotary_dim / 2\], got \[20\]"),
    ({"cos": ones(0, 4), "sin": ones(0, 4)}, ValueError, r"^cos: expected \[positions"),
    ({"cos": ones(20, 5)}, ValueError, "^cos: expected at most 4 columns, .* the head dim 8, got 5"),
    ({"sin": ones(20, 3)}, ValueError, r"^sin: expected the shape \[20, 4\] of the cosines, got \[20, 3\]"),
    ({"cos": np.ones(COS, int)}, TypeError, "^cos: expected floating numbers"),
    ({"positions": 16}, ValueError, "^cos: expected a row for each of the positions 0 to 20, got 20 rows"),
    ({"positions": -1}, ValueError, "^positions: expected at least 0, got -1"),
    ({"positions": 1.5}, TypeError, "^positions: expected an integer, got 1.5"),
    ({"positions": None}, TypeError, "^positions: expected an integer, got None"),
    ({"positions": [0, 16]}, ValueError, "^cos: expected a row for each of the positions 0 to 20"),
    ({"positions": [[0, 1, 2, 20, 4]]}, ValueError, "^cos: expected a row for each of the positions 0 to 20"),
    ({"positions": [0, -3]}, ValueError, "^positions: expected at least 0, got -3"),
    ({"positions": [0.5, 1]}, TypeError, "^positions: expected integers, got float64"),
    ({"positions": [0, 1, 2]}, ValueError, r"^positions: expected a number, \[2\], .*\[2, 5\].*got \[3\]"),
    ({"interleaved": 1}, TypeError, "^interleaved: expected True or False, got 1"),
]


@pytest.mark.parametrize(("changes", "error", "message"), WRONG)
def test_wrong_arguments(device, bridge, changes, error, message):
    given = {"x": ones(*X), "cos": ones(*COS), "sin": ones(*COS)} | changes
    refused(bridge, error, message, pa.rotary, **given)


KEYWORDS = [
    ({"rotary": 3}, TypeError, r"^rotary: expected \(cos, sin\), got int"),
    ({"rotary": (ones(*COS),)}, ValueError, r"^rotary: expected \(cos, sin\), got 1 values"),
    ({"rotary": (ones(20, 5),) * 2}, ValueError, r"^rotary \(cos\): expected at most 4 columns"),
    ({"rotary": (ones(20, 4), ones(20, 2))}, ValueError, r"^rotary \(sin\): expected the shape"),
    ({"rotary": (ones(4, 4),) * 2}, ValueError, r"^rotary \(cos\): .* 0 to [49], got 4 rows"),
    ({"rotary": (ones(20, 4), np.ones((20, 4), int))}, TypeError, r"^rotary \(sin\): expected floating"),
    ({"rotary": (None, ones(*COS))}, (ValueError, TypeError), r"^rotary \(cos\): expected"),
    ({"rotary_interleaved": "yes"}, TypeError, "^rotary_interleaved: expected True or False, got 'yes'"),
]


@pytest.mark.parametrize(("options", "error", "message"), KEYWORDS)
def test_wrong_keywords(device, bridge, options, error, message):
    cache = pa.KVCache(2, 3, 10, 8)
    cache.append(ones(2, 3, 5, 8), ones(2, 3, 5, 8))
    device.flush()
    bridge.programs.clear()
    refused(bridge, error, message, cache.append, ones(2, 3, 5, 8), ones(2, 3, 5, 8), **options)
    assert cache.total == 5
    for call in (pa.decode_attention, pa.decode_partials):
        refused(bridge, error, message, call, ones(2, 3, 1, 8), cache, **options)


def test_what_is_known_of_a_ragged_cache(device, bridge):
    cache, rows = pa.KVCache(2, 3, 10, 8, ragged=True), ones(2, 3, 5, 8)
    device.flush()
    bridge.programs.clear()
    short = (ones(4, 4),) * 2
    for lengths in (None, [5, 1]):
        message = r"^rotary \(cos\): expected a row for each of the positions 0 to 4, got 4 rows"
        refused(bridge, ValueError, message, cache.append, rows, rows, rotary=short, lengths=lengths)
    cache.append(rows, rows, rotary=short, lengths=[4, 1])
