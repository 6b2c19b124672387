//## Turns rows [B, H, S, D] by their positions (rotary position embeddings, lib/rotary.wgsl). One invocation takes four
//## numbers. With `has_totals` the rows are the last positions of each batch element, of which a binding `totals` says
//## how many it has; with `has_positions` a binding `positions` has that of each row, or with `from_first` that of each
//## batch element's first row; else the first row's is params.first_position.
//# from "lib/storage.wgsl" import reader, writer, half_types
{{ half_types(dtypes) }}
{{ reader("source", source_dtype, source_packed, D) }}
{{ writer("out", out_dtype) }}
//# include "lib/rotary.wgsl"

fn position_of(b: u32, n: u32) -> u32 {
//# if has_positions
  return u32(positions[params.positions_first + dot(params.positions_strides, vec2<u32>(b, n))]){{ " + n" if from_first }};
//# else
  // Queries before the first position see nothing; any position will do for them.
  return u32(max({{ "totals[params.totals_first + b] - i32(params.count)" if has_totals else "params.first_position" }} + i32(n), 0));
//# endif
}

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
  out_put4(row * 4u * D4 + d, turned_at4(from_row, params.source_strides.w, d, position_of(b, n)));
}
