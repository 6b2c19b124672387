//## Decode: combines the partial results of the splits, their normalised outputs, by each row's row_max and row_sum in
//## each split (partial_rows): out = Σ w_s · out_s / Σ w_s with w_s = row_sum_s · exp(row_max_s - row_max). A workgroup
//## computes COLUMNS vec4s of a row. COLUMNS neighbouring invocations take one split at a time, SPLITS_AT_ONCE of them
//## side by side, each with an online softmax of its own; these are merged at the end. With `rotates` a workgroup
//## computes a whole row and rotates it back.
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

const SPLITS_AT_ONCE = WORKGROUP / COLUMNS;
const BLOCKS = {{ (DV4 + COLUMNS - 1) // COLUMNS }}u;
var<workgroup> shared_max: array<f32, WORKGROUP>;
var<workgroup> shared_sum: array<f32, WORKGROUP>;
var<workgroup> shared_acc: array<vec4<f32>, WORKGROUP>;

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
  var row_max = LOWEST;
  var row_sum = 0.0;
  var acc = vec4<f32>();
  for (var s = thread_index / COLUMNS; s < params.splits; s += SPLITS_AT_ONCE) {
    let partial_row = partial_rows[first + s];
    let partial_acc = partial_out[(first + s) * DV4 + min(column, DV4 - 1u)];
    let new_max = max(row_max, partial_row.x);
    let rescale = {{ exp_of("row_max - new_max") }};
    let weight = partial_row.y * {{ exp_of("partial_row.x - new_max") }};
    row_max = new_max;
    row_sum = fma(row_sum, rescale, weight);
    acc = fma(vec4<f32>(weight), partial_acc, acc * rescale);
  }
  shared_max[thread_index] = row_max;
  shared_sum[thread_index] = row_sum;
  shared_acc[thread_index] = acc;
  workgroupBarrier();
  for (var n = 0u; n < SPLITS_AT_ONCE; n++) {
    row_max = max(row_max, shared_max[n * COLUMNS + thread_index % COLUMNS]);
  }
  row_sum = 0.0;
  acc = vec4<f32>();
  for (var n = 0u; n < SPLITS_AT_ONCE; n++) {
    let weight = {{ exp_of("shared_max[n * COLUMNS + thread_index % COLUMNS] - row_max") }};
    row_sum = fma(shared_sum[n * COLUMNS + thread_index % COLUMNS], weight, row_sum);
    acc = fma(vec4<f32>(weight), shared_acc[n * COLUMNS + thread_index % COLUMNS], acc);
  }
  let end_of_row = row_end(row / params.queries % params.heads, row_max, row_sum);
  acc *= end_of_row.x;
  if (is_finite(end_of_row.x) && !all(are_finite(acc))) {
    // The sum may have overflowed before it was divided.
    acc = vec4<f32>();
    for (var s = 0u; s < params.splits; s++) {
      let partial_row = partial_rows[first + s];
      let weight = partial_row.y * {{ exp_of("partial_row.x - row_max") }} * end_of_row.x;
      acc = fma(vec4<f32>(weight), partial_out[(first + s) * DV4 + min(column, DV4 - 1u)], acc);
    }
  }
//# if rotates
  acc = rotate_back(acc, 4u * column + vec4<u32>(0u, 1u, 2u, 3u));
//# endif
  if (thread_index < COLUMNS && column < DV4) {
    out_put4(4u * (row * DV4 + column), acc);
  }
//# if return_lse
  if (thread_index == 0u && column == 0u) {
    store_lse(row, end_of_row);
  }
//# endif
}
