//## Where the tokens of a product with a quantised matrix come from, and where its results go: for all templates that
//## compute one (nn/quantized_linear.wgsl says what the prologues and epilogues mean).
//## Needs: `epilogue`, `has_state`, `has_head_scale`, ROWS, the params of kernels/nn/quantized_linear.py, and for the
//## epilogue "rope" `dtypes`, `in_cache`, `key_dtype`, `value_dtype`, D, HEADS and KV_HEADS.
//# if has_state and not (epilogue == "rope" and in_cache)
//#   include "lib/state.wgsl"
//# endif
//# if epilogue == "rope"
//#   from "lib/storage.wgsl" import half_types
{{ half_types(dtypes) }}
//#   include "lib/turned.wgsl"
//#   if in_cache
//#     include "lib/row_slot.wgsl"
//#   endif
//# endif

/// Where token t lies in the logs.
fn token_row(t: u32) -> u32 {
  return {{ "state_position() + " if has_state }}params.first_row + t;
}

//# if has_head_scale
/// A head that is switched off adds nothing, not even NaN.
fn scaled(v: vec4<f32>, head: u32) -> vec4<f32> {
  let factor = head_scale[params.head_scale_first + head];
  return select(v * factor, vec4<f32>(), factor == 0.0);
}

//# endif
/// What `store` needs of memory: the numbers that a result is added to, or the cosine and sine that turn it.
fn before_store(t: u32, row: u32) -> vec2<f32> {
//# if epilogue == "residual"
  let at = params.x_first + token_row(t) * ROWS + row;
  return vec2<f32>(x[at], x[{{ "min(at + 1u, at + ROWS - 1u - row)" if ROWS % 2 else "at + 1u" }}]);
//# elif epilogue == "rope"
  return rope[(params.rope_first + token_row(t) * D + row % D) / 2u];
//# else
  return vec2<f32>();
//# endif
}

//# if epilogue == "residual"
fn store(t: u32, row: u32, y: vec2<f32>, before: vec2<f32>) {
  let at = params.x_first + token_row(t) * ROWS + row;
  x[at] = before.x + y.x;
//#   if ROWS % 2
  if (row + 1u == ROWS) {
    return;
  }
//#   endif
  x[at + 1u] = before.y + y.y;
}
//# elif epilogue == "plain"
fn store(t: u32, row: u32, y: vec2<f32>, before: vec2<f32>) {
  out[t * ROWS + row] = y.x;
//#   if ROWS % 2
  if (row + 1u == ROWS) {
    return;
  }
//#   endif
  out[t * ROWS + row + 1u] = y.y;
}
//# elif epilogue == "gated"
fn store(t: u32, row: u32, y: vec2<f32>, before: vec2<f32>) {
  // Further down exp would overflow, which WGSL leaves open; the product is 0 to a rounding there.
  out[(t * ROWS + row) / 2u] = y.x / (1.0 + exp(min(-y.x, 80.0))) * y.y;
}
//# else
fn store(t: u32, row: u32, y: vec2<f32>, before: vec2<f32>) {
  let position = token_row(t);
  let head = row / D;
  let d = row % D;
  var pair = y;
  if (head < HEADS + KV_HEADS) {
    pair = turned(y, before);
  }
  if (head < HEADS) {
    query[(params.query_first + position * HEADS * D + row) / 2u] = pair;
    return;
  }
//#   if in_cache
  // A token that a later one of the same call displaces is not written, since writes have no order.
  if (position >= params.kept && params.count - t > params.capacity - params.kept) {
    return;
  }
  let slot = row_slot(t);
//#   else
  let slot = t;
//#   endif
//#   for name, dtype, first in (("key", key_dtype, "HEADS"), ("value", value_dtype, "(HEADS + KV_HEADS)"))
  {{ "if (head < HEADS + KV_HEADS) {" if name == "key" else "} else {" }}
    let at = params.{{ name }}_first + dot(params.{{ name }}_strides, vec2<u32>(head - {{ first }}, slot)) + d;
    {{ name }}[at / 2u] = {{ "pair" if dtype == "float32" else "narrow_" ~ dtype ~ "(pair)" }};
//#   endfor
  }
}
//# endif
