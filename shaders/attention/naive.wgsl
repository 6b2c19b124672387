//## Attention as in the textbook: one invocation per query row goes through the keys with an online
//## softmax (Milakov and Gimelshein, arXiv 1805.02867). No workgroup memory, no subgroups: the
//## baseline that the other variants are measured against.
//# from "lib/storage.wgsl" import reader, writer, half_types
//# from "lib/exp.wgsl" import exp_of with context
{{ half_types(dtypes) }}
{{ reader("query", query_dtype, query_packed, D) }}
{{ reader("key", key_dtype, key_packed, D) }}
{{ reader("value", value_dtype, value_packed, DV) }}
{{ writer("out", query_dtype) }}
//# include "lib/score.wgsl"
//# include "lib/row_end.wgsl"
//# include "lib/sequences.wgsl"
//# if hides
//#   include "lib/seen_output.wgsl"
//# endif

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let work = workgroup.x + workgroup.y * workgroups.x;
//# if varlen
  let at = sequence_of(work % params.tiles);
  let b = at.b;
  let h = work / params.tiles;
  let i = at.tile * WORKGROUP + thread_index;
  if (b >= params.batch || h >= params.heads || i >= at.queries) {
    return;
  }
//# else
  let row = work * WORKGROUP + thread_index;
  if (row >= params.rows) {
    return;
  }
  let i = row % params.queries;
  let h = (row / params.queries) % params.heads;
  let b = row / params.queries / params.heads;
  let at = sequence(b);
//# endif
  let length = at.keys;
  let position = i32(i) + at.shift;

  var q: array<vec4<f32>, D4>;
  let query_row = params.query_first + dot(params.query_strides.xyz, vec3<u32>(b, h, at.query_begin + i));
  for (var d = 0u; d < D4; d++) {
    q[d] = query_at4(query_row, params.query_strides.w, 4u * d) * params.query_scale;
  }
  var acc: array<vec4<f32>, DV4>;
  var row_max = LOWEST;
  // Each of thousands of weights would lose digits when added to the sum of all before it, and always in the same
  // direction; so 64 at a time are added up by themselves.
  var row_sum = 0.0;
  var recent_sum = 0.0;

  let kv_head = h / params.group;
  let key_head = params.key_first + dot(params.key_strides.xyz, vec3<u32>(b, kv_head, at.key_begin));
  let value_head = params.value_first + dot(params.value_strides.xyz, vec3<u32>(b, kv_head, at.key_begin));
  let begin = max(0, position - params.window_left);
  let end = min(length, position + params.window_right + 1);
//# macro score_of_key()
    let key_row = key_head + u32(j) * params.key_strides.z;
    var products = 0.0;
    for (var d = 0u; d < D4; d++) {
      products += dot(q[d], key_at4(key_row, params.key_strides.w, 4u * d));
    }
    let s = score(products, b, h, i, u32(j), position, length);
//# endmacro
  for (var j = begin; j < end; j++) {
{{ score_of_key() }}
    let new_max = max(row_max, s);
    let rescale = {{ exp_of("row_max - new_max") }};
    let p = {{ exp_of("s - new_max") }};
    row_max = new_max;
    row_sum *= rescale;
    recent_sum = recent_sum * rescale + p;
    if (j % 64 == 63) {
      row_sum += recent_sum;
      recent_sum = 0.0;
    }
//# if not has_prob_mod
    let value_row = value_head + u32(j) * params.value_strides.z;
    for (var d = 0u; d < DV4; d++) {
      acc[d] = acc[d] * rescale + p * SHRINK * value_at4(value_row, params.value_strides.w, 4u * d);
    }
//# endif
  }

  let end_of_row = row_end(h, row_max, row_sum + recent_sum);
//# if has_prob_mod
  // Probabilities are known only after all keys of the row, so there is a second loop over the keys.
  for (var j = 0; j < length; j++) {
{{ score_of_key() }}
    let p = prob_mod({{ exp_of("s - row_max") }} * end_of_row.x, i32(b), i32(h), i32(i), j);
    let value_row = value_head + u32(j) * params.value_strides.z;
    for (var d = 0u; d < DV4; d++) {
      // A hidden key adds nothing, not even NaN.
      acc[d] += select(p * value_at4(value_row, params.value_strides.w, 4u * d), vec4<f32>(), p == 0.0 && is_hidden(s));
    }
  }
//# endif
  let out_row = dot(params.out_strides.xyz, vec3<u32>(b, h, at.query_begin + i));
  for (var d = 0u; d < DV4; d++) {
//# if has_prob_mod
    out_put4(out_row + 4u * d, acc[d]);
//# else
    var four = acc[d] * (end_of_row.x * UNSHRINK);
//#   if hides
    if (is_finite(end_of_row.x) && !all(are_finite(four))) {
      four = seen_output(at, h, i, u32(begin), u32(max(begin, end)), row_max, end_of_row.x, 4u * d, four);
    }
//#   endif
    out_put4(out_row + 4u * d, four);
//# endif
  }
//# if return_lse
  store_lse({{ "h" if varlen else "(b * params.heads + h)" }} * params.queries + at.query_begin + i, end_of_row);
//# endif
}
