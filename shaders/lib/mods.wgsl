//## What traced score_mod and mask_mod functions call, and the functions themselves.
//## Needs: `mods` (WGSL text) and `captured`, the dtypes of captured_0, captured_1, …
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

//# for dtype in captured
//# set name = "captured_" ~ loop.index0
fn {{ name }}_first() -> u32 {
  return params.captured_{{ loop.index0 }}_first;
}
//#   if dtype in ("float32", "float16", "bfloat16")
{{ reader(name, dtype, False, 1) }}
//#   elif dtype == "bool"
fn {{ name }}_at(i: u32) -> bool {
  return (({{ name }}[i >> 2u] >> (8u * (i & 3u))) & 0xffu) != 0u;
}
//#   else
fn {{ name }}_at(i: u32) -> i32 {
  return {{ name }}[i];
}
//#   endif
//# endfor
{{ mods }}
