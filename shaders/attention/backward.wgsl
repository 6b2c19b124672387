//## The gradients of attention by recomputation from the LSE (FlashAttention-2, arXiv 2307.08691,
//## algorithm 2), without atomics: a workgroup owns rows and goes through the other side in tiles of columns.
//##
//## side "query": rows are queries, columns keys;   d_query = scale · Σ ds key
//## side "key":   rows are keys, columns the queries of all heads of the group;
//##               d_key = scale · Σ ds query, d_value = Σ p d_out
//## or one of the two, where the adapter has no room for the buffers of both,
//## or both and all ds (`stores_scores`), of which attention/backward_product.wgsl then makes d_query,
//## or these in two launches with larger tiles: d_value and all p, then d_key and all ds, which take the place of p,
//## with p = exp(score - row_max) / row_sum, ds = p · (d_out·value - delta) and delta = Σ d_out·out of the query;
//## row_values has row_max, 1 / row_sum and delta of each query, which backward_delta.wgsl wrote.
//## What a hidden number that is not finite makes of a sum is put right at the end, see lib/seen_gradient.wgsl.
//## lib/tiles.wgsl has the products.
//# from "lib/storage.wgsl" import writer
//# from "lib/blocks.wgsl" import each
//# from "lib/exp.wgsl" import exp_of with context
//# from "lib/tiles.wgsl" import tile_memory, tile_registers, vec4_reader, prime_lines, prime_values, products, load_values, accumulate, add_shares, lanes, row_number, column_number with context
//# from "lib/gradient_tile.wgsl" import find_gradient_tile with context
//# from "lib/seen_gradient.wgsl" import seen_gradient with context
//# from "lib/store_gradient.wgsl" import store with context
//# set by_query = side == "query"
//# set writes_key, writes_value = "d_key" in writes | map("first"), "d_value" in writes | map("first")
//# set of_scores = by_query or writes_key
//# set stores_weights, reads_weights = stores_scores and not writes_key, stores_scores and not writes_value
//# set separate = stores_weights or reads_weights
//# set next_tile = "tile + BK" if by_query else "tile - BK"
//# set row, row2, column, column2 = ("query", "grad", "key", "value") if by_query else ("key", "value", "query", "grad")
//# include "lib/score_gradient.wgsl"
//# if stores_scores
//# include "lib/stored_scores.wgsl"
//# endif
//# for name, dtype in writes
{{ writer(name, dtype) }}
//# endfor

{{ vec4_reader("query", D4) }}
{{ vec4_reader("key", D4) }}
{{ vec4_reader("value", DV4) }}
{{ vec4_reader("grad", DV4) }}
//# set wide4 = D4 if by_query else [D4, DV4] | max
{{ tile_memory(wide4, 0) }}
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

//## The row_values of a tile's columns. Where key and value have a launch each there are few registers to spare, and the
//## products come first (bench/NOTES.md).
//# macro load_ends()
//# call(n) each("n", BK // TX, unrolled)
    ends[{{ n }}] = row_values[values_of_rows + min(tile + {{ column_number.format(n) }}, end - 1u)].xyz;
//# endcall
//# endmacro
//##
//## Dimensions of its own for each number: 6% faster on an H200 than taking them from the invocation's index. Neighbours
//## belong to two rows and to the same columns, see attention/tiled.wgsl.
@compute @workgroup_size(2, TX, {{ TY // 2 }})
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
) {
{{ find_gradient_tile(by_query, True) }}
  let first_row = tile_of_rows * BQ;
  let tx = local.y;
  let ty = local.x + 2u * local.z;
  let thread_index = local.x + 2u * (local.y + TX * local.z);
  let last_row = min(first_row + BQ, row_count) - 1u;

  var s: array<vec4<f32>, ROWS * SCORES>;
//# if of_scores
  var dp: array<vec4<f32>, ROWS * SCORES>;
  var acc: array<vec4<f32>, {{ ROWS * ((D4 + lanes - 1) // lanes) }}>;
//# endif
//# if writes_value
  var acc2: array<vec4<f32>, {{ ROWS * ((DV4 + lanes - 1) // lanes) }}>;
//# endif
  // The row_values of the queries: of the workgroup's rows, or of each tile's columns.
  var ends: array<vec3<f32>, {{ ROWS if by_query else BK // TX }}>;
{{ tile_registers(wide4) }}

//# if by_query
  let h = head;
  let kv_head = h / params.group;
  let begin = u32(max(0, i32(first_row) + shift - params.window_left));
  let end = u32(max(0, min(length, i32(last_row) + shift + params.window_right + 1)));
//# else
  let kv_head = head;
  // The key at j is visible to queries at positions j - window_right to j + window_left.
  let begin = u32(max(0, i32(first_row) - params.window_right - shift)){{ " / 4u * 4u" if stores_scores }};
  let end = u32(clamp(i32(last_row) + params.window_left - shift + 1, 0, i32(at.queries)));
  for (var member = 0u; member < params.group; member++) {
  let h = head * params.group + member;
//# endif
  let query_head = params.query_first + dot(params.query_strides.xyz, vec3<u32>(b, h, at.query_begin));
  let grad_head = params.grad_first + dot(params.grad_strides.xyz, vec3<u32>(b, h, at.query_begin));
  let key_head = params.key_first + dot(params.key_strides.xyz, vec3<u32>(b, kv_head, at.key_begin));
  let value_head = params.value_first + dot(params.value_strides.xyz, vec3<u32>(b, kv_head, at.key_begin));

  let values_of_rows = {{ "h" if varlen else "(b * params.heads + h)" }} * params.queries + at.query_begin;
//# if by_query
//#   call(r) each("r", ROWS, unrolled)
  ends[{{ r }}] = row_values[values_of_rows + min(first_row + {{ row_number.format(r) }}, last_row)].xyz;
//#   endcall
//# endif
//# if stores_scores
  let stored_head = (launched_head * params.group + member) * params.stored_length;
//# endif

//# if by_query
  for (var tile = begin; tile < end; tile += BK) {
//# else
  // From the last queries to the first: under a causal mask a key's first queries give it the largest weights, and
  // small terms lose fewer digits where they are added before large ones.
  let tiles = (max(begin, end) - begin + BK - 1u) / BK;
//#   if BUFFERS == 2
  let last_tile = begin + (max(tiles, 1u) - 1u) * BK;
{{ prime_lines(row2 if reads_weights else row, column2 if reads_weights else column, first="last_tile") }}
{{ prime_values(column if reads_weights else column2, D4 if reads_weights else DV4, first="last_tile") }}
//#   endif
  for (var left = tiles; left > 0u; left--) {
    let tile = begin + (left - 1u) * BK;
//# endif
//# if not (masks or has_score_mod)
    // Where every row and column see each other there is nothing to check.
//#   set queries_at, query_count, keys_at, key_count = ("first_row", "BQ", "tile", "BK") if by_query else ("tile", "BK", "first_row", "BQ")
    let all_visible = first_row + BQ - 1u <= last_row && tile + BK <= end && i32({{ keys_at }} + {{ key_count }}) <= length
      && i32({{ keys_at }} + {{ key_count }}) - 1 <= i32({{ queries_at }}) + shift + params.window_right
      && i32({{ keys_at }}) >= i32({{ queries_at }} + {{ query_count }}) - 1 + shift - params.window_left;
//# endif
//# if not (by_query or separate)
{{ load_ends() }}
//# endif
//# if not reads_weights
{{ products("s", row, column, D4, next_tile=next_tile) }}
//# endif
//# if of_scores
{{ products("dp", row2, column2, DV4, next_tile=next_tile) }}
//# endif
//# if separate
{{ load_ends() }}
//# endif
//# if reads_weights
    let last_four = query_fours(at) - 1u;
//# endif
//# call(r) each("r", ROWS, unrolled)
//#   if reads_weights
    let key_row = min(first_row + {{ row_number.format(r) }}, last_row);
    let weights_of_row = stored_head + stored_row(at, key_row);
//#     call(g) each("g", BK // (4 * TX), unrolled)
    s[{{ r }} * SCORES + {{ g }}] = score_gradients[weights_of_row + clamp(tile / 4u + {{ g }} * TX + tx, first_four(at, key_row), last_four)];
//#     endcall
//#   endif
//#   call(n) each("n", BK // TX, unrolled)
    {
      let ended = ends[{{ r if by_query else n }}];
      let cell = {{ r }} * SCORES + {{ n }} / 4u;
//#     if has_score_mod or masks
      let row = first_row + {{ row_number.format(r) }};
      let column = tile + {{ column_number.format(n) }};
      let i = {{ "row" if by_query else "column" }};
      let j = {{ "column" if by_query else "row" }};
//#     endif
//#     if not reads_weights
      let product = s[cell][{{ n }} % 4u] * params.query_scale;
//#     endif
//#     if masks or has_score_mod
      let masked = score({{ "0.0" if reads_weights else "product" }}, b, h, i, j, i32(i) + shift, length);
      let counts = !is_hidden(masked) && row <= last_row && column < end;
//#     elif not reads_weights
      let masked = shaped(product);
//#     endif
//#     if reads_weights
      let p = s[cell][{{ n }} % 4u];
//#     else
      // A row that sees nothing gives zero, as its 1 / row_sum is 0. Far from zero a score that rounds differently than
      // in the forward pass would be far above the maximum.
      let p = {{ exp_of("min(masked - ended.x, 0.0)" if natural else "masked - ended.x") }} * ended.y;
//#     endif
//#     if of_scores
      var ds = p * (dp[cell][{{ n }} % 4u] - ended.z);
//#       if has_score_mod
      ds *= score_mod_slope(shaped(product), i32(b), i32(h), i32(i), i32(j));
//#       endif
//#       if softcap
      let capped = accurate_tanh(product);
      ds *= 1.0 - capped * capped;
//#       endif
      dp[cell][{{ n }} % 4u] = {{ "select(0.0, ds, counts)" if masks or has_score_mod else "ds" }};
//#     endif
//#     if not reads_weights
      s[cell][{{ n }} % 4u] = {{ "select(0.0, p, counts)" if masks or has_score_mod else "p" }};
//#     endif
    }
//#   endcall
//# endcall
//# if not (masks or has_score_mod)
    if (!all_visible) {
//#   call(r) each("r", ROWS, unrolled)
//#     call(n) each("n", BK // TX, unrolled)
      {
        let row = first_row + {{ row_number.format(r) }};
        let column = tile + {{ column_number.format(n) }};
        let position = i32({{ "row" if by_query else "column" }}) + shift;
        let counts = row <= last_row && column < end && in_window(position, i32({{ "column" if by_query else "row" }}), length);
        let cell = {{ r }} * SCORES + {{ n }} / 4u;
//#       for x in (["s"] if not reads_weights else []) + (["dp"] if of_scores else [])
        {{ x }}[cell][{{ n }} % 4u] = select(0.0, {{ x }}[cell][{{ n }} % 4u], counts);
//#       endfor
      }
//#     endcall
//#   endcall
    }
//# endif
//# if stores_scores
//#   call(r) each("r", ROWS, unrolled)
    let key_row = first_row + {{ row_number.format(r) }};
    if (key_row < row_count) {
//#     call(g) each("g", BK // (4 * TX), unrolled)
      let four = tile / 4u + {{ g }} * TX + tx;
      if ({{ "four >= first_four(at, key_row) && " if hides }}four < query_fours(at)) {
        score_gradients[stored_head + stored_row(at, key_row) + four] = {{ "s" if stores_weights else "dp" }}[{{ r }} * SCORES + {{ g }}];
      }
//#     endcall
    }
//#   endcall
//# endif
//# if writes_value
//#   if BUFFERS == 1
{{ load_values(column2, DV4, "0u", "tile") }}
//#   endif
{{ accumulate("acc2", "s", column2, DV4, next_tile=next_tile) }}
//# endif
//# if of_scores
//#   if BUFFERS == 1
{{ load_values(column, D4, "0u", "tile") }}
//#   endif
{{ accumulate("acc", "dp", column, D4, next_tile=next_tile) }}
//# endif
  }
//# if by_query
{{ store("d_query", "acc", D4, scaled) }}
//# else
  }
//# endif
//# if writes_key
//#   if SHARES > 1
{{ add_shares("acc", D4, 2 * lanes, False) }}
//#   endif
{{ store("d_key", "acc", D4, scaled) }}
//# endif
//# if writes_value
//#   if SHARES > 1
{{ add_shares("acc2", DV4, 2 * lanes, False) }}
//#   endif
{{ store("d_value", "acc2", DV4, "") }}
//# endif
}
