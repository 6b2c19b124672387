//## Rotates rows [B, H, S, D], or with `inverse` rotates them back; they come as floats or as TurboQuant's
//## codes and go out in a row's padding, float. LANES invocations take a row.
//# from "lib/storage.wgsl" import writer, half_types
//# from "lib/turboquant.wgsl" import row_reader, rotation
{{ half_types(dtypes) }}
{{ row_reader("source", source_dtype, source_packed, D, source_bits, source_levels) }}
{{ writer("out", out_dtype) }}
{{ rotation() }}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let row = (workgroup.x + workgroup.y * workgroups.x) * VECTORS + local / LANES;
  let n = row % params.count;
  let head = row / params.count % params.heads;
  let b = row / params.count / params.heads;
  let d = 4u * (local % LANES);
  // Barriers follow: nobody may leave early.
  let mine = b < params.batch && d < D;
  var v = vec4<f32>();
  if (mine) {
    let from_row = params.source_first + dot(params.source_strides.xyz, vec3<u32>(b, head, n));
    v = source_at4(from_row, params.source_strides.w, d);
  }
  let e = d + vec4<u32>(0u, 1u, 2u, 3u);
//# if inverse
  v = rotate_back(v, e, local / LANES * WIDTH);
//# else
  v = rotate(v, e, local / LANES * WIDTH);
//# endif
  if (mine) {
    out_put4(row * 4u * D4 + d, v);
  }
}
