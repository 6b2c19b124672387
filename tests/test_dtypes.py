"""How numbers are stored: rounding, range, and what is refused."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from py_attn.gpu.dtypes import (
    DTYPES,
    check_dtype,
    decode,
    default_dtype,
    encode,
    round_to,
    to_bfloat16_bits,
)

singles = st.floats(width=32, allow_nan=False)


def bfloat16_values_around(x):
    """The bfloat16 numbers next to a float32 at or below and above it."""
    bits = int(np.float32(x).view(np.uint32)) >> 16 << 16
    return [np.uint32(b & 0xFFFFFFFF).view(np.float32) for b in (bits, bits + 0x10000)], bits >> 16


@given(x=singles.filter(math.isfinite))
def test_bfloat16_is_the_nearest_even(x):
    (below, above), low = bfloat16_values_around(x)
    got = float(round_to(x, "bfloat16"))
    # Beyond the largest number the next one would be 2^128, which is stored as infinity.
    top = math.copysign(2.0**128, x)
    exact = [Fraction(float(v) if np.isfinite(v) else top) for v in (below, above)]
    gaps = [abs(Fraction(x) - v) for v in exact]
    even = 0 if low % 2 == 0 else 1
    nearest = even if gaps[0] == gaps[1] else gaps.index(min(gaps))
    assert got == (below, above)[nearest]


@given(x=npst.arrays(np.float32, npst.array_shapes(max_dims=3), elements=st.floats(width=32)))
def test_half_types_keep_what_they_can_hold(x):
    for dtype in ("float16", "bfloat16"):
        once = round_to(x, dtype)
        np.testing.assert_array_equal(round_to(once, dtype), once)
        np.testing.assert_array_equal(np.isnan(once), np.isnan(x))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(round_to(x, "float16"), x.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (0x3F808000, 0x3F80),  # a tie goes to the even one
        (0x3F818000, 0x3F82),
        (0x3F808001, 0x3F81),
        (0x7F7FFFFF, 0x7F80),  # beyond the largest: infinity
        (0x7F800000, 0x7F80),
        (0xFF800000, 0xFF80),
        (0x7F800001, 0x7FC0),  # a NaN whose payload lies in the low bits stays a NaN
        (0xFFFFFFFF, 0xFFFF),
        (0x80000000, 0x8000),
        (0x00000001, 0x0000),
    ],
)
def test_bfloat16_bits(bits, expected):
    assert to_bfloat16_bits(np.array([bits], np.uint32).view(np.float32)).tolist() == [expected]


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_by_name_and_by_type(name):
    assert check_dtype(name).name == name
    if name != "bfloat16":
        assert check_dtype(np.dtype(name)).name == name
        assert check_dtype(np.dtype(name).type).name == name


@pytest.mark.parametrize("dtype", ["float64", "half", "", None, 3, np.complex64, "FLOAT32"])
def test_unknown_dtypes_are_refused(dtype):
    with pytest.raises(ValueError, match="dtype: expected one of float32, float16, bfloat16"):
        check_dtype(dtype)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("float64", "float32"), ("float32", "float32"), ("float16", "float16"), ("int64", "int32"),
        ("int32", "int32"), ("int8", "int32"), ("uint8", "uint32"), ("uint64", "uint32"), ("bool", "bool"),
    ],
)  # fmt: skip
def test_default_dtypes(given, stored):
    assert default_dtype(np.zeros(2, given), "x").name == stored


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.array([None]), np.array([1j]), np.array(["2020"], "M8[D]")]
)
@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16", "int32", "bool"])
def test_what_is_no_number_is_refused(array, dtype):
    with pytest.raises(TypeError, match="weights: expected numbers or booleans"):
        encode(array, check_dtype(dtype) if dtype else default_dtype(array, "weights"), "weights")


@pytest.mark.parametrize(
    ("array", "dtype"),
    [(np.array([2**31]), "int32"), (np.array([-1]), "uint32"), (np.array([2**40], np.uint64), "uint32")],
)
def test_integers_out_of_range_are_refused(array, dtype):
    with pytest.raises(ValueError, match="ids: expected values from"):
        encode(array, check_dtype(dtype), "ids")


@pytest.mark.parametrize(("array", "dtype"), [(np.array([0.5]), "int32"), (np.array([1]), "bool")])
def test_silent_conversions_are_refused(array, dtype):
    with pytest.raises(TypeError, match="ids: an array of dtype"):
        encode(array, check_dtype(dtype), "ids")


@pytest.mark.parametrize("name", DTYPES)
def test_carriers_of_matching_arrays_are_not_copied(name):
    kind = DTYPES[name]
    if name != "bfloat16":
        array = np.zeros((3, 5), kind.carrier)
        assert np.shares_memory(encode(array, kind, "x"), array)
        assert decode(array, kind) is array
