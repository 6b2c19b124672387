//## The gradients of attention by recomputation from the LSE (FlashAttention-2, arXiv 2307.08691,
//## algorithm 2), without atomics: a workgroup owns rows and walks along the other side.
//##
//## side "query": rows are queries, columns keys;   d_query = scale · Σ ds key
//## side "key":   rows are keys, columns the queries of all heads of the group;
//##               d_key = scale · Σ ds query, d_value = Σ p d_out
//## with p = exp(score - lse), ds = p · (d_out·value - delta) and delta = Σ d_out·out of the query;
//## lse and delta of each query lie beside each other in row_values.
//## The tile is that of attention_tiled.wgsl, with BQ rows and BK columns.
//# from "lib/storage.wgsl" import reader, writer, half_types
//# from "lib/blocks.wgsl" import each
//# set by_query = side == "query"
//# set row, row2, column, column2 = ("query", "grad", "key", "value") if by_query else ("key", "value", "query", "grad")
{{ half_types(dtypes) }}
{{ reader("query", query_dtype, query_packed, D) }}
{{ reader("key", key_dtype, key_packed, D) }}
{{ reader("value", value_dtype, value_packed, DV) }}
{{ reader("grad", grad_dtype, grad_packed, DV) }}
//# if by_query
{{ writer("d_query", query_dtype) }}
//# else
{{ writer("d_key", key_dtype) }}
{{ writer("d_value", value_dtype) }}
//# endif
//# if mask_kind not in ("none", "bool")
{{ reader("mask", mask_kind, False, 1) }}
//# endif
//# include "lib/score.wgsl"
//# include "lib/sequences.wgsl"

const SCORES = BK / TX;
const PITCH = DEPTH4 + 1u;
var<workgroup> stage: array<vec4<f32>, {{ [(BK + BQ) * (DEPTH4 + 1), VALUE_KEYS * ([D4, DV4] | max)] | max }}>;
var<workgroup> weights: array<vec4<f32>, BQ * BK / 4u>;

//## products += rows · columns over the head dim `d4`, in chunks staged in workgroup memory.
//# macro multiply(products, row, column, d4)
    for (var depth = 0u; depth < {{ d4 }}u; depth += DEPTH4) {
      workgroupBarrier();
      for (var e = local; e < (BK + BQ) * DEPTH4; e += WORKGROUP) {
        let d = depth + e % DEPTH4;
        let line = e / DEPTH4;
        var v = vec4<f32>();
        if (d < {{ d4 }}u) {
          if (line < BK) {
            // Column 4·(tx + TX·g) + c goes to line (4g + c)·TX + tx, as in attention_tiled.wgsl.
            let n = tile + 4u * (line % TX + TX * (line / (4u * TX))) + (line / TX) % 4u;
            if (n < end) {
              v = {{ column }}_at4({{ column }}_head + n * params.{{ column }}_strides.z, params.{{ column }}_strides.w, 4u * d){{ " * params.query_scale" if column == "query" else "" }};
            }
          } else if (first_row + line - BK < row_count) {
            v = {{ row }}_at4({{ row }}_head + (first_row + line - BK) * params.{{ row }}_strides.z, params.{{ row }}_strides.w, 4u * d){{ " * params.query_scale" if row == "query" else "" }};
          }
        }
        stage[line * PITCH + e % DEPTH4] = v;
      }
      workgroupBarrier();
      for (var d = 0u; d < DEPTH4; d++) {
//# call(r) each("r", ROWS, unrolled)
        rows[{{ r }}] = stage[(BK + ty * ROWS + {{ r }}) * PITCH + d];
//# endcall
//# call(n) each("n", BK // TX, unrolled)
        let v = stage[({{ n }} * TX + tx) * PITCH + d];
//#   call(r) each("r", ROWS, unrolled)
        {{ products }}[{{ r }} * SCORES + {{ n }}] += dot(rows[{{ r }}], v);
//#   endcall
//# endcall
      }
    }
//# endmacro
//##
//## sums += coefficients · columns: the coefficients go through workgroup memory to the whole row.
//# macro accumulate(sums, coefficients, column, d4)
//# set across = (d4 + TX - 1) // TX
    workgroupBarrier();
//# call(r) each("r", ROWS, unrolled)
//#   call(g) each("g", BK // (4 * TX), unrolled)
    let n = {{ r }} * SCORES + 4u * {{ g }};
    weights[(ty * ROWS + {{ r }}) * (BK / 4u) + {{ g }} * TX + tx] =
      vec4<f32>({{ coefficients }}[n], {{ coefficients }}[n + 1u], {{ coefficients }}[n + 2u], {{ coefficients }}[n + 3u]);
//#   endcall
//# endcall
    for (var part = 0u; part < BK; part += VALUE_KEYS) {
      workgroupBarrier();
      for (var e = local; e < VALUE_KEYS * {{ d4 }}u; e += WORKGROUP) {
        let n = tile + part + e / {{ d4 }}u;
        var v = vec4<f32>();
        if (n < end) {
          v = {{ column }}_at4({{ column }}_head + n * params.{{ column }}_strides.z, params.{{ column }}_strides.w, 4u * (e % {{ d4 }}u));
        }
        stage[e] = v;
      }
      workgroupBarrier();
      for (var k = 0u; k < VALUE_KEYS; k += 4u) {
//# call(r) each("r", ROWS, unrolled)
        rows[{{ r }}] = weights[(ty * ROWS + {{ r }}) * (BK / 4u) + (part + k) / 4u];
//# endcall
//# call(c) each("c", 4, unrolled)
//#   call(o) each("o", across, unrolled)
        let v = stage[(k + {{ c }}) * {{ d4 }}u + {{ o }} * TX + tx];
//#     call(r) each("r", ROWS, unrolled)
        {{ sums }}[{{ r }} * {{ across }}u + {{ o }}] += rows[{{ r }}][{{ c }}] * v;
//#     endcall
//#   endcall
//# endcall
      }
    }
//# endmacro
//##
//# macro store(name, sums, d4, factor)
//# set across = (d4 + TX - 1) // TX
//# call(r) each("r", ROWS, unrolled)
  let n = first_row + ty * ROWS + {{ r }};
  if (n < row_count) {
    let to = dot(params.{{ name }}_strides.xyz, vec3<u32>(b, head, {{ "at.query_begin" if by_query else "at.key_begin" }} + n));
//#   call(o) each("o", across, unrolled)
    if ({{ o }} * TX + tx < {{ d4 }}u) {
      {{ name }}_put4(to + 4u * ({{ o }} * TX + tx), {{ sums }}[{{ r }} * {{ across }}u + {{ o }}]{{ factor }});
    }
//#   endcall
  }
//# endcall
//# endmacro
//##
@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let work = workgroup.x + workgroup.y * workgroups.x;
  let heads = {{ "params.heads" if by_query else "params.heads / params.group" }};
//# if varlen
  let at = sequence_of(work % params.tiles);
  let b = at.b;
  let head = work / params.tiles;
  if (b >= params.batch || head >= heads) {
    return;
  }
  let first_row = at.tile * BQ;
  let row_count = {{ "at.queries" if by_query else "u32(at.keys)" }};
//# else
  if (work >= params.tiles * heads * params.batch) {
    return;
  }
  let b = work / params.tiles / heads;
  let head = (work / params.tiles) % heads;
  let at = sequence(b);
  let first_row = (work % params.tiles) * BQ;
  let row_count = {{ "params.queries" if by_query else "params.keys" }};
//# endif
  let tx = local % TX;
  let ty = local / TX;
  let length = at.keys;
  let shift = at.shift;
  let last_row = min(first_row + BQ, row_count) - 1u;

  var rows: array<vec4<f32>, ROWS>;
  var s: array<f32, ROWS * SCORES>;
  var dp: array<f32, ROWS * SCORES>;
  var sums: array<vec4<f32>, {{ ROWS * ((D4 + TX - 1) // TX) }}>;
//# if not by_query
  var sums2: array<vec4<f32>, {{ ROWS * ((DV4 + TX - 1) // TX) }}>;
//# endif

//# if by_query
  let h = head;
  let kv_head = h / params.group;
  let begin = u32(max(0, i32(first_row) + shift - params.window_left));
  let end = u32(max(0, min(length, i32(last_row) + shift + params.window_right + 1)));
//# else
  let kv_head = head;
  // A key at j is seen from positions j - right to j + left.
  let begin = u32(max(0, i32(first_row) - params.window_right - shift));
  let end = u32(clamp(i32(last_row) + params.window_left - shift + 1, 0, i32(at.queries)));
  for (var member = 0u; member < params.group; member++) {
  let h = head * params.group + member;
//# endif
  let query_head = params.query_first + dot(params.query_strides.xyz, vec3<u32>(b, h, at.query_begin));
  let grad_head = params.grad_first + dot(params.grad_strides.xyz, vec3<u32>(b, h, at.query_begin));
  let key_head = params.key_first + dot(params.key_strides.xyz, vec3<u32>(b, kv_head, at.key_begin));
  let value_head = params.value_first + dot(params.value_strides.xyz, vec3<u32>(b, kv_head, at.key_begin));

  for (var tile = begin; tile < end; tile += BK) {
//# call(n) each("n", ROWS * BK // TX, unrolled)
    s[{{ n }}] = 0.0;
    dp[{{ n }}] = 0.0;
//# endcall
{{ multiply("s", row, column, D4) }}
{{ multiply("dp", row2, column2, DV4) }}
//# call(r) each("r", ROWS, unrolled)
//#   call(n) each("n", BK // TX, unrolled)
    {
      let here = {{ r }} * SCORES + {{ n }};
      let row_index = first_row + ty * ROWS + {{ r }};
      let column_index = tile + 4u * (tx + TX * ({{ n }} / 4u)) + {{ n }} % 4u;
//#     if by_query
      let i = row_index;
      let j = column_index;
//#     else
      let i = column_index;
      let j = row_index;
//#     endif
      var p = 0.0;
      var ds = 0.0;
      if (row_index <= last_row && column_index < end) {
        let row = row_values[{{ "h" if varlen else "(b * params.heads + h)" }} * params.queries + at.query_begin + i];
        let masked = score(s[here], b, h, i, j, i32(i) + shift, length);
        // A hidden score gives zero; so does a row that sees nothing, whose LSE is -inf.
        p = select(0.0, exp2(fma(row.x, -LOG2_E, masked)), masked >= FLOOR);
        ds = p * (dp[here] - row.y);
//#     if has_score_mod
        ds *= score_mod_slope(shaped(s[here]), i32(b), i32(h), i32(i), i32(j));
//#     endif
//#     if softcap
        let capped = accurate_tanh(s[here]);
        ds *= 1.0 - capped * capped;
//#     endif
      }
      s[here] = p;
      dp[here] = ds;
    }
//#   endcall
//# endcall
//# if not by_query
{{ accumulate("sums2", "s", column2, DV4) }}
//# endif
{{ accumulate("sums", "dp", column, D4) }}
  }
//# if by_query
{{ store("d_query", "sums", D4, " * params.grad_scale") }}
//# else
  }
{{ store("d_key", "sums", D4, " * params.grad_scale") }}
{{ store("d_value", "sums2", DV4, "") }}
//# endif
}
