"""Uniform parameters against WGSL's layout rules, worked out here a second time."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_attn.gpu.params import ParamsLayout

# Alignment and size in bytes, and how one component is packed: https://www.w3.org/TR/WGSL/#alignment-and-size
RULES = {
    "u32": (4, 4, "I"),
    "i32": (4, 4, "i"),
    "f32": (4, 4, "f"),
    "vec2<u32>": (8, 8, "I"),
    "vec3<u32>": (16, 12, "I"),
    "vec4<u32>": (16, 16, "I"),
    "vec4<f32>": (16, 16, "f"),
}
VALUES = {
    "I": st.integers(0, 2**32 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "f": st.floats(width=32, allow_nan=False),
}
layouts = st.lists(st.sampled_from(list(RULES)), min_size=1, max_size=12).map(
    lambda types: {f"field_{n}": t for n, t in enumerate(types)}
)


def offsets_by_the_rules(fields):
    found, end, largest = {}, 0, 16
    for name, wgsl_type in fields.items():
        align, size, _ = RULES[wgsl_type]
        while end % align:
            end += 1
        found[name] = end
        end += size
        largest = max(largest, align)
    return found, -(-end // largest) * largest


@given(fields=layouts, data=st.data())
def test_offsets_bytes_and_way_back(fields, data):
    layout = ParamsLayout(**fields)
    offsets, size = offsets_by_the_rules(fields)
    values = {}
    expected = bytearray(size)
    for name, wgsl_type in fields.items():
        _, nbytes, code = RULES[wgsl_type]
        parts = [data.draw(VALUES[code]) for _ in range(nbytes // 4)]
        struct.pack_into(f"<{len(parts)}{code}", expected, offsets[name], *parts)
        values[name] = parts if len(parts) > 1 else parts[0]
    packed = layout.pack(**values)
    assert packed == bytes(expected)
    assert layout.size == size
    assert {name: layout.dtype.fields[name][1] for name in fields} == offsets
    assert layout.dtype.itemsize == size
    assert layout.unpack(packed) == values


def test_declaration_is_in_order():
    layout = ParamsLayout(rows="u32", strides="vec4<u32>", scale="f32")
    assert layout.wgsl == "struct Params {\n  rows: u32,\n  strides: vec4<u32>,\n  scale: f32,\n}"
    assert layout.size == 48


def test_infinities_and_numpy_scalars_pack():
    layout = ParamsLayout(low="f32", count="u32")
    packed = layout.pack(low=np.float64("-inf"), count=np.int64(7))
    assert layout.unpack(packed) == {"low": float("-inf"), "count": 7}


@pytest.mark.parametrize("wgsl_type", ["f16", "vec3<f32>", "mat4x4<f32>", "bool", ""])
def test_unknown_types_are_refused(wgsl_type):
    with pytest.raises(ValueError, match="rows: expected a WGSL type"):
        ParamsLayout(rows=wgsl_type)


@pytest.mark.parametrize(
    "values", [{}, {"rows": 1}, {"rows": 1, "shift": 2, "more": 3}, {"rows": 1, "shif": 2}]
)
def test_missing_and_unknown_fields_are_refused(values):
    with pytest.raises(TypeError, match=r"params: expected \['rows', 'shift'\]"):
        ParamsLayout(rows="u32", shift="i32").pack(**values)


@pytest.mark.parametrize(
    ("wgsl_type", "value"),
    [("u32", -1), ("u32", 2**32), ("i32", 2**31), ("f32", 1e39), ("vec4<u32>", (1, 2, 3)), ("u32", 1.5)],
)
def test_values_that_do_not_fit_are_refused(wgsl_type, value):
    with pytest.raises(ValueError, match="params: "):
        ParamsLayout(x=wgsl_type).pack(x=value)
