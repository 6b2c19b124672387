"""pa.onnx.flex_attention: onnx's cases by the reference, graphs against onnx's evaluator, refusals, plans."""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import py_attn as pa
from py_attn.onnx_graph import graph_function
from tests.onnx_cases import FLEX_CASES_IN_ONNX, flex_cases

SHAPE = (2, 3, 4, 5)


def test_all_cases_are_here():
    assert len(flex_cases()) == FLEX_CASES_IN_ONNX


@pytest.mark.parametrize("case", flex_cases(), ids=lambda case: case.name)
def test_reference_passes_onnx_case(case):
    result = pa.onnx.reference_flex_attention(**case.inputs, **case.attributes)
    case.check("Y", result.astype(case.outputs["Y"].dtype))


def graph_of(nodes, constants=(), opset=23):
    """A graph x -> y of (op, inputs, outputs, attributes)."""
    made = [helper.make_node(op, ins, outs, **attributes) for op, ins, outs, attributes in nodes]
    return helper.make_graph(
        made,
        "mod",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(SHAPE))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(SHAPE))],
        [onnx.numpy_helper.from_array(np.asarray(value), key) for key, value in dict(constants).items()],
    )


def evaluated(graph, x):
    """What onnx's own evaluator makes of it."""
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    return ReferenceEvaluator(model).run(None, {"x": x})[0]


def ours(graph, x):
    function = graph_function("score_mod", graph.SerializeToString(), SHAPE, lambda array: array)
    return np.broadcast_to(function(x, *np.ogrid[tuple(slice(n) for n in SHAPE)]), SHAPE)


def scores(seed=0):
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


BINARY = ("Add", "Sub", "Mul", "Max", "Min")
UNARY = ("Abs", "Neg", "Tanh", "Exp", "Sigmoid", "Relu", "Identity")
COMPARE = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")


@given(
    unary=st.sampled_from(UNARY),
    binary=st.sampled_from(BINARY),
    compare=st.sampled_from(COMPARE),
    shape=st.sampled_from(([], [1], [5], [4, 1], [3, 1, 5], [2, 1, 1, 1], [2, 3, 4, 5])),
    seed=st.integers(0, 99),
)
def test_elementwise_graphs_are_what_onnx_computes(unary, binary, compare, shape, seed):
    table = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    graph = graph_of(
        [
            (unary, ["x"], ["a"], {}),
            (binary, ["a", "table"], ["c"], {}),
            (compare, ["x", "table"], ["d"], {}),
            ("Where", ["d", "c", "x"], ["y"], {}),
        ],
        {"table": table},
    )
    x = scores(seed)
    np.testing.assert_allclose(ours(graph, x), evaluated(graph, x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        # A dilated window from ranges over the shape: |q - k| // 2 and the remainder.
        (
            [
                ("Shape", ["x"], ["n"], {"start": 2, "end": 3}),
                ("Squeeze", ["n"], ["rows"], {}),
                ("Range", ["zero", "rows", "one"], ["range"], {}),
                ("Unsqueeze", ["range", "axes"], ["q"], {}),
                ("Range", ["zero", "five", "one"], ["k"], {}),
                ("Sub", ["q", "k"], ["d"], {}),
                ("Mod", ["d", "two"], ["odd"], {}),
                ("Equal", ["odd", "zero"], ["seen"], {}),
                ("Div", ["d", "two"], ["halves"], {}),
                ("Cast", ["halves"], ["bias"], {"to": 1}),
                ("Add", ["x", "bias"], ["moved"], {}),
                ("Where", ["seen", "moved", "low"], ["y"], {}),
            ],
            {"zero": np.int64(0), "one": np.int64(1), "two": np.int64(2), "five": np.int64(5),
             "axes": np.array([1]), "low": np.float32(-3)},
        ),
        # A table of relative positions, looked up by traced indices, and one by head.
        (
            [
                ("Sub", ["q", "k"], ["d"], {}),
                ("Add", ["d", "four"], ["at"], {}),
                ("Gather", ["table", "at"], ["bias"], {"axis": 0}),
                ("Mul", ["bias", "slopes"], ["scaled"], {}),
                ("Add", ["x", "scaled"], ["y"], {}),
            ],
            {"q": np.arange(4)[:, None], "k": np.arange(5), "four": np.int64(4),
             "table": np.linspace(-1, 1, 9, dtype=np.float32),
             "slopes": np.float32([1, 2, 4]).reshape(3, 1, 1)},
        ),
        # Shapes that are put together, and bools.
        (
            [
                ("Shape", ["x"], ["shape"], {}),
                ("Gather", ["shape", "last"], ["n"], {"axis": 0}),
                ("Concat", ["one", "n"], ["wanted"], {"axis": 0}),
                ("Expand", ["row", "wanted"], ["wide"], {}),
                ("Reshape", ["wide", "flat"], ["again"], {}),
                ("Greater", ["again", "x"], ["a"], {}),
                ("Less", ["x", "low"], ["b"], {}),
                ("Or", ["a", "b"], ["c"], {}),
                ("Not", ["c"], ["d"], {}),
                ("Cast", ["d"], ["e"], {"to": 1}),
                ("Clip", ["x", "low", "high"], ["clipped"], {}),
                ("Pow", ["clipped", "two"], ["squared"], {}),
                ("Mul", ["e", "squared"], ["y"], {}),
            ],
            {"last": np.array([-1]), "one": np.array([1]), "row": np.zeros((1, 1), np.float32),
             "flat": np.array([1, 1, 1, -1]), "low": np.float32(-0.5), "high": np.float32(1),
             "two": np.float32(2)},
        ),
    ],
)  # fmt: skip
def test_graphs_with_places_are_what_onnx_computes(nodes, constants):
    graph, x = graph_of(nodes, constants), scores()
    np.testing.assert_allclose(ours(graph, x), evaluated(graph, x), rtol=1e-6, atol=1e-6)


def inputs(device):
    return [device.empty((2, 3, n, 8)) for n in (4, 5, 5)]


@pytest.mark.parametrize(
    ("mod", "error", "words"),
    [
        (
            graph_of([("Sin", ["x"], ["y"], {})]),
            ValueError,
            "operator Sin cannot be traced; supported are Abs, Add",
        ),
        (graph_of([("Add", ["x", "z"], ["y"], {})]), ValueError, "Add takes 'z', which the graph does not"),
        (graph_of([("Neg", ["x"], ["z"], {})]), ValueError, "does not define its output 'y'"),
        (
            graph_of([("Gather", ["x", "i"], ["y"], {"axis": 2})], {"i": np.array([1])}),
            ValueError,
            "computes every element from that element alone",
        ),
        (graph_of([("Mod", ["x", "x"], ["y"], {"fmod": 1})]), ValueError, "Mod: fmod=1"),
        (graph_of([("Cast", ["x"], ["y"], {"to": 7})]), ValueError, "a Cast from f32 to data type 7"),
        (
            graph_of([("Unsqueeze", ["x", "axes"], ["y"], {})], {"axes": np.array([0])}),
            ValueError,
            r"expected an output of shape \[2, 3, 4, 5\]",
        ),
        (b"\xff\xff", ValueError, "not the bytes of a GraphProto"),
        (b"", ValueError, "one input and one output, got 0 and 0"),
        (3, TypeError, "expected a function, a GraphProto or its bytes, got int"),
        (lambda score: score, TypeError, "score, b, h, q_idx, kv_idx"),
    ],
)  # fmt: skip
def test_other_graphs_are_refused(device, bridge, mod, error, words):
    with pytest.raises(error, match=words):
        pa.onnx.flex_attention(*inputs(device), score_mod=mod)
    with pytest.raises((ValueError, TypeError)):
        pa.onnx.flex_attention(*inputs(device), prob_mod=mod)
    device.flush()
    assert bridge.programs == []
    assert pa.onnx.flex_attention(*inputs(device)).shape == (2, 3, 4, 8)


def test_softmax_precision_and_shapes_are_checked(device):
    with pytest.raises(ValueError, match="softmax_precision: expected one of 1, 10, 11, 16, got 2"):
        pa.onnx.flex_attention(*inputs(device), softmax_precision=2)
    with pytest.raises(ValueError, match="query: expected 4 dimensions"):
        pa.onnx.flex_attention(device.empty((4, 8)), *inputs(device)[1:])


def test_constants_are_uploaded_once(device, bridge):
    graph = graph_of(
        [("Add", ["x", "t"], ["a"], {}), ("Mul", ["a", "t"], ["y"], {})],
        {"t": np.arange(5, dtype=np.float32)},
    )
    pa.onnx.flex_attention(*inputs(device), score_mod=graph, prob_mod=graph)
    device.flush()
    (launch,) = bridge.programs[-1]
    # A mod each: Q, K, V, two tables, the output.
    assert len(launch.buffers) == 6
    assert "fn prob_mod(prob: f32" in launch.wgsl
