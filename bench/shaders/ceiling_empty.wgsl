//## The least that a dispatch can do.

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x == params.count) {
    sink[0] = vec4<f32>(params.never);
  }
}
