//## Decode: combines the splits' normalised outputs by their LSEs,
//## out = Σ exp(lse_s - lse) · out_s with lse = log Σ exp(lse_s). A workgroup takes a row: its invocations
//## spread over the columns first and over the splits with what is left.
//# from "lib/storage.wgsl" import writer, half_types
{{ half_types(dtypes) }}
{{ writer("out", out_dtype) }}
//# include "lib/math.wgsl"
//# include "lib/row_end.wgsl"

const PARTS = WORKGROUP / DV4;
var<workgroup> tops: array<f32, WORKGROUP>;
var<workgroup> totals: array<f32, WORKGROUP>;
var<workgroup> sums: array<vec4<f32>, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let row = workgroup.x + workgroup.y * workgroups.x;
  if (row >= params.rows) {
    return;
  }
  let column = local % DV4;
  let part = local / DV4;
  let first = row * params.splits;
  var top = FLOOR;
  for (var s = local; s < params.splits; s += WORKGROUP) {
    top = max(top, partial_lse[first + s]);
  }
  tops[local] = top;
  workgroupBarrier();
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    if (local < half) {
      tops[local] = max(tops[local], tops[local + half]);
    }
    workgroupBarrier();
  }
  top = tops[0];
  var sum = vec4<f32>();
  var total = 0.0;
  for (var s = part; s < params.splits && part < PARTS; s += PARTS) {
    let weight = exp2((partial_lse[first + s] - top) * LOG2_E);
    total += weight;
    sum = fma(vec4<f32>(weight), partial_out[(first + s) * DV4 + column], sum);
  }
  totals[local] = total;
  sums[local] = sum;
  workgroupBarrier();
  if (local >= DV4) {
    return;
  }
  for (var n = 1u; n < PARTS; n++) {
    total += totals[n * DV4 + local];
    sum += sums[n * DV4 + local];
  }
  let end_of_row = row_end(row / params.queries % params.heads, top * LOG2_E, total);
  out_put4(4u * (row * DV4 + column), sum * end_of_row.x);
//# if write_lse
  if (column == 0u) {
    lse[row] = end_of_row.y;
  }
//# endif
}
