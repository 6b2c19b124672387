//## Reads every vec4 of a buffer once, many in flight, neighbours together; writes nothing that anybody reads.

@compute @workgroup_size(256)
fn main(
  @builtin(global_invocation_id) id: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
) {
  let step = workgroups.x * 256u;
  var sums = array<vec4<f32>, 4>();
  for (var at = id.x; at < params.count; at += 4u * step) {
    sums[0] += source[at];
    sums[1] += source[at + step];
    sums[2] += source[at + 2u * step];
    sums[3] += source[at + 3u * step];
  }
  let sum = sums[0] + sums[1] + sums[2] + sums[3];
  if (sum.x == params.never) {
    sink[id.x & 1023u] = sum;
  }
}
