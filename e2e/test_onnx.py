"""`pa.onnx` in the page: onnx's own cases, and larger calls against the float64 reference."""

import base64
import io

import numpy as np
import pytest

from e2e.page.adapters import check_onnx, run_onnx_cases
from tests.onnx_cases import CASES_IN_ONNX, FLEX_CASES_IN_ONNX, flex_cases, onnx_cases

BATCH = 16


def as_npz(arrays):
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return base64.b64encode(packed.getvalue()).decode()


def on_gpu(dtype):
    """int64 lies as int32 on the GPU, which has no float64 either."""
    return {"int64": "int32", "float64": "float32"}.get(dtype, dtype)


def plain(array):
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


@pytest.fixture(scope="module")
def results(lab):
    """What the page computed for each case: {case: {output: (array, dtype)}}."""
    return computed(lab, onnx_cases(), "attention")


@pytest.fixture(scope="module")
def flex_results(lab):
    """The same for FlexAttention's cases."""
    return computed(lab, flex_cases(), "flex_attention")


def computed(lab, cases, operator):
    found = {}
    for begin in range(0, len(cases), BATCH):
        batch = cases[begin : begin + BATCH]
        data = as_npz({f"{c.name}/{key}": plain(x) for c in batch for key, x in c.inputs.items()})
        asked = {
            c.name: {
                "operator": operator,
                "inputs": {k: on_gpu(x.dtype.name) for k, x in c.inputs.items()},
                "attributes": c.attributes,
            }
            for c in batch
        }
        answer, kinds = lab.call(run_onnx_cases, data, asked)
        arrays = np.load(io.BytesIO(base64.b64decode(answer)))
        for name, outputs in kinds.items():
            found[name] = {key: (arrays[f"{name}/{key}"], dtype) for key, dtype in outputs.items()}
    return found


def test_every_case_ran(results):
    assert len(results) == CASES_IN_ONNX


@pytest.mark.parametrize("case", onnx_cases(), ids=lambda case: case.name)
def test_onnx_case(results, error_ratios, case):
    outputs = results[case.name]
    assert {key: dtype for key, (_, dtype) in outputs.items()} == {
        key: expected.dtype.name for key, expected in case.outputs.items()
    }
    for key, (result, _) in outputs.items():
        error_ratios.note(["ONNX's own cases"], "auto", case.check(key, result))


def test_every_flex_case_ran(flex_results):
    assert len(flex_results) == FLEX_CASES_IN_ONNX


@pytest.mark.parametrize("case", flex_cases(), ids=lambda case: case.name)
def test_flex_case(flex_results, error_ratios, case):
    result, dtype = flex_results[case.name]["Y"]
    assert dtype == on_gpu(case.outputs["Y"].dtype.name)
    error_ratios.note(["ONNX's FlexAttention cases"], "auto", case.check("Y", result))


FLEX_MODS = {
    "bias": "lambda s, b, h, q, k: s + pa.where(k > q, -np.inf, -0.1 * (q - k))",
    "cut": "lambda p, b, h, q, k: pa.where(p < 0.02, 0.0, p) * (1 + h)",
    # Hidden keys have a probability too.
    "added": "lambda p, b, h, q, k: pa.sqrt(p) + 0.01 * (k % 3)",
}


@pytest.mark.parametrize(("score_mod", "prob_mod"), [(None, "cut"), ("bias", "added"), ("bias", None)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_flex_functions(lab, error_ratios, score_mod, prob_mod, dtype):
    mods = {"score_mod": FLEX_MODS.get(score_mod), "prob_mod": FLEX_MODS.get(prob_mod)}
    given = ", ".join(f"{name}={mod}" for name, mod in mods.items())
    lab.run("import numpy as np; import py_attn as pa; from e2e.page.adapters import check_flex")
    ratio = lab.run(f"await check_flex((2, 4, 2, 33, 70, 24, 20), {dtype!r}, {given})")
    assert ratio <= 1
    error_ratios.note(["ONNX", "prob_mod" if prob_mod else "score_mod"], "naive", ratio)


@pytest.mark.parametrize(
    "call",
    [
        {"sizes": (2, 6, 2, 33, 70, 40, 24), "is_causal": 1, "qk_matmul_output_mode": 3},
        {"sizes": (2, 6, 2, 33, 70, 40, 22), "flat": True, "softcap": 2.0, "qk_matmul_output_mode": 0},
        {"sizes": (2, 6, 2, 33, 70, 40, 24), "flat": True, "softcap": 2.0, "qk_matmul_output_mode": 1},
        # More queries than new keys behind a past, and fewer.
        {"sizes": (1, 4, 4, 9, 5, 16, 16), "past": 37, "is_causal": 1, "left_window_size": 12},
        {"sizes": (1, 4, 4, 5, 9, 16, 10), "past": 37, "is_causal": 1, "qk_matmul_output_mode": 2},
        {"sizes": (1, 4, 4, 5, 9, 16, 16), "past": 3, "left_window_size": 1, "right_window_size": 2},
        {
            "sizes": (3, 4, 2, 7, 40, 64, 64),
            "lengths": [40, 3, 0],
            "is_causal": 1,
            "qk_matmul_output_mode": 2,
        },
        {
            "sizes": (3, 4, 2, 7, 40, 64, 64),
            "lengths": [40, 3, 17],
            "left_window_size": 4,
            "qk_matmul_output_mode": 3,
        },
        # Masks that end before the keys do.
        {"sizes": (2, 4, 2, 7, 40, 8, 8), "mask": "bool", "mask_shape": (31,), "qk_matmul_output_mode": 2},
        {
            "sizes": (2, 4, 2, 7, 40, 8, 8),
            "mask": "float32",
            "mask_shape": (4, 7, 31),
            "qk_matmul_output_mode": 3,
        },
        {"sizes": (2, 4, 2, 7, 9, 8, 8), "past": 6, "mask": "float16", "mask_shape": (7, 12), "is_causal": 1},
        {
            "sizes": (2, 4, 2, 7, 9, 8, 8),
            "mask": "bfloat16",
            "mask_shape": (2, 1, 7, 1),
            "qk_matmul_output_mode": 0,
        },
    ],
    ids=lambda call: "-".join(f"{value}" for value in call.values()),
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_larger_calls(lab, error_ratios, call, dtype):
    ratio = lab.call(check_onnx, dtype=dtype, **call)
    assert ratio <= 1
    error_ratios.note(["ONNX"], "auto", ratio)


def test_the_largest_finite_bias_is_added_as_it_is(lab):
    assert lab.run("""
import numpy as np
import py_attn as pa
lowest = float(np.finfo(np.float32).min)
x = np.ones((1, 1, 2, 4), np.float32)
mask = np.array([[0, lowest], [-1e38, -3e38]], np.float32)
y, _, _, qk = pa.onnx.attention(x, x, x, mask, qk_matmul_output_mode=2)
bool((await qk.numpy() == mask + np.float32(2)).all() and (await y.numpy() == x).all())
""")
