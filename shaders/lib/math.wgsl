//## Constants and functions that WGSL lacks or leaves too inexact.
// The lowest finite number. A row's maximum begins here, and a hidden score is minus infinity: exp of their difference
// is zero, so that a row which sees nothing needs no special case and makes no NaN.
const LOWEST = -0x1.fffffep+127f;
const LOG2_E = 1.4426950408889634f;
const LN_2 = 0.6931471805599453f;
// What weights are multiplied by before they meet values: the sum of a quarter of a million weighted values then fits in
// a float32 wherever their mean does. A power of two costs no digits.
const SHRINK = 0x1p-18f;
const UNSHRINK = 0x1p+18f;
// Where keys end within a step, the last key is read again in place of those that would follow. Such a copy gets this part
// of the key's weight: too little to count, but not 0, which would make NaN of an infinite value.
const OF_COPY = 0x1p-40f;

/// Minus infinity, compared as bits: compilers may assume that no float is infinite.
fn is_hidden(x: f32) -> bool {
  return bitcast<u32>(x) == 0xff800000u;
}

/// NaN, compared as bits: compilers may assume that no float is NaN.
fn is_nan(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

/// Neither infinite nor NaN.
fn is_finite(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}

/// Which of four numbers are NaN.
fn are_nan(x: vec4<f32>) -> vec4<bool> {
  return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
}

/// Which of four numbers are neither infinite nor NaN.
fn are_finite(x: vec4<f32>) -> vec4<bool> {
  return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7f800000u)) != vec4<u32>(0x7f800000u);
}

fn not_a_number() -> f32 {
  // WGSL refuses to compute NaN ahead, so it comes from a variable.
  var bits = 0x7fc00000u;
  return bitcast<f32>(bits);
}

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

/// tanh, to a few roundings everywhere; NaN stays NaN, which min and exp2 may turn into a number.
// 1 - 2/(e^2x + 1) loses digits near zero, where the odd series takes over; WGSL's tanh promises neither.
fn accurate_tanh(x: f32) -> f32 {
  let a = min(abs(x), 12.0);
  let y = x * x;
  let near = x + x * y * (-1.0 / 3.0 + y * (2.0 / 15.0 + y * (-17.0 / 315.0 + y * (62.0 / 2835.0 + y * (-1382.0 / 155925.0)))));
  let far = sign(x) * (1.0 - 2.0 / (exp2(2.0 * LOG2_E * a) + 1.0));
  return select(select(far, near, a < 0.35), x, is_nan(x));
}
