"""The float64 reference against closed forms, and against itself where two ways must agree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import py_attn as pa
from py_attn.products import product
from py_attn.reference import attention, attention_weights, decode_attention, pool

TIGHT = {"rtol": 0, "atol": 1e-12}


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def qkv(seed=1, batch=2, heads=4, kv_heads=2, queries=5, keys=9, dim=6, value_dim=3):
    return (
        normal(seed, batch, heads, queries, dim),
        normal(seed + 1, batch, kv_heads, keys, dim),
        normal(seed + 2, batch, kv_heads, keys, value_dim),
    )


def test_equal_scores_give_the_mean():
    query, key, value = qkv(heads=2)
    for q, k in ((np.zeros_like(query), key), (query, np.ones_like(key)), (query, np.zeros_like(key))):
        out, lse = attention(q, k, value, scale=0.5, return_lse=True)
        np.testing.assert_allclose(
            out, np.broadcast_to(value.mean(axis=2, keepdims=True), out.shape), **TIGHT
        )
        np.testing.assert_allclose(lse, np.log(9) + 0.5 * (q @ k.swapaxes(-1, -2))[..., 0], **TIGHT)


def test_one_key_gives_its_value():
    query, key, value = qkv(heads=2, keys=1)
    out, lse = attention(query, key, value, return_lse=True)
    np.testing.assert_array_equal(out, np.broadcast_to(value, out.shape))
    np.testing.assert_allclose(lse, (query @ key.swapaxes(-1, -2))[..., 0] / np.sqrt(6), **TIGHT)


def test_a_huge_score_selects_its_value():
    key = np.eye(6)[None, None]
    value = normal(3, 1, 1, 6, 4)
    out = attention(1e4 * key, key, value)
    np.testing.assert_array_equal(out, value)
    out = attention(-1e4 * key, key, value, scale=-1.0)
    np.testing.assert_array_equal(out, value)


def test_two_scores_by_hand():
    query, key = np.ones((1, 1, 1, 1)), np.array([np.log(3), 0.0]).reshape(1, 1, 2, 1)
    value = np.array([10.0, 2.0]).reshape(1, 1, 2, 1)
    out, lse = attention(query, key, value, return_lse=True)
    assert out.item() == pytest.approx(8.0)
    assert lse.item() == pytest.approx(np.log(4))
    np.testing.assert_allclose(attention_weights(query, key), [[[[0.75, 0.25]]]])


def test_weights_times_gradients_are_shares_of_the_objective():
    # The output is linear in the weights, so a row's products sum to grad_out · out.
    query, key, value = qkv()
    grad = np.random.default_rng(2).standard_normal((*query.shape[:3], value.shape[3]))
    options = {"causal": True, "window": (3, None), "softcap": 2.0}
    products = attention_weights(query, key, value=value, grad_out=grad, **options)
    out = attention(query, key, value, **options)
    np.testing.assert_allclose(products.sum(-1), (grad * out).sum(-1), **TIGHT)
    one = attention_weights(query, key, **options)[0, 3, 4, 2] * grad[0, 3, 4] @ value[0, 1, 2]
    np.testing.assert_allclose(products[0, 3, 4, 2], one, **TIGHT)


def test_weights_are_the_ones_that_weigh_the_values():
    query, key, value = qkv()
    options = {"causal": True, "window": (3, None), "softcap": 2.0}
    weights = attention_weights(query, key, **options)
    np.testing.assert_allclose(weights.sum(-1), 1, **TIGHT)
    np.testing.assert_allclose(
        weights @ np.repeat(value, 2, axis=1), attention(query, key, value, **options), **TIGHT
    )


@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (5, 9), (9, 5), (1, 9)])
@pytest.mark.parametrize("causal", [True, "bottom-right", "top-left"])
def test_causal_is_a_loop_over_prefixes(queries, keys, causal):
    query, key, value = qkv(queries=queries, keys=keys)
    out, lse = attention(query, key, value, causal=causal, return_lse=True)
    for i in range(queries):
        last = i + 1 if causal == "top-left" else i + 1 + keys - queries
        last = min(max(last, 0), keys)
        expected, expected_lse = attention(
            query[:, :, i : i + 1], key[:, :, :last], value[:, :, :last], return_lse=True
        )
        np.testing.assert_allclose(out[:, :, i : i + 1], expected, **TIGHT)
        np.testing.assert_allclose(lse[:, :, i : i + 1], expected_lse, **TIGHT)


def test_an_offset_moves_the_queries_along_the_keys():
    query, key, value = qkv(queries=5, keys=9)
    for offset, same in ((0, {"causal": "top-left"}), (4, {"causal": True})):
        out = attention(query, key, value, causal=True, query_offset=offset)
        np.testing.assert_array_equal(out, attention(query, key, value, **same))
    # Beyond both ends: nothing to see, and everything in the window's reach.
    assert not attention(query, key, value, causal=True, query_offset=-5).any()
    out = attention(query, key, value, window=(3, 0), query_offset=20)
    assert not out.any()
    np.testing.assert_array_equal(
        attention(query, key, value, causal=True, query_offset=20), attention(query, key, value)
    )


sides = st.none() | st.integers(0, 12)


@given(
    queries=st.integers(1, 10),
    keys=st.integers(0, 10),
    left=sides,
    right=sides,
    causal=st.sampled_from((False, True, "top-left")),
    lengths=st.none() | st.lists(st.integers(0, 10), min_size=2, max_size=2),
)
def test_windows_and_lengths_are_bool_masks(queries, keys, left, right, causal, lengths):
    query, key, value = qkv(queries=queries, keys=keys)
    if lengths is not None:
        lengths = [min(n, keys) for n in lengths]
    mask = np.zeros((2, 1, queries, keys), bool)
    for b in range(2):
        length = keys if lengths is None else lengths[b]
        for i in range(queries):
            position = i if causal == "top-left" else i + length - queries
            for j in range(length):
                distance = j - position
                mask[b, 0, i, j] = (
                    (left is None or -distance <= left)
                    and (right is None or distance <= right)
                    and (not causal or distance <= 0)
                )
    got = attention(
        query, key, value, causal=causal, window=(left, right), kv_lengths=lengths, return_lse=True
    )
    expected = attention(query, key, value, mask=mask, return_lse=True)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, **TIGHT)


def test_one_number_is_both_sides_of_a_window():
    query, key, value = qkv()
    np.testing.assert_array_equal(
        attention(query, key, value, window=2), attention(query, key, value, window=(2, 2))
    )


def test_softcap_has_two_limits():
    query, key, value = qkv()
    plain = attention(query, key, value)
    np.testing.assert_array_equal(attention(query, key, value, softcap=0), plain)
    np.testing.assert_array_equal(attention(query, key, value, softcap=None), plain)
    # A large cap does nothing, a small one leaves only the signs of the scores, which then hardly matter.
    np.testing.assert_allclose(attention(query, key, value, softcap=1e8), plain, **TIGHT)
    mean = np.repeat(value.mean(axis=2, keepdims=True), 2, axis=1)
    np.testing.assert_allclose(
        attention(query, key, value, softcap=1e-9), np.broadcast_to(mean, plain.shape), atol=1e-8
    )


def test_softcap_by_hand():
    query, key = np.full((1, 1, 1, 1), 2.0), np.array([1.0, -3.0]).reshape(1, 1, 2, 1)
    value = np.array([1.0, 0.0]).reshape(1, 1, 2, 1)
    out = attention(query, key, value, scale=0.5, softcap=3.0, mask=np.array([0.0, 0.25]))
    gap = 3 * np.tanh(1 / 3) - (3 * np.tanh(-3 / 3) + 0.25)
    assert out.item() == pytest.approx(1 / (1 + np.exp(-gap)))


def test_grouped_heads_are_repeated_heads():
    query, key, value = qkv(heads=6, kv_heads=2)
    repeated = [np.repeat(x, 3, axis=1) for x in (key, value)]
    np.testing.assert_allclose(attention(query, key, value), attention(query, *repeated), **TIGHT)


def test_rows_that_see_nothing_are_zeros():
    query, key, value = qkv()
    mask = np.ones((5, 9), bool)
    mask[2] = False
    bias = np.where(mask, 0, -np.inf)
    for hidden in (mask, bias):
        out, lse = attention(query, key, value, mask=hidden, return_lse=True)
        assert (out[:, :, 2] == 0).all()
        assert np.isneginf(lse[:, :, 2]).all()
        assert np.isfinite(np.delete(lse, 2, axis=2)).all()
        assert (attention_weights(query, key, mask=hidden)[:, :, 2] == 0).all()
    out, lse = attention(query, key[:, :, :0], value[:, :, :0], return_lse=True)
    assert (out == 0).all()
    assert np.isneginf(lse).all()
    # Four queries before the first key of five.
    out, lse = attention(key[:, [0, 1]], key[:, :, :5], value[:, :, :5], causal=True, return_lse=True)
    assert np.isneginf(lse[:, :, :4]).all()
    assert np.isfinite(lse[:, :, 4:]).all()


def test_lengths_are_slices():
    query, key, value = qkv()
    for causal in (False, True):
        out = attention(query, key, value, kv_lengths=[4, 9], causal=causal)
        for b, n in enumerate((4, 9)):
            part = (slice(b, b + 1),)
            expected = attention(query[part], key[part][:, :, :n], value[part][:, :, :n], causal=causal)
            np.testing.assert_allclose(out[part], expected, **TIGHT)


def test_where_the_queries_stand():
    query, key, value = qkv(queries=4, keys=9)
    # Bottom-right: the last rows of the square problem.
    whole = np.concatenate([normal(7, 2, 4, 5, 6), query], axis=2)
    np.testing.assert_allclose(
        attention(query, key, value, causal=True),
        attention(whole, key, value, causal=True)[:, :, 5:],
        **TIGHT,
    )
    # Top-left: the first ones.
    whole = np.concatenate([query, normal(7, 2, 4, 5, 6)], axis=2)
    np.testing.assert_allclose(
        attention(query, key, value, causal="top-left"),
        attention(whole, key, value, causal=True)[:, :, :4],
        **TIGHT,
    )


def test_decoding_is_the_end_of_causal_attention():
    query, key, value = qkv(queries=9, keys=9)
    whole = attention(query, key, value, causal=True, window=(4, None), softcap=3.0)
    for count in (1, 3):
        out, lse = decode_attention(
            query[:, :, -count:], key, value, window=(4, None), softcap=3.0, return_lse=True
        )
        np.testing.assert_allclose(out, whole[:, :, -count:], **TIGHT)
        assert lse.shape == (2, 4, count)


def test_masks_broadcast_and_add():
    query, key, _ = qkv()
    bias = normal(8, 4, 1, 9)
    s = query @ np.repeat(key, 2, axis=1).swapaxes(-1, -2) / np.sqrt(6) + bias
    p = np.exp(s) / np.exp(s).sum(-1, keepdims=True)
    np.testing.assert_allclose(attention_weights(query, key, mask=bias), p, **TIGHT)


def test_layouts():
    query, key, value = qkv()
    swapped = [x.swapaxes(1, 2) for x in (query, key, value)]
    out, lse = attention(query, key, value, return_lse=True)
    got, got_lse = attention(*swapped, layout="BSHD", return_lse=True)
    np.testing.assert_array_equal(got, out.swapaxes(1, 2))
    np.testing.assert_array_equal(got_lse, lse)
    np.testing.assert_array_equal(
        attention_weights(*swapped[:2], layout="BSHD"), attention_weights(query, key)
    )


def test_adding_a_constant_to_all_scores_changes_only_the_lse():
    query, key, value = qkv()
    out, lse = attention(query, key, value, return_lse=True)
    shifted, shifted_lse = attention(query, key, value, mask=np.full((1,), 500.0), return_lse=True)
    np.testing.assert_allclose(shifted, out, **TIGHT)
    np.testing.assert_allclose(shifted_lse, lse + 500, rtol=1e-14)


def test_single_precision_is_single_precision_all_the_way():
    query, key, value = qkv()
    out, lse = attention(
        query, key, value, softcap=3.0, mask=normal(4, 9), return_lse=True, compute_dtype=np.float32
    )
    assert out.dtype == lse.dtype == np.float32
    exact = attention(query, key, value, softcap=3.0, mask=normal(4, 9))
    error = np.abs(out - exact).max()
    assert 1e-9 < error < 1e-5


@pytest.mark.parametrize("mode", ["max", "mean"])
@given(
    rows=st.integers(1, 20), columns=st.integers(1, 20), height=st.integers(1, 25), width=st.integers(1, 25)
)
def test_pooling(mode, rows, columns, height, width):
    weights = normal(rows, 2, rows, columns)
    cells = pool(weights, (height, width), mode)
    assert cells.shape == (2, height, width)
    for y in {0, height // 2, height - 1}:
        for x in {0, width // 2, width - 1}:
            top, left = int(np.floor(y * rows / height)), int(np.floor(x * columns / width))
            bottom = max(top + 1, int(np.ceil((y + 1) * rows / height - 1e-12)))
            right = max(left + 1, int(np.ceil((x + 1) * columns / width - 1e-12)))
            part = weights[:, top:bottom, left:right]
            expected = part.max(axis=(1, 2)) if mode == "max" else part.mean(axis=(1, 2))
            np.testing.assert_allclose(cells[:, y, x], expected, **TIGHT)


def test_pooling_to_the_same_size_changes_nothing():
    weights = normal(3, 2, 4, 7)
    np.testing.assert_array_equal(pool(weights, (4, 7)), weights)
    # Larger than the map: cells repeat.
    np.testing.assert_array_equal(pool(weights, (8, 14)), weights.repeat(2, axis=1).repeat(2, axis=2))


def test_it_is_part_of_the_package():
    assert pa.reference.attention is attention


# Attention sinks


@given(seed=st.integers(0, 1000), causal=st.sampled_from((False, True)), softcap=st.sampled_from((None, 2.0)))
def test_a_sink_is_a_key_without_a_value(seed, causal, softcap):
    query, key, value = qkv(seed)
    sinks = normal(seed + 3, 4)
    out, lse = attention(query, key, value, causal=causal, softcap=softcap, sinks=sinks, return_lse=True)
    plain, plain_lse = attention(query, key, value, causal=causal, softcap=softcap, return_lse=True)
    np.testing.assert_allclose(lse, np.logaddexp(plain_lse, sinks[:, None]), **TIGHT)
    np.testing.assert_allclose(out, plain * np.exp(plain_lse - lse)[..., None], **TIGHT)
    weights = attention_weights(query, key, causal=causal, softcap=softcap, sinks=sinks)
    np.testing.assert_allclose(weights.sum(-1) + np.exp(sinks[:, None] - lse), 1, **TIGHT)


def test_a_row_that_sees_nothing_has_its_sink():
    query, key, value = qkv(queries=3)
    mask = np.zeros((3, 9), bool)
    out, lse = attention(query, key, value, mask=mask, sinks=[0.5, -np.inf, 2, 3], return_lse=True)
    assert (out == 0).all()
    np.testing.assert_array_equal(lse[0, :, 0], [0.5, -np.inf, 2, 3])
    # A sink of minus infinity is none.
    np.testing.assert_allclose(
        attention(query, key, value, sinks=[-np.inf] * 4), attention(query, key, value), **TIGHT
    )


def test_gradients_of_sinks_are_derivatives():
    query, key, value = qkv()
    grad, sinks = normal(9, 2, 4, 5, 3), normal(10, 4)

    def loss(sinks):
        return (attention(query, key, value, causal=True, sinks=sinks) * grad).sum()

    *_, d_sinks = pa.reference.attention_backward(grad, query, key, value, causal=True, sinks=sinks)
    for h, step in enumerate(np.eye(4) * 1e-6):
        assert d_sinks[h] == pytest.approx((loss(sinks + step) - loss(sinks - step)) / 2e-6, abs=1e-7)
    assert len(pa.reference.attention_backward(grad, query, key, value)) == 3


@given(
    total=st.integers(1, 30),
    capacity=st.integers(2, 12),
    kept=st.integers(0, 5),
    queries=st.integers(1, 4),
    window=st.none() | st.integers(0, 8),
)
def test_a_ring_with_sink_tokens_by_hand(total, capacity, kept, queries, window):
    kept = min(kept, capacity - 1)
    query, key, value = qkv(queries=queries, keys=total)
    out = decode_attention(query, key, value, window=window, capacity=capacity, sink_tokens=kept)
    held = list(range(total))
    while len(held) > capacity:
        del held[kept]
    for i in range(queries):
        position = total - queries + i
        seen = [j for j in held if j <= position and (window is None or j < kept or j >= position - window)]
        expected = attention(query[:, :, i : i + 1], key[:, :, seen], value[:, :, seen])
        np.testing.assert_allclose(out[:, :, i : i + 1], expected, **TIGHT)


# Far from zero, and NaN


@pytest.mark.parametrize("low", [-1e9, float(np.finfo(np.float32).min)])
def test_a_row_of_equal_low_entries_attends_as_without_them(low):
    query, key, _ = qkv(heads=2)
    mask = np.full((5, 9), low)
    np.testing.assert_allclose(
        attention_weights(query, key, mask=mask).sum(-1), np.ones((2, 2, 5)), rtol=0, atol=1e-6
    )
    # In float32 nothing is left of the scores.
    weights = attention_weights(query, key, mask=mask.astype(np.float32), compute_dtype=np.float32)
    np.testing.assert_allclose(weights, np.full_like(weights, 1 / 9), rtol=1e-6)


def test_entries_near_the_ends_of_float32_stay_apart():
    query, key, _ = qkv(batch=1, heads=1, kv_heads=1, queries=1, keys=3)
    for mask, wanted in (([-3e38, -1.5e38, -3e38], [0, 1, 0]), ([3e38, 0, -np.inf], [1, 0, 0])):
        weights = attention_weights(query, key, mask=np.array([mask], np.float32), compute_dtype=np.float32)
        np.testing.assert_array_equal(weights[0, 0, 0], wanted)


@pytest.mark.parametrize("where", ["query", "key", "mask"])
def test_nan_reaches_the_rows_that_see_it(where):
    query, key, value = qkv(batch=1, heads=1, kv_heads=1)
    mask = np.zeros((5, 9))
    mask[0, 2] = -np.inf
    if where == "mask":
        mask[3, 2] = np.nan
    else:
        {"query": query, "key": key}[where][0, 0, 2, 1] = np.nan
    rows = {"query": [2], "key": [1, 2, 3, 4], "mask": [3]}[where]
    wanted = np.isin(np.arange(5), rows)
    out, lse = attention(query, key, value, mask=mask, return_lse=True)
    np.testing.assert_array_equal(np.isnan(lse[0, 0]), wanted)
    np.testing.assert_array_equal(np.isnan(out[0, 0]).all(-1), wanted)
    weights = attention_weights(query, key, mask=mask)[0, 0]
    np.testing.assert_array_equal(np.isnan(weights).any(-1), wanted)
    assert weights[0, 2] == 0
    d_query, _, d_value = pa.reference.attention_backward(np.ones_like(out), query, key, value, mask=mask)
    np.testing.assert_array_equal(np.isnan(d_query[0, 0]).any(-1), wanted)
    assert np.isnan(d_value).any()


@pytest.mark.parametrize("behind", [np.nan, np.inf])
def test_what_lies_behind_the_keys_reaches_nothing(behind):
    query, key, value = qkv(batch=1)
    out, lse = attention(query, key, value, kv_lengths=[6], return_lse=True)
    gradients = pa.reference.attention_backward(np.ones_like(out), query, key, value, kv_lengths=[6])
    key[:, :, 6:] = value[:, :, 6:] = behind
    with np.errstate(invalid="ignore"):
        again, lse_again = attention(query, key, value, kv_lengths=[6], return_lse=True)
        others = pa.reference.attention_backward(np.ones_like(out), query, key, value, kv_lengths=[6])
    np.testing.assert_array_equal(out, again)
    np.testing.assert_array_equal(lse, lse_again)
    for one, other in zip(gradients, others, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (others[1][:, :, 6:] == 0).all()


@pytest.mark.parametrize("hide", ["bool", "float", "mask_mod"])
@pytest.mark.parametrize("what", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_row_depends_on_the_keys_that_it_sees(what, hide):
    random = np.random.default_rng(4)
    query, key, value = qkv(batch=1, kv_heads=4)
    grad = normal(5, 1, 4, 5, 3)
    seen = random.random((5, 9)) < 0.6
    # Row 1 alone sees key 2, row 3 sees nothing, and nobody sees key 7.
    seen[:, 2], seen[1, 2], seen[3], seen[:, 7] = False, True, False, False
    for x in (key, value):
        x[:, :, 7] = what
    value[:, :, 2, 0] = what
    query[:, :, 3] = grad[:, :, 3] = what
    keywords = {
        "bool": {"mask": seen},
        "float": {"mask": np.where(seen, 0, -np.inf)},
        "mask_mod": {"mask_mod": lambda b, h, q, k: seen[q, k]},
    }[hide]
    out, lse = attention(query, key, value, return_lse=True, **keywords)
    found = pa.reference.attention_backward(grad, query, key, value, **keywords)
    from_forward = pa.reference.attention_backward(grad, query, key, value, out=out, lse=lse, **keywords)
    expected = [np.zeros(x.shape) for x in (out, query, key, value)]
    for i in range(5):
        row, own = np.s_[:, :, i : i + 1], np.s_[:, :, seen[i]]
        if not seen[i].any():
            continue
        expected[0][row] = attention(query[row], key[own], value[own])
        parts = pa.reference.attention_backward(grad[row], query[row], key[own], value[own])
        expected[1][row] = parts[0]
        for total, part in zip(expected[2:], parts[1:], strict=True):
            total[own] += part
    assert np.isfinite(expected[0]).all(axis=(0, 1, 3)).tolist() == [True, False, True, True, True]
    for wanted, *ours in zip(expected, (out, *found), (out, *from_forward), strict=True):
        for got in ours:
            np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wanted))
            np.testing.assert_allclose(got[np.isfinite(wanted)], wanted[np.isfinite(wanted)], **TIGHT)


def test_keys_shared_by_the_batch_are_keys_repeated():
    query, key, value = qkv(batch=3)
    shared, repeated = (key[:1], value[:1]), [np.repeat(x[:1], 3, axis=0) for x in (key, value)]
    grad = normal(9, 3, 4, 5, 3)
    for options in ({}, {"kv_lengths": [9, 0, 4]}):
        wanted = attention(query, *repeated, return_lse=True, **options)
        for got, expected in zip(attention(query, *shared, return_lse=True, **options), wanted, strict=True):
            np.testing.assert_allclose(got, expected, **TIGHT)
        d_query, d_key, d_value = pa.reference.attention_backward(grad, query, *shared, **options)
        expected = pa.reference.attention_backward(grad, query, *repeated, **options)
        np.testing.assert_allclose(d_query, expected[0], **TIGHT)
        np.testing.assert_allclose(d_key, expected[1].sum(axis=0, keepdims=True), **TIGHT)
        np.testing.assert_allclose(d_value, expected[2].sum(axis=0, keepdims=True), **TIGHT)


@pytest.mark.parametrize("layout", ["BHSD", "BSHD"])
@pytest.mark.parametrize("missing", [1, 2])
def test_axes_that_are_missing(layout, missing):
    full = [x[:1, :1] if missing == 2 else x[:1] for x in (*qkv(kv_heads=4), normal(9, 1, 4, 5, 3))]
    given = [x.swapaxes(1, 2) if layout == "BSHD" else x for x in full]
    axes = (0, 2) if layout == "BSHD" and missing == 2 else tuple(range(missing))
    query, key, value, grad = (x.squeeze(axes) for x in given)
    out, lse = attention(query, key, value, layout=layout, return_lse=True)
    expected, expected_lse = attention(*given[:3], layout=layout, return_lse=True)
    np.testing.assert_array_equal(out, expected.squeeze(axes))
    np.testing.assert_array_equal(lse, expected_lse.squeeze(tuple(range(missing))))
    weights = attention_weights(query, key, layout=layout, value=value, grad_out=grad)
    assert weights.shape == (*lse.shape, 9)
    gradients = pa.reference.attention_backward(
        grad, query, key, value, out=out, lse=lse, grad_lse=lse, layout=layout
    )
    assert [x.shape for x in gradients] == [query.shape, key.shape, value.shape]


def moved(function, array):
    """The gradient of a function of ``array`` by central differences."""
    gradient = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        own = array[place]
        array[place] = own + 1e-5
        ahead = function()
        array[place] = own - 1e-5
        gradient[place] = (ahead - function()) / 2e-5
        array[place] = own
    return gradient


@pytest.mark.parametrize("shape", [(), (9,), (5, 1), (4, 5, 9), (2, 1, 1, 9)])
def test_gradients_of_masks_captured_arrays_and_through_the_lse(shape):
    query, key, value = qkv()
    grad, grad_lse = normal(8, 2, 4, 5, 3), normal(7, 2, 4, 5)
    mask, slopes, table = normal(6, *shape), normal(5, 4), normal(4, 7)
    if shape == (4, 5, 9):
        mask[1, 2] = -np.inf
    options = {
        "mask": mask,
        "softcap": 2.0,
        "sinks": normal(3, 4),
        "score_mod": lambda score, b, h, q, k: np.tanh(score) * slopes[h] + table[(q - k) % 7],
    }

    def objective():
        out, lse = attention(query, key, value, return_lse=True, **options)
        return (grad * out).sum() + (grad_lse * np.where(np.isneginf(lse), 0, lse)).sum()

    got = pa.reference.attention_backward(
        grad, query, key, value, grad_lse=grad_lse, mask_gradient=True, captured=[slopes, table], **options
    )
    inputs = query, key, value, options["sinks"], mask, slopes, table
    for found, array in zip(got, inputs, strict=True):
        if array is mask and shape == (4, 5, 9):
            assert not found[1, 2].any()
            continue
        np.testing.assert_allclose(found, moved(objective, array), rtol=0, atol=1e-7)


@pytest.mark.parametrize("sinks", [None, np.array([0.5, -1.0, 0.0, 2.0])])
def test_packed_sequences_are_each_by_itself(sinks):
    # Queries and keys of three sequences; not all of the first and the last are used.
    cu_q, cu_k, used_q, used_k = [0, 4, 4, 11], [0, 5, 8, 17], [3, 0, 7], [5, 2, 6]
    query, key, value, grad = (
        normal(n, *shape) for n, shape in enumerate([(11, 4, 6), (17, 2, 6), (17, 2, 3), (11, 4, 3)])
    )
    query[3] = np.nan
    key[7:8] = value[7:8] = key[14:] = value[14:] = np.nan
    slopes = np.array([0.5, -1.0, 0.25])
    common = {"causal": True, "sinks": sinks}
    packed = common | {"seqused_q": used_q, "seqused_k": used_k}
    mods = {"score_mod": lambda s, b, h, q, k: s - slopes[b] * (q - k)}
    out, lse = pa.reference.varlen_attention(query, key, value, cu_q, cu_k, return_lse=True, **packed, **mods)
    got = pa.reference.varlen_attention_backward(grad, query, key, value, cu_q, cu_k, **packed, **mods)
    expected = [np.zeros_like(x) for x in (grad, grad[..., 0], *got)]
    expected[1] = np.full((11, 4), -np.inf) if sinks is None else np.tile(sinks, (11, 1))
    for b in range(3):
        rows, keys = slice(cu_q[b], cu_q[b] + used_q[b]), slice(cu_k[b], cu_k[b] + used_k[b])
        one = {"score_mod": lambda s, _, h, q, k, slope=slopes[b]: s - slope * (q - k), "layout": "BSHD"}
        x = query[None, rows], key[None, keys], value[None, keys]
        forward = attention(*x, return_lse=True, **common, **one)
        gradients = pa.reference.attention_backward(grad[None, rows], *x, **common, **one)
        expected[0][rows], expected[1][rows] = forward[0][0], forward[1][0].T
        expected[2][rows], expected[3][keys], expected[4][keys] = (each[0] for each in gradients[:3])
        if sinks is not None:
            expected[5] += gradients[3]
    for found, wanted in zip((out, lse.T, *got), expected, strict=True):
        np.testing.assert_allclose(found, wanted, **TIGHT)


@given(st.integers(0, 2**32), st.sampled_from([(2, 3), (2, 1, 3), (1, 2)]), st.integers(0, 30))
def test_products_in_float32_are_added_up_in_order(seed, shape, inner):
    *batch, rows = shape
    a = normal(seed, *batch, rows, inner).astype(np.float32)
    b = normal(seed + 1, *batch[:1], inner, 4).astype(np.float32)[..., ::-1]
    if len(batch) > 1:
        b = b[:, None]
    found = product(a, b)
    a, b = (np.broadcast_to(x, (*found.shape[:-2], *x.shape[-2:])) for x in (a, b))
    for at in np.ndindex(found.shape):
        total = np.float32(0)
        for n in range(inner):
            total += a[(*at[:-1], n)] * b[(*at[:-2], n, at[-1])]
        assert found[at] == total
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, a.astype(np.float64) @ b, atol=1e-4)
