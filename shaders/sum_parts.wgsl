//## out = Σ parts, in f32 and in the parts' order. An invocation adds one vec4.
//# from "lib/storage.wgsl" import writer, half_types
{{ half_types(dtypes) }}
{{ writer("out", out_dtype) }}
// A sum of sums loses fewer digits than one long sum.
const PARTS_OF_A_SUM = 32u;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let n = (workgroup.x + workgroup.y * workgroups.x) * WORKGROUP + thread_index;
  if (n >= params.count4) {
    return;
  }
  var total = vec4<f32>();
  for (var first = 0u; first < params.parts; first += PARTS_OF_A_SUM) {
    var sum = vec4<f32>();
    for (var part = first; part < min(first + PARTS_OF_A_SUM, params.parts); part++) {
      sum += parts[part * params.count4 + n];
    }
    total += sum;
  }
  out_put4(4u * n, total);
}
