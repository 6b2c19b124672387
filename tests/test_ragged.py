"""Batch elements with lengths of their own, and left padding: reference, plans, errors. No GPU."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import py_attn as pa
from tests.test_plans import plan


def ones(*shape):
    return np.ones(shape)


def ragged(**options):
    return pa.KVCache(2, 3, 10, 8, **{"ragged": True, **options})


@settings(max_examples=30)
@given(st.integers(0, 1 << 20), st.lists(st.integers(0, 9), min_size=2, max_size=4), st.data())
def test_the_reference_takes_each_element_by_itself(seed, lengths, data):
    random, batch = np.random.default_rng(seed), len(lengths)
    padding = data.draw(st.lists(st.integers(0, 9), min_size=batch, max_size=batch))
    query = random.standard_normal((batch, 2, 1, 8))
    keys, values = random.standard_normal((2, batch, 2, 9, 8))
    out, lse = pa.reference.decode_attention(
        query, keys, values, lengths=lengths, left_padding=padding, return_lse=True
    )
    for b, (begin, end) in enumerate(zip(padding, lengths, strict=True)):
        seen = slice(begin, end)
        one, one_lse = pa.reference.attention(
            query[b : b + 1], keys[b : b + 1, :, seen], values[b : b + 1, :, seen], return_lse=True
        )
        np.testing.assert_allclose(out[b], one[0], atol=1e-12)
        np.testing.assert_allclose(lse[b], one_lse[0], atol=1e-12)


def test_mods_of_the_reference_get_the_element(device):
    lengths, seen = [3, 5], set()

    def mask_mod(b, h, q, k):
        seen.update((int(x), int(y)) for x, y in zip(*np.broadcast_arrays(b + 0 * k, q + 0 * k), strict=True)
                    for x, y in zip(x.ravel(), y.ravel(), strict=True))  # fmt: skip
        return k >= 0

    keys = ones(2, 1, 5, 8)
    pa.reference.decode_attention(ones(2, 1, 1, 8), keys, keys, lengths=lengths, mask_mod=mask_mod)
    assert seen == {(0, 2), (1, 4)}


@pytest.mark.parametrize("dtype", ["float32", "float16", "turboquant4"])
def test_an_append_reads_and_advances_the_totals(device, dtype):
    cache = ragged(dtype=dtype, sink_tokens=1)
    rows = device.empty((2, 3, 5, 8))
    counts = device.tensor([5, 2], "int32")
    found = plan(device, cache.append, rows, rows, lengths=counts)
    write = "turboquant_quantize" if dtype == "turboquant4" else "cache_append"
    assert [shader.name for shader, *_ in found] == [write, write, "cache_advance"]
    for shader, params, _, buffers in found:
        assert list(buffers)[-2 if shader.name == "cache_advance" else -3 :][0] in ("totals",)
        assert (params["count"], params["counts_stride"], params["capacity"], params["kept"]) == (5, 1, 10, 1)
    assert [binding.writes for binding in found[2][0].bindings] == [True, False]
    # Without lengths all rows are new.
    found = plan(device, cache.append, rows, rows)
    assert all("counts" not in buffers for *_, buffers in found)


def test_one_plan_serves_every_length(device):
    cache, rows = ragged(), device.empty((2, 3, 1, 8))
    query = device.empty((2, 6, 1, 8))
    for _ in range(5):
        cache.append(rows, rows)
        pa.decode_attention(query, cache, window=3)
    assert len(device.plans) == 2


def test_a_decode_reads_the_totals(device):
    cache, query = ragged(), device.empty((2, 6, 1, 8))
    ((shader, params, _, buffers),) = plan(
        device, pa.decode_attention, query, cache, left_padding=device.tensor([1, 0], "int32"), splits=1
    )
    assert list(buffers) == ["query", "totals", "left_padding", "key", "value", "out"]
    wanted = {"start": 0, "dropped": 0, "query_position": 0, "keys": 10, "left_padding_stride": 1}
    assert {name: params[name] for name in wanted} == wanted
    assert "find_cache(b);" in shader.wgsl


@pytest.mark.parametrize("options", [{}, {"left_padding": None}, {"left_padding": None, "window": 4}])
def test_what_is_off_leaves_no_trace(device, options):
    cache = pa.KVCache(2, 3, 10, 8, ragged=False)
    rows = device.empty((2, 3, 5, 8))
    found = plan(device, cache.append, rows, rows, lengths=None)
    found += plan(device, pa.decode_attention, device.empty((2, 6, 1, 8)), cache, **options)
    for shader, *_ in found:
        for word in ("totals", "padding", "counts", "find_cache"):
            assert word not in shader.wgsl


def test_a_cleared_cache_is_empty(device, bridge):
    cache = ragged()
    cache.clear()
    assert (cache.totals.shape, cache.totals.dtype) == ((2,), "int32")
    assert repr(cache).startswith("KVCache(batch=2, kv_heads=3, ragged, capacity=10, head_dim=8,")


# Errors


def refused(bridge, error, message, call, *arguments, **options):
    pa.default_device().flush()
    bridge.programs.clear()
    with pytest.raises(error, match=f"^{message}"):
        call(*arguments, **options)
    pa.default_device().flush()
    assert bridge.programs == []


LENGTHS = [
    ([1, 2, 3], ValueError, r"lengths: expected shape \[2\], one a batch element, got \[3\]"),
    ([1, 6], ValueError, r"lengths: expected values from 0 to the 5"),
    ([-1, 5], ValueError, r"lengths: expected values from 0 to the 5"),
    ([1.5, 2], TypeError, r"lengths: expected integers, got float64"),
    ([True, False], TypeError, r"lengths: expected integers, got bool"),
]


@pytest.mark.parametrize(("lengths", "error", "message"), LENGTHS)
def test_wrong_lengths(device, bridge, lengths, error, message):
    rows = ones(2, 3, 5, 8)
    refused(bridge, error, message, ragged().append, rows, rows, lengths=lengths)


def test_wrong_left_padding(device, bridge):
    cache = pa.KVCache(2, 3, 10, 8)
    cache.append(ones(2, 3, 5, 8), ones(2, 3, 5, 8))
    query = ones(2, 3, 1, 8)
    for call in (pa.decode_attention, pa.decode_partials):
        for padding, error, message in (
            ([1], ValueError, r"left_padding: expected shape \[2\]"),
            ([0, 6], ValueError, "left_padding: expected values from 0 to the 5"),
            ([0.5, 1], TypeError, "left_padding: expected integers, got float64"),
            (device.empty((2,)), TypeError, "left_padding: expected integers, got float32"),
        ):
            refused(bridge, error, message, call, query, cache, left_padding=padding)


def test_what_a_ragged_cache_does_not_know(device, bridge):
    cache, plain = ragged(), pa.KVCache(2, 3, 10, 8)
    for name in ("total", "length", "start"):
        with pytest.raises(ValueError, match=r"^cache: each batch element of a ragged cache"):
            getattr(cache, name)
    refused(bridge, ValueError, "total: expected a cache that is not ragged", cache.set_total, 3)
    refused(bridge, TypeError, "ragged: expected True or False, got 1", pa.KVCache, 1, 1, 4, 8, ragged=1)
    with pytest.raises(ValueError, match=r"^cache: expected a ragged one, made with ragged=True"):
        plain.totals  # noqa: B018
    rows = ones(2, 3, 5, 8)
    refused(
        bridge, ValueError, "lengths: expected None for a cache that is not ragged", plain.append, rows, rows,
        lengths=[1, 2],
    )  # fmt: skip
    cache.destroy()
    refused(bridge, ValueError, "cache: the tensor was destroyed", cache.append, rows, rows)
