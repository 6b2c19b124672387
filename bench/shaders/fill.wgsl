//## Reproducible numbers of variance 1 by index, the same in WGSL, numpy and JavaScript (bench/numbers.py).

fn mixed(index: u32) -> u32 {
  var x = index * 0x9e3779b1u + params.seed;
  x = (x ^ (x >> 16u)) * 0x7feb352du;
  x = (x ^ (x >> 15u)) * 0x846ca68bu;
  return x ^ (x >> 16u);
}

@compute @workgroup_size(256)
fn main(
  @builtin(global_invocation_id) id: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
) {
  let at = id.x + id.y * workgroups.x * 256u;
  if (at >= params.count) {
    return;
  }
  let bits = mixed(at);
  values[at] = f32(i32(bits & 0xffffu) + i32(bits >> 16u) - 65535) * params.step;
}
