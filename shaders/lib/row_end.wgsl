//## How a row of attention ends, the same for every kernel: its sink, the factor of its acc, its LSE.
//## Needs: lib/math.wgsl, `natural` (whether scores are in natural units, see lib/score.wgsl), `has_sinks` (bool), and
//## where that holds what lib/sinks.wgsl needs; `return_lse`, and where that holds the binding `lse`.
//# from "lib/exp.wgsl" import exp_of with context
//# if has_sinks
//#   include "lib/sinks.wgsl"
//# endif
/// (factor, natural LSE, row_max, row_sum) of a row of head h: the given row_max and row_sum are of its scores, the
/// returned ones also count its sink. The factor is for acc, the sum of exp(score - given row_max) · value; a weight is
/// exp(score - returned row_max) / returned row_sum.
fn row_end(h: u32, row_max: f32, row_sum: f32) -> vec4<f32> {
//# if has_sinks
  let sink = sink_of(h){{ "" if natural else " * LOG2_E" }};
  let new_max = max(row_max, sink);
  let rescale = {{ exp_of("row_max - new_max") }};
  let new_sum = fma(row_sum, rescale, {{ exp_of("sink - new_max") }});
//# else
  let new_max = row_max;
  let rescale = 1.0;
  let new_sum = row_sum;
//# endif
  let seen = new_sum > 0.0;
//# if natural
  let lse_of_row = fma(accurate_log2(new_sum), LN_2, new_max);
//# else
  let lse_of_row = (new_max + accurate_log2(new_sum)) * LN_2;
//# endif
  let ended = vec4<f32>(
    select(0.0, rescale / new_sum, seen),
    select(params.empty_lse, lse_of_row, seen),
    new_max,
    new_sum,
  );
  // Some adapters' exp2 and max turn NaN into infinity or into another number, but the sum of such a row is never
  // finite.
  let nan = not_a_number();
  return select(vec4<f32>(nan, nan, LOWEST, nan), ended, is_finite(new_sum));
}
//# if return_lse

/// Writes row n's LSE, and behind all LSEs its row_max and row_sum: one float32 cannot hold a large maximum and the
/// logarithm of the sum (lib/row_parts.wgsl reads them). Without room for these lse_plane is 0, and the LSE is what
/// stays.
fn store_lse(n: u32, end_of_row: vec4<f32>) {
  lse[n + 2u * params.lse_plane] = end_of_row.w;
  lse[n + params.lse_plane] = end_of_row.z;
  lse[n] = end_of_row.y;
}
//# endif
