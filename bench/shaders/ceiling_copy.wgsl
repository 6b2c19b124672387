//## Copies a buffer, one vec4 an invocation and pass.

@compute @workgroup_size(256)
fn main(
  @builtin(global_invocation_id) id: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
) {
  for (var at = id.x; at < params.count; at += workgroups.x * 256u) {
    sink[at] = source[at];
  }
}
