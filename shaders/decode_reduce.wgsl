//## Decode: combines the splits' normalised outputs by their LSEs,
//## out = Σ exp(lse_s - lse) · out_s with lse = log Σ exp(lse_s). A workgroup takes COLUMNS vec4s of a row's
//## columns; its invocations spread over these first and over the splits with what is left, each with an online
//## softmax of its own, and meet once.
//# from "lib/storage.wgsl" import writer, half_types
{{ half_types(dtypes) }}
{{ writer("out", out_dtype) }}
//# include "lib/math.wgsl"
//# include "lib/row_end.wgsl"

const PARTS = WORKGROUP / COLUMNS;
const BLOCKS = {{ (DV4 + COLUMNS - 1) // COLUMNS }}u;
var<workgroup> tops: array<f32, WORKGROUP>;
var<workgroup> totals: array<f32, WORKGROUP>;
var<workgroup> sums: array<vec4<f32>, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let work = workgroup.x + workgroup.y * workgroups.x;
  let row = work / BLOCKS;
  if (row >= params.rows) {
    return;
  }
  let column = work % BLOCKS * COLUMNS + local % COLUMNS;
  let first = row * params.splits;
  var top = FLOOR;
  var total = 0.0;
  var sum = vec4<f32>();
  for (var s = local / COLUMNS; s < params.splits; s += PARTS) {
    let part_lse = partial_lse[first + s];
    let part = partial_out[(first + s) * DV4 + min(column, DV4 - 1u)];
    let higher = max(top, part_lse);
    let shrink = exp2((top - higher) * LOG2_E);
    let weight = exp2((part_lse - higher) * LOG2_E);
    top = higher;
    total = fma(total, shrink, weight);
    sum = fma(vec4<f32>(weight), part, sum * shrink);
  }
  tops[local] = top;
  totals[local] = total;
  sums[local] = sum;
  workgroupBarrier();
  if (local >= COLUMNS || column >= DV4) {
    return;
  }
  for (var n = 1u; n < PARTS; n++) {
    top = max(top, tops[n * COLUMNS + local]);
  }
  total = 0.0;
  sum = vec4<f32>();
  for (var n = 0u; n < PARTS; n++) {
    let weight = exp2((tops[n * COLUMNS + local] - top) * LOG2_E);
    total = fma(totals[n * COLUMNS + local], weight, total);
    sum = fma(vec4<f32>(weight), sums[n * COLUMNS + local], sum);
  }
  let end_of_row = row_end(row / params.queries % params.heads, top * LOG2_E, total);
  out_put4(4u * (row * DV4 + column), sum * end_of_row.x);
//# if write_lse
  if (column == 0u) {
    lse[row] = end_of_row.y;
  }
//# endif
}
