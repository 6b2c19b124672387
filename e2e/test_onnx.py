"""`pa.onnx.attention` in the page: onnx's own cases, and larger calls against the float64 reference."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest

from tests.onnx_cases import CASES_IN_ONNX, onnx_cases

CHECKS = (Path(__file__).parent / "page_checks.py").read_text(encoding="utf-8")
HELPERS = """
import base64, io, json
import numpy as np
import py_attn as pa

device = pa.default_device()
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")

def unpacked(data):
    return dict(np.load(io.BytesIO(base64.b64decode(data))))

async def run_cases(data, cases):
    "Every case's outputs as an npz, named case/output."
    arrays, results = unpacked(data), {}
    device.poison_outputs = True
    for name, case in cases.items():
        inputs = {
            # numpy's npz does not know bfloat16, so its values travel as float32.
            key: device.tensor(arrays[f"{name}/{key}"], dtype)
            for key, dtype in case["inputs"].items()
        }
        outputs = dict(zip(OUTPUTS, pa.onnx.attention(**inputs, **case["attributes"])))
        for key, tensor in outputs.items():
            if tensor is not None:
                results[f"{name}/{key}"] = await tensor.numpy()
                case[key] = tensor.dtype
    device.poison_outputs = False
    packed = io.BytesIO()
    np.savez(packed, **results)
    kinds = {name: {key: case[key] for key in OUTPUTS if key in case} for name, case in cases.items()}
    return [base64.b64encode(packed.getvalue()).decode(), kinds]

async def check_call(sizes, dtype, past=0, lengths=None, mask=None, mask_shape=None, flat=False, **attributes):
    "The largest error over its bound among a call's outputs; sizes: B, Hq, Hkv, Sq, Skv, D, Dv."
    batch, heads, kv_heads, queries, keys, dim, value_dim = sizes
    random = np.random.default_rng(6)
    inputs = {
        name: normal(random, shape, dtype)
        for name, shape in {
            "Q": (batch, heads, queries, dim),
            "K": (batch, kv_heads, keys, dim),
            "V": (batch, kv_heads, keys, value_dim),
            "past_key": (batch, kv_heads, past, dim),
            "past_value": (batch, kv_heads, past, value_dim),
        }.items()
    }
    if not past:
        del inputs["past_key"], inputs["past_value"]
    if flat:
        for name in ("Q", "K", "V"):
            x = inputs[name]
            inputs[name] = x.swapaxes(1, 2).reshape(batch, x.shape[2], -1)
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    given = {name: device.tensor(x, dtype) for name, x in inputs.items()}
    if mask:
        spec = {"dtype": mask, "shape": mask_shape, "rows": "hidden"}
        inputs["attn_mask"] = make_mask(random, spec)
        given["attn_mask"] = mask_tensor(device, inputs["attn_mask"], spec)
    if lengths:
        inputs["nonpad_kv_seqlen"] = given["nonpad_kv_seqlen"] = np.array(lengths)
    with poisoned(device):
        outputs = pa.onnx.attention(**given, **attributes)
        got = [None if x is None else await x.numpy() for x in outputs]

    def reference(q, k, compute=np.float32):
        return pa.onnx.reference_attention(**inputs | {"Q": q, "K": k}, **attributes, compute_dtype=compute)

    exact = reference(inputs["Q"], inputs["K"], np.float64)
    singles = [reference(inputs["Q"], inputs["K"])]
    worst = 0.0
    for name, tensor, result, right, *single in zip(OUTPUTS, outputs, got, exact, *singles, strict=True):
        assert (tensor is None) == (right is None), name
        if tensor is None:
            continue
        assert tensor.dtype == dtype, name
        assert np.array_equal(np.isneginf(result), np.isneginf(right)), name
        seen = np.isfinite(right)
        worst = max(worst, over_bound(result[seen], right[seen], [x[seen] for x in single], dtype))
    return worst
"""
BATCH = 16


def as_npz(arrays):
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return base64.b64encode(packed.getvalue()).decode()


def plain(array):
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


@pytest.fixture(scope="module")
def run(lab):
    lab.run(CHECKS + HELPERS)
    return lab.run


@pytest.fixture(scope="module")
def results(run):
    """What the page computed for each case: {case: {output: (array, dtype)}}."""
    found = {}
    cases = onnx_cases()
    for begin in range(0, len(cases), BATCH):
        batch = cases[begin : begin + BATCH]
        data = as_npz({f"{c.name}/{key}": plain(x) for c in batch for key, x in c.inputs.items()})
        asked = {
            c.name: {
                # int64 lies as int32 on the GPU.
                "inputs": {k: x.dtype.name.replace("int64", "int32") for k, x in c.inputs.items()},
                "attributes": c.attributes,
            }
            for c in batch
        }
        answer, kinds = run(f"await run_cases({data!r}, json.loads({json.dumps(asked)!r}))", timeout=120)
        arrays = np.load(io.BytesIO(base64.b64decode(answer)))
        for name, outputs in kinds.items():
            found[name] = {key: (arrays[f"{name}/{key}"], dtype) for key, dtype in outputs.items()}
    return found


def test_every_case_ran(results):
    assert len(results) == CASES_IN_ONNX


@pytest.mark.parametrize("case", onnx_cases(), ids=lambda case: case.name)
def test_onnx_case(results, case):
    outputs = results[case.name]
    assert {key: dtype for key, (_, dtype) in outputs.items()} == {
        key: expected.dtype.name for key, expected in case.outputs.items()
    }
    for key, (result, _) in outputs.items():
        case.check(key, result)


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
def test_larger_calls(run, call, dtype):
    assert run(f"await check_call(dtype={dtype!r}, **{call!r})") <= 1


def test_the_largest_finite_bias_is_added_as_it_is(run):
    assert run("""
lowest = float(np.finfo(np.float32).min)
x = np.ones((1, 1, 2, 4), np.float32)
mask = np.array([[0, lowest], [-1e38, -3e38]], np.float32)
y, _, _, qk = pa.onnx.attention(x, x, x, mask, qk_matmul_output_mode=2)
(await qk.numpy()).tolist() == (mask + np.float32(2))[None, None].tolist() and (await y.numpy()).tolist() == x.tolist()
""")
