//## Products of subgroup matrices (float16 operands of 16 × 16, float32 sums) on eight independent sums, nothing else
//## in the loop. Needs subgroups of 32.
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;
// 16 rows of 16 halves, and of 16 floats of each subgroup.
var<workgroup> halves: array<vec4<u32>, 32>;
var<workgroup> sums: array<array<vec4<f32>, 64>, 8>;

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(subgroup_id) number: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  // 0.5 and smaller numbers: what is added up stays finite.
  if (number == 0u) {
    halves[lane] = vec4<u32>(0x38003400u);
  }
  workgroupBarrier();
  let left = subgroupMatrixLoad<Left, row_major>(&halves, 0u, 2u);
  let right = subgroupMatrixLoad<Right, row_major>(&halves, 0u, 2u);
//# for n in range(8)
  var sum_{{ n }} = Result();
//# endfor
  for (var i = 0u; i < params.count; i++) {
//# for n in range(8)
    sum_{{ n }} = subgroupMatrixMultiplyAccumulate(left, right, sum_{{ n }});
//# endfor
  }
//# for n in range(8)
  subgroupMatrixStore<row_major>(&sums[number], 0u, sum_{{ n }}, 4u);
  workgroupBarrier();
  if (sums[number][lane].x == params.never) {
    sink[workgroup.x & 1023u] = sums[number][lane];
  }
  workgroupBarrier();
//# endfor
}
