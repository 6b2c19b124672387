//## Attention for adapters that compute on a CPU: an invocation owns ROWS query rows and goes through the keys
//## four at a time, with one step of the online softmax for each four. Behind the last key it is read again; where nothing
//## else hides keys (`fills_up`), these copies get a part of its weight (OF_COPY in lib/math.wgsl).
//##
//## Such an adapter runs invocations side by side in its vector registers, and its time goes not into arithmetic but
//## into loads and stores, each of which is checked one number at a time. So four keys are loaded once for ROWS rows,
//## and outputs are read and written once for four keys. Loops over the head dim stay loops: compilers for CPUs take
//## longer for longer code. No workgroup memory, no subgroups.
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
//##
//# set every_score = masks or has_score_mod or softcap
// Neighbours in a vector register go through the keys in step, so that they load the same addresses.
const IN_STEP = 4u;

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
  let tile = at.tile;
  if (b >= params.batch || h >= params.heads) {
    return;
  }
//# else
  if (work >= params.tiles * params.heads * params.batch) {
    return;
  }
  let tile = work % params.tiles;
  let h = (work / params.tiles) % params.heads;
  let b = work / params.tiles / params.heads;
  let at = sequence(b);
//# endif
  let first_row = tile * BQ + thread_index * ROWS;
  if (first_row >= at.queries) {
    return;
  }
  let length = at.keys;
  let end_row = min(first_row + ROWS, at.queries);
  let first_position = i32(first_row) + at.shift;
  let last_position = i32(end_row) - 1 + at.shift;
  // The keys that any row of the neighbours may see, and those that every row of this invocation sees.
  let first_row_in_step = tile * BQ + thread_index / IN_STEP * IN_STEP * ROWS;
  let end_row_in_step = min(first_row_in_step + IN_STEP * ROWS, at.queries);
  let begin = max(0, i32(first_row_in_step) + at.shift - params.window_left);
  let end = min(length, i32(end_row_in_step) + at.shift + params.window_right);
//# if hides
  let seen_begin = last_position - params.window_left;
  let seen_end = min(length, first_position + params.window_right + 1);
//# endif

  let kv_head = h / params.group;
  let query_head = params.query_first + dot(params.query_strides.xyz, vec3<u32>(b, h, at.query_begin));
  let key_head = params.key_first + dot(params.key_strides.xyz, vec3<u32>(b, kv_head, at.key_begin));
  let value_head = params.value_first + dot(params.value_strides.xyz, vec3<u32>(b, kv_head, at.key_begin));

  var q: array<vec4<f32>, {{ ROWS * D4 }}>;
  for (var r = 0u; r < ROWS; r++) {
    let query_row = query_head + min(first_row + r, end_row - 1u) * params.query_strides.z;
    for (var d = 0u; d < D4; d++) {
      q[r * D4 + d] = query_at4(query_row, params.query_strides.w, 4u * d) * params.query_scale;
    }
  }
  var acc: array<vec4<f32>, {{ ROWS * DV4 }}>;
  var row_max: array<f32, ROWS>;
  // Each of thousands of weights would lose digits when added to the sum of all before it, and always in the same
  // direction; so 64 at a time are added up by themselves.
  var row_sum: array<f32, ROWS>;
  var recent_sum: array<f32, ROWS>;
  for (var r = 0u; r < ROWS; r++) {
    row_max[r] = LOWEST;
  }
  var scores: array<vec4<f32>, ROWS>;

  for (var j = begin; j < end; j += 4) {
//# for n in range(4)
    let key{{ n }} = u32(min(j + {{ n }}, length - 1));
    let key_row{{ n }} = key_head + key{{ n }} * params.key_strides.z;
    let value_row{{ n }} = value_head + key{{ n }} * params.value_strides.z;
//# endfor
//# for r in range(ROWS)
    scores[{{ r }}] = vec4<f32>();
//# endfor
    for (var d = 0u; d < D4; d++) {
//# for n in range(4)
      let k{{ n }} = key_at4(key_row{{ n }}, params.key_strides.w, 4u * d);
//# endfor
//# for r in range(ROWS)
      let q{{ r }} = q[{{ r }}u * D4 + d];
      scores[{{ r }}] += vec4<f32>(dot(q{{ r }}, k0), dot(q{{ r }}, k1), dot(q{{ r }}, k2), dot(q{{ r }}, k3));
//# endfor
    }
//# if hides
//#   if not every_score
    if (j < seen_begin || j + 4 > seen_end)
//#   endif
    {
      for (var r = 0u; r < ROWS; r++) {
        let i = min(first_row + r, end_row - 1u);
        for (var n = 0; n < 4; n++) {
          scores[r][n] = score(scores[r][n], b, h, i, u32(j + n), i32(i) + at.shift, length);
        }
      }
    }
//# elif softcap
    for (var r = 0u; r < ROWS; r++) {
      for (var n = 0; n < 4; n++) {
        scores[r][n] = shaped(scores[r][n]);
      }
    }
//# endif
//# if fills_up
    let part = select(vec4<f32>(1.0), vec4<f32>(OF_COPY), vec4<i32>(j) + vec4<i32>(0, 1, 2, 3) >= vec4<i32>(length));
//# endif
//# for r in range(ROWS)
    let s{{ r }} = scores[{{ r }}];
    let new_max{{ r }} = max(max(row_max[{{ r }}], max(s{{ r }}.x, s{{ r }}.y)), max(s{{ r }}.z, s{{ r }}.w));
    let rescale{{ r }} = {{ exp_of("row_max[" ~ r ~ "] - new_max" ~ r) }};
    let p{{ r }} = {{ exp_of("s" ~ r ~ " - new_max" ~ r) }}{{ " * part" if fills_up }};
    row_max[{{ r }}] = new_max{{ r }};
    row_sum[{{ r }}] *= rescale{{ r }};
    recent_sum[{{ r }}] = recent_sum[{{ r }}] * rescale{{ r }} + ((p{{ r }}.x + p{{ r }}.y) + (p{{ r }}.z + p{{ r }}.w));
    let w{{ r }} = p{{ r }} * SHRINK;
//# endfor
    if ((j - begin) % 64 == 60) {
      for (var r = 0u; r < ROWS; r++) {
        row_sum[r] += recent_sum[r];
        recent_sum[r] = 0.0;
      }
    }
    for (var d = 0u; d < DV4; d++) {
//# for n in range(4)
      let v{{ n }} = value_at4(value_row{{ n }}, params.value_strides.w, 4u * d);
//# endfor
//# for r in range(ROWS)
      acc[{{ r }}u * DV4 + d] = acc[{{ r }}u * DV4 + d] * rescale{{ r }} + ((w{{ r }}.x * v0 + w{{ r }}.y * v1) + (w{{ r }}.z * v2 + w{{ r }}.w * v3));
//# endfor
    }
  }

  for (var r = 0u; r < end_row - first_row; r++) {
    let end_of_row = row_end(h, row_max[r], row_sum[r] + recent_sum[r]);
    let i = at.query_begin + first_row + r;
    let out_row = dot(params.out_strides.xyz, vec3<u32>(b, h, i));
    for (var d = 0u; d < DV4; d++) {
      var four = acc[r * DV4 + d] * (end_of_row.x * UNSHRINK);
//# if hides
      if (is_finite(end_of_row.x) && !all(are_finite(four))) {
        four = seen_output(at, h, first_row + r, u32(begin), u32(max(begin, end)), row_max[r], end_of_row.x, 4u * d, four);
      }
//# endif
      out_put4(out_row + 4u * d, four);
    }
//# if return_lse
    store_lse({{ "h" if varlen else "(b * params.heads + h)" }} * params.queries + i, end_of_row);
//# endif
  }
}
