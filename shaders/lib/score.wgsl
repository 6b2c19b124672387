//## The meaning of attention's arguments, in one place for every kernel.
//## Needs: `softcap` (bool), `mask_kind` ("none", "bool" or a float dtype), `has_lengths` (bool).
//## Scores are in units of log2, so that softmax is exp2: the query comes scaled by scale·log2(e).
// A hidden score lies so far below every visible one, which is FLOOR at least, that exp2 of their
// difference is zero; a row maximum that begins at FLOOR then needs no special case and makes no NaN.
const FLOOR = -1e38f;
const HIDDEN = -3e38f;
const LOG2_E = 1.4426950408889634f;
const LN_2 = 0.6931471805599453f;

//# if softcap
// 1 - 2/(e^2x + 1) loses digits near zero, where the odd series takes over; WGSL's tanh promises neither.
fn accurate_tanh(x: f32) -> f32 {
  let a = min(abs(x), 12.0);
  let y = x * x;
  let near = x + x * y * (-1.0 / 3.0 + y * (2.0 / 15.0 + y * (-17.0 / 315.0 + y * (62.0 / 2835.0 + y * (-1382.0 / 155925.0)))));
  let far = sign(x) * (1.0 - 2.0 / (exp2(2.0 * LOG2_E * a) + 1.0));
  return select(far, near, a < 0.35);
}

//# endif
/// log2 of a positive number, to a rounding; WGSL's own may be off by 2^-21 near 1.
fn accurate_log2(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  // The mantissa is taken from √½ to √2, so that its logarithm is small.
  let exponent = bitcast<i32>(bits - 0x3f3504f3u) >> 23u;
  let m = bitcast<f32>(bits - (bitcast<u32>(exponent) << 23u));
  let t = (m - 1.0) / (m + 1.0);
  let y = t * t;
  return f32(exponent) + 2.0 * LOG2_E * (t + t * y * (1.0 / 3.0 + y * (1.0 / 5.0 + y * (1.0 / 7.0 + y * (1.0 / 9.0)))));
}

/// The natural log-sum-exp of a row from its maximum and its sum of exp2(score - maximum).
fn row_lse(top: f32, total: f32) -> f32 {
  return select(params.empty_lse, (top + accurate_log2(total)) * LN_2, total > 0.0);
}

/// How many keys batch element b has.
fn key_count(b: u32) -> i32 {
//# if has_lengths
  return clamp(lengths[params.lengths_first + b * params.lengths_stride], 0, i32(params.keys));
//# else
  return i32(params.keys);
//# endif
}

/// What to add to a query's index to get its position among the keys.
fn query_shift(length: i32) -> i32 {
  return select(length - i32(params.queries), 0, params.top_left != 0u);
}

/// Softcap; the query was scaled for it.
fn shaped(dot: f32) -> f32 {
//# if softcap
  return params.score_scale * accurate_tanh(dot);
//# else
  return dot;
//# endif
}

/// Whether the key at j is within the window of a query at `position`, and there at all.
fn in_window(position: i32, j: i32, length: i32) -> bool {
  return j < length && j >= position - params.window_left && j <= position + params.window_right;
}

//# if mask_kind == "bool"
fn mask_allows(b: u32, h: u32, i: u32, j: u32) -> bool {
  let at = params.mask_first + dot(params.mask_strides, vec4<u32>(b, h, i, j));
  return ((mask[at >> 2u] >> (8u * (at & 3u))) & 0xffu) != 0u;
}

//# elif mask_kind != "none"
fn mask_value(b: u32, h: u32, i: u32, j: u32) -> f32 {
  return mask_at(params.mask_first + dot(params.mask_strides, vec4<u32>(b, h, i, j)));
}

fn mask_allows(b: u32, h: u32, i: u32, j: u32) -> bool {
  // Compared as bits: compilers may assume that no float is infinite.
  return bitcast<u32>(mask_value(b, h, i, j)) != 0xff800000u;
}

//# endif
/// The score of query i and key j from their scaled dot product, HIDDEN where i may not see j.
fn score(dot: f32, b: u32, h: u32, i: u32, j: u32, position: i32, length: i32) -> f32 {
  if (!in_window(position, i32(j), length)) {
    return HIDDEN;
  }
//# if mask_kind == "none"
  return shaped(dot);
//# elif mask_kind == "bool"
  return select(HIDDEN, shaped(dot), mask_allows(b, h, i, j));
//# else
  let bias = mask_value(b, h, i, j);
  return select(max(shaped(dot) + bias * LOG2_E, FLOOR), HIDDEN, bitcast<u32>(bias) == 0xff800000u);
//# endif
}
