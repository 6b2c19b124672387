//## How a row of attention ends, in one place for every kernel: its sink, the factor of its sums, its LSE.
//## Needs: lib/math.wgsl, `has_sinks` (bool), and where that holds what lib/sinks.wgsl needs.
//# if has_sinks
//#   include "lib/sinks.wgsl"
//# endif
/// (1 / Σ exp(score), natural LSE) of a row of head h, from its maximum in units of log2 and its sum of
/// exp2(score - maximum); the factor is for sums of exp2(score - maximum) · value. The sink counts once a row.
fn row_end(h: u32, top: f32, total: f32) -> vec2<f32> {
//# if has_sinks
  let sink = sink_of(h) * LOG2_E;
  let higher = max(top, sink);
  let shrink = exp2(top - higher);
  let all = fma(total, shrink, exp2(sink - higher));
//# else
  let higher = top;
  let shrink = 1.0;
  let all = total;
//# endif
  let seen = all > 0.0;
  return vec2<f32>(
    select(0.0, shrink / all, seen),
    select(params.empty_lse, (higher + accurate_log2(all)) * LN_2, seen),
  );
}
