//## Decode: combines the splits' normalised outputs by each row's maximum and sum in each split (partial_rows):
//## out = Σ w_s · out_s / Σ w_s with w_s = row_sum_s · exp(row_max_s - row_max). A workgroup takes COLUMNS vec4s of a
//## row's columns; its invocations spread over these first and over the splits with what is left, each with an online
//## softmax of its own, and meet once. With `rotates` it takes a whole row, which it rotates back.
//# from "lib/storage.wgsl" import writer, half_types
//# from "lib/exp.wgsl" import exp_of with context
//# if rotates
//#   from "lib/turboquant.wgsl" import rotation_in_subgroup with context
//#   from "lib/place.wgsl" import place_memory, place_arguments, find_place with context
//# endif
{{ half_types(dtypes) }}
{{ writer("out", out_dtype) }}
//# include "lib/math.wgsl"
//# include "lib/row_end.wgsl"
//# if rotates
{{ rotation_in_subgroup(true) }}
{{ place_memory() }}
//# endif

const PARTS = WORKGROUP / COLUMNS;
const BLOCKS = {{ (DV4 + COLUMNS - 1) // COLUMNS }}u;
var<workgroup> tops: array<f32, WORKGROUP>;
var<workgroup> totals: array<f32, WORKGROUP>;
var<workgroup> sums: array<vec4<f32>, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
//# if rotates
{{ place_arguments() }}
//# else
  @builtin(local_invocation_index) place: u32,
//# endif
) {
  let work = workgroup.x + workgroup.y * workgroups.x;
  let row = work / BLOCKS;
  if (row >= params.rows) {
    return;
  }
//# if rotates
{{ find_place() }}
//# endif
  let column = work % BLOCKS * COLUMNS + place % COLUMNS;
  let first = row * params.splits;
  var top = LOWEST;
  var total = 0.0;
  var sum = vec4<f32>();
  for (var s = place / COLUMNS; s < params.splits; s += PARTS) {
    let part_row = partial_rows[first + s];
    let part = partial_out[(first + s) * DV4 + min(column, DV4 - 1u)];
    let higher = max(top, part_row.x);
    let shrink = {{ exp_of("top - higher") }};
    let weight = part_row.y * {{ exp_of("part_row.x - higher") }};
    top = higher;
    total = fma(total, shrink, weight);
    sum = fma(vec4<f32>(weight), part, sum * shrink);
  }
  tops[place] = top;
  totals[place] = total;
  sums[place] = sum;
  workgroupBarrier();
  for (var n = 0u; n < PARTS; n++) {
    top = max(top, tops[n * COLUMNS + place % COLUMNS]);
  }
  total = 0.0;
  sum = vec4<f32>();
  for (var n = 0u; n < PARTS; n++) {
    let weight = {{ exp_of("tops[n * COLUMNS + place % COLUMNS] - top") }};
    total = fma(totals[n * COLUMNS + place % COLUMNS], weight, total);
    sum = fma(vec4<f32>(weight), sums[n * COLUMNS + place % COLUMNS], sum);
  }
  let end_of_row = row_end(row / params.queries % params.heads, top, total);
  sum *= end_of_row.x;
//# if rotates
  sum = rotate_back(sum, 4u * column + vec4<u32>(0u, 1u, 2u, 3u));
//# endif
  if (place < COLUMNS && column < DV4) {
    out_put4(4u * (row * DV4 + column), sum);
  }
//# if return_lse
  if (place == 0u && column == 0u) {
    store_lse(row, end_of_row);
  }
//# endif
}
