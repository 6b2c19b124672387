//## The gradient of each head's sink: -Σ exp(sink - lse) · delta over its rows, with the (lse, delta) that
//## backward_delta.wgsl wrote. A workgroup takes a head; its invocations' sums are added in a fixed order,
//## so that the result is the same from run to run.
//# from "lib/storage.wgsl" import half_types
{{ half_types(dtypes) }}
//# include "lib/math.wgsl"
//# include "lib/sinks.wgsl"
var<workgroup> sums: array<f32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let h = workgroup.x + workgroup.y * workgroups.x;
  if (h >= params.heads) {
    return;
  }
  let sink = sink_of(h);
  var sum = 0.0;
  for (var n = local; n < params.batch * params.queries; n += WORKGROUP) {
    let b = n / params.queries;
    let row = row_values[(b * params.heads + h) * params.queries + n % params.queries];
    // No less than the smallest share that float32 holds; a row without an LSE has no share.
    let share = exp2(max(sink - row.x, -150.0) * LOG2_E);
    sum -= select(share * row.y, 0.0, row.x < -1e38);
  }
  sums[local] = sum;
  workgroupBarrier();
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    if (local < half) {
      sums[local] += sums[local + half];
    }
    workgroupBarrier();
  }
  if (local == 0u) {
    d_sinks[h] = sums[0];
  }
}
