"""score_mod and mask_mod traced into WGSL, with derivatives; :mod:`py_attn.mods` says what they may do."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from py_attn.gpu.tensor import Tensor, contiguous_strides
from py_attn.mods import cos, exp, log, sigmoid, sin, where
from py_attn.traced import Traced, as_kind, compare, constant, kind_of

_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_LOGIC = {"and": "&", "or": "|", "xor": "!="}
_BITS = {"and": "&", "or": "|", "xor": "^"}
_SHIFTS = {"shl": "<<", "shr": ">>"}
# Functions that lib/mods.wgsl defines anew, so that NaN stays NaN.
_NAN_KEEPING = (
    *("exp", "exp2", "log", "log2", "sqrt", "pow", "min", "max", "sin", "cos", "tan", "sigmoid", "erf"),
    *("floor", "ceil", "round", "sign"),
)
# Derivatives of functions of one argument, by the argument and the function's value.
_SLOPES: dict[str, Callable[[Traced, Traced], Traced]] = {
    "exp": lambda a, value: value,
    "exp2": lambda a, value: math.log(2.0) * value,
    "log": lambda a, value: 1.0 / a,
    "log2": lambda a, value: (1.0 / math.log(2.0)) / a,
    "sin": lambda a, value: cos(a),
    "cos": lambda a, value: -1.0 * sin(a),
    "tan": lambda a, value: 1.0 + value * value,
    "tanh": lambda a, value: 1.0 - value * value,
    # 1 - value would be 0 from scores of 17 on.
    "sigmoid": lambda a, value: value * sigmoid(-1.0 * a),
    "erf": lambda a, value: (2.0 / math.sqrt(math.pi)) * exp(-1.0 * (a * a)),
    "sqrt": lambda a, value: 0.5 / value,
    "abs": lambda a, value: where(a < 0.0, -1.0, where(a > 0.0, 1.0, 0.0)),
}
_INDICES = ("b", "h", "q_idx", "kv_idx")


class Packed(list[Tensor]):
    """Captured tensors whose elements will lie in order, one tensor behind the other in one buffer."""


@contextmanager
def _bounded(name: str) -> Iterator[None]:
    """Says what is wrong when Python's stack does not suffice for a function or for what it computes."""
    try:
        yield
    except RecursionError:
        raise RecursionError(
            f"{name}: expected a function that ends, and at most a few hundred operations one upon another; "
            "this one calls itself too often, or has a long loop"
        ) from None


@dataclass(frozen=True, slots=True)
class Lookup:
    """A place of ``score_mod`` where it reads an element of a tensor that is differentiated.

    Attributes
    ----------
    tensor : int
        Number of the tensor among those that are differentiated.
    number : int
        In the names ``score_mod_slope_N``, the derivative with respect to what was read, and
        ``score_mod_place_N``, the place of the element that was read, counted in the tensor's order.
    axes : tuple of str or None
        The indices where they are only "b", "h", "q_idx" and "kv_idx", each once; else None.
    """

    tensor: int
    number: int
    axes: tuple[str, ...] | None


@_bounded("score_mod")
def trace_score_mod(
    function: object,
    tensors: list[Tensor],
    *,
    gradient: bool = False,
    differentiated: Sequence[Tensor] = (),
    lookups: list[Lookup] | None = None,
) -> str:
    """WGSL of ``score_mod(score, b, h, q_idx, kv_idx)`` and, with ``gradient``, of its derivative.

    Parameters
    ----------
    function : callable
    tensors : list of Tensor
        The tensors captured so far; those that this function reads are appended.
    gradient : bool
        Also define ``score_mod_slope``, the derivative with respect to the score.
    differentiated : sequence of Tensor
        Tensors of floats; also define the functions that :class:`Lookup` names for each place where the
        function reads one of them.
    lookups : list of Lookup, optional
        These places are appended here.

    Raises
    ------
    TypeError, ValueError
        When the function does something that cannot be traced, saying what to write instead.
    RecursionError
        When it calls itself without end, or Python's stack does not suffice for its expression.
    """
    score = Traced("name", "f32", "score")
    result = as_kind(_run("score_mod", function, score), "f32")
    text = _function("score_mod", "score: f32, ", "f32", result, tensors)
    if gradient:
        text += _function("score_mod_slope", "score: f32, ", "f32", _slope(result, score, {}), tensors)
    found = [] if lookups is None else lookups
    for load in _loads(result, differentiated):
        slope = _slope(result, load, {})
        if _is_constant(slope, 0.0):
            continue
        tensor, *indices = load.args
        which = next(n for n, each in enumerate(differentiated) if each is tensor)
        names = tuple(str(index.args[0]) for index in indices if index.op == "name")
        plain = len(set(names)) == len(indices)
        lookup = Lookup(which, len(found), names if plain else None)
        text += _function(f"score_mod_slope_{lookup.number}", "score: f32, ", "f32", slope, tensors)
        text += _place(f"score_mod_place_{lookup.number}", tensor, indices, tensors)
        found.append(lookup)
    return text


def _loads(result: Traced, differentiated: Sequence[Tensor]) -> list[Traced]:
    """The places where ``result`` reads one of these tensors, each once."""
    found: dict[int, Traced] = {}
    seen: set[int] = set()
    left = [result]
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.op == "load" and any(node.args[0] is tensor for tensor in differentiated):
            found[id(node)] = node
        left += [arg for arg in reversed(node.args) if isinstance(arg, Traced)]
    return list(found.values())


def _place(name: str, tensor: Tensor, indices: Sequence[Traced], tensors: list[Tensor]) -> str:
    """WGSL that tells which element of ``tensor`` these indices read, counted in its order."""
    lines: list[str] = []
    done: dict[int, str] = {}
    strides = contiguous_strides(tensor.shape)
    terms = _terms(indices, tensor.shape, strides, lines, done, tensors)
    return _text(name, "score: f32, ", "u32", lines, " + ".join(terms) or "0u")


@_bounded("prob_mod")
def trace_prob_mod(function: object, tensors: list[Tensor]) -> str:
    """WGSL of ``prob_mod(prob, b, h, q_idx, kv_idx)``, which returns what replaces a probability."""
    result = as_kind(_run("prob_mod", function, Traced("name", "f32", "prob")), "f32")
    return _function("prob_mod", "prob: f32, ", "f32", result, tensors)


@_bounded("mask_mod")
def trace_mask_mod(function: object, tensors: list[Tensor]) -> str:
    """WGSL of ``mask_mod(b, h, q_idx, kv_idx)``, true where the query may attend."""
    result = _run("mask_mod", function)
    if kind_of(result) != "bool":
        raise TypeError(f"mask_mod: expected a condition (True = may attend), got {result!r}")
    return _function("mask_mod", "", "bool", as_kind(result, "bool"), tensors)


def _run(name: str, function: object, *first: Traced) -> Any:
    if not callable(function):
        raise TypeError(f"{name}: expected a function, got {function!r}")
    arguments = (*first, *(Traced("name", "i32", index) for index in _INDICES))
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        expected = ", ".join([*(value.args[0] for value in first), *_INDICES])
        raise TypeError(f"{name}: expected a function of ({expected}): {error}") from None
    try:
        result = function(*arguments)
    except IndexError as error:
        raise TypeError(
            f"{name}: {str(error).removeprefix('score_mod: ')}; "
            "if this is a numpy array indexed by a traced value, upload it first: "
            "table = device.tensor(array)"
        ) from None
    if result is None:
        raise TypeError(f"{name}: the function returned nothing")
    return result


def _function(name: str, first: str, kind: str, result: Traced, tensors: list[Tensor]) -> str:
    lines: list[str] = []
    text = _emit(result, lines, {}, tensors)
    return _text(name, first, kind, lines, text)


def _text(name: str, first: str, kind: str, lines: list[str], result: str) -> str:
    indices = ", ".join(f"{index}: i32" for index in _INDICES)
    body = "\n".join(f"  {line}" for line in [*lines, f"return {result};"])
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
        # WGSL has no literal for infinity and rejects constant expressions that overflow.
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
    if op in _SHIFTS:
        return f"{args[0]} {_SHIFTS[op]} u32({args[1]} & 31)"
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
    if kind == "f32" and op in _NAN_KEEPING:
        return f"{op}_f32({', '.join(args)})"
    return f"{op}({', '.join(args)})"


def _emit_load(node: Traced, lines: list[str], done: dict[int, str], tensors: list[Tensor]) -> str:
    tensor = node.args[0]
    number = next((n for n, known in enumerate(tensors) if known is tensor), len(tensors))
    if number == len(tensors):
        tensors.append(tensor)
    strides = contiguous_strides(tensor.shape) if isinstance(tensors, Packed) else tensor.strides
    terms = _terms(node.args[1:], tensor.shape, strides, lines, done, tensors)
    return f"captured_{number}_at({' + '.join([f'captured_{number}_first()', *terms])})"


def _terms(
    indices: Sequence[Traced],
    shape: Sequence[int],
    strides: Sequence[int],
    lines: list[str],
    done: dict[int, str],
    tensors: list[Tensor],
) -> list[str]:
    """What an element's place is the sum of; an index out of bounds means the nearest element."""
    return [
        f"u32(clamp({_emit(index, lines, done, tensors)}, 0, {length - 1})) * {stride}u"
        for index, length, stride in zip(indices, shape, strides, strict=True)
    ]


def _slope(node: Traced, score: Traced, done: dict[int, Traced]) -> Traced:
    """The derivative of ``node`` with respect to the score, or to any other node."""
    if id(node) not in done:
        done[id(node)] = _derive(node, score, done)
    return done[id(node)]


def _derive(node: Traced, score: Traced, done: dict[int, Traced]) -> Traced:
    zero, one = constant(0.0, "f32"), constant(1.0, "f32")
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
        return _plus(da, _times(db, constant(-1.0, "f32")))
    if op == "mul":
        return _plus(_times(da, b), _times(a, db))
    if op == "div":
        return _plus(_times(da, one / b), _times(db, -1.0 * node / b))
    if op in _SLOPES:
        return _times(da, _SLOPES[op](a, node))
    if op in ("min", "max"):
        # Where the two are equal each gets half the gradient, as in PyTorch.
        first = compare("lt" if op == "min" else "gt", a, b)
        return _select(
            first, da, _select(compare("eq", a, b), _times(_plus(da, db), constant(0.5, "f32")), db)
        )
    if op == "pow":
        from_base = _times(da, b * Traced("pow", "f32", a, b - 1.0))
        return from_base if _is_constant(db, 0.0) else _plus(from_base, _times(db, node * log(a)))
    if op == "mod":
        return _plus(da, _times(db, -1.0 * Traced("floordiv", "f32", a, b)))
    return zero  # of floordiv, floor, ceil, round and sign


def _is_constant(node: Traced, value: float) -> bool:
    return node.op == "constant" and node.args[0] == value


def _plus(a: Traced, b: Traced) -> Traced:
    return b if _is_constant(a, 0.0) else a if _is_constant(b, 0.0) else a + b


def _times(a: Traced, b: Traced) -> Traced:
    if _is_constant(a, 0.0) or _is_constant(b, 0.0):
        return constant(0.0, "f32")
    return b if _is_constant(a, 1.0) else a if _is_constant(b, 1.0) else a * b


def _select(condition: Traced, a: Traced, b: Traced) -> Traced:
    if a is b or (_is_constant(a, 0.0) and _is_constant(b, 0.0)):
        return a
    return Traced("where", "f32", condition, a, b)
