//## Numbers of a row's output computed once more, where the sum of weights · values is not finite although the row has a
//## softmax. Either a value that is NaN or infinite lies at a key that the row may not see (0 · NaN is NaN), or the sum
//## overflowed before it was divided by the sum of the weights, or the row sees such a value. Kernels ask for this only
//## after their loops, which therefore need not know what is finite.
//## Needs: lib/score.wgsl, lib/sequences.wgsl, and readers of query, key and value.
//# from "lib/exp.wgsl" import exp_of with context
/// Numbers d … d+3 of the output of query i of head h, over the keys begin … end - 1: the sum of exp(score - row_max) ·
/// factor · value over those that it sees. `found` is what the kernel found; of it the finite numbers stay.
fn seen_output(at: Sequence, h: u32, i: u32, begin: u32, end: u32, row_max: f32, factor: f32, d: u32, found: vec4<f32>) -> vec4<f32> {
  let value_head = params.value_first + dot(params.value_strides.xyz, vec3<u32>(at.b, h / params.group, at.key_begin));
  // What the row sees that is not finite decides by itself.
  var lost = vec4<f32>();
  var sum = vec4<f32>();
  for (var j = begin; j < end; j++) {
    let s = seen_score(at, h, i, j);
    if (is_hidden(s)) {
      continue;
    }
    let value = value_at4(value_head + j * params.value_strides.z, params.value_strides.w, d);
    lost += select(value, vec4<f32>(), are_finite(value));
    if (all(are_nan(lost) | are_finite(found))) {
      break;
    }
    // No sum is larger than the largest value, but the weights' sum may round to more than 1.
    let weight = {{ exp_of("s - row_max") }} * factor;
    sum = clamp(fma(vec4<f32>(weight), select(vec4<f32>(), value, are_finite(value)), sum), vec4<f32>(LOWEST), vec4<f32>(-LOWEST));
  }
  return select(select(lost, sum, are_finite(lost)), found, are_finite(found));
}

/// The score of query i of head h and key j, minus infinity where i may not see j: then nothing is multiplied.
fn seen_score(at: Sequence, h: u32, i: u32, j: u32) -> f32 {
  let position = i32(i) + at.shift;
  if (!in_window(position, i32(j), at.keys){{ " || !mask_allows(at.b, h, i, j)" if masks }}) {
    return params.empty_lse;
  }
  let query_row = params.query_first + dot(params.query_strides.xyz, vec3<u32>(at.b, h, at.query_begin + i));
  let key_row = params.key_first + dot(params.key_strides.xyz, vec3<u32>(at.b, h / params.group, at.key_begin + j));
  var products = 0.0;
  for (var d = 0u; d < 4u * D4; d += 4u) {
    products += dot(query_at4(query_row, params.query_strides.w, d) * params.query_scale, key_at4(key_row, params.key_strides.w, d));
  }
  return score(products, at.b, h, i, j, position, at.keys);
}
