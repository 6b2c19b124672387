//## Writes rows [B, Hkv, S, D] into a cache [B, Hkv, capacity, pitch], converting to its storage type:
//## row n goes to slot row_slot(n). One invocation moves four elements.
//# from "lib/storage.wgsl" import writer, half_types
{{ half_types(dtypes) }}
//# if cache_dtype == "int8"
//#   from "lib/integer_rows.wgsl" import int8_writer
{{ int8_writer() }}
//# else
{{ writer("cache", cache_dtype) }}
//# endif
//# include "lib/new_rows.wgsl"

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let work = (workgroup.x + workgroup.y * workgroups.x) * WORKGROUP + thread_index;
  let d = 4u * (work % D4);
  let row = work / D4;
  let n = row % params.count;
  let head = row / params.count % params.heads;
  let b = row / params.count / params.heads;
  if (b >= params.batch) {
    return;
  }
//# if has_totals
  if (!is_stored(b, n)) {
    return;
  }
//# endif
  cache_put4(target_row(b, head, n) * 4u * D4 + d, new_at4(b, head, n, d){{ " / scales[2u * (b * params.heads + head) + " ~ scale ~ "u]" if cache_dtype == "int8" }});
}
