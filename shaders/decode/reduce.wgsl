//## Decode: combines the partial results of the splits, their normalised outputs, by each row's row_max and row_sum in
//## each split (partial_rows): out = Σ w_s · out_s / Σ w_s with w_s = row_sum_s · exp(row_max_s - row_max). A workgroup
//## computes COLUMNS vec4s of a row. COLUMNS neighbouring invocations take one split at a time, SPLITS_AT_ONCE of them
//## side by side, each with an online softmax of its own; these are merged at the end. Each asks memory for `together`
//## splits before it uses the first; with `in_one_turn` these are all that there are, and none too many. With `rotates` a
//## workgroup computes a whole row, which its first invocations rotate back; then there are few workgroups, and what
//## counts is how seldom one waits for memory.
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
//# if in_one_turn
  {
    let s = thread_index / COLUMNS;
//# else
  for (var s = thread_index / COLUMNS; s < params.splits; s += {{ together }}u * SPLITS_AT_ONCE) {
//# endif
    var new_max = row_max;
//# for n in range(together)
    let split_{{ n }} = s + {{ n }}u * SPLITS_AT_ONCE;
    let at_{{ n }} = first + {{ "split_" ~ n if in_one_turn else "min(split_" ~ n ~ ", params.splits - 1u)" }};
    let acc_{{ n }} = partial_out[at_{{ n }} * DV4 + min(column, DV4 - 1u)];
//# endfor
//# for n in range(together)
//#   if in_one_turn
    let row_{{ n }} = partial_rows[at_{{ n }}];
//#   else
    let row_{{ n }} = select(vec2<f32>(LOWEST, 0.0), partial_rows[at_{{ n }}], split_{{ n }} < params.splits);
//#   endif
    new_max = max(new_max, row_{{ n }}.x);
//# endfor
    let rescale = {{ exp_of("row_max - new_max") }};
    row_max = new_max;
    row_sum *= rescale;
    acc *= rescale;
//# for n in range(together)
    let weight_{{ n }} = row_{{ n }}.y * {{ exp_of("row_" ~ n ~ ".x - new_max") }};
    row_sum += weight_{{ n }};
    acc = fma(vec4<f32>(weight_{{ n }}), acc_{{ n }}, acc);
//# endfor
  }
  shared_max[thread_index] = row_max;
  shared_sum[thread_index] = row_sum;
  shared_acc[thread_index] = acc;
  workgroupBarrier();
//# if others_end or not rotates
  // Those without a part in the output would only take turns with the others.
  if ({{ "subgroup_number * subgroup_size" if rotates else "thread_index" }} >= COLUMNS) {
    return;
  }
//# endif
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
  acc = rotate_back(acc, subgroup_lane, ROUNDS);
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
