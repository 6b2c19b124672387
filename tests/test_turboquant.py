"""TurboQuant in numpy: the codebooks, the rotation, the oracle, the layout in memory. No GPU."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_attn import turboquant_reference as reference
from py_attn.codebooks import INTEGER_LEVELS, book_of, codebook, integer_codebook, uniform_codebook

# Lloyd–Max quantisers of the normal density (Max 1960, table I): distortion, and the levels of 1 and 2 bits.
OPTIMUM = {1: 0.3634, 2: 0.1175, 3: 0.03454, 4: 0.009497}
NORMAL_LEVELS = {1: [0.7979], 2: [0.4528, 1.5104]}
DIMS = st.integers(1, 512)
BITS = st.integers(1, 4)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def distortion(x, x_hat):
    return ((x - x_hat) ** 2).sum() / (x**2).sum()


# codebooks


@pytest.mark.parametrize("bits", OPTIMUM)
def test_codebooks_tend_to_the_normal_one(bits):
    book = codebook(bits, 1 << 20)
    assert book.distortion == pytest.approx(OPTIMUM[bits], rel=5e-4)
    if bits in NORMAL_LEVELS:
        assert book.levels == pytest.approx(NORMAL_LEVELS[bits], rel=1e-3)


@pytest.mark.parametrize("bits", OPTIMUM)
def test_three_dimensions_are_uniform(bits):
    # Archimedes: a coordinate of a sphere's point is uniform, and so are its cells.
    book = codebook(bits, 3)
    count = 2 ** (bits - 1)
    assert book.levels == pytest.approx(math.sqrt(3) * (np.arange(count) + 0.5) / count, rel=1e-5)
    assert book.distortion == pytest.approx(4.0**-bits, rel=1e-5)


@pytest.mark.parametrize("dim", [2, 5, 32, 80, 128, 512])
@pytest.mark.parametrize("bits", OPTIMUM)
def test_codebooks_meet_lloyds_conditions(bits, dim):
    book = codebook(bits, dim)
    levels, thresholds = np.array(book.levels), np.array(book.thresholds)
    assert thresholds == pytest.approx((levels[1:] + levels[:-1]) / 2)
    # Each level is the mean of its cell, by midpoints of the angle: f(t) dt = cos^(D-2) θ dθ.
    angle = (np.arange(400_000) + 0.5) * (math.pi / 2 / 400_000)
    t, weight = math.sqrt(dim) * np.sin(angle), np.cos(angle) ** (dim - 2)
    cell = np.searchsorted(thresholds, t)
    means = np.bincount(cell, weight * t) / np.bincount(cell, weight)
    assert levels == pytest.approx(means, rel=1e-4)
    error = (weight * (t - levels[cell]) ** 2).sum() / weight.sum()
    assert book.distortion == pytest.approx(error, rel=1e-4)


#: Distortion of the best uniform quantisers of a normal number (Max 1960, table II).
UNIFORM = {1: 0.3634, 2: 0.1188, 3: 0.03744, 4: 0.01154}


@pytest.mark.parametrize("bits", UNIFORM)
def test_uniform_codebooks_are_the_best_at_equal_distances(bits):
    book = uniform_codebook(bits, 1 << 20)
    assert book.distortion == pytest.approx(UNIFORM[bits], rel=1e-3)
    for dim in (2, 5, 32, 128, 512):
        book = uniform_codebook(bits, dim)
        levels, thresholds = np.array(book.levels), np.array(book.thresholds)
        assert levels / levels[0] == pytest.approx(2 * np.arange(levels.size) + 1)
        assert thresholds == pytest.approx(thresholds[:1] * np.arange(1, levels.size))
        assert codebook(bits, dim).distortion <= book.distortion + 1e-8
        # By midpoints of the angle, with steps a little larger and smaller.
        angle = (np.arange(400_000) + 0.5) * (math.pi / 2 / 400_000)
        t, weight = math.sqrt(dim) * np.sin(angle), np.cos(angle) ** (dim - 2)
        found = []
        for step in (1.0, 0.98, 1.02):
            y = levels[np.searchsorted(step * thresholds, t)]
            fit = (weight * t * y).sum() / (weight * y * y).sum()
            found.append((weight * (t - fit * y) ** 2).sum() / weight.sum())
        assert book.distortion == pytest.approx(found[0], rel=1e-3)
        assert found[0] <= min(found) * (1 + 1e-5)


def test_integer_levels_are_the_best_multiples_and_cost_three_percent():
    book = integer_codebook(128)
    levels, thresholds = np.array(book.levels), np.array(book.thresholds)
    assert levels / levels[0] == pytest.approx(INTEGER_LEVELS)
    assert thresholds == pytest.approx((levels[1:] + levels[:-1]) / 2, rel=1e-5)
    # By midpoints of the angle, with steps a little larger and smaller.
    angle = (np.arange(400_000) + 0.5) * (math.pi / 2 / 400_000)
    t, weight = math.sqrt(128) * np.sin(angle), np.cos(angle) ** 126
    found = []
    for factor in (1.0, 0.97, 1.03):
        error = t - factor * levels[np.searchsorted(factor * thresholds, t)]
        found.append((weight * error**2).sum() / weight.sum())
    assert book.distortion == pytest.approx(found[0], rel=1e-3)
    assert found[0] <= min(found) * (1 + 1e-5)
    assert 1.03 < book.distortion / codebook(4, 128).distortion < 1.032
    assert book.distortion < 0.87 * uniform_codebook(4, 128).distortion


def test_which_levels_a_dtype_has():
    for bits in OPTIMUM:
        for dim in (1, 64, 127, 128, 256):
            expected = integer_codebook(dim) if (bits, dim) == (4, 128) else codebook(bits, dim)
            assert book_of(bits, dim, uniform=False) == expected
            assert book_of(bits, dim, uniform=True) == uniform_codebook(bits, dim)


def test_uniform_levels_cost_a_fifth():
    x = np.random.default_rng(2).standard_normal((400, 128))
    found = [distortion(x, reference.roundtrip(x, 4, uniform=uniform)) for uniform in (False, True)]
    assert 1.15 < found[1] / found[0] < 1.3


def test_nibbles_become_the_bytes_of_their_levels():
    """What upper_halves and lower_halves in shaders/decode/integer_split.wgsl compute, one code at a time."""
    for code, nibble in enumerate(reference.NIBBLES[False]):
        upper = (nibble | 3) & ((nibble & 3) + 1)
        lower = ~(upper | (nibble ^ 14)) & 15
        level = INTEGER_LEVELS[code & 7] * (-1 if code & 8 else 1)
        assert 16 * upper + lower - 38 == 2 * level
    for code, nibble in enumerate(reference.NIBBLES[True]):
        integer = nibble - 16 if nibble & 8 else nibble
        assert 2 * integer + 1 == (2 * (code & 7) + 1) * (-1 if code & 8 else 1)


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("kind", ["keys", "values"])
def test_tiles_hold_codes_and_scales(kind, uniform):
    random = np.random.default_rng(5)
    codes = random.integers(0, 16, (2, 128, 128)).astype(np.uint8)
    scales = random.random((2, 128), np.float32)
    nibbles = np.array(reference.NIBBLES[uniform])[codes]
    words = np.zeros((2, 17 * 128), np.uint32)
    words[:, 16 * 128 :] = scales.view(np.uint32)
    for i in range(128):
        word, shift = (i >> 5) * 4 + ((i >> 2) & 3), 8 * (i & 3) + 4 - ((i >> 2) & 4)
        held = nibbles[:, :, i] if kind == "keys" else nibbles[:, i]
        words[:, word : 16 * 128 : 16] |= held.astype(np.uint32) << np.uint32(shift)
    found = reference.unpack_tiles(words[None], kind, uniform=uniform)
    assert (found.codes == codes.reshape(1, 256, 128)).all()
    assert (found.scales == scales.reshape(1, 256)).all()
    expected = reference.dequantize(reference.Codes(codes, scales, 4, uniform=uniform))
    assert reference.dequantize(found) == pytest.approx(expected.reshape(1, 256, 128))


@pytest.mark.parametrize("kind", ["keys", "values"])
def test_tiles_are_read_as_the_shader_says(kind):
    """shaders/lib/code_tiles.wgsl, code by code."""
    random = np.random.default_rng(4)
    integers = random.integers(-8, 8, (3, 128, 128))
    scales = random.random((3, 128), np.float32)
    words = np.zeros((3, 17 * 128), np.uint32)
    words[:, 16 * 128 :] = scales.view(np.uint32)
    for i in range(128):
        word, shift = (i >> 5) * 4 + ((i >> 2) & 3), 8 * (i & 3) + 4 - ((i >> 2) & 4)
        codes = integers[:, :, i] if kind == "keys" else integers[:, i]
        words[:, word : 16 * 128 : 16] |= (codes & 15).astype(np.uint32) << np.uint32(shift)
    found = reference.unpack_tiles(words[None], kind)
    step = 2 * uniform_codebook(4, 128).levels[0]
    expected = reference.rotate_back((integers + 0.5) * step * scales[..., None]).reshape(1, 384, 128)
    assert reference.dequantize(found) == pytest.approx(expected)


# the rotation


def test_powers_of_two_are_walsh_hadamard_transforms():
    hadamard = np.eye(1)
    for _ in range(6):
        hadamard = np.kron(hadamard, [[1, 1], [1, -1]]) / math.sqrt(2)
    expected = np.eye(64)
    for sign in reference.signs(64)[: reference.ROUNDS]:
        expected = hadamard @ (sign[:, None] * expected)
    # Rows of rotate(I) are the rotated basis vectors.
    assert pytest.approx(expected, abs=1e-12) == reference.rotate(np.eye(64)).T


@given(dim=DIMS, first=st.sampled_from([0, reference.ROUNDS]))
def test_the_rotation_is_orthogonal(dim, first):
    matrix = reference.rotate(np.eye(dim), first_round=first)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(dim), atol=1e-12)
    np.testing.assert_allclose(reference.rotate_back(matrix, first_round=first), np.eye(dim), atol=1e-12)


@pytest.mark.parametrize("dim", [32, 48, 64, 80, 96, 100, 112, 127, 128, 129, 256, 511, 512])
def test_the_rotation_spreads_every_vector(dim):
    # A coordinate of a random unit vector has mean square 1/D; one of a basis vector must not stand out.
    coordinates = reference.rotate(np.eye(dim)) * math.sqrt(dim)
    assert np.abs(coordinates).max() < 5.5
    kurtosis = (coordinates**4).mean()
    assert 2.3 < kurtosis < 3.5


def test_the_signs_are_balanced():
    assert abs(reference.signs(512).mean()) < 4 / math.sqrt(6 * 512)
    assert not np.array_equal(*reference.signs(512)[:2])


# quantize and dequantize


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("bits", OPTIMUM)
def test_distortion_is_the_optimum(bits, dim):
    x = normal(2000, dim)
    assert distortion(x, reference.roundtrip(x, bits)) < 1.02 * OPTIMUM[bits]


@pytest.mark.parametrize("dim", [80, 96, 112, 160, 320])
@pytest.mark.parametrize("bits", OPTIMUM)
def test_other_head_dims_are_no_worse(bits, dim):
    x = normal(2000, dim)
    assert distortion(x, reference.roundtrip(x, bits)) < 1.02 * OPTIMUM[bits]


@pytest.mark.parametrize("dim", [64, 80, 128, 256])
@pytest.mark.parametrize("bits", OPTIMUM)
def test_outlier_channels_do_not_break_it(bits, dim):
    x = normal(2000, dim)
    x[:, normal(dim).argsort()[:3]] *= 50
    assert distortion(x, reference.roundtrip(x, bits)) < 1.2 * OPTIMUM[bits]
    # Without the rotation the other channels would drown in one level of the outliers.
    levels = np.array(codebook(bits, dim).levels)
    y = x / np.sqrt((x**2).mean(axis=1, keepdims=True))
    plain = np.sign(y) * levels[np.abs(np.abs(y)[..., None] - levels).argmin(axis=-1)]
    assert distortion(y, plain) > 2 * OPTIMUM[bits]


@given(dim=DIMS, bits=BITS, seed=st.integers(0, 99), qjl=st.booleans())
def test_no_vector_gets_longer_and_zeros_stay(dim, bits, seed, qjl):
    x = normal(4, dim, seed=seed) * np.array([[1e-30], [1], [1e30], [0]])
    x_hat = reference.roundtrip(x, bits, qjl=qjl and bits > 1)
    assert not x_hat[3].any()
    if not (qjl and bits > 1):
        # The fitted scale makes the error orthogonal to the result.
        inner, square = (x * x_hat).sum(axis=-1), (x_hat**2).sum(axis=-1)
        np.testing.assert_allclose(inner, square, rtol=1e-9)
        assert (square <= (x**2).sum(axis=-1) * (1 + 1e-12)).all()


@given(dim=DIMS, bits=BITS, power=st.integers(-60, 60))
def test_the_scale_does_not_matter(dim, bits, power):
    x = normal(3, dim)
    factor = np.array([[2.0], [-1.0], [1.0]]) ** np.array([[power], [1], [power]])
    expected = reference.roundtrip(x, bits) * factor
    np.testing.assert_allclose(reference.roundtrip(x * factor, bits), expected, rtol=1e-9)


def test_a_vector_that_is_not_finite_becomes_nan_alone():
    x = normal(3, 5, 16)
    x[0, 1, 3], x[2, 4, 0] = np.nan, -np.inf
    x_hat = reference.roundtrip(x, 3)
    assert np.isnan(x_hat[0, 1]).all()
    assert np.isnan(x_hat[2, 4]).all()
    assert np.isnan(x_hat).sum() == 32


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_qjl_gets_inner_products_right_on_average(bits):
    x = normal(20_000, 64)
    query = x + normal(20_000, 64, seed=1)
    exact = (query * x).sum()
    assert (query * reference.roundtrip(x, bits, qjl=True)).sum() == pytest.approx(exact, rel=0.005)
    biased = (query * reference.roundtrip(x, bits)).sum() / exact
    assert biased == pytest.approx(1 - codebook(bits, 64).distortion, abs=0.005)


def test_qjl_makes_the_vectors_worse():
    x = normal(2000, 128)
    for bits in (2, 3, 4):
        assert distortion(x, reference.roundtrip(x, bits, qjl=True)) > 1.5 * OPTIMUM[bits]


# the layout


@given(dim=DIMS, bits=BITS, qjl=st.booleans(), seed=st.integers(0, 9))
def test_packing_loses_nothing(dim, bits, qjl, seed):
    qjl = qjl and bits > 1
    quantized = reference.quantize(normal(2, 3, dim, seed=seed), bits, np.float32, qjl=qjl)
    words = reference.pack(quantized)
    groups = -(-dim // 4)
    expected = 1 + -(-(bits - qjl) * 4 * groups // 32) + qjl * (1 + -(-4 * groups // 32))
    assert words.shape == (2, 3, expected)
    again = reference.unpack(words, bits, dim, qjl=qjl)
    for given_codes, found in ((quantized, again), (quantized.residual, again.residual)):
        if given_codes is None:
            assert found is None
            continue
        assert np.array_equal(given_codes.codes, found.codes)
        assert np.array_equal(given_codes.scales, found.scales)


def test_a_row_by_hand():
    codes = np.array([[1, 7, 0, 5, 2, 3, 4, 6, 1, 2, 7]], np.uint8)
    words = reference.pack(reference.Codes(codes, np.array([1.5]), 3))
    stream = sum(int(code) << (3 * i) for i, code in enumerate(codes[0]))
    assert words.tolist() == [[0x3FC00000, stream & 0xFFFFFFFF, stream >> 32]]
