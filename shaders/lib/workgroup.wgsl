//## Sums and maxima over a workgroup of WORKGROUP invocations, in three steps with a barrier each: PARTS invocations
//## combine WORKGROUP / PARTS values each, one combines the PARTS results, and all read what it found. The order is
//## fixed, so that the same values always have the same sum. Everything here must be called by all invocations together.
//## Needs: WORKGROUP and PARTS.
var<workgroup> all_values: array<vec2<u32>, WORKGROUP>;
var<workgroup> part_values: array<vec2<u32>, PARTS>;
var<workgroup> combined: vec2<u32>;
//##
//## Declares `name`: the combination of `value` over the workgroup, where combine(a, b) is that of two.
//# macro combine_over_workgroup(name, value, combine)
  all_values[thread_index] = {{ value }};
  workgroupBarrier();
  if (thread_index < PARTS) {
    var part = all_values[thread_index];
    for (var n = 1u; n < WORKGROUP / PARTS; n++) {
      part = {{ combine }}(part, all_values[n * PARTS + thread_index]);
    }
    part_values[thread_index] = part;
  }
  workgroupBarrier();
  if (thread_index == 0u) {
    var whole = part_values[0];
    for (var n = 1u; n < PARTS; n++) {
      whole = {{ combine }}(whole, part_values[n]);
    }
    combined = whole;
  }
  workgroupBarrier();
  let {{ name }} = combined;
//# endmacro

/// The sums of two pairs of float32 numbers, all as bits.
fn sums_of(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return bitcast<vec2<u32>>(bitcast<vec2<f32>>(a) + bitcast<vec2<f32>>(b));
}

/// The sums of both components over the workgroup.
fn sums_over_workgroup(value: vec2<f32>, thread_index: u32) -> vec2<f32> {
{{ combine_over_workgroup("sums", "bitcast<vec2<u32>>(value)", "sums_of") }}
  return bitcast<vec2<f32>>(sums);
}

/// Of two pairs (key, id), that with the larger key; where both are the same, that with the smaller id.
fn better_of(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

/// The best of all pairs (key, id).
fn best_over_workgroup(pair: vec2<u32>, thread_index: u32) -> vec2<u32> {
{{ combine_over_workgroup("best", "pair", "better_of") }}
  return best;
}
