"""Texts of kernels with subgroup matrices, for compilers that know subgroups but not their matrices."""

import re

#: What takes the matrices' place: types that do not fit each other. An offset of a matrix in memory goes
#: through an exchange, which compilers refuse, as they refuse a matrix, where it is not the same in the whole
#: subgroup.
_STAND_INS = (
    (r"enable (f16|chromium_experimental_subgroup_matrix);", ""),
    (r"subgroup_matrix_left<[^>]+>", "vec2<f32>"),
    (r"subgroup_matrix_right<[^>]+>", "vec3<f32>"),
    (r"subgroup_matrix_result<[^>]+>", "vec4<f32>"),
    (r"subgroupMatrixLoad<(\w+), \w+>\(&([^,]+), ([^,]+), ([^)]+)\)", r"\1(f32(same_offset(\3) + \4))"),
    (
        r"subgroupMatrixStore<\w+>\(&([^,]+), ([^,]+), ([^,]+), ([^)]+)\);",
        r"_ = vec4<f32>(\3) * f32(same_offset(\2) + \4);",
    ),
    (r"vec4<f16>\((\w+)\)", r"\1"),
    (r"bitcast<vec2<u32>>\((half_\w)\)", r"vec2<u32>(\1.xy)"),
)
_FUNCTIONS = """
fn same_offset(offset: u32) -> u32 {
  return subgroupShuffleXor(0u, offset);
}

fn subgroupMatrixMultiplyAccumulate(a: vec2<f32>, b: vec3<f32>, c: vec4<f32>) -> vec4<f32> {
  return subgroupShuffleXor(c * a.x * b.x, 1u);
}
"""


def without_matrices(text):
    """The text with stand-ins for its matrices."""
    for known, stand_in in _STAND_INS:
        text = re.sub(known, stand_in, text)
    assert "f16" not in text
    return text + _FUNCTIONS
