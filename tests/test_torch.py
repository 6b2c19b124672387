"""pa.scaled_dot_product_attention: its reference, its refusals, its dispatches."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import py_attn as pa
from py_attn.kernels.attention.forward import _PARAMS

RANDOM = np.random.default_rng(5)


def normal(*shape):
    return RANDOM.standard_normal(shape)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def test_reference_is_top_left():
    # Two queries, three keys: the first sees the first key, whatever comes behind.
    query, key, value = normal(2, 4), normal(3, 4), normal(3, 5)
    out = pa.reference.scaled_dot_product_attention(query, key, value, is_causal=True)
    np.testing.assert_allclose(out[0], value[0], rtol=1e-15)
    share = 1 / (1 + np.exp(query[1] @ (key[1] - key[0]) / 2))
    np.testing.assert_allclose(out[1], share * value[0] + (1 - share) * value[1], rtol=1e-12)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_reference_is_that_of_attention(is_causal, mask):
    query, key, value = normal(2, 6, 4, 8), normal(2, 3, 7, 8), normal(2, 3, 7, 5)
    given = {None: None, "bool": normal(4, 7) > 0, "float": normal(2, 1, 1, 7)}[mask]
    out = pa.reference.scaled_dot_product_attention(
        query, key, value, given, is_causal=is_causal, scale=0.3, enable_gqa=True
    )
    causal = "top-left" if is_causal else False
    expected = pa.reference.attention(query, key, value, mask=given, causal=causal, scale=0.3)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-14)


def test_reference_row_that_sees_nothing_is_zero():
    out = pa.reference.scaled_dot_product_attention(
        normal(2, 4), normal(3, 4), normal(3, 5), np.zeros((2, 3), bool)
    )
    assert not out.any()


WELL_FORMED = {"query": zeros(2, 3, 4, 5, 8), "key": zeros(2, 3, 4, 7, 8), "value": zeros(2, 3, 4, 7, 6)}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"dropout_p": 0.1}, ValueError, "dropout_p: expected 0, .* got 0.1"),
        ({"dropout_p": None}, TypeError, "dropout_p: expected a number"),
        (
            {"attn_mask": zeros(5, 7), "is_causal": True},
            ValueError,
            "attn_mask: expected None with is_causal",
        ),
        ({"attn_mask": zeros(5, 6)}, ValueError, r"attn_mask: .*\[2, 3, 4, 5, 7\], got \[5, 6\]"),
        ({"attn_mask": zeros(3, 3, 4, 5, 7)}, ValueError, "attn_mask: expected a shape that broadcasts"),
        ({"attn_mask": zeros(1, 1, 1, 1, 5, 7)}, ValueError, "attn_mask: expected a shape that broadcasts"),
        ({"attn_mask": zeros(5, 7, dtype=np.int32)}, TypeError, "attn_mask: expected booleans"),
        ({"query": zeros(8)}, ValueError, "query: expected"),
        ({"key": zeros(2, 3, 7, 8)}, ValueError, "key: expected 5 axes like query, got"),
        ({"key": zeros(2, 2, 4, 7, 8)}, ValueError, r"key: expected leading .* with \[2, 3\], got"),
        ({"key": zeros(2, 3, 2, 7, 8), "value": zeros(2, 3, 2, 7, 6)}, ValueError, "key: .* enable_gqa=True"),
        ({"key": zeros(2, 3, 3, 7, 8), "enable_gqa": True}, ValueError, "value: expected the key's"),
        ({"value": zeros(2, 3, 4, 6, 6)}, ValueError, "value: expected the key's"),
        ({"scale": float("inf")}, ValueError, "scale: expected a finite number"),
    ],
)
def test_refused_before_anything_is_dispatched(bridge, device, change, error, words):
    with pytest.raises(error, match=words):
        pa.scaled_dot_product_attention(**(WELL_FORMED | change))
    device.flush()
    assert bridge.programs == []
    # The next valid call works.
    assert pa.scaled_dot_product_attention(**WELL_FORMED).shape == (2, 3, 4, 5, 6)


@pytest.mark.parametrize("lead", [(), (4,), (2, 4), (3, 2, 4), (2, 1, 3, 4)])
def test_any_number_of_leading_axes_is_one_dispatch(bridge, device, lead):
    shapes = [(*lead, 5, 8), (*lead, 7, 8), (*lead, 7, 6)]
    out = pa.scaled_dot_product_attention(*(zeros(*shape) for shape in shapes), zeros(5, 7))
    device.flush()
    assert out.shape == (*lead, 5, 6)
    ((launch,),) = bridge.programs
    params = _PARAMS.unpack(launch.params)
    assert params["batch"] * params["heads"] == np.prod(lead, dtype=int)
    assert params["top_left"] == 0


@pytest.mark.parametrize(
    ("mask_shape", "copies"),
    [
        ((7,), 0),
        ((4, 5, 7), 0),
        ((1, 1, 4, 5, 7), 0),
        ((2, 3, 1, 5, 1), 0),
        ((3, 1, 5, 7), 1),
        ((2, 1, 1, 5, 7), 1),
    ],
)
def test_a_mask_is_written_out_only_where_it_repeats_between_leading_axes(bridge, device, mask_shape, copies):
    pa.scaled_dot_product_attention(**WELL_FORMED, attn_mask=zeros(*mask_shape, dtype=bool))
    device.flush()
    assert [launch.label for launch in bridge.launches[:-1]] == ["copy/bool-bool"] * copies


def test_views_are_copied_only_where_axes_do_not_merge(bridge, device):
    tensors = [device.tensor(x) for x in WELL_FORMED.values()]
    moved = tensors[0].transpose(1, 0, 2, 3, 4)
    pa.scaled_dot_product_attention(moved.transpose(1, 0, 2, 3, 4), *tensors[1:])
    device.flush()
    assert len(bridge.programs[-1]) == 1
    pa.scaled_dot_product_attention(moved, *(x.reshape(3, 2, *x.shape[2:]) for x in tensors[1:]))
    device.flush()
    assert bridge.programs[-1][0].label == "copy/float32-float32"


@st.composite
def broadcast_shapes(draw):
    """Shapes of query, key and value whose axes before the last two broadcast; now and then grouped heads."""
    lead = draw(st.lists(st.integers(1, 3), max_size=3))
    heads = draw(st.integers(1, 4))
    own = [tuple(n if draw(st.booleans()) else 1 for n in (*lead, heads)) for _ in ("query", "key", "value")]
    return [(*axes, *end) for axes, end in zip(own, ((5, 8), (7, 8), (7, 6)), strict=True)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(broadcast_shapes())
def test_leading_axes_broadcast_as_in_the_reference(device, shapes):
    expected = pa.reference.scaled_dot_product_attention(*(zeros(*shape) for shape in shapes))
    out = pa.scaled_dot_product_attention(*(zeros(*shape) for shape in shapes))
    assert out.shape == expected.shape


@pytest.mark.parametrize(
    "shapes",
    [
        [(4, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 6)],
        [(1, 2, 5, 8), (4, 2, 7, 8), (4, 1, 7, 6)],
        [(2, 3, 4, 5, 8), (1, 1, 4, 7, 8), (1, 1, 1, 7, 6)],
    ],
)
def test_what_is_shared_is_not_written_out(bridge, device, shapes):
    query = zeros(*shapes[0])
    pa.scaled_dot_product_attention(query, *(zeros(*shape) for shape in shapes[1:]))
    device.flush()
    assert [launch.label.split("/")[0] for launch in bridge.launches[:-1]] == []
