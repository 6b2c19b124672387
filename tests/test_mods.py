"""score_mod, mask_mod and prob_mod: what is traced, the WGSL it becomes, its numbers, and its refusals.

The WGSL of a function is one operation a line, so that Python can run it here: its numbers are compared
with what the same function gives for plain numbers.
"""

import math
import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import py_attn as pa
from py_attn.traced import Traced, gather
from py_attn.tracing import trace_mask_mod, trace_prob_mod, trace_score_mod

PLACE = ("b", "h", "q_idx", "kv_idx")
KINDS = {"f32": float, "i32": (int, np.integer), "bool": (bool, np.bool_)}


MATHS = {
    **{name: getattr(math, name) for name in ("exp", "log", "sqrt", "pow", "exp2", "log2")},
    **{name: getattr(math, name) for name in ("sin", "cos", "tan", "erf")},
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "sign": np.sign,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "min": min,
    "max": max,
}


def wgsl_value(text, name, place, tables=(), **first):
    """What function ``name`` in ``text`` returns, worked out in float64."""
    body = re.search(rf"fn {name}\([^)]*\) -> \w+ \{{\n(.*?)\n\}}", text, re.DOTALL)[1]
    known = dict(zip(PLACE, place, strict=True)) | first
    functions = {
        "f32": float,
        "i32": int,
        "u32": int,
        "true": True,
        "false": False,
        "abs": abs,
        **MATHS,
        **{f"{name}_f32": value for name, value in MATHS.items()},
        "accurate_tanh": math.tanh,
        "select": lambda no, yes, condition: yes if condition else no,
        "clamp": lambda x, low, high: min(max(x, low), high),
        "floordiv_i32": lambda a, b: a // b,
        "floordiv_f32": lambda a, b: float(math.floor(a / b)),
        "mod_i32": lambda a, b: a % b,
        "mod_f32": lambda a, b: a - b * math.floor(a / b),
        "lowest": -math.inf,
    }
    for n, table in enumerate(tables):
        functions[f"captured_{n}_first"] = lambda: 0
        functions[f"captured_{n}_at"] = table.ravel().__getitem__
    for line in body.splitlines():
        target, _, expression = line.strip().rstrip(";").removeprefix("let ").partition(" = ")
        if not expression:
            target, expression = "return: ", line.strip().rstrip(";").removeprefix("return ")
        source = re.sub(r"\b(\d+)u\b", r"\1", expression.replace("params.empty_lse", "lowest"))
        source = re.sub(r"^!(?!=)", "not ", source)
        value = eval(source, functions, known)
        known[target.split(":")[0]] = value
        kind = target.split(": ")[1]
        assert not kind or isinstance(value, KINDS[kind])
    return known["return"]


# Functions of every operation there is


def unary(draw, inner):
    x = draw(inner)
    return draw(
        st.sampled_from(
            [
                lambda *a: pa.abs(x(*a)),
                lambda *a: -x(*a),
                lambda *a: abs(x(*a)),
                lambda *a: +x(*a),
                lambda *a: pa.tanh(x(*a)),
                lambda *a: pa.exp(pa.tanh(x(*a))),
                lambda *a: pa.log(1.5 + pa.abs(x(*a))),
                lambda *a: pa.sqrt(2.0 + pa.abs(x(*a))),
                lambda *a: x(*a) ** 2,
                lambda *a: pa.square(x(*a)),
                lambda *a: pa.sin(pa.tanh(x(*a))) + pa.cos(pa.tanh(x(*a))) * pa.tan(pa.tanh(x(*a))),
                lambda *a: pa.exp2(pa.tanh(x(*a))) + pa.log2(1.5 + pa.abs(x(*a))),
                lambda *a: pa.sigmoid(pa.clip(x(*a), -500.0, 500.0)) + pa.erf(x(*a)),
                lambda *a: np.clip(x(*a), -1, 1.5),
                lambda *a: np.round(pa.clip(x(*a), None, 3)) + pa.sign(pa.tanh(x(*a))),
                lambda *a: np.floor(x(*a)) - pa.ceil(x(*a)),
                lambda *a: (1.0 + pa.abs(x(*a))) ** -1.5,
                lambda *a: np.tanh(x(*a)) * np.float64(2),
            ]
        )
    )


def binary(draw, inner):
    x, y = draw(inner), draw(inner)
    return draw(
        st.sampled_from(
            [
                lambda *a: x(*a) + y(*a),
                lambda *a: x(*a) - y(*a),
                lambda *a: x(*a) * y(*a),
                lambda *a: x(*a) / (1.0 + pa.abs(y(*a))),
                lambda *a: pa.minimum(x(*a), y(*a)),
                lambda *a: pa.maximum(x(*a), y(*a)),
                lambda *a: x(*a) // 2,
                lambda *a: x(*a) % 3,
                lambda *a: 7.5 - x(*a) + y(*a),
            ]
        )
    )


@st.composite
def chosen(draw, inner):
    x, y, u, v = (draw(inner) for _ in range(4))
    condition = draw(
        st.sampled_from(
            [
                lambda *a: u(*a) < v(*a),
                lambda *a: (u(*a) <= v(*a)) & (a[3] > a[4]),
                lambda *a: (u(*a) > v(*a)) | (a[3] == a[4]),
                lambda *a: ~(u(*a) >= v(*a)),
                lambda *a: (a[1] != a[2]) ^ (u(*a) > 0),
            ]
        )
    )
    return lambda *a: pa.where(condition(*a), x(*a), y(*a))


LEAVES = st.sampled_from(
    [
        lambda *a: a[0],
        lambda *a: a[3] - a[4],
        lambda *a: a[2],
        lambda *a: a[1] + 1,
        lambda *a: a[4] * 0.25,
        lambda *a: (a[3] << 1) ^ (a[4] >> 2),
    ]
) | st.integers(-3, 3).map(lambda n: lambda *a: n / 4 + 0 * a[0])  # Python itself computes plain numbers
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.composite(unary)(inner), st.composite(binary)(inner), chosen(inner)),
    max_leaves=12,
)
PLACES = st.tuples(st.integers(0, 3), st.integers(0, 7), st.integers(0, 40), st.integers(0, 40))


@given(function=EXPRESSIONS, score=st.floats(-8, 8).map(np.float32).map(float), place=PLACES)
def test_the_wgsl_computes_what_the_function_does(function, score, place):
    text = trace_score_mod(lambda *a: function(*a) + 0.0 * a[0], [])
    with np.errstate(over="ignore"):
        expected = float(function(np.float64(score), *map(np.int64, place)))
    assume(abs(expected) < 1e30)
    result = wgsl_value(text, "score_mod", place, score=score)
    assert result == pytest.approx(expected, rel=1e-6, abs=1e-6)


SMOOTH = st.recursive(
    st.sampled_from([lambda *a: a[0], lambda *a: a[3] - a[4], lambda *_: 0.75]),
    lambda inner: st.tuples(inner, inner).flatmap(
        lambda pair: st.sampled_from(
            [
                lambda *a: pair[0](*a) + pair[1](*a),
                lambda *a: 0.5 - pair[0](*a),
                lambda *a: pair[0](*a) * pa.tanh(pair[1](*a)),
                lambda *a: pair[0](*a) / (2.0 + pa.tanh(pair[1](*a))),
                lambda *a: pa.exp(-(pa.tanh(pair[0](*a)) ** 2)),
                lambda *a: pa.log(3.0 + pa.tanh(pair[0](*a))),
                lambda *a: pa.log2(3.0 + pa.sin(pair[0](*a))),
                lambda *a: pa.exp2(pa.cos(pair[0](*a))) * pa.sigmoid(pair[1](*a)),
                lambda *a: pa.erf(pair[0](*a)) + pa.tan(pa.tanh(pair[1](*a))),
                lambda *a: pa.square(pa.tanh(pair[0](*a))),
                lambda *a: pa.sqrt(4.0 + pa.tanh(pair[0](*a))),
                lambda *a: (2.5 + pa.tanh(pair[0](*a))) ** (0.5 + pa.tanh(pair[1](*a))),
                lambda *a: pa.where(a[3] > a[4], pair[0](*a), pair[1](*a)),
            ]
        )
    ),
    max_leaves=8,
)


@given(function=SMOOTH, score=st.floats(-3, 3), place=PLACES)
def test_slopes_are_derivatives(function, score, place):
    text = trace_score_mod(lambda *a: function(*a) + 0.0 * a[0], [], gradient=True)
    step = 1e-5
    ahead, behind = (
        float(function(np.float64(score + move), *map(np.int64, place))) for move in (step, -step)
    )
    slope = wgsl_value(text, "score_mod_slope", place, score=score)
    assert slope == pytest.approx((ahead - behind) / (2 * step), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    ("function", "at", "slope"),
    [
        (lambda s, *_: pa.abs(s), -2.0, -1.0),
        (lambda s, *_: pa.abs(s), 0.0, 0.0),
        # Where two are equal half goes to each.
        (lambda s, *_: pa.minimum(s, 1.0), 1.0, 0.5),
        (lambda s, *_: pa.maximum(2 * s, s), 3.0, 2.0),
        (lambda s, *_: s % 2.0 + s // 2.0, 3.0, 1.0),
        (lambda s, b, h, q, k: pa.where(s > 1, s * s, k), 3.0, 6.0),
        (lambda s, b, h, q, k: 1.0 * k, 3.0, 0.0),
        (lambda s, *_: np.clip(s, -1, 1), 0.5, 1.0),
        (lambda s, *_: np.clip(s, -1, 1), 1.5, 0.0),
        (lambda s, *_: pa.round(s) + pa.floor(s) + pa.ceil(s) + pa.sign(s), 0.25, 0.0),
        (lambda s, *_: pa.sigmoid(s), 40.0, pytest.approx(math.exp(-40.0), rel=1e-12)),
        (lambda s, *_: pa.sigmoid(s), -90.0, pytest.approx(math.exp(-90.0), rel=1e-12)),
        (lambda s, b, h, q, k: pa.where(k > q, -np.inf, s), 3.0, 0.0),
    ],
)
def test_slopes_at_kinks(function, at, slope):
    text = trace_score_mod(function, [], gradient=True)
    assert wgsl_value(text, "score_mod_slope", (0, 0, 1, 2), score=at) == slope


@given(place=PLACES, data=st.data())
def test_tables_are_looked_up_and_end_at_their_edges(place, data):
    rows, columns = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
    table = np.random.default_rng(rows).standard_normal((rows, columns))

    class Table:
        """A tensor without a device, as far as tracing looks at one."""

        shape, strides, ndim, size = (rows, columns), (columns, 1), 2, table.size
        dtype = "float32"

        class kind:
            floating = True

        def __class_getitem__(cls, index):
            return gather(cls, index)

    tensors = []
    chained = data.draw(st.booleans())
    text = trace_score_mod(
        lambda s, b, h, q, k: s + (gather(Table, (h,))[q - k] if chained else gather(Table, (h, q - k))),
        tensors,
    )
    assert tensors == [Table]
    _, h, q, k = place
    expected = 1.0 + table[min(h, rows - 1), min(max(q - k, 0), columns - 1)]
    assert wgsl_value(text, "score_mod", place, [table], score=1.0) == expected


# The text


def test_shared_parts_are_computed_once():
    def mod(score, b, h, q_idx, kv_idx):
        distance = pa.exp(1.0 * (q_idx - kv_idx))
        return score * distance + distance

    text = trace_score_mod(mod, [])
    assert text.count("exp_f32(") == 1
    assert text.startswith("fn score_mod(score: f32, b: i32, h: i32, q_idx: i32, kv_idx: i32) -> f32 {")


def test_infinity_comes_from_the_params():
    # WGSL has no literal for it.
    text = trace_score_mod(lambda s, b, h, q, k: pa.where(q < k, -np.inf, s), [])
    assert "params.empty_lse" in text
    assert "inf" not in text.replace("params.empty_lse", "")
    text = trace_score_mod(lambda s, *_: pa.minimum(s, math.inf), [])
    assert "(-params.empty_lse)" in text


def test_each_function_has_its_own_name_and_kind():
    assert "-> bool {" in trace_mask_mod(lambda b, h, q, k: q >= k, [])
    assert "return true;" in trace_mask_mod(lambda *_: True, [])
    assert trace_prob_mod(lambda p, b, h, q, k: p * 2, []).startswith("fn prob_mod(prob: f32, b: i32")
    # A score that is an integer becomes a float.
    assert "f32(" in trace_score_mod(lambda s, b, h, q, k: q - k, [])


def test_a_tensor_is_bound_once(device, bridge):
    slopes, table = device.empty((4,)), device.empty((2, 9), "int32")
    x = device.empty((2, 4, 3, 8))
    pa.attention(
        x,
        x,
        x,
        score_mod=lambda s, b, h, q, k: s * slopes[h] + slopes[0 * h],
        mask_mod=lambda b, h, q, k: (table[b, q] == table[b, k]) & (slopes[h] > 0.0),
        variant="naive",
    )
    device.flush()
    (launch,) = bridge.programs[-1]
    assert launch.wgsl.count("var<storage, read> captured_") == 2
    assert len(launch.buffers) == 3 + 2 + 1


# Refusals: they say what to write instead


def choose(s, b, h, q, k):
    return s if q > k else 0


NUMBERS = np.arange(8.0)
LIST = [1, 2, 3]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (choose, r"write pa.where\(condition, a, b\), and & \| ~"),
        (lambda s, b, h, q, k: pa.where(0 < q < k, s, 0), r"chained comparisons.*pa.where"),
        (lambda s, b, h, q, k: s * (q > k and k > 1), "`and`"),
        (lambda s, *_: math.exp(s), "instead of the math module's functions use pa.where, exp"),
        (lambda s, b, h, *_: s + int(h), "instead of the math module"),
        (lambda s, b, h, *_: s + NUMBERS[h], r"upload it first: table = device.tensor\(array\)"),
        (lambda s, b, h, *_: s + LIST[h], r"upload it first: table = device.tensor\(array\)"),
        (lambda s, b, h, *_: s + NUMBERS, r"upload it: device.tensor\(array\), and index that"),
        (lambda s, *_: np.sinh(s), "numpy's sinh cannot be traced; use pa.where"),
        (lambda s, *_: np.cumsum(s), "numpy's cumsum cannot be traced; use pa.where"),
        (lambda s, *_: pa.round(s, 1), r"write pa.round\(x \* 10.0\) / 10.0"),
        (lambda s, *_: sum(s), "cannot be looped over"),
        (lambda s, *_: s + "1", "expected a number or a traced value, got '1'"),
        (lambda s, *_: s + 1j, "expected a number or a traced value"),
        (lambda s, *_: ~s, "~ takes a comparison or an integer"),
        (lambda s, b, h, q, k: s & q, "expected an integer, got a float"),
        (lambda s, b, h, q, k: s >> 1, "expected an integer, got a float"),
        (lambda s, b, h, q, k: pa.where(q, s, 0), "expected a condition"),
        (lambda s, *_: None, "returned nothing"),
        (lambda s: s, r"expected a function of \(score, b, h, q_idx, kv_idx\)"),
        (3, "expected a function, got 3"),
    ],
)
def test_what_cannot_be_traced_is_refused(function, words):
    with pytest.raises(TypeError, match=words):
        trace_score_mod(function, [])


def without_end(score):
    return without_end(score + 1)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda s, *_: s + math.nan, "expected numbers, got the constant NaN"),
        (lambda s, *_: s + 1e39, "float32 cannot hold 1e"),
        (lambda s, b, h, q, k: q + (1 << 31), "expected integers of at most 32 bits, got 2147483648"),
        (lambda s, b, h, q, k: q << 32, "expected a shift by 0 to 31 bits, got 32"),
        (lambda s, b, h, q, k: q >> -1, "expected a shift by 0 to 31 bits, got -1"),
    ],
)
def test_numbers_out_of_range_are_refused(function, words):
    with pytest.raises(ValueError, match=words):
        trace_score_mod(function, [])


@pytest.mark.parametrize("function", [lambda s, *_: without_end(s), lambda s, *_: sum([s] * 5000)])
def test_functions_without_end_and_long_loops_are_refused(function):
    with pytest.raises(RecursionError, match="score_mod: expected a function that ends, and at most a few"):
        trace_score_mod(function, [])


def test_a_mask_mod_gives_a_condition():
    with pytest.raises(TypeError, match=r"mask_mod: expected a condition \(True = may attend\)"):
        trace_mask_mod(lambda b, h, q, k: q - k, [])
    with pytest.raises(TypeError, match=r"expected a function of \(b, h, q_idx, kv_idx\)"):
        trace_mask_mod(lambda b, h, q: q, [])


def test_tensors_are_indexed_as_they_are_shaped(device):
    x = device.empty((1, 1, 4, 8))
    table, others = device.empty((4, 3)), [device.empty((4,)) for _ in range(5)]
    for mod, words in (
        (
            lambda s, b, h, q, k: s + table[q],
            r"^score_mod: a tensor of .* takes 2 indices, got 1; a score .* as in tensor\[b, q_idx\]",
        ),
        (
            lambda s, b, h, q, k: s + table[q].sum(),
            "got 1; .* reduce rows before the call$",
        ),
        (
            lambda s, b, h, q, k: s + np.sum(table[q]),
            "got 1; .* reduce rows before the call$",
        ),
        (
            lambda s, b, h, q, k: s + np.sin(table[q]),
            "got 1; .* reduce rows before the call$",
        ),
        (
            lambda s, b, h, q, k: s + sum(table[q]),
            "got 1; .* reduce rows before the call$",
        ),
        (lambda s, b, h, q, k: s + table[q, k][k], "one number and cannot be indexed"),
        (lambda s, b, h, q, k: s + table[q][k, k], "^score_mod: a tensor of .* takes 2 indices, got 3"),
        (lambda s, b, h, q, k: s + table[q][k][k], "one number and cannot be indexed"),
        (lambda s, b, h, q, k: s + table, r"index it: tensor\[h\]"),
        (lambda s, b, h, q, k: s + device.empty((0,))[q], "no elements to look up"),
        (lambda s, b, h, q, k: s + table[q, s], "expected an integer, got a float"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            pa.attention(x, x, x, score_mod=mod)
    one = device.empty(())
    for mod in (
        lambda s, b, h, q, k: s + table[q, 1],
        lambda s, b, h, q, k: s + table[q][1] + table[0][k],
        lambda s, b, h, q, k: one * s + pa.where(s > one, one, table[q][k]),
        lambda s, b, h, q, k: s + sum((t[q] for t in others), 0.0),
    ):
        assert pa.attention(x, x, x, score_mod=mod).shape == x.shape


def test_tensors_are_copied_into_one_where_too_few_buffers_are_left(device, bridge):
    query, key, value, grad = (
        device.empty(s) for s in ((1, 2, 4, 8), (1, 2, 5, 8), (1, 2, 5, 8), (1, 2, 4, 8))
    )
    lse, tables = device.empty((1, 2, 4)), [device.empty((2,)) for _ in range(5)]

    def reading(count):
        return lambda s, b, h, q, k: s * sum((table[h] for table in tables[:count]), 0.0)

    def copies(call, *arguments, **options):
        device.flush()
        before = len(bridge.launches)
        call(*arguments, **options)
        device.flush()
        return sum("pack_words" in launch.label for launch in bridge.launches[before:])

    # Attention binds five buffers, its gradients seven; there are eight.
    inputs = query, key, value
    backward = grad, *inputs, grad, lse
    for count, wanted in ((1, 0), (2, 0), (3, 0), (4, 4), (5, 5)):
        mod = {"score_mod": reading(count)}
        assert copies(pa.attention, *inputs, **mod) == wanted
        assert copies(pa.attention, *inputs, **mod, mask=device.empty((5,))) == (count if count > 2 else 0)
        gradients = 0 if count == 1 else count
        assert copies(pa.attention_backward, *backward, **mod) == gradients
        assert copies(pa.attention_backward, *backward, **mod, captured=tables[:count]) == gradients
    mod = {"score_mod": reading(5)}
    cache = pa.KVCache(1, 2, 8, 8)
    cache.append(key, value)
    assert copies(pa.decode_attention, query, cache, **mod) == 5
    packed = [x[0].transpose(1, 0, 2) for x in inputs]
    assert copies(pa.varlen_attention, *packed, [0, 4], [0, 5], **mod) == 5
    # What is wrong is said before anything is copied.
    bridge.programs.clear()
    with pytest.raises(ValueError, match=r"^lse: expected"):
        pa.attention_backward(grad, *inputs, grad, lse[:, :1], **mod)
    device.flush()
    assert bridge.programs == []


def test_a_traced_value_shows_what_it_is():
    assert repr(Traced("name", "f32", "score")) == "<traced f32>"
