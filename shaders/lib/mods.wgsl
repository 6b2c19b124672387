//## What traced score_mod and mask_mod functions call, and the functions themselves.
//## Needs: `mods` (WGSL text) `captured`, the dtypes of captured_0, captured_1, …, and
//## `packed_at`, where each begins in `captured` if that holds them all, as 32-bit words, floats as f32.
//# from "lib/storage.wgsl" import reader
// Division and remainder that round down, as Python's do.
fn floordiv_i32(a: i32, b: i32) -> i32 {
  let q = a / b;
  return select(q, q - 1, a % b != 0 && ((a < 0) != (b < 0)));
}

fn mod_i32(a: i32, b: i32) -> i32 {
  return a - b * floordiv_i32(a, b);
}

fn floordiv_f32(a: f32, b: f32) -> f32 {
  return floor(a / b);
}

fn mod_f32(a: f32, b: f32) -> f32 {
  return a - b * floor(a / b);
}

// WGSL leaves open what these make of NaN, and of numbers that they are not defined for; here it is as in numpy.
fn exp_f32(x: f32) -> f32 {
  return select(exp(x), x, is_nan(x));
}

fn log_f32(x: f32) -> f32 {
  return select(log(x), not_a_number(), is_nan(x) || x < 0.0);
}

fn sqrt_f32(x: f32) -> f32 {
  return select(sqrt(x), not_a_number(), is_nan(x) || x < 0.0);
}

fn pow_f32(a: f32, b: f32) -> f32 {
  if (b == 0.0) {
    return 1.0;
  }
  let power = pow(abs(a), b);
  if (is_nan(a) || is_nan(b) || (a < 0.0 && floor(b) != b)) {
    return not_a_number();
  }
  return select(power, -power, a < 0.0 && 2.0 * floor(0.5 * b) != b);
}

fn min_f32(a: f32, b: f32) -> f32 {
  return select(select(min(a, b), b, is_nan(b)), a, is_nan(a));
}

fn max_f32(a: f32, b: f32) -> f32 {
  return select(select(max(a, b), b, is_nan(b)), a, is_nan(a));
}

fn exp2_f32(x: f32) -> f32 {
  return select(exp2(x), x, is_nan(x));
}

fn log2_f32(x: f32) -> f32 {
  return select(log2(x), not_a_number(), is_nan(x) || x < 0.0);
}

fn floor_f32(x: f32) -> f32 {
  return select(floor(x), x, is_nan(x));
}

fn ceil_f32(x: f32) -> f32 {
  return select(ceil(x), x, is_nan(x));
}

fn round_f32(x: f32) -> f32 {
  return select(round(x), x, is_nan(x));
}

fn sign_f32(x: f32) -> f32 {
  return select(sign(x), x, is_nan(x));
}

// The exponent is at most 0 on either side, so that nothing overflows.
fn sigmoid_f32(x: f32) -> f32 {
  let e = exp(-abs(x));
  return select(select(e, 1.0, x >= 0.0) / (1.0 + e), x, is_nan(x));
}

// WGSL promises 2^-11 for sin and cos from -π to π, and nothing beyond. Here the angle is brought to at most π/4 from a
// multiple of π/2, which is taken off in three parts, so that the first two products are exact.
fn sin_of_turned(x: f32, quarter_turns: i32) -> f32 {
  let n = round(x * 0.6366197723675814);
  let r = ((x - n * 1.5703125) - n * 0.0004839897155761719) + n * 1.6292068494294654e-7;
  let y = r * r;
  let sine = r + r * y * (-1.0 / 6.0 + y * (1.0 / 120.0 + y * (-1.0 / 5040.0 + y * (1.0 / 362880.0))));
  let cosine = 1.0 + y * (-0.5 + y * (1.0 / 24.0 + y * (-1.0 / 720.0 + y * (1.0 / 40320.0 - y * (1.0 / 3628800.0)))));
  let quarter = i32(n) + quarter_turns;
  let value = select(sine, cosine, (quarter & 1) != 0);
  return select(not_a_number(), select(value, -value, (quarter & 2) != 0), is_finite(x));
}

fn sin_f32(x: f32) -> f32 {
  return sin_of_turned(x, 0);
}

fn cos_f32(x: f32) -> f32 {
  return sin_of_turned(x, 1);
}

fn tan_f32(x: f32) -> f32 {
  return sin_of_turned(x, 0) / sin_of_turned(x, 1);
}

// Polynomials through the Chebyshev points: of erf(x) / x in x² up to 1, of erfc(x) · exp(x²) in 1 / (1 + x/2) from 1 to 4.
fn erf_f32(x: f32) -> f32 {
  let a = min(abs(x), 4.0);
  let y = a * a;
  let near = a * (1.1283792 + y * (-0.37612638 + y * (0.11283782 + y * (-0.02686543 + y * (0.0052210316
    + y * (-0.0008484080 + y * (0.00011265959 - y * 9.667044e-6)))))));
  let t = 1.0 / (1.0 + 0.5 * a);
  let far = 1.0 - exp(-y) * (0.0006051184 + t * (0.27363434 + t * (0.3307571 + t * (0.1014955
    + t * (0.40349504 + t * (-0.0570652 - t * 0.053630427))))));
  let value = select(far, near, a < 1.0);
  return select(select(value, -value, x < 0.0), x, is_nan(x));
}

//# for dtype in captured
//# set name = "captured_" ~ loop.index0
//#   if packed_at
fn {{ name }}_first() -> u32 {
  return {{ packed_at[loop.index0] }}u;
}
//#     set kind = "f32" if dtype in ("float32", "float16", "bfloat16") else "bool" if dtype == "bool" else "i32"
fn {{ name }}_at(i: u32) -> {{ kind }} {
  return {{ "captured[i] != 0u" if kind == "bool" else "bitcast<" ~ kind ~ ">(captured[i])" }};
}
//#   else
fn {{ name }}_first() -> u32 {
  return params.captured_{{ loop.index0 }}_first;
}
//#     if dtype in ("float32", "float16", "bfloat16")
{{ reader(name, dtype, False, 1) }}
//#     elif dtype == "bool"
fn {{ name }}_at(i: u32) -> bool {
  return (({{ name }}[i >> 2u] >> (8u * (i & 3u))) & 0xffu) != 0u;
}
//#     else
fn {{ name }}_at(i: u32) -> i32 {
  return {{ name }}[i];
}
//#     endif
//#   endif
//# endfor
{{ mods }}
