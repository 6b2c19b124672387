//## Multiply-adds on eight independent vec4 chains an invocation, nothing else in the loop.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let a = vec4<f32>(params.never + f32(id.x & 3u) * 1e-6);
//# for n in range(8)
  var x{{ n }} = vec4<f32>({{ n }}.0, 1.0, 2.0, 3.0) * a;
//# endfor
  for (var i = 0u; i < params.count; i++) {
//# for repeat in range(4)
//#   for n in range(8)
    x{{ n }} = fma(x{{ n }}, a, a);
//#   endfor
//# endfor
  }
  let sum = x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7;
  if (sum.x == 12345.0) {
    sink[id.x & 1023u] = sum;
  }
}
