//## Sums and maxima over a workgroup of WORKGROUP invocations, in two steps with a barrier each: PARTS invocations
//## combine WORKGROUP / PARTS values each, then every invocation combines the PARTS results. The order is fixed, so
//## that the same values always have the same sum. Everything here must be called by all invocations together.
//## Needs: WORKGROUP and PARTS.
var<workgroup> all_values: array<vec2<u32>, WORKGROUP>;
var<workgroup> part_values: array<vec2<u32>, PARTS>;

/// The sums of both components.
fn sums_over_workgroup(value: vec2<f32>, thread_index: u32) -> vec2<f32> {
  all_values[thread_index] = bitcast<vec2<u32>>(value);
  workgroupBarrier();
  if (thread_index < PARTS) {
    var sums = vec2<f32>();
    for (var n = 0u; n < WORKGROUP / PARTS; n++) {
      sums += bitcast<vec2<f32>>(all_values[n * PARTS + thread_index]);
    }
    part_values[thread_index] = bitcast<vec2<u32>>(sums);
  }
  workgroupBarrier();
  var sums = vec2<f32>();
  for (var n = 0u; n < PARTS; n++) {
    sums += bitcast<vec2<f32>>(part_values[n]);
  }
  return sums;
}

/// Of two pairs (key, id), that with the larger key; where both are the same, that with the smaller id.
fn better_of(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

/// The best of all pairs (key, id).
fn best_over_workgroup(pair: vec2<u32>, thread_index: u32) -> vec2<u32> {
  all_values[thread_index] = pair;
  workgroupBarrier();
  if (thread_index < PARTS) {
    var best = all_values[thread_index];
    for (var n = 1u; n < WORKGROUP / PARTS; n++) {
      best = better_of(best, all_values[n * PARTS + thread_index]);
    }
    part_values[thread_index] = best;
  }
  workgroupBarrier();
  var best = part_values[0];
  for (var n = 1u; n < PARTS; n++) {
    best = better_of(best, part_values[n]);
  }
  return best;
}
