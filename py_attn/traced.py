"""Values of a score_mod or mask_mod that are recorded, not computed; see :mod:`py_attn.mods`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from py_attn.gpu.tensor import Tensor

_LARGEST = float(np.finfo(np.float32).max)
_KNOWN = (
    "pa.where, exp, exp2, log, log2, sin, cos, tan, tanh, sigmoid, erf, sqrt, square, abs, sign, floor, "
    "ceil, round, clip, minimum, maximum, arithmetic and comparisons"
)
#: What numpy's functions do with traced values; :mod:`py_attn.mods` fills both.
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
UFUNCS: dict[str, Callable[..., Traced]] = {}


class Traced:
    """A value that is not known until the kernel runs: recorded, not computed.

    ``kind`` is "f32", "i32" or "bool"; the value is the result of the operation ``op`` on ``args``.
    """

    __slots__ = ("args", "kind", "op")

    def __init__(self, op: str, kind: str, *args: Any) -> None:
        self.op = op
        self.kind = kind
        self.args = args

    def __repr__(self) -> str:
        return f"<traced {self.kind}>"

    def gather_from(self, tensor: Tensor, index: tuple[Any, ...]) -> Traced | Row:
        """``tensor[index]`` where one of the indices is this value; see :func:`gather`."""
        return gather(tensor, index)

    def __add__(self, other: Any) -> Traced:
        return arithmetic("add", self, other)

    def __radd__(self, other: Any) -> Traced:
        return arithmetic("add", other, self)

    def __sub__(self, other: Any) -> Traced:
        return arithmetic("sub", self, other)

    def __rsub__(self, other: Any) -> Traced:
        return arithmetic("sub", other, self)

    def __mul__(self, other: Any) -> Traced:
        return arithmetic("mul", self, other)

    def __rmul__(self, other: Any) -> Traced:
        return arithmetic("mul", other, self)

    def __truediv__(self, other: Any) -> Traced:
        return Traced("div", "f32", as_kind(self, "f32"), as_kind(other, "f32"))

    def __rtruediv__(self, other: Any) -> Traced:
        return Traced("div", "f32", as_kind(other, "f32"), as_kind(self, "f32"))

    def __floordiv__(self, other: Any) -> Traced:
        return arithmetic("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Traced:
        return arithmetic("floordiv", other, self)

    def __mod__(self, other: Any) -> Traced:
        return arithmetic("mod", self, other)

    def __rmod__(self, other: Any) -> Traced:
        return arithmetic("mod", other, self)

    def __pow__(self, other: Any) -> Traced:
        return power(self, other)

    def __rpow__(self, other: Any) -> Traced:
        return power(other, self)

    def __neg__(self) -> Traced:
        return arithmetic("sub", 0, self)

    def __pos__(self) -> Traced:
        return self

    def __abs__(self) -> Traced:
        return Traced("abs", *number(self))

    def __round__(self, digits: int | None = None) -> Traced:
        if digits:
            raise TypeError(
                "score_mod: a traced value is rounded to integers; write pa.round(x * 10.0) / 10.0"
            )
        return Traced("round", "f32", as_kind(self, "f32"))

    def __floor__(self) -> Traced:
        return Traced("floor", "f32", as_kind(self, "f32"))

    def __ceil__(self) -> Traced:
        return Traced("ceil", "f32", as_kind(self, "f32"))

    def __getitem__(self, index: Any) -> NoReturn:
        raise TypeError("score_mod: a traced value is one number and cannot be indexed")

    def __lt__(self, other: Any) -> Traced:
        return compare("lt", self, other)

    def __le__(self, other: Any) -> Traced:
        return compare("le", self, other)

    def __gt__(self, other: Any) -> Traced:
        return compare("gt", self, other)

    def __ge__(self, other: Any) -> Traced:
        return compare("ge", self, other)

    def __eq__(self, other: Any) -> Traced:  # type: ignore[override]
        return compare("eq", self, other)

    def __ne__(self, other: Any) -> Traced:  # type: ignore[override]
        return compare("ne", self, other)

    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **_: Any) -> Traced:
        # numpy's functions and numbers, combined with a traced value, mean the same as ours.
        if method != "__call__" or ufunc.__name__ not in UFUNCS:
            raise TypeError(f"score_mod: numpy's {ufunc.__name__} cannot be traced; use {_KNOWN}")
        return UFUNCS[ufunc.__name__](*inputs)

    def __array_function__(
        self, function: Any, _: Any, inputs: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        # numpy's functions that are not ufuncs.
        if function not in FUNCTIONS:
            raise TypeError(f"score_mod: numpy's {function.__name__} cannot be traced; use {_KNOWN}")
        return FUNCTIONS[function](*inputs, **named)

    def __and__(self, other: Any) -> Traced:
        return logic("and", self, other)

    def __rand__(self, other: Any) -> Traced:
        return logic("and", other, self)

    def __or__(self, other: Any) -> Traced:
        return logic("or", self, other)

    def __ror__(self, other: Any) -> Traced:
        return logic("or", other, self)

    def __xor__(self, other: Any) -> Traced:
        return logic("xor", self, other)

    def __rxor__(self, other: Any) -> Traced:
        return logic("xor", other, self)

    def __lshift__(self, other: Any) -> Traced:
        return shift("shl", self, other)

    def __rlshift__(self, other: Any) -> Traced:
        return shift("shl", other, self)

    def __rshift__(self, other: Any) -> Traced:
        return shift("shr", self, other)

    def __rrshift__(self, other: Any) -> Traced:
        return shift("shr", other, self)

    def __invert__(self) -> Traced:
        if self.kind == "f32":
            raise TypeError("score_mod: ~ takes a comparison or an integer, got a float")
        return Traced("not", self.kind, self)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "score_mod: a traced value is neither true nor false yet, so `if`, `and`, `or`, `not` and "
            "chained comparisons cannot use it; write pa.where(condition, a, b), and & | ~ between conditions"
        )

    def __float__(self) -> NoReturn:
        raise TypeError(
            "score_mod: a traced value is not a number yet; instead of the math module's functions use "
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


class Row:
    """``tensor[b]`` of a tensor with more dimensions: the look-up goes on with ``[q_idx]``."""

    def __init__(self, tensor: Any, index: tuple[Any, ...]) -> None:
        self.tensor = tensor
        self.index = index

    def __getitem__(self, index: Any) -> Any:
        return self.tensor[(*self.index, *(index if isinstance(index, tuple) else (index,)))]

    def __iter__(self) -> NoReturn:
        raise TypeError(f"score_mod: {self.words()}")

    def __getattr__(self, name: str) -> NoReturn:
        # Python itself asks for names with underscores, and numpy for its protocols.
        if name.startswith("_"):
            raise AttributeError(name)
        raise TypeError(f"score_mod: {self.words()}")

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"score_mod: {self.words()}")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __neg__ = __pos__ = __abs__ = __invert__ = __bool__ = _refuse
    __array_ufunc__ = __array_function__ = _refuse
    __hash__ = object.__hash__

    def words(self) -> str:
        """What is missing, for an error."""
        return (
            f"a tensor of shape {list(self.tensor.shape)} takes {self.tensor.ndim} indices, "
            f"got {len(self.index)}; a score is one number, so name the element, as in tensor[b, q_idx], and "
            "reduce rows before the call"
        )


def gather(tensor: Tensor, index: tuple[Any, ...]) -> Traced | Row:
    """``tensor[index]`` with traced integers; an index out of bounds reads the nearest element.

    With fewer indices than dimensions a :class:`Row`, which takes the others: ``tensor[b][q_idx]``.

    Raises
    ------
    TypeError, IndexError
        When an index is no integer, or there are more of them than dimensions.
    """
    if len(index) > tensor.ndim:
        raise IndexError(
            f"score_mod: a tensor of shape {list(tensor.shape)} takes {tensor.ndim} indices, got {len(index)}"
        )
    if tensor.size == 0:
        raise IndexError(f"score_mod: a tensor of shape {list(tensor.shape)} has no elements to look up")
    indices = tuple(as_kind(i, "i32", exact=True) for i in index)
    if len(indices) < tensor.ndim:
        return Row(tensor, indices)
    return Traced("load", _kind_of_elements(tensor), tensor, *indices)


def _kind_of_elements(tensor: Tensor) -> str:
    return "f32" if tensor.kind.floating else "bool" if tensor.dtype == "bool" else "i32"


def any_traced(*values: Any) -> bool:
    return any(isinstance(value, Traced) for value in values)


def kind_of(value: Any) -> str:
    """The kind of a number or traced value: "bool", "i32" or "f32"."""
    if isinstance(value, Traced):
        return value.kind
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (int, np.integer)):
        return "i32"
    if isinstance(value, (float, np.floating)):
        return "f32"
    if isinstance(value, Row):
        raise TypeError(f"score_mod: {value.words()}")
    if isinstance(value, Tensor):
        if not value.ndim:
            return _kind_of_elements(value)
        raise TypeError(
            "score_mod: a whole tensor cannot be one score's value; index it: tensor[h], tensor[q_idx]"
        )
    if isinstance(value, np.ndarray):
        raise TypeError(
            "score_mod: a numpy array cannot be traced; upload it: device.tensor(array), and index that"
        )
    raise TypeError(f"score_mod: expected a number or a traced value, got {value!r}")


def as_kind(value: Any, kind: str, *, exact: bool = False) -> Traced:
    """``value`` as a traced value of ``kind``, converted where that loses nothing and ``exact`` is false."""
    have = kind_of(value)
    if isinstance(value, Tensor):
        value = Traced("load", have, value)  # of no dimensions, or kind_of had refused it
    traced = value if isinstance(value, Traced) else constant(value, have)
    if have == kind:
        return traced
    if exact or kind == "bool" or (kind == "i32" and have == "f32"):
        wanted = {"bool": "a condition", "i32": "an integer", "f32": "a number"}[kind]
        raise TypeError(f"score_mod: expected {wanted}, got {'a float' if have == 'f32' else have}")
    if traced.op == "constant":
        return constant(float(value) if kind == "f32" else int(value), kind)
    return Traced("convert", kind, traced)


def constant(value: Any, kind: str) -> Traced:
    """A number of ``kind`` as a traced value."""
    if kind == "f32" and math.isnan(value):
        raise ValueError("score_mod: expected numbers, got the constant NaN")
    if kind == "f32" and math.isfinite(value) and abs(value) > _LARGEST:
        raise ValueError(f"score_mod: float32 cannot hold {value:g}; use numpy.inf or -numpy.inf instead")
    if kind == "i32" and not -(2**31) < value < 2**31:
        raise ValueError(f"score_mod: expected integers of at most 32 bits, got {value}")
    return Traced("constant", kind, float(value) if kind == "f32" else value)


def common_kind(op: str, *values: Any) -> str:
    kinds = {kind_of(value) for value in values}
    if kinds == {"bool"}:
        return "bool" if op == "where" else "i32"
    return "f32" if "f32" in kinds else "i32"


def number(value: Traced) -> tuple[str, Traced]:
    kind = common_kind("number", value)
    return kind, as_kind(value, kind)


def arithmetic(op: str, a: Any, b: Any) -> Traced:
    kind = common_kind(op, a, b)
    return Traced(op, kind, as_kind(a, kind), as_kind(b, kind))


def power(base: Any, exponent: Any) -> Traced:
    if isinstance(exponent, int) and not isinstance(exponent, bool) and 0 <= exponent <= 8:
        kind, result = common_kind("pow", base), None
        for _ in range(exponent):
            result = as_kind(base, kind) if result is None else result * base
        return constant(1, kind) if result is None else result
    return Traced("pow", "f32", as_kind(base, "f32"), as_kind(exponent, "f32"))


def compare(op: str, a: Any, b: Any) -> Traced:
    """A comparison by its name in WGSL's order: "lt", "le", "gt", "ge", "eq", "ne"."""
    kind = common_kind(op, a, b)
    return Traced(op, "bool", as_kind(a, kind), as_kind(b, kind))


def logic(op: str, a: Any, b: Any) -> Traced:
    if {kind_of(a), kind_of(b)} == {"bool"}:
        return Traced(op, "bool", as_kind(a, "bool"), as_kind(b, "bool"))
    return Traced(op, "i32", as_kind(a, "i32"), as_kind(b, "i32"))


def shift(op: str, a: Any, b: Any) -> Traced:
    """``a << b`` ("shl") or ``a >> b`` ("shr") of 32-bit integers; of ``b`` the lowest five bits count."""
    a, b = as_kind(a, "i32"), as_kind(b, "i32")
    if b.op == "constant" and not 0 <= b.args[0] < 32:
        raise ValueError(f"score_mod: expected a shift by 0 to 31 bits, got {b.args[0]}")
    return Traced(op, "i32", a, b)
