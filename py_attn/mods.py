"""score_mod and mask_mod: Python functions of a score's place, traced once into WGSL.

The idea is FlexAttention's (Dong et al., arXiv 2412.05496): attention's variants differ in a line of
arithmetic on the score. A function such as ::

    def alibi(score, b, h, q_idx, kv_idx):
        return score - slopes[h] * pa.abs(q_idx - kv_idx)

is called once with :class:`Traced` stand-ins; what it does to them is recorded and becomes a WGSL
function inside every kernel. The functions of this module take traced values, numbers and numpy arrays
alike, so the same Python also runs in the float64 reference.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from py_attn.gpu.tensor import Tensor

_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_LOGIC = {"and": "&", "or": "|", "xor": "!="}
_BITS = {"and": "&", "or": "|", "xor": "^"}


class Traced:
    """A value that is not known until the kernel runs: recorded, not computed.

    ``kind`` is "f32", "i32" or "bool", ``op`` how it comes out of ``args``.
    """

    __slots__ = ("args", "kind", "op")

    def __init__(self, op: str, kind: str, *args: Any) -> None:
        self.op = op
        self.kind = kind
        self.args = args

    def __repr__(self) -> str:
        return f"<traced {self.kind}>"

    def gather_from(self, tensor: Tensor, index: tuple[Any, ...]) -> Traced:
        """``tensor[index]`` where one of the indices is this value; see :func:`gather`."""
        return gather(tensor, index)

    def __add__(self, other: Any) -> Traced:
        return _arithmetic("add", self, other)

    def __radd__(self, other: Any) -> Traced:
        return _arithmetic("add", other, self)

    def __sub__(self, other: Any) -> Traced:
        return _arithmetic("sub", self, other)

    def __rsub__(self, other: Any) -> Traced:
        return _arithmetic("sub", other, self)

    def __mul__(self, other: Any) -> Traced:
        return _arithmetic("mul", self, other)

    def __rmul__(self, other: Any) -> Traced:
        return _arithmetic("mul", other, self)

    def __truediv__(self, other: Any) -> Traced:
        return Traced("div", "f32", _as(self, "f32"), _as(other, "f32"))

    def __rtruediv__(self, other: Any) -> Traced:
        return Traced("div", "f32", _as(other, "f32"), _as(self, "f32"))

    def __floordiv__(self, other: Any) -> Traced:
        return _arithmetic("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Traced:
        return _arithmetic("floordiv", other, self)

    def __mod__(self, other: Any) -> Traced:
        return _arithmetic("mod", self, other)

    def __rmod__(self, other: Any) -> Traced:
        return _arithmetic("mod", other, self)

    def __pow__(self, other: Any) -> Traced:
        return _power(self, other)

    def __rpow__(self, other: Any) -> Traced:
        return _power(other, self)

    def __neg__(self) -> Traced:
        return _arithmetic("sub", 0, self)

    def __pos__(self) -> Traced:
        return self

    def __abs__(self) -> Traced:
        return Traced("abs", *_number(self))

    def __lt__(self, other: Any) -> Traced:
        return _compare("lt", self, other)

    def __le__(self, other: Any) -> Traced:
        return _compare("le", self, other)

    def __gt__(self, other: Any) -> Traced:
        return _compare("gt", self, other)

    def __ge__(self, other: Any) -> Traced:
        return _compare("ge", self, other)

    def __eq__(self, other: Any) -> Traced:  # type: ignore[override]
        return _compare("eq", self, other)

    def __ne__(self, other: Any) -> Traced:  # type: ignore[override]
        return _compare("ne", self, other)

    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **_: Any) -> Traced:
        # Where numpy's functions and numbers meet a traced value they mean the same as ours.
        if method != "__call__" or ufunc.__name__ not in _UFUNCS:
            raise TypeError(f"score_mod: numpy's {ufunc.__name__} cannot be traced; there are {_KNOWN}")
        return _UFUNCS[ufunc.__name__](*inputs)

    def __and__(self, other: Any) -> Traced:
        return _logic("and", self, other)

    def __rand__(self, other: Any) -> Traced:
        return _logic("and", other, self)

    def __or__(self, other: Any) -> Traced:
        return _logic("or", self, other)

    def __ror__(self, other: Any) -> Traced:
        return _logic("or", other, self)

    def __xor__(self, other: Any) -> Traced:
        return _logic("xor", self, other)

    def __rxor__(self, other: Any) -> Traced:
        return _logic("xor", other, self)

    def __invert__(self) -> Traced:
        if self.kind == "f32":
            raise TypeError("score_mod: ~ takes a comparison or an integer, got a float")
        return Traced("not", self.kind, self)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "score_mod: a traced value has no truth yet, so `if`, `and`, `or`, `not` and chained comparisons "
            "cannot use it; write pa.where(condition, a, b), and & | ~ between conditions"
        )

    def __float__(self) -> NoReturn:
        raise TypeError(
            "score_mod: a traced value is no number yet; instead of the math module's functions there are "
            f"{_KNOWN}"
        )

    __int__ = __float__

    def __index__(self) -> NoReturn:
        raise TypeError(
            "score_mod: a traced value cannot index a list or a numpy array; "
            "upload it first: table = device.tensor(array)"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError("score_mod: a traced value is one number and cannot be looped over")


def where(condition: Any, a: Any, b: Any) -> Any:
    """``a`` where ``condition`` holds, else ``b``; for traced values, numbers and arrays."""
    if not _any_traced(condition, a, b):
        return np.where(condition, a, b)
    chosen = _as(condition, "bool")
    kind = _common_kind("where", a, b)
    return Traced("where", kind, chosen, _as(a, kind), _as(b, kind))


def exp(x: Any) -> Any:
    """E to the power of ``x``."""
    return _call("exp", np.exp, x)


def log(x: Any) -> Any:
    """Natural logarithm."""
    return _call("log", np.log, x)


def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return _call("tanh", np.tanh, x)


def sqrt(x: Any) -> Any:
    """Square root."""
    return _call("sqrt", np.sqrt, x)


def absolute(x: Any) -> Any:
    """Absolute value."""
    return abs(x) if isinstance(x, Traced) else np.abs(x)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two."""
    return _arithmetic("min", a, b) if _any_traced(a, b) else np.minimum(a, b)


def maximum(a: Any, b: Any) -> Any:
    """The larger of two."""
    return _arithmetic("max", a, b) if _any_traced(a, b) else np.maximum(a, b)


def gather(tensor: Tensor, index: tuple[Any, ...]) -> Traced:
    """``tensor[index]`` with traced integers; indices past an edge take the edge's element.

    Raises
    ------
    TypeError, IndexError
        When an index is no integer, or there are more or fewer of them than dimensions.
    """
    if len(index) != tensor.ndim:
        raise IndexError(
            f"score_mod: a tensor of shape {list(tensor.shape)} takes {tensor.ndim} indices, got {len(index)}"
        )
    if tensor.size == 0:
        raise IndexError(f"score_mod: a tensor of shape {list(tensor.shape)} has no elements to look up")
    kind = "f32" if tensor.kind.floating else "bool" if tensor.dtype == "bool" else "i32"
    return Traced("load", kind, tensor, *(_as(i, "i32", exact=True) for i in index))


def _any_traced(*values: Any) -> bool:
    return any(isinstance(value, Traced) for value in values)


def _kind(value: Any) -> str:
    if isinstance(value, Traced):
        return value.kind
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (int, np.integer)):
        return "i32"
    if isinstance(value, (float, np.floating)):
        return "f32"
    if isinstance(value, Tensor):
        raise TypeError(
            "score_mod: a whole tensor cannot be one score's value; index it: tensor[h], tensor[q_idx]"
        )
    if isinstance(value, np.ndarray):
        raise TypeError(
            "score_mod: a numpy array cannot be traced; upload it: device.tensor(array), and index that"
        )
    raise TypeError(f"score_mod: expected a number or a traced value, got {value!r}")


def _as(value: Any, kind: str, *, exact: bool = False) -> Traced:
    """``value`` as a traced value of ``kind``, converted where that is meant."""
    have = _kind(value)
    traced = value if isinstance(value, Traced) else _constant(value, have)
    if have == kind:
        return traced
    if exact or kind == "bool" or (kind == "i32" and have == "f32"):
        wanted = {"bool": "a condition", "i32": "an integer", "f32": "a number"}[kind]
        raise TypeError(f"score_mod: expected {wanted}, got {'a float' if have == 'f32' else have}")
    if traced.op == "constant":
        return _constant(float(value) if kind == "f32" else int(value), kind)
    return Traced("convert", kind, traced)


def _constant(value: Any, kind: str) -> Traced:
    if kind == "f32" and math.isnan(value):
        raise ValueError("score_mod: NaN is no score")
    if kind == "i32" and not -(2**31) < value < 2**31:
        raise ValueError(f"score_mod: integers are 32 bits wide, got {value}")
    return Traced("constant", kind, float(value) if kind == "f32" else value)


def _common_kind(op: str, *values: Any) -> str:
    kinds = {_kind(value) for value in values}
    if kinds == {"bool"}:
        return "bool" if op == "where" else "i32"
    return "f32" if "f32" in kinds else "i32"


def _number(value: Traced) -> tuple[str, Traced]:
    kind = _common_kind("number", value)
    return kind, _as(value, kind)


def _arithmetic(op: str, a: Any, b: Any) -> Traced:
    kind = _common_kind(op, a, b)
    return Traced(op, kind, _as(a, kind), _as(b, kind))


def _power(base: Any, exponent: Any) -> Traced:
    if isinstance(exponent, int) and not isinstance(exponent, bool) and 0 <= exponent <= 8:
        kind, result = _common_kind("pow", base), None
        for _ in range(exponent):
            result = _as(base, kind) if result is None else result * base
        return _constant(1, kind) if result is None else result
    return Traced("pow", "f32", _as(base, "f32"), _as(exponent, "f32"))


def _compare(op: str, a: Any, b: Any) -> Traced:
    kind = _common_kind(op, a, b)
    return Traced(op, "bool", _as(a, kind), _as(b, kind))


def _logic(op: str, a: Any, b: Any) -> Traced:
    if {_kind(a), _kind(b)} == {"bool"}:
        return Traced(op, "bool", _as(a, "bool"), _as(b, "bool"))
    return Traced(op, "i32", _as(a, "i32"), _as(b, "i32"))


def _call(name: str, function: Callable[[Any], Any], x: Any) -> Any:
    return Traced(name, "f32", _as(x, "f32")) if isinstance(x, Traced) else function(x)


_KNOWN = "pa.where, exp, log, tanh, sqrt, abs, minimum, maximum, arithmetic and comparisons"
_UFUNCS: dict[str, Callable[..., Traced]] = {
    "exp": exp,
    "log": log,
    "tanh": tanh,
    "sqrt": sqrt,
    "absolute": absolute,
    "negative": lambda x: _arithmetic("sub", 0, x),
    "divide": lambda a, b: Traced("div", "f32", _as(a, "f32"), _as(b, "f32")),
    "power": lambda a, b: _power(a, b),
    **{
        ours: functools.partial(_arithmetic, name)
        for ours, name in (
            ("add", "add"),
            ("subtract", "sub"),
            ("multiply", "mul"),
            ("floor_divide", "floordiv"),
            ("remainder", "mod"),
            ("minimum", "min"),
            ("maximum", "max"),
        )
    },
    **{
        ours: functools.partial(_compare, name)
        for ours, name in (
            ("less", "lt"),
            ("less_equal", "le"),
            ("greater", "gt"),
            ("greater_equal", "ge"),
            ("equal", "eq"),
            ("not_equal", "ne"),
        )
    },
    "bitwise_and": lambda a, b: _logic("and", a, b),
    "bitwise_or": lambda a, b: _logic("or", a, b),
    "bitwise_xor": lambda a, b: _logic("xor", a, b),
    "logical_and": lambda a, b: _logic("and", a, b),
    "logical_or": lambda a, b: _logic("or", a, b),
}


# Tracing and WGSL


_INDICES = ("b", "h", "q_idx", "kv_idx")


def trace_score_mod(function: object, tensors: list[Tensor], *, gradient: bool = False) -> str:
    """WGSL of ``score_mod(score, b, h, q_idx, kv_idx)``, and of its derivative where asked for.

    Parameters
    ----------
    function : callable
    tensors : list of Tensor
        The tensors captured so far; those this function looks things up in are appended.
    gradient : bool
        Also define ``score_mod_slope``, the derivative with respect to the score.

    Raises
    ------
    TypeError, ValueError
        When the function does something that cannot be traced, saying what to write instead.
    """
    score = Traced("name", "f32", "score")
    result = _as(_run("score_mod", function, score), "f32")
    text = _function("score_mod", "score: f32, ", "f32", result, tensors)
    if gradient:
        text += _function("score_mod_slope", "score: f32, ", "f32", _slope(result, score, {}), tensors)
    return text


def trace_mask_mod(function: object, tensors: list[Tensor]) -> str:
    """WGSL of ``mask_mod(b, h, q_idx, kv_idx)``, true where the query may attend."""
    result = _run("mask_mod", function)
    if _kind(result) != "bool":
        raise TypeError(f"mask_mod: expected a condition (True = may attend), got {result!r}")
    return _function("mask_mod", "", "bool", _as(result, "bool"), tensors)


def _run(name: str, function: object, *first: Traced) -> Any:
    if not callable(function):
        raise TypeError(f"{name}: expected a function, got {function!r}")
    arguments = (*first, *(Traced("name", "i32", index) for index in _INDICES))
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        form = ", ".join([*(["score"] if first else []), *_INDICES])
        raise TypeError(f"{name}: expected a function of ({form}): {error}") from None
    try:
        result = function(*arguments)
    except IndexError as error:
        raise TypeError(
            f"{name}: {error}; if this is a numpy array looked up by a traced value, upload it first: "
            "table = device.tensor(array)"
        ) from None
    if result is None:
        raise TypeError(f"{name}: the function returned nothing")
    return result


def _function(name: str, first: str, kind: str, result: Traced, tensors: list[Tensor]) -> str:
    lines: list[str] = []
    text = _emit(result, lines, {}, tensors)
    indices = ", ".join(f"{index}: i32" for index in _INDICES)
    body = "\n".join(f"  {line}" for line in [*lines, f"return {text};"])
    return f"fn {name}({first}{indices}) -> {kind} {{\n{body}\n}}\n"


def _emit(node: Traced, lines: list[str], done: dict[int, str], tensors: list[Tensor]) -> str:
    """The WGSL expression of ``node``; shared parts become ``let``s."""
    if node.op == "name":
        return str(node.args[0])
    if node.op == "constant":
        return _literal(node)
    if id(node) in done:
        return done[id(node)]
    if node.op == "load":
        text = _emit_load(node, lines, done, tensors)
    else:
        text = _expression(node, [_emit(arg, lines, done, tensors) for arg in node.args])
    name = f"t{len(lines)}"
    lines.append(f"let {name}: {node.kind} = {text};")
    done[id(node)] = name
    return name


def _literal(node: Traced) -> str:
    value = node.args[0]
    if node.kind == "bool":
        return "true" if value else "false"
    if node.kind == "i32":
        return f"i32({value})"
    if math.isinf(value):
        # WGSL has no literal for infinity and refuses to compute one ahead.
        return "params.empty_lse" if value < 0 else "(-params.empty_lse)"
    return f"f32({float(np.float32(value))!r})"


def _expression(node: Traced, args: list[str]) -> str:
    op, kind = node.op, node.args[0].kind
    if op in _OPERATORS:
        return f"{args[0]} {_OPERATORS[op]} {args[1]}"
    if op in _COMPARISONS:
        return f"{args[0]} {_COMPARISONS[op]} {args[1]}"
    if op in _LOGIC:
        return f"{args[0]} {(_LOGIC if kind == 'bool' else _BITS)[op]} {args[1]}"
    if op == "not":
        return f"{'!' if kind == 'bool' else '~'}{args[0]}"
    if op == "where":
        return f"select({args[2]}, {args[1]}, {args[0]})"
    if op == "convert":
        return f"{node.kind}({args[0]})"
    if op in ("floordiv", "mod"):
        return f"{op}_{node.kind}({args[0]}, {args[1]})"
    if op == "tanh":
        return f"accurate_tanh({args[0]})"
    return f"{op}({', '.join(args)})"


def _emit_load(node: Traced, lines: list[str], done: dict[int, str], tensors: list[Tensor]) -> str:
    tensor = node.args[0]
    number = next((n for n, known in enumerate(tensors) if known is tensor), len(tensors))
    if number == len(tensors):
        tensors.append(tensor)
    terms = [f"captured_{number}_first()"]
    for index, length, stride in zip(node.args[1:], tensor.shape, tensor.strides, strict=True):
        at = _emit(index, lines, done, tensors)
        terms.append(f"u32(clamp({at}, 0, {length - 1})) * {stride}u")
    return f"captured_{number}_at({' + '.join(terms)})"


def _slope(node: Traced, score: Traced, done: dict[int, Traced]) -> Traced:
    """The derivative of ``node`` with respect to the score."""
    if id(node) not in done:
        done[id(node)] = _derive(node, score, done)
    return done[id(node)]


def _derive(node: Traced, score: Traced, done: dict[int, Traced]) -> Traced:
    zero, one = _constant(0.0, "f32"), _constant(1.0, "f32")
    if node is score:
        return one
    if node.kind != "f32" or node.op in ("constant", "name", "load", "convert"):
        return zero
    op, args = node.op, node.args
    if op == "where":
        return _select(args[0], _slope(args[1], score, done), _slope(args[2], score, done))
    slopes = [_slope(arg, score, done) for arg in args]
    if all(_is_constant(slope, 0.0) for slope in slopes):
        return zero
    a, da = args[0], slopes[0]
    b, db = (args[1], slopes[1]) if len(args) > 1 else (zero, zero)
    if op == "add":
        return _plus(da, db)
    if op == "sub":
        return _plus(da, _times(db, _constant(-1.0, "f32")))
    if op == "mul":
        return _plus(_times(da, b), _times(a, db))
    if op == "div":
        return _plus(_times(da, one / b), _times(db, -1.0 * node / b))
    if op == "exp":
        return _times(da, node)
    if op == "log":
        return _times(da, one / a)
    if op == "tanh":
        return _times(da, 1.0 - node * node)
    if op == "sqrt":
        return _times(da, 0.5 / node)
    if op == "abs":
        return _times(da, where(a < 0.0, -1.0, where(a > 0.0, 1.0, 0.0)))
    if op in ("min", "max"):
        # Where the two are equal half goes to each, as in PyTorch.
        first = _compare("lt" if op == "min" else "gt", a, b)
        return _select(
            first, da, _select(_compare("eq", a, b), _times(_plus(da, db), _constant(0.5, "f32")), db)
        )
    if op == "pow":
        from_base = _times(da, b * Traced("pow", "f32", a, b - 1.0))
        return from_base if _is_constant(db, 0.0) else _plus(from_base, _times(db, node * log(a)))
    if op == "mod":
        return _plus(da, _times(db, -1.0 * Traced("floordiv", "f32", a, b)))
    return zero  # floordiv is flat


def _is_constant(node: Traced, value: float) -> bool:
    return node.op == "constant" and node.args[0] == value


def _plus(a: Traced, b: Traced) -> Traced:
    return b if _is_constant(a, 0.0) else a if _is_constant(b, 0.0) else a + b


def _times(a: Traced, b: Traced) -> Traced:
    if _is_constant(a, 0.0) or _is_constant(b, 0.0):
        return _constant(0.0, "f32")
    return b if _is_constant(a, 1.0) else a if _is_constant(b, 1.0) else a * b


def _select(condition: Traced, a: Traced, b: Traced) -> Traced:
    return a if a is b else Traced("where", "f32", condition, a, b)
