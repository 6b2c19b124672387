//## (row_max, 1 / row_sum, delta) of every query row; delta = Σ_d d_out·out is what the softmax's gradient subtracts,
//## less the gradient of the row's LSE (`has_grad_lse`), whose own gradient with respect to a score is the probability.
//# from "lib/storage.wgsl" import reader, half_types
{{ half_types(dtypes) }}
{{ reader("grad", grad_dtype, grad_packed, DV) }}
{{ reader("out", out_dtype, out_packed, DV) }}
//# include "lib/math.wgsl"
//# include "lib/row_parts.wgsl"

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let row = (workgroup.x + workgroup.y * workgroups.x) * WORKGROUP + thread_index;
  if (row >= params.rows) {
    return;
  }
  let index = vec3<u32>(row / params.queries / params.heads, row / params.queries % params.heads, row % params.queries);
  let grad_row = params.grad_first + dot(params.grad_strides.xyz, index);
  let out_row = params.out_first + dot(params.out_strides.xyz, index);
  var sum = 0.0;
  var bits = vec4<u32>();
  for (var d = 0u; d < 4u * DV4; d += 4u) {
    let out4 = out_at4(out_row, params.out_strides.w, d);
    bits |= bitcast<vec4<u32>>(out4) << vec4<u32>(1u);
    sum += dot(grad_at4(grad_row, params.grad_strides.w, d), out4);
  }
  // A row that sees nothing is zero whatever the scores are, and 0 · NaN is NaN.
  sum = select(0.0, sum, any(bits != vec4<u32>()));
  let parts = row_parts(params.lse_first + dot(params.lse_strides.xyz, index));
//# if has_grad_lse
  // The LSE of a row that sees nothing is minus infinity whatever the scores are.
  sum -= select(grad_lse[params.grad_lse_first + dot(params.grad_lse_strides.xyz, index)], 0.0, parts.y == 0.0);
//# endif
  row_values[row] = vec4<f32>(parts, sum, 0.0);
}
