//## Numbers of a gradient computed once more, where the sum of coefficients · columns is not finite: what is NaN or
//## infinite may lie where row and column do not see each other (0 · NaN is NaN), or the sum overflowed before it was
//## scaled. attention/backward.wgsl asks for this only after its loops, which therefore need not know what is finite.
//## Import with context: needs what attention/backward.wgsl has, and lib/score_gradient.wgsl.
//##
//## fn seen_NAME: numbers d … d+3 of row `row` of the gradient; begin … end - 1 are the columns that it may see, `column`
//## is the operand that is added up. `found` is what the kernel found; of it the finite numbers stay.
//# macro seen_gradient(name, column, by_query, factor)
fn seen_{{ name }}(at: Sequence, head: u32, row: u32, begin: u32, end: u32, d: u32, found: vec4<f32>) -> vec4<f32> {
  var sum = vec4<f32>();
//# if by_query
  let h = head;
  let i = row;
  for (var j = begin; j < end; j++) {
//# else
  let j = row;
  let heads = params.group;
  for (var n = 0u; n < heads * (end - begin); n++) {
    let h = head * heads + n % heads;
    let i = begin + n / heads;
//# endif
    let pair = score_gradient(at, h, i, j);
    if (!pair.seen) {
      continue;
    }
//# if name == "d_value"
    let coefficient = pair.weight;
//# else
    var coefficient = pair.gradient;
//#   if has_score_mod
    coefficient *= score_mod_slope(pair.score, i32(at.b), i32(h), i32(i), i32(j));
//#   endif
//#   if softcap
    let capped = pair.score / params.score_scale;
    coefficient *= 1.0 - capped * capped;
//#   endif
//# endif
    let line = vec3<u32>(at.b, {{ "h / params.group, at.key_begin + j" if by_query else "h, at.query_begin + i" }});
    let first = params.{{ column }}_first + dot(params.{{ column }}_strides.xyz, line);
    sum += coefficient{{ factor }} * {{ column }}_at4(first, params.{{ column }}_strides.w, d);
    // NaN stays, whatever else is added.
    if (all(are_nan(sum) | are_finite(found))) {
      break;
    }
  }
  return select(sum, found, are_finite(found));
}
//# endmacro
