"""score_mod and mask_mod: Python functions of one score and its indices, traced once into WGSL.

The idea is FlexAttention's (Dong et al., arXiv 2412.05496): many variants of attention differ in one line of
arithmetic on the score. A function such as ::

    def alibi(score, b, h, q_idx, kv_idx):
        return score - slopes[h] * pa.abs(q_idx - kv_idx)

is called once with :class:`Traced` values. What it does to them is recorded and becomes a WGSL function in
every kernel. The functions of this module accept traced values, numbers and numpy arrays, so the same Python
also runs in the float64 reference.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from py_attn.traced import (
    FUNCTIONS,
    UFUNCS,
    Traced,
    any_traced,
    arithmetic,
    as_kind,
    common_kind,
    compare,
    logic,
    number,
    power,
    shift,
)


def where(condition: Any, a: Any, b: Any) -> Any:
    """``a`` where ``condition`` holds, else ``b``; for traced values, numbers and arrays."""
    if not any_traced(condition, a, b):
        return np.where(condition, a, b)
    chosen = as_kind(condition, "bool")
    kind = common_kind("where", a, b)
    return Traced("where", kind, chosen, as_kind(a, kind), as_kind(b, kind))


def exp(x: Any) -> Any:
    """The exponential function of ``x``."""
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
    return arithmetic("min", a, b) if any_traced(a, b) else np.minimum(a, b)


def maximum(a: Any, b: Any) -> Any:
    """The larger of two."""
    return arithmetic("max", a, b) if any_traced(a, b) else np.maximum(a, b)


def clip(x: Any, low: Any, high: Any) -> Any:
    """``x`` where it lies between ``low`` and ``high``, else the nearer of the two; None is no limit."""
    if low is not None:
        x = maximum(x, low)
    return x if high is None else minimum(x, high)


def sin(x: Any) -> Any:
    """Sine of an angle in radians; in kernels accurate to float32 up to angles of about 10,000."""
    return _call("sin", np.sin, x)


def cos(x: Any) -> Any:
    """Cosine of an angle in radians; in kernels accurate to float32 up to angles of about 10,000."""
    return _call("cos", np.cos, x)


def tan(x: Any) -> Any:
    """Tangent of an angle in radians; in kernels accurate to float32 up to angles of about 10,000."""
    return _call("tan", np.tan, x)


def exp2(x: Any) -> Any:
    """2 to the power ``x``."""
    return _call("exp2", np.exp2, x)


def log2(x: Any) -> Any:
    """Logarithm to base 2."""
    return _call("log2", np.log2, x)


def floor(x: Any) -> Any:
    """The next integer that is not above ``x``, as a float."""
    return _call("floor", np.floor, x)


def ceil(x: Any) -> Any:
    """The next integer that is not below ``x``, as a float."""
    return _call("ceil", np.ceil, x)


def rounded(x: Any, decimals: int = 0) -> Any:
    """The nearest integer as a float, of two the even one; traced values take no ``decimals``."""
    if not isinstance(x, Traced):
        return np.round(x, decimals)
    return round(x, decimals)


def sign(x: Any) -> Any:
    """−1, 0 or 1."""
    return Traced("sign", *number(x)) if isinstance(x, Traced) else np.sign(x)


def square(x: Any) -> Any:
    """``x`` times itself."""
    return power(x, 2) if isinstance(x, Traced) else np.square(x)


def sigmoid(x: Any) -> Any:
    """The logistic function 1 / (1 + exp(-x)), and its slope, without overflow for any ``x``."""
    return _call("sigmoid", lambda x: np.exp(-np.logaddexp(0.0, np.negative(x))), x)


def erf(x: Any) -> Any:
    """The error function."""
    return _call("erf", lambda x: np.vectorize(math.erf, otypes=[float])(x)[()], x)


def _call(name: str, function: Callable[[Any], Any], x: Any) -> Any:
    return Traced(name, "f32", as_kind(x, "f32")) if isinstance(x, Traced) else function(x)


FUNCTIONS |= {
    np.where: where,
    np.round: rounded,
    np.around: rounded,
    np.clip: lambda x, a_min=None, a_max=None: clip(x, a_min, a_max),
}
UFUNCS |= {
    "exp": exp,
    "log": log,
    "tanh": tanh,
    "sqrt": sqrt,
    "absolute": absolute,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "exp2": exp2,
    "log2": log2,
    "floor": floor,
    "ceil": ceil,
    "rint": rounded,
    "sign": sign,
    "square": square,
    "clip": clip,
    "negative": lambda x: arithmetic("sub", 0, x),
    "divide": lambda a, b: Traced("div", "f32", as_kind(a, "f32"), as_kind(b, "f32")),
    "power": lambda a, b: power(a, b),
    **{
        ours: functools.partial(arithmetic, name)
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
        ours: functools.partial(compare, name)
        for ours, name in (
            ("less", "lt"),
            ("less_equal", "le"),
            ("greater", "gt"),
            ("greater_equal", "ge"),
            ("equal", "eq"),
            ("not_equal", "ne"),
        )
    },
    "bitwise_and": lambda a, b: logic("and", a, b),
    "bitwise_or": lambda a, b: logic("or", a, b),
    "bitwise_xor": lambda a, b: logic("xor", a, b),
    "left_shift": functools.partial(shift, "shl"),
    "right_shift": functools.partial(shift, "shr"),
    "logical_and": lambda a, b: logic("and", a, b),
    "logical_or": lambda a, b: logic("or", a, b),
}
