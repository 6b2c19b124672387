"""pa.onnx: its reference against onnx's cases and onnx's own implementation, its refusals, its dispatches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import py_attn as pa
from tests.onnx_cases import CASES_IN_ONNX, OUTPUTS, onnx_cases


def test_all_cases_are_here():
    assert len(onnx_cases()) == CASES_IN_ONNX
    assert {output for case in onnx_cases() for output in case.outputs} == set(OUTPUTS)


@pytest.mark.parametrize("case", onnx_cases(), ids=lambda case: case.name)
def test_reference_passes_onnx_case(case):
    results = dict(zip(OUTPUTS, pa.onnx.reference_attention(**case.inputs, **case.attributes), strict=True))
    assert [name for name in OUTPUTS if results[name] is not None] == list(case.outputs)
    for name, expected in case.outputs.items():
        case.check(name, results[name].astype(expected.dtype))


@st.composite
def calls(draw):
    """Inputs and attributes of any kind that the operator knows, and onnx's in the same order."""
    batch, kv_heads, group, queries, new, dim, value_dim = (
        draw(st.integers(1, high)) for high in (2, 2, 3, 4, 5, 4, 4)
    )
    heads = kv_heads * group
    past = draw(st.none() | st.integers(0, 3))
    total = new + (past or 0)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    q = random.standard_normal((batch, heads, queries, dim))
    k = random.standard_normal((batch, kv_heads, new, dim))
    v = random.standard_normal((batch, kv_heads, new, value_dim))
    attributes = {
        "is_causal": draw(st.integers(0, 1)),
        "left_window_size": draw(st.integers(-1, 4)),
        "right_window_size": draw(st.integers(-1, 4)),
        "scale": draw(st.none() | st.floats(0, 2)),
        "softcap": draw(st.sampled_from([0.0, 0.5, 3.0])),
        "qk_matmul_output_mode": draw(st.integers(0, 3)),
    }
    if attributes["qk_matmul_output_mode"] == 0:
        # onnx's implementation gives capped scores here, its specification and its function body do not.
        attributes["softcap"] = 0.0
    if draw(st.booleans()):
        q, k, v = (x.swapaxes(1, 2).reshape(batch, x.shape[2], -1) for x in (q, k, v))
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    inputs = {"Q": q, "K": k, "V": v}
    seen = draw(st.integers(1, total))
    if past is not None:
        inputs["past_key"] = random.standard_normal((batch, kv_heads, past, dim))
        inputs["past_value"] = random.standard_normal((batch, kv_heads, past, value_dim))
    elif draw(st.booleans()):
        inputs["nonpad_kv_seqlen"] = random.integers(0, seen + 1, batch)
    if draw(st.booleans()):
        rank = draw(st.integers(1, 4))
        whole = [n if draw(st.booleans()) else 1 for n in (batch, heads, queries)]
        mask = random.standard_normal((*whole[4 - rank :], seen))
        inputs["attn_mask"] = mask > 0 if draw(st.booleans()) else np.where(mask > 1, -np.inf, mask)
    return inputs, attributes


@given(calls())
@settings(deadline=None, max_examples=300)
def test_reference_is_what_onnx_computes(call):
    from onnx.reference.ops.op_attention import _compute_attention

    inputs, attributes = call
    expected = _compute_attention(**inputs, **attributes)
    results = pa.onnx.reference_attention(**inputs, **attributes)
    for name, result, wanted in zip(OUTPUTS, results, expected, strict=True):
        if name.startswith("present") and "past_key" not in inputs:
            assert result is None
        else:
            np.testing.assert_allclose(result, wanted, rtol=1e-9, atol=1e-12, err_msg=name)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


WELL_FORMED = {"Q": zeros(2, 4, 3, 8), "K": zeros(2, 2, 5, 8), "V": zeros(2, 2, 5, 6)}
FLAT = {"Q": zeros(2, 3, 32), "K": zeros(2, 5, 16), "V": zeros(2, 5, 12), "q_num_heads": 4, "kv_num_heads": 2}
PAST = {"past_key": zeros(2, 2, 7, 8), "past_value": zeros(2, 2, 7, 6)}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"is_casual": 1}, TypeError, "is_casual: .* it has is_causal, kv_num_heads"),
        ({"is_causal": 2}, ValueError, "is_causal: expected 0 or 1, got 2"),
        ({"scale": "1"}, TypeError, "scale: expected a number"),
        ({"scale": float("nan")}, ValueError, "scale: expected a finite number"),
        ({"softcap": -1.0}, ValueError, "softcap: "),
        ({"left_window_size": -2}, ValueError, "left_window_size: expected -1"),
        ({"right_window_size": 1.5}, TypeError, "right_window_size: expected an integer"),
        (
            {"qk_matmul_output_mode": 4},
            ValueError,
            "qk_matmul_output_mode: expected one of 0, 1, 2, 3, got 4",
        ),
        ({"softmax_precision": 2}, ValueError, "softmax_precision: expected one of 1, 10, 11, 16, got 2"),
        ({"q_num_heads": 4}, ValueError, "q_num_heads: expected None unless inputs are 3-D"),
        ({"Q": zeros(2, 8)}, ValueError, "Q: expected"),
        ({"Q": zeros(2, 3, 32)}, ValueError, "K: expected 3 dimensions"),
        ({"Q": zeros(2, 3, 3, 8)}, ValueError, "Q: expected a multiple of K's 2 heads, got 3"),
        ({"Q": zeros(2, 4, 3, 8, dtype=np.int32)}, TypeError, "Q: expected float32"),
        ({"K": zeros(2, 2, 5, 7)}, ValueError, "K: .*head size 8, got 2 and 7"),
        ({"V": zeros(2, 2, 4, 6)}, ValueError, "V: expected K's"),
        ({"Q": zeros(2, 4, 3, 600), "K": zeros(2, 2, 5, 600)}, ValueError, "head dim from 1 to 576"),
        (
            {"past_key": PAST["past_key"]},
            ValueError,
            "past_value: expected an array, as past_key is given; got None",
        ),
        ({**PAST, "past_key": zeros(2, 2, 7, 7)}, ValueError, r"past_key: expected \[2, 2, P, 8\]"),
        ({**PAST, "past_value": zeros(2, 2, 6, 6)}, ValueError, r"past_value: expected \[2, 2, 7, 6\]"),
        ({**PAST, "nonpad_kv_seqlen": [5, 5]}, ValueError, "nonpad_kv_seqlen: expected None with past_key"),
        ({"nonpad_kv_seqlen": [5, 6]}, ValueError, "nonpad_kv_seqlen: expected values from 0 to the 5 keys"),
        ({"nonpad_kv_seqlen": [5]}, ValueError, r"nonpad_kv_seqlen: expected shape \[2\]"),
        ({"nonpad_kv_seqlen": [5.0, 5.0]}, TypeError, "nonpad_kv_seqlen: expected integers"),
        ({"attn_mask": zeros(3, 6)}, ValueError, "attn_mask: expected up to 5 keys"),
        ({"attn_mask": zeros(4, 5)}, ValueError, "attn_mask: expected a shape that broadcasts"),
        ({"attn_mask": zeros(3, 5, dtype=np.int64)}, TypeError, "attn_mask: expected booleans"),
        (
            {"attn_mask": zeros(3, 4), "nonpad_kv_seqlen": [5, 5]},
            ValueError,
            "nonpad_kv_seqlen: .* the 4 keys",
        ),
        ({**FLAT, "kv_num_heads": None}, ValueError, "kv_num_heads: expected a number with 3-D inputs"),
        ({**FLAT, "q_num_heads": 5}, ValueError, "q_num_heads: expected a divisor of Q's 32 columns, got 5"),
        ({**FLAT, "q_num_heads": 0}, ValueError, "q_num_heads: expected at least 1"),
    ],
)
def test_refused_before_anything_is_dispatched(bridge, device, change, error, words):
    with pytest.raises(error, match=words):
        pa.onnx.attention(**(WELL_FORMED | change))
    device.flush()
    assert bridge.programs == []
    # The next valid call works.
    pa.onnx.attention(**WELL_FORMED)


def launches(bridge, device, **call):
    outputs = pa.onnx.attention(**call)
    device.flush()
    return outputs, [launch.label.split("/")[0] for launch in bridge.launches]


def test_only_what_is_asked_for_is_computed(bridge, device):
    outputs, labels = launches(bridge, device, **WELL_FORMED)
    assert labels == ["attention"]
    assert [x and x.shape for x in outputs] == [(2, 4, 3, 6), None, None, None]


def test_past_is_continued_in_the_type_of_the_new(bridge, device):
    half = {name: device.tensor(x, "bfloat16") for name, x in WELL_FORMED.items()}
    outputs, labels = launches(bridge, device, **half, **PAST, qk_matmul_output_mode=2)
    assert labels == ["copy", "copy", "attention", "attention_weights", "copy"]
    assert [x.shape for x in outputs] == [(2, 4, 3, 6), (2, 2, 12, 8), (2, 2, 12, 6), (2, 4, 3, 12)]
    assert {x.dtype for x in outputs} == {"bfloat16"}


@pytest.mark.parametrize(("value_dim", "copies"), [(8, []), (6, ["copy"])])
def test_flat_output_is_copied_only_where_rows_are_padded(bridge, device, value_dim, copies):
    (y, *_), labels = launches(bridge, device, **FLAT | {"V": zeros(2, 5, 2 * value_dim)})
    assert labels == ["attention", *copies]
    assert y.shape == (2, 3, 4 * value_dim)
    assert y.is_contiguous


def test_a_short_mask_shows_as_many_keys(bridge, device):
    mask = zeros(1, 1, 3, 4, dtype=bool)
    (*_, qk), _ = launches(bridge, device, **WELL_FORMED, attn_mask=mask, qk_matmul_output_mode=3)
    assert qk.shape == (2, 4, 3, 5)
