//## Decode: combines the splits' normalised outputs by their LSEs,
//## out = Σ exp(lse_s - lse) · out_s with lse = log Σ exp(lse_s). One invocation for four columns.
//# from "lib/storage.wgsl" import writer, half_types
{{ half_types(dtypes) }}
{{ writer("out", out_dtype) }}
//# include "lib/math.wgsl"
//# include "lib/row_end.wgsl"

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let work = (workgroup.x + workgroup.y * workgroups.x) * WORKGROUP + local;
  let row = work / DV4;
  let column = work % DV4;
  if (row >= params.rows) {
    return;
  }
  var top = FLOOR;
  for (var s = 0u; s < params.splits; s++) {
    top = max(top, partial_lse[row * params.splits + s]);
  }
  var sum = vec4<f32>();
  var total = 0.0;
  for (var s = 0u; s < params.splits; s++) {
    let at = row * params.splits + s;
    let weight = exp2((partial_lse[at] - top) * LOG2_E);
    total += weight;
    sum += weight * partial_out[at * DV4 + column];
  }
  let end_of_row = row_end(row / params.queries % params.heads, top * LOG2_E, total);
  out_put4(4u * (row * DV4 + column), sum * end_of_row.x);
//# if write_lse
  if (column == 0u) {
    lse[row] = end_of_row.y;
  }
//# endif
}
