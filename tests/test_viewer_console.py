"""The console: running source text, and results as data or as something to draw."""

import asyncio
import dataclasses

import numpy as np
import pytest

from py_attn.viewer.console import Console, shown
from py_attn.viewer.plain import plain


def run(source, console=None):
    return asyncio.run((console or Console()).answer(source))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("", None),
        ("x = 1", None),
        ("1 + 1", 2),
        ("x = 2\nx * 3", 6),
        ("import asyncio\nawait asyncio.sleep(0, 'awaited')", "awaited"),
        ("[1, (2, 3), {4}]", [1, [2, 3], [4]]),
        ("{'a': np.float32(1.5), 3: None}", {"a": 1.5, "3": None}),
        ("np.arange(4).reshape(2, 2)", [[0, 1], [2, 3]]),
        ("'text'", "text"),
        ("if True:\n    y = 5\ny", 5),
    ],
)
def test_the_last_expression_is_the_answer(source, value):
    assert run(source) == {"value": value}


def test_names_live_on():
    console = Console()
    run("import math\ndef double(x):\n    return 2 * x", console)
    assert run("double(math.pi)", console)["value"] == pytest.approx(6.283185)


def test_nan_and_infinity_stay():
    value = run("[float('nan'), np.float64('inf'), np.array([-np.inf])]")["value"]
    assert np.isnan(value[0])
    assert value[1:] == [float("inf"), [float("-inf")]]


@pytest.mark.parametrize(
    ("source", "kind", "line"),
    [
        ("1 / 0", "ZeroDivisionError", "ZeroDivisionError: division by zero"),
        ("def f(:", "SyntaxError", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "SystemExit", "SystemExit: 3"),
        ("await nothing()", "NameError", "NameError: name 'nothing' is not defined"),
    ],
)
def test_an_exception_becomes_its_traceback(source, kind, line):
    answer = run(source)
    assert answer["type"] == kind
    assert answer["error"].splitlines()[-1] == line


def test_a_traceback_shows_the_code_and_not_the_console():
    answer = run("def inner():\n    return {}['key']\n\ninner()")
    assert "return {}['key']" in answer["error"]
    assert "console.py" not in answer["error"]


def test_a_console_goes_on_after_an_exception():
    console = Console()
    run("kept = 7\n1 / 0", console)
    assert run("kept", console) == {"value": 7}


@dataclasses.dataclass
class Point:
    x: int
    y: np.ndarray


def test_plain_data_of_unusual_things():
    class Odd:
        def __repr__(self):
            return "<odd>"

    value = [
        Point(1, np.ones(2)),
        Odd(),
        range(3),
        b"bytes",
        np.array([1 + 2j]),
        bytearray(b"x"),
        np.bool_(True),
    ]
    assert asyncio.run(plain(value)) == [
        {"x": 1, "y": [1.0, 1.0]},
        "<odd>",
        [0, 1, 2],
        b"bytes",
        ["(1+2j)"],
        b"x",
        True,
    ]


def draw(value):
    return asyncio.run(shown(value))


def test_dicts_become_tables():
    assert draw({"a": 1.23456789, "b": np.ones((2, 3))}) == {
        "kind": "table",
        "columns": ["key", "value"],
        "rows": [["a", "1.23457"], ["b", "array [2, 3] float64"]],
        "total": 2,
    }
    table = draw([{"x": 1, "y": "t"}, {"x": 2, "z": None}])
    assert table["columns"] == ["x", "y", "z"]
    assert table["rows"] == [["1", "t", ""], ["2", "", ""]]


def test_long_tables_are_cut():
    table = draw([{"n": n} for n in range(1000)])
    assert (len(table["rows"]), table["total"]) == (200, 1000)


def test_matrices_become_maps():
    shown_map = draw(np.arange(12.0).reshape(3, 4))
    assert (shown_map["kind"], shown_map["width"], shown_map["height"]) == ("map", 4, 3)
    assert shown_map["rgba"].shape == (48,)
    assert (shown_map["low"], shown_map["high"]) == (0, 11)


def test_large_and_broken_matrices_still_draw():
    values = np.full((2, 3000, 700), np.nan, np.float32)
    values[0, 5, 5] = 2
    shown_map = draw(values)
    assert (shown_map["width"], shown_map["height"]) == (512, 512)
    assert "first of 2" in shown_map["text"]


def test_other_values_become_text():
    assert draw(None) == {"kind": "none"}
    assert draw(7) == {"kind": "text", "text": "7"}
    assert draw(np.ones(3))["text"].startswith("array [3] float64")
    assert draw("x" * 50_000)["text"].endswith("(50,000 characters)")
