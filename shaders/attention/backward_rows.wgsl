//## The gradients of attention for adapters that compute on a CPU: what attention/backward.wgsl computes, in the way of
//## attention/rows.wgsl. An invocation owns ROWS rows and goes through the other side four columns at a time, so that
//## four columns are loaded once for ROWS rows. No workgroup memory, no barriers, no atomics.
//##
//## side "query": rows are queries, columns keys;   d_query = scale · Σ ds key
//## side "key":   rows are keys, columns the queries of all heads of the group;
//##               d_key = scale · Σ ds query, d_value = Σ p d_out
//## or one of the two, where the adapter has no room for the buffers of both,
//## with p, ds and row_values as in attention/backward.wgsl.
//# from "lib/storage.wgsl" import writer
//# from "lib/blocks.wgsl" import each
//# from "lib/exp.wgsl" import exp_of with context
//# from "lib/gradient_tile.wgsl" import find_gradient_tile with context
//# from "lib/seen_gradient.wgsl" import seen_gradient with context
//# set by_query = side == "query"
//# set writes_key, writes_value = "d_key" in writes | map("first"), "d_value" in writes | map("first")
//# set of_scores = by_query or writes_key
//# set row, row2, column, column2 = ("query", "grad", "key", "value") if by_query else ("key", "value", "query", "grad")
//# include "lib/score_gradient.wgsl"
//# for name, dtype in writes
{{ writer(name, dtype) }}
//# endfor
//# set scaled = " * params.grad_scale"
//# if by_query
{{ seen_gradient("d_query", "key", True, scaled) }}
//# endif
//# if writes_key
{{ seen_gradient("d_key", "query", False, scaled) }}
//# endif
//# if writes_value
{{ seen_gradient("d_value", "grad", False, "") }}
//# endif
//# set every_score = softcap or masks or has_score_mod or mask_kind != "none"
// Neighbours in a vector register go through the columns in step, so that they load the same addresses.
const IN_STEP = 4u;
//##
//## The first element of the invocation's r-th row, and of column n of the four, of an operand.
//# macro row_at(name)
{{ name }}_head + min(first_row + r, last_row) * params.{{ name }}_strides.z
//#- endmacro
//##
//## scores = rows · columnsᵀ.
//# macro products(scores, rows, column, d4)
//# for r in range(ROWS)
    {{ scores }}[{{ r }}] = vec4<f32>();
//# endfor
//# call(d) each("d", d4, unrolled)
//#   for n in range(4)
      let c{{ n }} = {{ column }}_at4({{ column }}{{ n }}, params.{{ column }}_strides.w, 4u * {{ d }});
//#   endfor
//#   for r in range(ROWS)
      let r{{ r }} = {{ rows }}[{{ r * d4 }}u + {{ d }}];
      {{ scores }}[{{ r }}] += vec4<f32>(dot(r{{ r }}, c0), dot(r{{ r }}, c1), dot(r{{ r }}, c2), dot(r{{ r }}, c3));
//#   endfor
//# endcall
//# endmacro
//##
//## acc += coefficients · columns.
//# macro accumulate(acc, coefficients, column, d4)
//# for r in range(ROWS)
    let {{ acc }}_w{{ r }} = {{ coefficients }}[{{ r }}];
//# endfor
//# call(d) each("d", d4, unrolled)
//#   for n in range(4)
      let c{{ n }} = {{ column }}_at4({{ column }}{{ n }}, params.{{ column }}_strides.w, 4u * {{ d }});
//#   endfor
//#   for r in range(ROWS)
//#     set w = acc ~ "_w" ~ r
      {{ acc }}[{{ r * d4 }}u + {{ d }}] += ({{ w }}.x * c0 + {{ w }}.y * c1) + ({{ w }}.z * c2 + {{ w }}.w * c3);
//#   endfor
//# endcall
//# endmacro
//##
//## Writes the gradients of the invocation's rows. Rows behind a sequence's last key get zeros: the tensors may hold
//## anything there, and 0 · NaN is NaN.
//# macro store(name, acc, d4, factor)
  for (var r = 0u; r <= last_row - first_row; r++) {
    let n = first_row + r;
    let to = dot(params.{{ name }}_strides.xyz, vec3<u32>(b, head, {{ "at.query_begin" if by_query else "at.key_begin" }} + n));
    for (var d = 0u; d < {{ d4 }}u; d++) {
      var four = {{ acc }}[r * {{ d4 }}u + d]{{ factor }};
//# if not by_query
      four = select(vec4<f32>(), four, i32(n) < length);
//# endif
      if (!all(are_finite(four))) {
        four = seen_{{ name }}(at, head, n, u32(begin), u32(max(begin, end)), 4u * d, four);
      }
      {{ name }}_put4(to + 4u * d, four);
    }
  }
//# endmacro

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
{{ find_gradient_tile(by_query, False) }}
  let first_row = tile_of_rows * BQ + thread_index * ROWS;
  if (first_row >= row_count) {
    return;
  }
  let last_row = min(first_row + ROWS, row_count) - 1u;
  // The columns that any row of the neighbours may see.
  let first_in_step = i32(tile_of_rows * BQ + thread_index / IN_STEP * IN_STEP * ROWS);
  let last_in_step = min(first_in_step + i32(IN_STEP * ROWS), i32(row_count)) - 1;
//# if by_query
  let columns = length;
  let begin = max(0, first_in_step + shift - params.window_left);
  let end = min(length, last_in_step + shift + params.window_right + 1);
//# else
  let columns = i32(at.queries);
  // The key at j is visible to queries at positions j - window_right to j + window_left.
  let begin = max(0, first_in_step - params.window_right - shift);
  let end = min(columns, last_in_step + params.window_left - shift + 1);
//# endif

  let kv_head = {{ "head / params.group" if by_query else "head" }};
  let key_head = params.key_first + dot(params.key_strides.xyz, vec3<u32>(b, kv_head, at.key_begin));
  let value_head = params.value_first + dot(params.value_strides.xyz, vec3<u32>(b, kv_head, at.key_begin));
//# macro query_heads()
  let query_head = params.query_first + dot(params.query_strides.xyz, vec3<u32>(b, h, at.query_begin));
  let grad_head = params.grad_first + dot(params.grad_strides.xyz, vec3<u32>(b, h, at.query_begin));
  let values_of_rows = {{ "h" if varlen else "(b * params.heads + h)" }} * params.queries + at.query_begin;
//# endmacro
//# if by_query
  let h = head;
{{ query_heads() }}
//# endif
  var rows: array<vec4<f32>, {{ ROWS * D4 }}>;
  var rows2: array<vec4<f32>, {{ ROWS * DV4 }}>;
//# if of_scores
  var acc: array<vec4<f32>, {{ ROWS * D4 }}>;
//# endif
//# if writes_value
  var acc2: array<vec4<f32>, {{ ROWS * DV4 }}>;
//# endif
  var s: array<vec4<f32>, ROWS>;
//# if of_scores
  var dp: array<vec4<f32>, ROWS>;
//# endif
//# for rows, name, d4 in (("rows", row, D4), ("rows2", row2, DV4))
  for (var r = 0u; r < ROWS; r++) {
    let at_row = {{ row_at(name) }};
    for (var d = 0u; d < {{ d4 }}u; d++) {
      {{ rows }}[r * {{ d4 }}u + d] = {{ name }}_at4(at_row, params.{{ name }}_strides.w, 4u * d);
    }
  }
//# endfor
  // row_max, 1 / row_sum and delta of the queries: of the invocation's rows, or of the four columns.
//# if by_query
  var ends: array<vec4<f32>, ROWS>;
  for (var r = 0u; r < ROWS; r++) {
    ends[r] = row_values[values_of_rows + min(first_row + r, last_row)];
  }
//# else
  for (var member = 0u; member < params.group; member++) {
  let h = head * params.group + member;
{{ query_heads() }}
//# endif

//# if by_query
  for (var j = begin; j < end; j += 4) {
//# else
  // From the last queries to the first, as in attention/backward.wgsl.
  for (var left = (max(0, end - begin) + 3) / 4; left > 0; left--) {
    let j = begin + 4 * (left - 1);
//# endif
//# for n in range(4)
    let column{{ n }} = u32(min(j + {{ n }}, columns - 1));
    let {{ column }}{{ n }} = {{ column }}_head + column{{ n }} * params.{{ column }}_strides.z;
    let {{ column2 }}{{ n }} = {{ column2 }}_head + column{{ n }} * params.{{ column2 }}_strides.z;
//#   if not by_query
    let end{{ n }} = row_values[values_of_rows + column{{ n }}];
//#   endif
//# endfor
{{ products("s", "rows", column, D4) }}
//# if of_scores
{{ products("dp", "rows2", column2, DV4) }}
//# endif
    let four = vec4<i32>(j, j + 1, j + 2, j + 3);
//# if not by_query
    let max4 = vec4<f32>(end0.x, end1.x, end2.x, end3.x);
    let sum4 = vec4<f32>(end0.y, end1.y, end2.y, end3.y);
    let delta4 = vec4<f32>(end0.z, end1.z, end2.z, end3.z);
//# endif
    for (var r = 0u; r < ROWS; r++) {
      let n = min(first_row + r, last_row);
//# if by_query
      let ended = ends[r];
      let max4 = vec4<f32>(ended.x);
      let sum4 = vec4<f32>(ended.y);
      let delta4 = vec4<f32>(ended.z);
      let position = vec4<i32>(i32(n) + shift);
      let key4 = four;
//# else
      let position = four + vec4<i32>(shift);
      let key4 = vec4<i32>(i32(n));
//# endif
      var product = s[r] * params.query_scale;
      var slope = vec4<f32>(1.0);
      // Without branches, which && would be.
      var seen = (four < vec4<i32>(columns)) & (key4 < vec4<i32>(length)) & (key4 >= position - vec4<i32>(params.window_left)) & (key4 <= position + vec4<i32>(params.window_right));
//# if every_score
      for (var c = 0u; c < 4u; c++) {
        let i = {{ "n" if by_query else "u32(four[c])" }};
        let k = {{ "u32(four[c])" if by_query else "n" }};
        let dotted = product[c];
//#   if masks or has_score_mod
        product[c] = score(dotted, b, h, i, k, position[c], length);
        seen[c] = seen[c] & !is_hidden(product[c]);
//#   else
        product[c] = shaped(dotted);
//#   endif
//#   if has_score_mod
        slope[c] = score_mod_slope(shaped(dotted), i32(b), i32(h), i32(i), i32(k));
//#   endif
//#   if softcap
        let capped = accurate_tanh(dotted);
        slope[c] *= 1.0 - capped * capped;
//#   endif
      }
//# endif
      // A hidden score gives zero; so does a row that sees nothing, whose 1 / row_sum is 0. Far from zero a score that
      // rounds differently than in the forward pass would be far above the maximum.
      let p = select(vec4<f32>(), {{ exp_of("min(product - max4, vec4<f32>())" if natural else "product - max4") }} * sum4, seen);
      s[r] = p;
//# if of_scores
      dp[r] = select(vec4<f32>(), p * (dp[r] - delta4) * slope, seen);
//# endif
    }
//# if writes_value
{{ accumulate("acc2", "s", column2, DV4) }}
//# endif
//# if of_scores
{{ accumulate("acc", "dp", column, D4) }}
//# endif
  }
//# if by_query
{{ store("d_query", "acc", D4, scaled) }}
//# else
  }
//# endif
//# if writes_key
{{ store("d_key", "acc", D4, scaled) }}
//# endif
//# if writes_value
{{ store("d_value", "acc2", DV4, "") }}
//# endif
}
