//## Rotates rows [B, H, S, D], or with `inverse` rotates them back. Rows come as floats or as TurboQuant's codes, and
//## are written as floats, padded to multiples of four. LANES invocations take a row. With `qjl` a second rotation of
//## the row follows it, which inner products with the residual's signs take, as those with the codes take the first.
//## With `has_state` the rows are those of a log from the position of a text on (lib/state.wgsl).
//# from "lib/storage.wgsl" import writer, half_types
//# from "lib/turboquant.wgsl" import row_reader, rotation
{{ half_types(dtypes) }}
{{ row_reader("source", source_dtype, source_packed, D, source_row) }}
{{ writer("out", out_dtype) }}
{{ rotation() }}
//# if has_state
//# include "lib/state.wgsl"
//# endif

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let row = (workgroup.x + workgroup.y * workgroups.x) * VECTORS + thread_index / LANES;
  let n = row % params.count;
  let head = row / params.count % params.heads;
  let b = row / params.count / params.heads;
  let d = 4u * (thread_index % LANES);
  let e = d + vec4<u32>(0u, 1u, 2u, 3u);
  let vector = thread_index / LANES * WIDTH;
  let from_row = params.source_first + dot(params.source_strides.xyz, vec3<u32>(b, head, {{ "state_position() + n" if has_state else "n" }}));
  let to_row = row * OUT_PITCH;
  // Barriers follow: nobody may leave early.
  let mine = b < params.batch && d < D;
  var v = vec4<f32>();
  if (mine) {
    v = source_at4(from_row, params.source_strides.w, d);
  }
//# if inverse
//#   if qjl
  var rest = vec4<f32>();
  if (mine) {
    rest = source_at4(from_row, params.source_strides.w, 4u * D4 + d);
  }
  v += rotate_back(rest, e, vector, ROUNDS);
//#   endif
  v = rotate_back(v, e, vector, 0u);
//# else
  v = select(vec4<f32>(), rotate(v, e, vector, 0u), e < vec4<u32>(D));
//# endif
  if (mine) {
    out_put4(to_row + d, v);
  }
//# if qjl and not inverse
  v = select(vec4<f32>(), rotate(v, e, vector, ROUNDS), e < vec4<u32>(D));
  if (mine) {
    out_put4(to_row + 4u * D4 + d, v);
  }
//# endif
}
