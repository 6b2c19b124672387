//## Merges two partial results of attention over different keys: with w = row_sum · exp(row_max - the larger row_max) of
//## each, out = Σ w · out / Σ w, and the LSE is that of all keys. One invocation computes one vec4 of one row.
//# from "lib/storage.wgsl" import reader, writer, half_types
//# from "lib/exp.wgsl" import exp_of with context
{{ half_types(dtypes) }}
{{ reader("first_out", first_dtype, first_packed, DV) }}
{{ reader("second_out", second_dtype, second_packed, DV) }}
{{ writer("out", out_dtype) }}
//# include "lib/math.wgsl"
//# include "lib/row_end.wgsl"

//# for name in ("first", "second")
/// (row_max, row_sum) of a row of the {{ name }} result: those behind its LSE, or the LSE itself and 1; a row that saw
/// nothing has a sum of 0.
fn {{ name }}_parts(at: vec3<u32>) -> vec2<f32> {
  let n = params.{{ name }}_lse_first + dot(params.{{ name }}_lse_strides.xyz, at);
  let row_lse = {{ name }}_lse[n];
  if (is_hidden(row_lse)) {
    return vec2<f32>(LOWEST, 0.0);
  }
  if (params.{{ name }}_lse_plane == 0u) {
    return vec2<f32>(row_lse * params.{{ name }}_lse_unit, select(1.0, row_lse, is_nan(row_lse)));
  }
  return vec2<f32>(
    {{ name }}_lse[n + params.{{ name }}_lse_plane] * params.{{ name }}_lse_unit,
    {{ name }}_lse[n + 2u * params.{{ name }}_lse_plane],
  );
}

//# endfor
@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let work = (workgroup.x + workgroup.y * workgroups.x) * WORKGROUP + thread_index;
  let column = 4u * (work % DV4);
  let row = work / DV4;
  if (row >= params.batch * params.heads * params.queries) {
    return;
  }
  let h = row / params.queries % params.heads;
  let at = vec3<u32>(row / params.queries / params.heads, h, row % params.queries);
  let first = first_parts(at);
  let second = second_parts(at);
  let row_max = max(first.x, second.x);
  let first_weight = first.y * {{ exp_of("first.x - row_max") }};
  let second_weight = second.y * {{ exp_of("second.x - row_max") }};
  let end_of_row = row_end(h, row_max, first_weight + second_weight);
//# for name in ("first", "second")
  var {{ name }}_four = {{ name }}_out_at4(params.{{ name }}_out_first + dot(params.{{ name }}_out_strides.xyz, at), params.{{ name }}_out_strides.w, column);
  // Of a result that saw nothing nothing is taken, not even NaN.
  {{ name }}_four = select({{ name }}_weight * end_of_row.x * {{ name }}_four, vec4<f32>(), {{ name }}.y == 0.0);
//# endfor
  out_put4(4u * row * DV4 + column, first_four + second_four);
//# if return_lse
  if (column == 0u) {
    store_lse(row, end_of_row);
  }
//# endif
}
