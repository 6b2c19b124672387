//## Writes the elements of a strided view [n0, n1, n2, n3] in order, converted to another type where asked for; with
//## `joined` a second view is concatenated along n2. One invocation writes four elements.
//# from "lib/storage.wgsl" import reader, writer, half_types
{{ half_types(dtypes) }}
//# macro element_reader(name, dtype)
//#   if dtype == "bool"
fn {{ name }}_at(i: u32) -> f32 {
  return f32(({{ name }}[i >> 2u] >> (8u * (i & 3u))) & 0xffu);
}
//#   else
{{ reader(name, dtype, False, 1) }}
//#   endif
//# endmacro
{{ element_reader("source", source_dtype) }}
//# if joined
{{ element_reader("second", second_dtype) }}
//# endif
//# if out_dtype == "bool"
fn out_put4(i: u32, v: vec4<f32>) {
  out[i >> 2u] = dot(vec4<u32>(v != vec4<f32>()), vec4<u32>(1u, 1u << 8u, 1u << 16u, 1u << 24u));
}
//# else
{{ writer("out", out_dtype) }}
//# endif

fn element(i: u32) -> f32 {
  var at: vec4<u32>;
  at.w = i % params.shape.w;
  at.z = i / params.shape.w % params.shape.z;
  at.y = i / (params.shape.w * params.shape.z) % params.shape.y;
  at.x = i / (params.shape.w * params.shape.z * params.shape.y);
//# if joined
  if (at.z >= params.split) {
    at.z -= params.split;
    return second_at(params.second_first + dot(params.second_strides, at));
  }
//# endif
  return source_at(params.source_first + dot(params.source_strides, at));
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let i = 4u * ((workgroup.x + workgroup.y * workgroups.x) * WORKGROUP + thread_index);
  if (i >= params.count) {
    return;
  }
  // Elements past the last one are written into the buffer's padding.
  let last = params.count - 1u;
  out_put4(i, vec4<f32>(element(i), element(min(i + 1u, last)), element(min(i + 2u, last)), element(min(i + 3u, last))));
}
