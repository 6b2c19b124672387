//## Decode: combines the splits' normalised outputs by their maxima and sums, which lie behind their LSEs (store_lse in
//## lib/row_end.wgsl): out = Σ w_s · out_s / Σ w_s with w_s = row_sum_s · exp(row_max_s - row_max). A workgroup takes COLUMNS vec4s of a row's
//## columns; its invocations spread over these first and over the splits with what is left, each with an online
//## softmax of its own, and meet once. With `rotates` it takes a whole row, which it rotates back.
//# from "lib/storage.wgsl" import writer, half_types
//# from "lib/exp.wgsl" import exp_of with context
//# if rotates
//#   from "lib/turboquant.wgsl" import rotation_in_subgroup with context
//#   from "lib/thread_index.wgsl" import thread_index_memory, thread_index_arguments, find_thread_index with context
//# endif
{{ half_types(dtypes) }}
{{ writer("out", out_dtype) }}
//# include "lib/math.wgsl"
//# include "lib/row_end.wgsl"
//# if rotates
{{ rotation_in_subgroup(true) }}
{{ thread_index_memory() }}
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
{{ thread_index_arguments() }}
//# else
  @builtin(local_invocation_index) thread_index: u32,
//# endif
) {
  let work = workgroup.x + workgroup.y * workgroups.x;
  let row = work / BLOCKS;
  if (row >= params.rows) {
    return;
  }
//# if rotates
{{ find_thread_index() }}
//# endif
  let column = work % BLOCKS * COLUMNS + thread_index % COLUMNS;
  let first = row * params.splits;
  var top = LOWEST;
  var total = 0.0;
  var sum = vec4<f32>();
  for (var s = thread_index / COLUMNS; s < params.splits; s += PARTS) {
    let part_max = partial_lse[params.partial_plane + first + s];
    let part_sum = partial_lse[2u * params.partial_plane + first + s];
    let part = partial_out[(first + s) * DV4 + min(column, DV4 - 1u)];
    let higher = max(top, part_max);
    let shrink = {{ exp_of("top - higher") }};
    let weight = part_sum * {{ exp_of("part_max - higher") }};
    top = higher;
    total = fma(total, shrink, weight);
    sum = fma(vec4<f32>(weight), part, sum * shrink);
  }
  tops[thread_index] = top;
  totals[thread_index] = total;
  sums[thread_index] = sum;
  workgroupBarrier();
  for (var n = 0u; n < PARTS; n++) {
    top = max(top, tops[n * COLUMNS + thread_index % COLUMNS]);
  }
  total = 0.0;
  sum = vec4<f32>();
  for (var n = 0u; n < PARTS; n++) {
    let weight = {{ exp_of("tops[n * COLUMNS + thread_index % COLUMNS] - top") }};
    total = fma(totals[n * COLUMNS + thread_index % COLUMNS], weight, total);
    sum = fma(vec4<f32>(weight), sums[n * COLUMNS + thread_index % COLUMNS], sum);
  }
  let end_of_row = row_end(row / params.queries % params.heads, top, total);
  sum *= end_of_row.x;
//# if rotates
  sum = rotate_back(sum, 4u * column + vec4<u32>(0u, 1u, 2u, 3u));
//# endif
  if (thread_index < COLUMNS && column < DV4) {
    out_put4(4u * (row * DV4 + column), sum);
  }
//# if return_lse
  if (thread_index == 0u && column == 0u) {
    store_lse(row, end_of_row);
  }
//# endif
}
