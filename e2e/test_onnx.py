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
"""
BATCH = 16


def as_npz(arrays):
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return base64.b64encode(packed.getvalue()).decode()


def plain(array):
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


@pytest.fixture(scope="module")
def results(lab):
    """What the page computed for each case: {case: {output: (array, dtype)}}."""
    lab.run(HELPERS)
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
        answer, kinds = lab.run(f"await run_cases({data!r}, json.loads({json.dumps(asked)!r}))", timeout=120)
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
