"""Subgroup matrices of float16, emulated in workgroup memory.

It runs the texts of shaders/attention/matrix.wgsl and matrix_float32.wgsl on adapters without such matrices,
as :mod:`e2e.page.emulated_matrices`, whose frame this uses, does with those of 8-bit integers.
"""

import re
from contextlib import contextmanager
from functools import partial
from unittest import mock

from e2e.page.emulated_matrices import ADAPTER, FEATURES, PRELUDE, planned_for
from py_attn.gpu.bridge import MatrixConfig
from py_attn.kernels.attention import config
from py_attn.kernels.attention.matrix import MatrixTile, PairTile
from py_attn.kernels.attention.tiles import Tile

_MATRICES = (MatrixConfig("f16", "f32", 16, 16, 16),)
_HALVES = """
alias EmulatedSums = array<f32, 8>;

fn emulated_product(x: vec4<u32>, y: vec4<u32>) -> f32 {
  var sum = 0.0;
  for (var i = 0u; i < 4u; i++) {
    sum += dot(unpack2x16float(x[i]), unpack2x16float(y[i]));
  }
  return sum;
}

/// The numbers of this invocation's column in two lines of eight columns.
fn emulated_pair(line: vec4<u32>, next_line: vec4<u32>) -> u32 {
  let column = emulated_row() % 8u;
  let shift = 16u * (column % 2u);
  return ((line[column / 2u] >> shift) & 0xffffu) | (((next_line[column / 2u] >> shift) & 0xffffu) << 16u);
}

fn emulated_halves(x: vec4<f32>) -> vec2<u32> {
  // SwiftShader's pack2x16float makes NaN of what is too large for a float16.
  return vec2<u32>(narrow_float16(x.xy), narrow_float16(x.zw));
}

fn emulated_round(x: vec4<f32>) -> vec4<f32> {
  let bits = emulated_halves(x);
  return vec4<f32>(unpack2x16float(bits.x), unpack2x16float(bits.y));
}
"""
# For texts that neither read nor write float16. SwiftShader makes NaN of what is too large.
_NARROW = """
fn narrow_float16(v: vec2<f32>) -> u32 {
  return pack2x16float(v);
}
"""
# Which tiles attention/tiled.wgsl leaves to attention/matrix_float32.wgsl; here all of them.
_IS_FIT = ("unfit[work] == 0u", "unfit[work] < 2u")
_ALIAS = r"alias (\w+) = subgroup_matrix_(left|right)<"
_LOAD = r"subgroupMatrixLoad<(\w+), (\w+)>\(&([^,]+), ([^,]+), ([^)]+)\)"
_LOAD_SUMS = r"(\w+) = subgroupMatrixLoad<Result, (\w+)>\(&([^,]+), ([^,]+), ([^)]+)\);"
_STORE = r"subgroupMatrixStore<(\w+)>\(&([^,]+), ([^,]+), ([^,]+), ([^)]+)\);"
_ARGUMENTS = (
    r"  @builtin\(subgroup_id\) number: u32,\n  @builtin\(subgroup_invocation_id\) lane: u32,\n\) \{\n"
)
_EMULATED_ARGUMENTS = """  @builtin(local_invocation_index) emulated_index: u32,
) {
  emulated_thread = emulated_index;
  let number = emulated_index / 32u;
  let lane = emulated_index % 32u;
"""
_REWRITTEN = (
    (r"enable (f16|subgroups|chromium_experimental_subgroup_matrix);\n", ""),
    (r"requires subgroup_id;\n", ""),
    (r"subgroup_matrix_(left|right)<[^>]*>", "vec4<u32>"),
    (r"subgroup_matrix_result<[^>]*>", "EmulatedSums"),
    (r"subgroupMatrixMultiplyAccumulate\(", "emulated_multiply("),
    (r"subgroupShuffleXor\((\w+), (\d+u)\)", r"emulated_swap4(vec4<f32>(\1), \2).x"),
    (r"vec4<f16>\((\w+)\)", r"emulated_round(\1)"),
    (r"bitcast<vec2<u32>>\((half_\w)\)", r"emulated_halves(\1)"),
    (_ARGUMENTS, _EMULATED_ARGUMENTS),
)


def _place(layout, offset, pitch):
    """Where in a memory the sum number ``j`` of an invocation's eight lies."""
    if layout == "row_major":
        return f"[{offset} + emulated_row() * {pitch} + 2u * emulated_half() + j / 4u][j % 4u]"
    line = "(8u * emulated_half() + j)"
    return f"[{offset} + {line} * {pitch} + emulated_row() / 4u][emulated_row() % 4u]"


def _store(match):
    """What takes the place of storing sums."""
    layout, memory, offset, sums, pitch = match.groups()
    place = f"{memory}{_place(layout, offset, pitch)}"
    return f"for (var j = 0u; j < 8u; j++) {{ {place} = bitcast<u32>({sums}[j]); }}"


def _load_sums(match):
    """What takes the place of loading sums."""
    sums, layout, memory, offset, pitch = match.groups()
    place = f"{memory}{_place(layout, offset, pitch)}"
    return f"for (var j = 0u; j < 8u; j++) {{ {sums}[j] = bitcast<f32>({place}); }}"


def _load(sides, match):
    """What takes the place of loading an operand; ``sides`` says which side of a product each alias is."""
    alias, layout, memory, offset, pitch = match.groups()
    if (sides[alias], layout) in (("left", "col_major"), ("right", "row_major")):
        lines = [
            f"{memory}[{offset} + (8u * emulated_half() + {n}u) * {pitch} + emulated_row() / 8u]"
            for n in range(8)
        ]
        pairs = [f"emulated_pair({lines[n]}, {lines[n + 1]})" for n in range(0, 8, 2)]
        return f"vec4<u32>({', '.join(pairs)})"
    return f"{memory}[{offset} + emulated_row() * {pitch} + emulated_half()]"


def emulate(wgsl, alone=False):
    """The text with nothing in it that only an adapter with such matrices compiles.

    With ``alone`` tiles whose numbers do not fit into halves are left as they are.
    """
    sides = dict(re.findall(_ALIAS, wgsl))
    if not sides:
        return wgsl.replace(*_IS_FIT) if alone else wgsl
    wgsl = re.sub(_STORE, _store, wgsl)
    wgsl = re.sub(_LOAD_SUMS, _load_sums, wgsl)
    wgsl = re.sub(_LOAD, partial(_load, sides), wgsl)
    for known, stand_in in _REWRITTEN:
        wgsl = re.sub(known, stand_in, wgsl)
    return wgsl + PRELUDE + _HALVES + ("" if "fn narrow_float16" in wgsl else _NARROW)


@contextmanager
def emulated_for(case, device):
    """The adapter of a case: with ``emulated``, the fields of a tile, one with matrices that runs this tile.

    With ``alone`` the tile's ``other`` computes nothing.
    """
    fields = case.get("emulated")
    if fields is None:
        yield
        return
    tile: MatrixTile | PairTile
    if "other" in fields:
        tile = PairTile(**fields | {"other": Tile(**fields["other"])})
    else:
        tile = MatrixTile(**fields)
    choice = mock.patch.object(config, "matrix_tile", return_value=tile)
    adapter = ADAPTER | {"matrix_configs": _MATRICES}
    rewrite = partial(emulate, alone=case.get("alone", False))
    with planned_for(device, adapter, (*FEATURES, "shader-f16"), rewrite), choice:
        yield
