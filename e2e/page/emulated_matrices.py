"""Subgroups of 32 and their matrices of 8-bit integers, emulated in workgroup memory.

It runs the text of kernels that need them (shaders/decode/integer_split.wgsl) on adapters without them: what
the text says is checked, not how a driver multiplies. :func:`emulated` plans for such an adapter, and
rewrites the text on its way to the compiler.
"""

import re
from contextlib import contextmanager, nullcontext
from unittest import mock

from e2e.page.configs import another_adapter
from py_attn.gpu.bridge import MatrixConfig
from py_attn.kernels.decode import tiled_codes

#: An adapter with such matrices, as changes of another's words.
ADAPTER = {
    "software": False,
    "subgroup_min_size": 32,
    "subgroup_max_size": 32,
    "matrix_configs": (MatrixConfig("i8", "i32", 16, 16, 32),),
}
FEATURES = (
    "subgroups",
    "subgroup_id",
    "subgroup_uniformity",
    "chromium-experimental-subgroup-matrix",
)

#: What emulated kernels need beside `EmulatedSums` and `emulated_product`, which depend on the numbers. Each
#: invocation holds 16 bytes of an operand, half of one of its 16 rows or columns, and eight sums of a result,
#: half of one of its rows.
PRELUDE = """
var<private> emulated_thread: u32;
var<workgroup> emulated_left: array<vec4<u32>, WORKGROUP>;
var<workgroup> emulated_right: array<vec4<u32>, WORKGROUP>;
var<workgroup> emulated_swap: array<vec4<f32>, WORKGROUP>;

fn emulated_row() -> u32 {
  return (emulated_thread & 31u) >> 1u;
}

fn emulated_half() -> u32 {
  return emulated_thread & 1u;
}

fn emulated_multiply(a: vec4<u32>, b: vec4<u32>, c: EmulatedSums) -> EmulatedSums {
  emulated_left[emulated_thread] = a;
  emulated_right[emulated_thread] = b;
  workgroupBarrier();
  var sums = c;
  let first = emulated_thread & ~31u;
  for (var j = 0u; j < 8u; j++) {
    for (var half = 0u; half < 2u; half++) {
      let x = emulated_left[first + emulated_row() * 2u + half];
      let y = emulated_right[first + (emulated_half() * 8u + j) * 2u + half];
      sums[j] += emulated_product(x, y);
    }
  }
  workgroupBarrier();
  return sums;
}

fn emulated_swap4(x: vec4<f32>, bit: u32) -> vec4<f32> {
  emulated_swap[emulated_thread] = x;
  workgroupBarrier();
  let other = emulated_swap[emulated_thread ^ bit];
  workgroupBarrier();
  return other;
}

fn emulated_swap_integers(x: u32, bit: u32) -> u32 {
  let other = vec4<u32>(emulated_swap4(vec4<f32>(vec4<u32>(x >> 16u, x & 0xffffu, 0u, 0u)), bit));
  return (other.x << 16u) | other.y;
}
"""
_BYTES = """
alias EmulatedSums = array<i32, 8>;

fn emulated_byte(v: vec4<u32>, i: u32) -> i32 {
  return i32(v[i >> 2u] << (24u - 8u * (i & 3u))) >> 24u;
}

fn emulated_product(x: vec4<u32>, y: vec4<u32>) -> i32 {
  var sum = 0;
  for (var i = 0u; i < 16u; i++) {
    sum += emulated_byte(x, i) * emulated_byte(y, i);
  }
  return sum;
}
"""
# Where a kernel has matrices in `memory`.
_MATRIX_PRELUDE = """
fn emulated_load(first: u32, pitch: u32) -> vec4<u32> {
  return memory[first + emulated_row() * pitch + emulated_half()];
}

fn emulated_store(first: u32, given: EmulatedSums, pitch: u32) {
  var sums = given;
  for (var j = 0u; j < 8u; j++) {
    memory[first + emulated_row() * pitch + emulated_half() * 2u + j / 4u][j % 4u] = bitcast<u32>(sums[j]);
  }
}
"""
_QUADS = {"X": "1u", "Y": "2u"}
_ARGUMENTS = r"(  @builtin\(subgroup_(size|invocation_id|id)\)[^\n]*\n){3}\n*\) \{\n"
_EMULATED_ARGUMENTS = (
    "  @builtin(local_invocation_index) emulated_index: u32,\n) {\n  emulated_thread = emulated_index;\n"
)
# Where whole subgroups end: emulated exchanges need all invocations. What the others compute is not written.
_END_OF_SUBGROUPS = r"  if \(subgroup_number \* subgroup_size >= \w+\) \{\n    return;\n  \}\n"
_BUILTINS = {
    "subgroup_size": "32u",
    "subgroup_lane": "(emulated_thread % 32u)",
    "subgroup_number": "(emulated_thread / 32u)",
}
_DIRECTIVES = r"(enable (subgroups|chromium_experimental_subgroup_matrix)|requires subgroup_id);\n?"


def _swap(value, bit):
    """An exchange, by what the kernels call the numbers that they exchange."""
    if value in ("y", "x", "acc"):
        return f"emulated_swap4({value}, {bit})"
    if value == "integers":
        return f"emulated_swap_integers({value}, {bit})"
    if value.endswith("_bits"):
        return f"bitcast<u32>(emulated_swap4(vec4<f32>(bitcast<f32>({value})), {bit}).x)"
    return f"emulated_swap4(vec4<f32>({value}), {bit}).x"


def emulate(wgsl):
    """The text with nothing in it that only an adapter with subgroups and matrices compiles."""
    if "enable subgroups" not in wgsl:
        return wgsl
    wgsl = re.sub(_DIRECTIVES, "", wgsl)
    wgsl = re.sub(_END_OF_SUBGROUPS, "", wgsl)
    wgsl = re.sub(r"quadSwap([XY])\((\w+)\)", lambda m: _swap(m[2], _QUADS[m[1]]), wgsl)
    wgsl = re.sub(r"subgroupShuffleXor\((\w+), (\d+u)\)", lambda m: _swap(m[1], m[2]), wgsl)
    wgsl = re.sub(r"subgroupShuffle\((\w+), lane \^ (\d+u)\)", lambda m: _swap(m[1], m[2]), wgsl)
    wgsl = re.sub(_ARGUMENTS, _EMULATED_ARGUMENTS, wgsl)
    for builtin, value in _BUILTINS.items():
        wgsl = wgsl.replace(builtin, value)
    wgsl = re.sub(r"subgroup_matrix_(left|right)<[^>]*>", "vec4<u32>", wgsl)
    wgsl = re.sub(r"subgroup_matrix_result<[^>]*>", "EmulatedSums", wgsl)
    wgsl = re.sub(r"subgroupMatrixLoad<[^>]*>\(&memory, ", "emulated_load(", wgsl)
    wgsl = re.sub(r"subgroupMatrixStore<[^>]*>\(&memory, ", "emulated_store(", wgsl)
    wgsl = wgsl.replace("subgroupMatrixMultiplyAccumulate(", "emulated_multiply(")
    return wgsl + PRELUDE + _BYTES + (_MATRIX_PRELUDE if "emulated_load(" in wgsl else "")


@contextmanager
def adapter_of(case, device):
    """The adapter that a case plans for: with ``tiled`` one with matrices, changed as ``adapter`` says."""
    with (
        emulated(device) if case.get("tiled") else nullcontext(),
        another_adapter(device, case.get("adapter", {})),
    ):
        yield


@contextmanager
def planned_for(device, adapter, features, rewrite):
    """Plan kernels as for another adapter; ``rewrite`` makes of their texts what this one runs."""
    bridge = device.queue.pipelines._bridge
    create = bridge.create_pipeline

    def create_rewritten(label, wgsl, access):
        return create(label, rewrite(wgsl), access)

    changes = {**adapter, "features": device.info.features | frozenset(features)}
    with another_adapter(device, changes), mock.patch.object(bridge, "create_pipeline", create_rewritten):
        yield


@contextmanager
def emulated(device, busy=tiled_codes.BUSY_WORKGROUPS):
    """Kernels are planned as for an adapter with such matrices, and run on this one.

    It is kept busy by so many workgroups; runs of tiles are longer where fewer suffice.
    """
    is_busy = mock.patch.object(tiled_codes, "BUSY_WORKGROUPS", busy)
    with planned_for(device, ADAPTER, FEATURES, emulate), is_busy:
        yield
