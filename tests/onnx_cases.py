"""The node cases of the onnx package's operators Attention and FlexAttention, made in memory."""

import functools
import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np

#: In onnx 1.23.2, without the variants that spell the operator out in others for the same numbers.
CASES_IN_ONNX = 93
FLEX_CASES_IN_ONNX = 11
#: The modules of onnx.backend.test.case.node that have them.
MODULES = ("attention", "flexattention")
INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")


@dataclass(frozen=True)
class Case:
    name: str
    inputs: dict[str, np.ndarray]
    attributes: dict[str, Any]
    outputs: dict[str, np.ndarray]
    rtol: float
    atol: float

    def check(self, name: str, result: np.ndarray) -> float:
        """Fail unless an output is as close to onnx's as its test runner wants it; the error over that."""
        expected = self.outputs[name]
        assert result.shape == expected.shape, name
        # assert_similar_outputs in onnx/backend/test/runner: two of bfloat16's steps.
        rtol = max(self.rtol, 2**-6) if expected.dtype.name == "bfloat16" else self.rtol
        result, expected = result.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_allclose(result, expected, rtol=rtol, atol=self.atol, err_msg=name)
        seen = np.isfinite(expected)
        error = np.abs(result[seen] - expected[seen])
        return float((error / (self.atol + rtol * np.abs(expected[seen]))).max(initial=0))


def onnx_cases() -> tuple[Case, ...]:
    """Those of Attention."""
    return _cases("Attention")


def flex_cases() -> tuple[Case, ...]:
    """Those of the preview operator FlexAttention; their attributes score_mod and prob_mod are bytes."""
    return _cases("FlexAttention")


@functools.cache
def _all_cases() -> list[Any]:
    from onnx.backend.test.case import node

    def import_those_of_attention(package: ModuleType) -> None:
        for module in MODULES:
            importlib.import_module(f"{package.__name__}.{module}")

    # Cases are made when their module is imported, which takes seconds for those of pooling and others, and
    # once: those of a single operator would be all there ever are.
    with mock.patch.object(node, "import_recursive", import_those_of_attention):
        return node.collect_testcases(None)


@functools.cache
def _cases(op_type: str) -> tuple[Case, ...]:
    import onnx

    found = []
    for case in _all_cases():
        (node, *others) = case.model.graph.node
        if others or node.op_type != op_type:
            continue
        ((inputs, outputs),) = case.data_sets
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        for name in ("score_mod", "prob_mod"):
            if name in attributes:
                attributes[name] = attributes[name].SerializeToString()
        if OUTPUTS[3] in node.output:
            attributes.setdefault("qk_matmul_output_mode", 0)
        given = [name for name, used in zip(INPUTS, node.input, strict=False) if used]
        wanted = [name for name in node.output if name]
        found.append(
            Case(
                case.name,
                dict(zip(given, inputs, strict=True)),
                attributes,
                dict(zip(wanted, outputs, strict=True)),
                case.rtol,
                case.atol,
            )
        )
    return tuple(found)
