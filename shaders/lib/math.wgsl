//## Constants and functions that WGSL lacks or leaves too inexact.
// A hidden score lies so far below every visible one, which is FLOOR at least, that exp2 of their
// difference is zero; a row maximum that begins at FLOOR then needs no special case and makes no NaN.
const FLOOR = -1e38f;
const HIDDEN = -3e38f;
const LOG2_E = 1.4426950408889634f;
const LN_2 = 0.6931471805599453f;

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

/// tanh, to a few roundings everywhere.
// 1 - 2/(e^2x + 1) loses digits near zero, where the odd series takes over; WGSL's tanh promises neither.
fn accurate_tanh(x: f32) -> f32 {
  let a = min(abs(x), 12.0);
  let y = x * x;
  let near = x + x * y * (-1.0 / 3.0 + y * (2.0 / 15.0 + y * (-17.0 / 315.0 + y * (62.0 / 2835.0 + y * (-1382.0 / 155925.0)))));
  let far = sign(x) * (1.0 - 2.0 / (exp2(2.0 * LOG2_E * a) + 1.0));
  return select(far, near, a < 0.35);
}
