//## (row_max, 1 / row_sum, delta) of every query row; delta = Σ_d d_out·out is what the softmax's gradient subtracts,
//## less the gradient of the row's LSE (`has_grad_lse`), whose own gradient with respect to a score is the probability.
//## LANES neighbouring invocations share a row and read neighbouring vec4s of it.
//# from "lib/storage.wgsl" import reader, half_types
{{ half_types(dtypes) }}
{{ reader("grad", grad_dtype, grad_packed, DV) }}
{{ reader("out", out_dtype, out_packed, DV) }}
//# include "lib/math.wgsl"
//# include "lib/row_parts.wgsl"
//# if LANES > 1
// Of each invocation's part of its row: the sum, and whether the output has a number other than zero.
var<workgroup> sums: array<f32, WORKGROUP>;
var<workgroup> seen: array<u32, WORKGROUP>;
//# endif

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let number = ((workgroup.x + workgroup.y * workgroups.x) * WORKGROUP + thread_index) / LANES;
  let row = min(number, params.rows - 1u);
  let index = vec3<u32>(row / params.queries / params.heads, row / params.queries % params.heads, row % params.queries);
  let grad_row = params.grad_first + dot(params.grad_strides.xyz, index);
  let out_row = params.out_first + dot(params.out_strides.xyz, index);
  var sum = 0.0;
  var bits = vec4<u32>();
  for (var d = thread_index % LANES; d < DV4; d += LANES) {
    let out4 = out_at4(out_row, params.out_strides.w, 4u * d);
    bits |= bitcast<vec4<u32>>(out4) << vec4<u32>(1u);
    sum += dot(grad_at4(grad_row, params.grad_strides.w, 4u * d), out4);
  }
  var is_seen = any(bits != vec4<u32>());
//# if LANES > 1
  sums[thread_index] = sum;
  seen[thread_index] = u32(is_seen);
  workgroupBarrier();
  for (var lane = 1u; lane < LANES; lane++) {
    let other = thread_index / LANES * LANES + (thread_index + lane) % LANES;
    sum += sums[other];
    is_seen |= seen[other] != 0u;
  }
//# endif
  if (number >= params.rows || thread_index % LANES != 0u) {
    return;
  }
  // A row that sees nothing is zero whatever the scores are, and 0 · NaN is NaN.
  sum = select(0.0, sum, is_seen);
  let parts = row_parts(params.lse_first + dot(params.lse_strides.xyz, index));
//# if has_grad_lse
  // The LSE of a row that sees nothing is minus infinity whatever the scores are.
  sum -= select(grad_lse[params.grad_lse_first + dot(params.grad_lse_strides.xyz, index)], 0.0, parts.y == 0.0);
//# endif
  row_values[row] = vec4<f32>(parts, sum, 0.0);
}
