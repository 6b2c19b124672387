//## Writes rows [B, Hkv, S, D] into a cache [B, Hkv, capacity, pitch], converting to its storage type:
//## row n goes to slot row_slot(n). One invocation moves four elements.
//# from "lib/storage.wgsl" import reader, writer, half_types
{{ half_types(dtypes) }}
{{ reader("source", source_dtype, source_packed, D) }}
{{ writer("cache", cache_dtype) }}
//# include "lib/row_slot.wgsl"

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
  let from_row = params.source_first + dot(params.source_strides.xyz, vec3<u32>(b, head, n));
//# if has_totals
  if (!row_stays(b, n)) {
    return;
  }
//# endif
  let slot = row_slot({{ "b, " if has_totals }}n);
  let to_row = ((b * params.heads + head) * params.capacity + slot) * 4u * D4;
  cache_put4(to_row + d, source_at4(from_row, params.source_strides.w, d));
}
