//## The gradient of each head's sink: -Σ exp(sink - row_max) / row_sum · delta over its rows, with the (row_max, 1 /
//## row_sum, delta) that backward_delta.wgsl wrote. A workgroup computes one head; its invocations' sums are added in a
//## fixed order, so that the result is deterministic.
//# from "lib/storage.wgsl" import half_types
//# from "lib/exp.wgsl" import exp_of with context
{{ half_types(dtypes) }}
//# include "lib/math.wgsl"
//# include "lib/sinks.wgsl"
var<workgroup> sums: array<f32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let h = workgroup.x + workgroup.y * workgroups.x;
  if (h >= params.heads) {
    return;
  }
  let sink = sink_of(h){{ "" if natural else " * LOG2_E" }};
  var sum = 0.0;
  for (var n = thread_index; n < params.batch * params.queries; n += WORKGROUP) {
    let b = n / params.queries;
    let row = row_values[(b * params.heads + h) * params.queries + n % params.queries];
    sum -= {{ exp_of("sink - row.x") }} * row.y * row.z;
  }
  sums[thread_index] = sum;
  workgroupBarrier();
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    if (thread_index < half) {
      sums[thread_index] += sums[thread_index + half];
    }
    workgroupBarrier();
  }
  if (thread_index == 0u) {
    d_sinks[h] = sums[0];
  }
}
