//## Copies a tensor's elements in order to words params.begin … of `out`: floats as f32, booleans as 0 or 1.
//# from "lib/storage.wgsl" import reader, half_types
{{ half_types(dtypes) }}
//# set floating = dtype in ("float32", "float16", "bfloat16")
//# if floating
{{ reader("source", dtype, False, 1) }}
//# endif

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let n = (workgroup.x + workgroup.y * workgroups.x) * WORKGROUP + thread_index;
  if (n >= params.count) {
    return;
  }
  let s = params.shape;
  let place = vec4<u32>(n / s.w / s.z / s.y, n / s.w / s.z % s.y, n / s.w % s.z, n % s.w);
  let at = params.source_first + dot(params.strides, place);
//# if floating
  out[params.begin + n] = bitcast<u32>(source_at(at));
//# elif dtype == "bool"
  out[params.begin + n] = (source[at >> 2u] >> (8u * (at & 3u))) & 0xffu;
//# else
  out[params.begin + n] = bitcast<u32>(source[at]);
//# endif
}
