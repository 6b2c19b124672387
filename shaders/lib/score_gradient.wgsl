//## The gradient with respect to one score, recomputed from query, key, value, the output's gradient and row_values
//## (see attention/backward.wgsl), and what it takes: readers of the four operands, lib/score.wgsl and lib/sequences.wgsl.
//# from "lib/storage.wgsl" import reader, half_types
//# from "lib/exp.wgsl" import exp_of with context
{{ half_types(dtypes) }}
{{ reader("query", query_dtype, query_packed, D) }}
{{ reader("key", key_dtype, key_packed, D) }}
{{ reader("value", value_dtype, value_packed, DV) }}
{{ reader("grad", grad_dtype, grad_packed, DV) }}
//# include "lib/score.wgsl"
//# include "lib/sequences.wgsl"
struct ScoreGradient {
  // Whether the query sees the key; all else is 0 where it does not.
  seen: bool,
  // The probability.
  weight: f32,
  // Of the score as the softmax sees it: with mask and score_mod.
  gradient: f32,
  // The score that score_mod gets.
  score: f32,
}

fn score_gradient(at: Sequence, h: u32, i: u32, j: u32) -> ScoreGradient {
  let position = i32(i) + at.shift;
  if (!in_window(position, i32(j), at.keys)) {
    return ScoreGradient();
  }
  let query_row = params.query_first + dot(params.query_strides.xyz, vec3<u32>(at.b, h, at.query_begin + i));
  let grad_row = params.grad_first + dot(params.grad_strides.xyz, vec3<u32>(at.b, h, at.query_begin + i));
  let line = vec3<u32>(at.b, h / params.group, at.key_begin + j);
  let key_row = params.key_first + dot(params.key_strides.xyz, line);
  let value_row = params.value_first + dot(params.value_strides.xyz, line);
  var product = 0.0;
  for (var d = 0u; d < 4u * D4; d += 4u) {
    product += dot(query_at4(query_row, params.query_strides.w, d), key_at4(key_row, params.key_strides.w, d));
  }
  product *= params.query_scale;
  let masked = score(product, at.b, h, i, j, position, at.keys);
  if (is_hidden(masked)) {
    return ScoreGradient();
  }
  var dp = 0.0;
  for (var d = 0u; d < 4u * DV4; d += 4u) {
    dp += dot(grad_at4(grad_row, params.grad_strides.w, d), value_at4(value_row, params.value_strides.w, d));
  }
  let row = row_values[{{ "h" if varlen else "(at.b * params.heads + h)" }} * params.queries + at.query_begin + i];
  let p = {{ exp_of("min(masked - row.x, 0.0)") }} * row.y;
  return ScoreGradient(true, p, p * (dp - row.z), shaped(product));
}
