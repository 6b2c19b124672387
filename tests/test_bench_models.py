"""The one-node ONNX models that the bench page writes for its peer, read back by the onnx package."""

import json
import subprocess
from pathlib import Path

import onnx
import pytest

ROOT = Path(__file__).parent.parent
SHAPE = {"batch": 2, "heads": 12, "kv_heads": 4, "queries": 300, "keys": 40_000, "head_dim": 32}


def written(function, causal, kind):
    call = f"{function}({json.dumps({**SHAPE, 'causal': causal})}, {kind})"
    script = f"""
import {{ {function} }} from './web/src/bench/peers/onnx-model.js';
process.stdout.write({call});
"""
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script], cwd=ROOT, capture_output=True, check=True
    )
    return onnx.load_from_string(done.stdout)


def shapes(values):
    return {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in values}


@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention(causal):
    model = written("multiHeadAttention", causal, onnx.TensorProto.FLOAT)
    onnx.checker.check_model(model)
    (node,) = model.graph.node
    assert (node.domain, node.op_type) == ("com.microsoft", "MultiHeadAttention")
    assert list(node.input) == ["query", "key", "value"]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert attributes == {"num_heads": 12} | ({"unidirectional": 1} if causal else {})
    assert shapes(model.graph.input) == {
        "query": [2, 300, 384], "key": [2, 40_000, 384], "value": [2, 40_000, 384],
    }  # fmt: skip
    assert shapes(model.graph.output) == {"output": [2, 300, 384]}


def test_group_query_attention():
    model = written("groupQueryAttention", False, onnx.TensorProto.FLOAT16)
    onnx.checker.check_model(model)
    (node,) = model.graph.node
    assert (node.domain, node.op_type) == ("com.microsoft", "GroupQueryAttention")
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert attributes == {"num_heads": 12, "kv_num_heads": 4}
    found = shapes(model.graph.input)
    assert found["past_key"] == found["past_value"] == [2, 4, 40_000, 32]
    assert (found["query"], found["key"], found["seqlens_k"]) == ([2, 1, 384], [2, 1, 128], [2])
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    assert kinds["query"] == onnx.TensorProto.FLOAT16
    assert kinds["total_sequence_length"] == onnx.TensorProto.INT32
