//## Adds the rows that were appended to each batch element to its total. One invocation takes a batch element.
//# include "lib/row_slot.wgsl"

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let b = (workgroup.x + workgroup.y * workgroups.x) * WORKGROUP + thread_index;
  if (b < params.batch) {
    totals[params.totals_first + b] = i32(rows_before(b) + new_rows(b));
  }
}
