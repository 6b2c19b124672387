"""The reference of a language model's layers, against results by hand and by other means."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_attn import nn_reference as plain
from py_attn.rope import rope_table


def test_a_block_of_q4_1_by_hand():
    # Byte j holds element j below and element j + 16 above.
    codes = bytes((j % 16) | ((15 - j % 16) << 4) for j in range(16))
    block = np.frombuffer(struct.pack("<ee", 0.5, -2.0) + codes, np.uint8)
    expected = [0.5 * j - 2 for j in range(16)] + [0.5 * (15 - j) - 2 for j in range(16)]
    assert plain.dequantize(block, 1, 32, "Q4_1").tolist() == [expected]


def test_a_block_of_q8_0_by_hand():
    codes = [-128, 127, *range(-15, 15)]
    block = np.frombuffer(struct.pack("<e32b", 0.25, *codes), np.uint8)
    assert plain.dequantize(block, 1, 32, "Q8_0").tolist() == [[code / 4 for code in codes]]


def test_blocks_follow_each_other_row_by_row():
    blocks = b"".join(struct.pack("<e32b", d, *[1] * 32) for d in (1.0, 2.0, 3.0, 4.0))
    weights = plain.dequantize(np.frombuffer(blocks, np.uint8), 2, 64, "Q8_0")
    assert weights[:, ::32].tolist() == [[1, 2], [3, 4]]


def test_rms_norm_by_hand():
    assert plain.rms_norm([[3.0, 4.0]], [2.0, 1.0], 0.0) == pytest.approx(
        np.array([[6, 4]]) / np.sqrt(12.5), rel=1e-15
    )
    assert plain.rms_norm([[0.0, 0.0]], [1.0, 1.0], 1e-5).tolist() == [[0, 0]]


def test_rope_is_a_rotation_of_complex_numbers():
    random = np.random.default_rng(0)
    x, table = random.standard_normal((5, 3, 8)), rope_table(np.arange(5), 8, 100.0)
    turned = plain.rope(x, table).view(np.complex128)
    angles = np.arange(5)[:, None, None] * 100.0 ** (-np.arange(4) / 4)
    assert turned == pytest.approx(x.view(np.complex128) * np.exp(1j * angles), abs=1e-14)


def test_rope_leaves_products_that_depend_on_the_distance():
    random = np.random.default_rng(1)
    query, key = random.standard_normal((2, 1, 1, 16))
    table = rope_table(np.arange(50), 16)

    def product(i, j):
        return float((plain.rope(query, table[i : i + 1]) * plain.rope(key, table[j : j + 1])).sum())

    assert product(7, 3) == pytest.approx(product(44, 40), rel=1e-12)


def test_rms_norm_is_the_formula():
    random = np.random.default_rng(0)
    x, weight = random.standard_normal((3, 8)), random.standard_normal(8)
    expected = [
        [n * w / (sum(m**2 for m in row) / 8 + 1e-5) ** 0.5 for n, w in zip(row, weight, strict=True)]
        for row in x
    ]
    np.testing.assert_allclose(plain.rms_norm(x, weight, 1e-5), expected, rtol=1e-13)
    np.testing.assert_array_equal(plain.rms_norm(np.zeros((1, 8)), weight, 1e-5), np.zeros((1, 8)))


def test_rms_norm_does_not_see_the_size_of_its_row():
    x = np.random.default_rng(1).standard_normal((4, 64))
    once, larger = (plain.rms_norm(y, np.ones(64), 0.0) for y in (x, 1000 * x))
    np.testing.assert_allclose(once, larger, rtol=1e-13)
    np.testing.assert_allclose((once**2).mean(-1), 1, rtol=1e-13)


def test_swiglu_is_the_formula():
    gate, up = np.array([-1000.0, -2.0, 0.0, 3.0, 1000.0]), np.array([2.0, 3.0, 5.0, 7.0, 11.0])
    sigmoid = 0.5 * (1 + np.tanh(gate / 2))
    np.testing.assert_allclose(plain.swiglu(gate, up), gate * sigmoid * up, rtol=1e-13, atol=1e-300)


def rotate(x, positions, base):
    """Heads [heads, tokens, head_dim], turned."""
    return plain.rope(x.swapaxes(0, 1), rope_table(positions, x.shape[-1], base)).swapaxes(0, 1)


def test_rotation_multiplies_complex_numbers():
    x, positions = np.random.default_rng(2).standard_normal((2, 5, 8)), np.array([0, 1, 7, 300, 8191])
    turned = rotate(x, positions, 1e5)
    frequencies = np.array([1e5 ** (-2 * i / 8) for i in range(4)])
    expected = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * np.outer(positions, frequencies))
    np.testing.assert_allclose(turned[..., 0::2], expected.real, rtol=0, atol=1e-11)
    np.testing.assert_allclose(turned[..., 1::2], expected.imag, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(turned[:, 0], x[:, 0])


@given(first=st.integers(0, 4000), second=st.integers(0, 4000), shift=st.integers(0, 4000))
def test_products_after_rotation_depend_on_the_distance(first, second, shift):
    query, key = np.random.default_rng(3).standard_normal((2, 1, 64))

    def product(shift):
        turned = (
            rotate(x[None], np.array([position + shift]), 1e5)
            for x, position in ((query, first), (key, second))
        )
        return np.vdot(*turned)

    assert product(shift) == pytest.approx(product(0), rel=0, abs=1e-9)


def test_silu_has_its_limits():
    assert plain.silu(np.array([0.0, 1000.0, -1000.0])).tolist() == [0, 1000, 0]
    assert plain.swiglu(np.array([1.0]), np.array([3.0])) == pytest.approx(3 / (1 + np.exp(-1.0)))


def test_splits_are_combined_into_the_softmax_of_all_keys():
    random = np.random.default_rng(2)
    scores, values = random.standard_normal((2, 12)) * 4, random.standard_normal((2, 12, 5))
    outs, rows = np.zeros((2, 4, 5)), np.zeros((2, 4, 2))
    rows[:, 3, 0] = np.finfo(np.float32).min
    for split in range(3):
        part = slice(4 * split, 4 * split + 4)
        weights = np.exp2(scores[:, part] - scores[:, part].max(1, keepdims=True))
        rows[:, split] = np.stack([scores[:, part].max(1), weights.sum(1)], -1)
        outs[:, split] = np.einsum("hk,hkd->hd", weights, values[:, part]) / weights.sum(1, keepdims=True)
    whole = np.exp2(scores) / np.exp2(scores).sum(1, keepdims=True)
    assert plain.combine_splits(outs, rows) == pytest.approx(
        np.einsum("hk,hkd->hd", whole, values), rel=1e-12
    )


def test_splits_that_saw_nothing_give_zeros():
    rows = np.array([[[np.finfo(np.float32).min, 0.0]] * 2])
    assert plain.combine_splits(np.zeros((1, 2, 3)), rows).tolist() == [[0, 0, 0]]


def test_every_function_computes_in_the_given_precision():
    x, table = np.ones((2, 1, 4)), rope_table(np.arange(2), 4)
    for result in (
        plain.dequantize(np.zeros(20, np.uint8), 1, 32, "Q4_1", np.float32),
        plain.dequantize(np.zeros(34, np.uint8), 1, 32, "Q8_0", np.float32),
        plain.rms_norm(x, np.ones(4), 1e-5, np.float32),
        plain.rope(x, table, np.float32),
        plain.swiglu(x, x, np.float32),
        plain.linear(x[:, 0], np.ones((3, 4)), np.float32),
        plain.combine_splits(x, np.ones((2, 1, 2)), np.float32),
    ):
        assert result.dtype == np.float32
