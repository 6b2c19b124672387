"""ONNX graphs of elementwise operators as functions of one element, to be traced into a kernel.

FlexAttention's ``score_mod`` and ``prob_mod`` are such graphs: their input is a tensor of scores, and their
output has the same shape. Here each value of the graph is an :class:`Array`, which knows its shape and how to
compute the element at given indices. The indices may be traced values, numbers or numpy arrays. A graph is
given as protobuf bytes or as an object of the ``onnx`` package, which need not be installed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn import mods
from py_attn.onnx_protobuf import Graph, Node, read_graph
from py_attn.traced import Traced

Table = Callable[[npt.NDArray[Any]], Any]

#: The most operators of a graph, steps to compute one element, and numbers of a constant that the graph
#: computes: far more than a mod has, and few enough for a graph from outside.
MAX_OPERATORS = 1000
MAX_STEPS = 10_000
MAX_COMPUTED = 1 << 20

# onnx.TensorProto's numbers of the types that a Cast may go to.
_FLOAT, _INT, _BOOL = (1, 10, 11, 16), (6, 7), 9


# What operators raise for wrong counts of inputs, attributes of another type, a step of 0, and the like.
_FAULTS = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RuntimeError)


class _StepError(ValueError):
    """An operator failed on an element; the message begins with its name."""


@dataclass(slots=True)
class Array:
    """A value of the graph: its shape, and its element at given indices; ``known`` where it is constant."""

    shape: tuple[int, ...]
    at: Callable[[Sequence[Any]], Any]
    known: npt.NDArray[Any] | None = None


def graph_function(
    name: str, graph: Any, shape: tuple[int, int, int, int], table: Table
) -> Callable[..., Any]:
    """The graph as ``function(element, b, h, q_idx, kv_idx)`` for a tensor of ``shape`` [B, Hq, Sq, Sk].

    Parameters
    ----------
    name : str
        What errors call the graph.
    graph : GraphProto or bytes
    shape : tuple of int
    table : callable
        Turns a constant array into one that traced indices can read: ``device.tensor``, or for the reference
        a function that returns the array itself.

    Raises
    ------
    TypeError, ValueError
        When it is not a graph with one input and one output, has an operator that is not elementwise or
        not supported, or takes too many steps.
    """
    read = graph if isinstance(graph, Graph) else read_graph(name, graph)
    if len(read.nodes) > MAX_OPERATORS:
        raise ValueError(f"{name}: expected at most {MAX_OPERATORS:,} operators, got {len(read.nodes):,}")
    tables: dict[int, Any] = {}

    def looked_up(array: npt.NDArray[Any]) -> Any:
        # An array is uploaded once, however many operators read it; the graph keeps it alive.
        if id(array) not in tables:
            tables[id(array)] = (array, table(array))
        return tables[id(array)][1]

    def function(element: Any, *position: Any) -> Any:
        def score_at(index: Sequence[Any]) -> Any:
            if any(i is not p and n != 1 for i, p, n in zip(index, position, shape, strict=True)):
                raise ValueError("expected a graph that computes every element from that element alone")
            return element

        values = {key: _constant_array(array, looked_up) for key, array in read.constants.items()}
        values[read.inputs[0]] = Array(shape, score_at)
        steps = itertools.count(1)
        for node in read.nodes:
            if node.op not in OPERATORS:
                known = ", ".join(sorted(OPERATORS))
                raise ValueError(
                    f"{name}: the operator {node.op[:80]} cannot be traced; supported are {known}"
                )
            missing = [i for i in node.inputs if i and i not in values]
            if missing:
                raise ValueError(
                    f"{name}: {node.op} takes {missing[0][:80]!r}, which the graph does not define"
                )
            inputs = [values[i] for i in node.inputs if i]
            try:
                values[node.outputs[0]] = _once(node.op, OPERATORS[node.op](node, inputs, looked_up), steps)
            except _FAULTS as error:
                raise ValueError(f"{name}: {node.op}: {error}") from None
        if read.outputs[0] not in values:
            raise ValueError(f"{name}: the graph does not define its output {read.outputs[0][:80]!r}")
        result = values[read.outputs[0]]
        wide = (1,) * (4 - len(result.shape)) + result.shape
        if len(wide) > 4 or any(n not in (1, m) for n, m in zip(wide, shape, strict=True)):
            raise ValueError(f"{name}: expected an output of shape {list(shape)}, got {list(result.shape)}")
        try:
            return _element(result, position)
        except RecursionError:
            raise ValueError(f"{name}: the graph's operators are nested too deeply") from None
        except _FAULTS as error:
            raise ValueError(f"{name}: {error}") from None

    return function


def _once(op: str, array: Array, steps: Iterator[int]) -> Array:
    """The array, of which an element is computed once, however many operators read it."""
    found: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def at(index: Sequence[Any]) -> Any:
        key = tuple(map(id, index))
        if key not in found:
            if next(steps) > MAX_STEPS:
                raise ValueError(f"the graph takes more than {MAX_STEPS:,} steps for one element")
            # The indices are kept alive, so that their ids stay theirs.
            try:
                found[key] = (index, array.at(index))
            except (_StepError, RecursionError):
                raise
            except _FAULTS as error:
                raise _StepError(f"{op}: {str(error).removeprefix('score_mod: ')}") from None
        return found[key][1]

    return Array(array.shape, at, array.known)


def _element(array: Array, index: Sequence[Any]) -> Any:
    """The element at ``index`` after broadcasting."""
    own = index[len(index) - len(array.shape) :]
    return array.at([0 if n == 1 else i for n, i in zip(array.shape, own, strict=True)])


def _constant_array(array: npt.NDArray[Any], table: Table) -> Array:
    if array.size == 1:
        number = array.item()
        return Array(array.shape, lambda _: number, array)
    return Array(array.shape, lambda index: _look_up(array, table, index), array)


def _look_up(array: npt.NDArray[Any], table: Table, index: Sequence[Any]) -> Any:
    if all(isinstance(i, int) for i in index):
        return array[tuple(index)].item()
    return table(array)[tuple(index)]


def _elementwise(function: Callable[..., Any]) -> Callable[[Node, list[Array], Table], Array]:
    def make(_: Node, inputs: list[Array], table: Table) -> Array:
        shape = np.broadcast_shapes(*(x.shape for x in inputs))
        if all(x.known is not None and x.known.size <= 4 for x in inputs):
            # Shapes and other small constants are computed at once.
            return _constant_array(np.asarray(function(*(x.known for x in inputs))), table)
        return Array(shape, lambda index: function(*(_element(x, index) for x in inputs)))

    return make


def _divide(a: Any, b: Any) -> Any:
    """Division; that of integers rounds towards zero."""
    if _is_integer(a) and _is_integer(b):
        size = mods.absolute(a) // mods.absolute(b)
        return mods.where((a < 0) ^ (b < 0), -size, size)
    return a / b


def _is_integer(value: Any) -> bool:
    if isinstance(value, Traced):
        return value.kind == "i32"
    return np.asarray(value).dtype.kind in "iu"


def _cast(node: Node, inputs: list[Array], table: Table) -> Array:
    to = node.attributes.get("to", 1)

    def convert(value: Any) -> Any:
        traced = isinstance(value, Traced)
        kind = value.kind if traced else {"b": "bool", "f": "f32"}.get(np.asarray(value).dtype.kind, "i32")
        if to in _FLOAT:
            return value if kind == "f32" else mods.where(value, 1.0, 0.0) if kind == "bool" else value * 1.0
        if to == _BOOL:
            return value if kind == "bool" else value != 0
        if to in _INT and kind != "f32":
            return mods.where(value, 1, 0) if kind == "bool" else value
        if to in _INT and not traced:
            return np.trunc(value).astype(np.int64)
        raise ValueError(f"a Cast from {kind} to data type {to} cannot be traced")

    return _elementwise(convert)(node, inputs, table)


def _mod(node: Node, inputs: list[Array], table: Table) -> Array:
    if node.attributes.get("fmod"):
        raise ValueError("fmod=1 cannot be traced; expected fmod=0, the remainder with the divisor's sign")
    return _elementwise(lambda a, b: a % b)(node, inputs, table)


def _clip(node: Node, inputs: list[Array], table: Table) -> Array:
    def clip(x: Any, *sides: Any) -> Any:
        low = mods.maximum(x, sides[0]) if sides else x
        return mods.minimum(low, sides[1]) if len(sides) > 1 else low

    return _elementwise(clip)(node, inputs, table)


def _extreme(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def reduce(first: Any, *others: Any) -> Any:
        for other in others:
            first = function(first, other)
        return first

    return reduce


def _check_computed(size: int) -> None:
    if size > MAX_COMPUTED:
        raise ValueError(f"expected constants of at most {MAX_COMPUTED:,} numbers, got {size:,}")


def _known(array: Array, what: str) -> npt.NDArray[Any]:
    if array.known is None:
        raise ValueError(f"expected {what} to be constant")
    return array.known


def _shape(node: Node, inputs: list[Array], table: Table) -> Array:
    begin, end = node.attributes.get("start", 0), node.attributes.get("end")
    return _constant_array(np.array(inputs[0].shape[begin:end], np.int64), table)


def _gather(node: Node, inputs: list[Array], table: Table) -> Array:
    """Elements along an axis, picked by the other input; computed at once where both are constant."""
    data, indices = inputs
    if not data.shape:
        raise ValueError("expected a tensor with axes, got one number")
    axis = node.attributes.get("axis", 0) % len(data.shape)
    if data.known is not None and indices.known is not None:
        _check_computed(math.prod(indices.shape) * math.prod(data.shape) // max(1, data.shape[axis]))
        return _constant_array(np.take(data.known, indices.known.astype(np.int64), axis), table)
    count = data.shape[axis]
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])

    def at(index: Sequence[Any]) -> Any:
        inner = index[axis : axis + len(indices.shape)]
        picked = indices.at(inner)
        picked = mods.where(picked < 0, picked + count, picked)
        return data.at([*index[:axis], picked, *index[axis + len(indices.shape) :]])

    return Array(shape, at)


def _range(_: Node, inputs: list[Array], table: Table) -> Array:
    start, limit, delta = (_known(x, "a range").item() for x in inputs)
    if not delta:
        raise ValueError("expected a step other than 0")
    count = max(0, math.ceil((limit - start) / delta))
    return Array((count,), lambda index: start + index[0] * delta)


def _reshape(_: Node, inputs: list[Array], table: Table) -> Array:
    data = inputs[0]
    asked = [int(n) for n in _known(inputs[1], "a shape").ravel()]
    asked = [data.shape[axis] if n == 0 else n for axis, n in enumerate(asked)]
    size, given = math.prod(data.shape), math.prod(n for n in asked if n != -1)
    shape = tuple(size // max(1, given) if n == -1 else n for n in asked)
    if math.prod(shape) != size:
        raise ValueError(
            f"expected a shape with the {size} elements of {list(data.shape)}, got {list(shape)}"
        )
    return _relaid(data, shape)


def _relaid(data: Array, shape: tuple[int, ...]) -> Array:
    """The same elements in the same order under another shape."""
    if [n for n in shape if n != 1] == [n for n in data.shape if n != 1]:

        def moved(index: Sequence[Any]) -> Any:
            wide = iter([i for i, n in zip(index, shape, strict=True) if n != 1])
            return data.at([0 if n == 1 else next(wide) for n in data.shape])

        return Array(shape, moved, None if data.known is None else data.known.reshape(shape))

    def at(index: Sequence[Any]) -> Any:
        flat, own = 0, []
        for i, n in zip(index, shape, strict=True):
            flat = flat * n + i
        for n in reversed(data.shape):
            own.append(flat % n)
            flat = flat // n
        return data.at(own[::-1])

    return Array(shape, at, None if data.known is None else data.known.reshape(shape))


def _axes(node: Node, inputs: list[Array]) -> list[int] | None:
    """The axes of Unsqueeze and Squeeze: an input, in older models an attribute."""
    if len(inputs) > 1:
        return [int(n) for n in _known(inputs[1], "axes").ravel()]
    found: list[int] | None = node.attributes.get("axes")
    return found


def _unsqueeze(node: Node, inputs: list[Array], table: Table) -> Array:
    axes = _axes(node, inputs) or []
    rank = len(inputs[0].shape) + len(axes)
    new = {axis % rank for axis in axes}
    if len(new) < len(axes):
        raise ValueError(f"expected axes that differ, got {axes[:9]}")
    old = iter(inputs[0].shape)
    return _relaid(inputs[0], tuple(1 if axis in new else next(old) for axis in range(rank)))


def _squeeze(node: Node, inputs: list[Array], table: Table) -> Array:
    shape, axes = inputs[0].shape, _axes(node, inputs)
    gone = {a % max(1, len(shape)) for a in axes} if axes else {a for a, n in enumerate(shape) if n == 1}
    if any(shape[a : a + 1] != (1,) for a in gone):
        raise ValueError(f"expected axes of size 1, got {(axes or [])[:9]} of {list(shape)}")
    return _relaid(inputs[0], tuple(n for axis, n in enumerate(shape) if axis not in gone))


def _expand(_: Node, inputs: list[Array], table: Table) -> Array:
    wanted = tuple(int(n) for n in _known(inputs[1], "a shape").ravel())
    return Array(np.broadcast_shapes(inputs[0].shape, wanted), lambda index: _element(inputs[0], index))


def _concat(node: Node, inputs: list[Array], table: Table) -> Array:
    parts = [_known(x, "a shape") for x in inputs]
    _check_computed(sum(part.size for part in parts))
    return _constant_array(np.concatenate(parts, node.attributes.get("axis", 0)), table)


def _constant(node: Node, inputs: list[Array], table: Table) -> Array:
    for name in ("value", "value_float", "value_int", "value_ints"):
        if name in node.attributes:
            return _constant_array(np.asarray(node.attributes[name]), table)
    raise ValueError("expected a tensor, a number or integers")


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Abs": mods.absolute,
    "Add": lambda a, b: a + b,
    "And": lambda a, b: a & b,
    "Div": _divide,
    "Equal": lambda a, b: a == b,
    "Exp": mods.exp,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "Identity": lambda a: a,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Log": mods.log,
    "Max": _extreme(mods.maximum),
    "Min": _extreme(mods.minimum),
    "Mul": lambda a, b: a * b,
    "Neg": lambda a: -a,
    "Not": lambda a: ~a if isinstance(a, Traced) else np.logical_not(a),
    "Or": lambda a, b: a | b,
    "Pow": lambda a, b: a**b,
    "Reciprocal": lambda a: 1.0 / a,
    "Relu": lambda a: mods.maximum(a, 0.0),
    "Sigmoid": lambda a: 1.0 / (1.0 + mods.exp(-a)),
    "Sqrt": mods.sqrt,
    "Sub": lambda a, b: a - b,
    "Tanh": mods.tanh,
    "Where": mods.where,
    "Xor": lambda a, b: a ^ b,
}
OPERATORS: dict[str, Callable[[Node, list[Array], Table], Array]] = {
    **{name: _elementwise(function) for name, function in _ELEMENTWISE.items()},
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Constant": _constant,
    "Expand": _expand,
    "Gather": _gather,
    "Mod": _mod,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}
