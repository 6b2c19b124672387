//## FlashAttention-2 (Dao, arXiv 2307.08691) with register tiles: lib/tiles.wgsl has the two products, this
//## file the online softmax between them. Rows are queries, columns are keys.
//##
//## Behind the last column it is read again. Where nothing else hides keys (`fills_up`), these copies get a part of its
//## weight (OF_COPY in lib/math.wgsl); otherwise they are hidden, and lib/seen_output.wgsl looks for infinities afterwards.
//##
//## With `subgroups` the row maximum goes through shuffles among the TX invocations of a row, else
//## through workgroup memory. Nothing depends on how large a subgroup is, only that TX divides it.
//# from "lib/storage.wgsl" import reader, writer, half_types
//# from "lib/exp.wgsl" import exp_of with context
//# from "lib/blocks.wgsl" import each
//# if subgroups
//#   from "lib/thread_index.wgsl" import thread_index_memory, thread_index_arguments, find_thread_index with context
//# endif
//# from "lib/query_tile.wgsl" import find_query_tile with context
//# from "lib/tiles.wgsl" import tile_memory, tile_registers, vec4_reader, stage_rows, prime_lines, prime_values, products, load_values, accumulate, add_shares, lanes, row_number, column_number with context
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
//## Where keys end with a tile no line needs a bound, if the tile that memory is asked for ahead has one. Measured for
//## head dim 128, where it is faster, and 64, 80 and 96, where it is slower (bench/NOTES.md).
//# set tiles_are_full = BUFFERS == 2 and D4 == DV4 == 32 and not hides and not fills_up
{{ vec4_reader("query", D4) }}
{{ vec4_reader("key", D4, bounded=not tiles_are_full) }}
{{ vec4_reader("value", DV4, bounded=not tiles_are_full) }}
{{ tile_memory(DV4, D4 if query_resident else 0) }}
// Vec4s of the values' head dim that an invocation writes, and that it sums.
const COLUMNS = {{ (DV4 + TX - 1) // TX }}u;
//# set across = (DV4 + lanes - 1) // lanes
const ACROSS = {{ across }}u;
//# if subgroups
{{ thread_index_memory() }}
//# endif
//## With two buffers, loads of the next tile are on their way, so no tile is left out.
//# set leaves_out = masks and BUFFERS == 1
//# if leaves_out
var<workgroup> tile_seen: atomic<u32>;
var<workgroup> tile_live: u32;
//# endif

//# set neighbours = 2 if woven else 1
//## The order of the products with keys, and how much of a step is computed before the next one is staged
//## (lib/tiles.wgsl), measured for head dims 64 and 128, and for 40, 80, 96, 112 and 160 together (bench/NOTES.md).
//# set of_64 = ("vec4s", 1, 4) if hides else ("columns", 1, 6) if has_splits else ("vec4s", 6, 8)
//# set of_128 = ("vec4s", 2, 10) if hides else ("columns", 1, 8) if has_splits else ("vec4s", 1, 8)
//# set of_others = ("columns", 2, 8) if hides else ("rows", 3, none)
//# set order, lines_before, values_before = {16: of_64, 32: of_128}.get(D4 if D4 == DV4 else 0, of_others)
//## Combine values[r] over the TX invocations of each row r.
//# macro across_row(values, op)
//# set combine = "max({}, {})" if op == "max" else "({} + {})"
//# if subgroups
//#   call(r) each("r", ROWS, unrolled)
//#     for step in (1, 2, 4, 8, 16, 32)
//#       if step < TX
    {{ values }}[{{ r }}] = {{ combine.format(values ~ "[" ~ r ~ "]", "subgroupShuffleXor(" ~ values ~ "[" ~ r ~ "], " ~ step * neighbours ~ "u)") }};
//#       endif
//#     endfor
//#   endcall
//# else
//#   call(r) each("r", ROWS, unrolled)
    let cell = (TY * {{ r }} + ty) * TX + tx;
    weights[cell / 4u][cell % 4u] = {{ values }}[{{ r }}];
//#   endcall
    workgroupBarrier();
//#   call(r) each("r", ROWS, unrolled)
    var all = weights[(TY * {{ r }} + ty) * (TX / 4u)];
    for (var x = 1u; x < TX / 4u; x++) {
      all = {{ combine.format("all", "weights[(TY * " ~ r ~ " + ty) * (TX / 4u) + x]") }};
    }
    {{ values }}[{{ r }}] = {{ combine.format(combine.format("all.x", "all.y"), combine.format("all.z", "all.w")) }};
//#   endcall
//#   if BUFFERS == 2
    workgroupBarrier();
//#   endif
//# endif
//# endmacro
@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
//# if subgroups
{{ thread_index_arguments() }}
//# else
  @builtin(local_invocation_index) thread_index: u32,
//# endif
) {
{{ find_query_tile() }}
//# if only_unfit
  // The others were computed by attention/matrix_float32.wgsl.
  if (unfit[work] == 0u) {
    return;
  }
//# endif
//# if subgroups
{{ find_thread_index() }}
//# endif
//# if woven
  let tx = thread_index / 2u % TX;
  let ty = thread_index % 2u + 2u * (thread_index / (2u * TX));
//# else
  let tx = thread_index % TX;
  let ty = thread_index / TX;
//# endif

  var row_max: array<f32, ROWS>;
  var row_sum: array<f32, ROWS>;
  var new_max: array<f32, ROWS>;
  var s: array<vec4<f32>, ROWS * SCORES>;
  var acc: array<vec4<f32>, ROWS * ACROSS>;
{{ tile_registers(DV4) }}
//# call(r) each("r", ROWS, unrolled)
  row_max[{{ r }}] = LOWEST;
//# endcall
//# if query_resident
{{ stage_rows("query", D4) }}
//# endif
//# if BUFFERS == 2
{{ prime_lines("query", "key", query_resident) }}
{{ prime_values("value", DV4) }}
//# endif

  for (var tile = begin; tile < end; tile += BK) {
//# if hides
    // Where every row sees every key of the tile there is nothing to check.
    let last_key = i32(tile + BK) - 1;
    let all_visible = tile + BK <= end && last_key <= first_position + params.window_right
      && i32(tile) >= last_position - params.window_left;
//# endif
//# if leaves_out
    // A tile that the mask hides from every row is not computed.
    var seen = false;
    for (var e = thread_index; e < BQ * BK; e += WORKGROUP) {
      let i = first_row + e / BK;
      let j = i32(tile + e % BK);
      if (i <= last_row && in_window(i32(i) + shift, j, length)) {
        seen = seen || mask_allows(b, h, i, u32(j));
      }
    }
    if (seen) {
      atomicStore(&tile_seen, 1u);
    }
    workgroupBarrier();
    if (thread_index == 0u) {
      tile_live = atomicExchange(&tile_seen, 0u);
    }
    if (workgroupUniformLoad(&tile_live) == 0u) {
      continue;
    }
//# endif

//# if tiles_are_full
    let next_tile = min(tile + BK, end - BK);
//# endif
//# set next_tile = "next_tile" if tiles_are_full else "tile + BK"
{{ products("s", "query", "key", D4, query_resident, next_tile=next_tile, lines_before=lines_before, order=order) }}
//# if BUFFERS == 1
{{ load_values("value", DV4, "0u", "tile") }}
//# endif
//# call(n) each("n", ROWS * BK // (4 * TX), unrolled)
    s[{{ n }}] *= params.query_scale;
//# endcall

//# if masks or has_score_mod
//#   call(r) each("r", ROWS, unrolled)
//#     call(n) each("n", BK // TX, unrolled)
    let i = first_row + {{ row_number.format(r) }};
    let j = tile + {{ column_number.format(n) }};
    let at = {{ r }} * SCORES + {{ n }} / 4u;
    s[at][{{ n }} % 4u] = score(s[at][{{ n }} % 4u], b, h, i, j, i32(i) + shift, length);
//#     endcall
//#   endcall
//# else
//#   if softcap
//#     call(n) each("n", ROWS * BK // (4 * TX), unrolled)
    s[{{ n }}] = vec4<f32>(shaped(s[{{ n }}].x), shaped(s[{{ n }}].y), shaped(s[{{ n }}].z), shaped(s[{{ n }}].w));
//#     endcall
//#   endif
//#   if hides
    if (!all_visible) {
//#   call(r) each("r", ROWS, unrolled)
      // The keys that the row sees, counted from this invocation's first one.
      let position = first_position + i32({{ row_number.format(r) }});
      let lowest = vec4<i32>(position - params.window_left - i32(tile + 4u * tx));
      let highest = vec4<i32>(min(position + params.window_right, length - 1) - i32(tile + 4u * tx));
//#     call(g) each("g", BK // (4 * TX), unrolled)
      let column = i32(4u * TX * {{ g }}) + vec4<i32>(0, 1, 2, 3);
      let at = {{ r }} * SCORES + {{ g }};
      s[at] = select(vec4<f32>(params.empty_lse), s[at], (column >= lowest) & (column <= highest));
//#     endcall
//#   endcall
    }
//#   endif
//# endif

//# call(r) each("r", ROWS, unrolled)
    var max4 = s[{{ r }} * SCORES];
//#   call(g) each("g", BK // (4 * TX), unrolled)
    max4 = max(max4, s[{{ r }} * SCORES + {{ g }}]);
//#   endcall
    new_max[{{ r }}] = max(max(row_max[{{ r }}], max(max4.x, max4.y)), max(max4.z, max4.w));
//# endcall
{{ across_row("new_max", "max") }}
//# call(r) each("r", ROWS, unrolled)
    let maximum = new_max[{{ r }}];
    let rescale = {{ exp_of("row_max[" ~ r ~ "] - maximum") }};
    row_max[{{ r }}] = maximum;
    row_sum[{{ r }}] *= rescale;
//#   call(o) each("o", across, unrolled)
    acc[{{ r }} * ACROSS + {{ o }}] *= rescale;
//#   endcall
//#   call(g) each("g", BK // (4 * TX), unrolled)
    s[{{ r }} * SCORES + {{ g }}] = {{ exp_of("s[" ~ r ~ " * SCORES + " ~ g ~ "] - maximum") }};
//#   endcall
//# endcall
//# if fills_up
    if (tile + BK > end) {
//#   call(g) each("g", BK // (4 * TX), unrolled)
      let column = vec4<u32>(tile + 4u * tx + 4u * TX * {{ g }}) + vec4<u32>(0u, 1u, 2u, 3u);
      let part = select(vec4<f32>(1.0), vec4<f32>(OF_COPY), column >= vec4<u32>(end));
//#     call(r) each("r", ROWS, unrolled)
      s[{{ r }} * SCORES + {{ g }}] *= part;
//#     endcall
//#   endcall
    }
//# endif
//# call(r) each("r", ROWS, unrolled)
    var sum4 = vec4<f32>();
//#   call(g) each("g", BK // (4 * TX), unrolled)
    sum4 += s[{{ r }} * SCORES + {{ g }}];
    s[{{ r }} * SCORES + {{ g }}] *= SHRINK;
//#   endcall
    row_sum[{{ r }}] += (sum4.x + sum4.y) + (sum4.z + sum4.w);
//# endcall

{{ accumulate("acc", "s", "value", DV4, next_tile=next_tile, values_before=values_before) }}
  }
//# if SHARES > 1
{{ add_shares("acc", DV4, lanes * neighbours, subgroups) }}
//# endif

//# if not subgroups
  workgroupBarrier();
//# endif
{{ across_row("row_sum", "sum") }}
//# if hides
  // Whether a row that has a softmax has an output that is not finite.
  var lost = false;
//# endif
//# call(r) each("r", ROWS, unrolled)
  let i = first_row + {{ row_number.format(r) }};
//#   if has_splits
  if (is_split) {
    let row = ((split_tile * params.splits + split) * BQ + {{ row_number.format(r) }}) * (DV4 + 1u);
    let factor = select(1.0 / row_sum[{{ r }}], 0.0, row_sum[{{ r }}] == 0.0);
//#     call(o) each("o", (DV4 + TX - 1) // TX, unrolled)
    if ({{ o }} * TX + tx < DV4) {
      let four = acc[{{ r }} * COLUMNS + {{ o }}] * (factor * UNSHRINK);
//#       if hides
      lost = lost | (is_finite(row_sum[{{ r }}]) & !all(are_finite(four)));
//#       endif
      partials[row + {{ o }} * TX + tx] = four;
    }
//#     endcall
    if (tx == 0u) {
      partials[row + DV4] = vec4<f32>(row_max[{{ r }}], row_sum[{{ r }}], 0.0, 0.0);
    }
  } else
//#   endif
  if (i <= last_row) {
    let end_of_row = row_end(h, row_max[{{ r }}], row_sum[{{ r }}]);
    let out_row = dot(params.out_strides.xyz, vec3<u32>(b, h, at.query_begin + i));
//#   call(o) each("o", (DV4 + TX - 1) // TX, unrolled)
    if ({{ o }} * TX + tx < DV4) {
      let four = acc[{{ r }} * COLUMNS + {{ o }}] * (end_of_row.x * UNSHRINK);
//#     if hides
      lost = lost | (is_finite(end_of_row.x) & !all(are_finite(four)));
//#     endif
      out_put4(out_row + 4u * ({{ o }} * TX + tx), four);
    }
//#   endcall
//#   if return_lse
    if (tx == 0u) {
      store_lse({{ "h" if varlen else "(b * params.heads + h)" }} * params.queries + at.query_begin + i, end_of_row);
    }
//#   endif
  }
//# endcall
//# if hides
  if (!lost) {
    return;
  }
  // A loop over the registers would move them to memory for all that is above, so each is asked in turn for its number.
  for (var n = 0u; n < ROWS * COLUMNS; n++) {
    var four = vec4<f32>();
    var maximum = 0.0;
    var sum = 0.0;
//# call(r) each("r", ROWS, unrolled)
//#   call(o) each("o", (DV4 + TX - 1) // TX, unrolled)
    if (n == {{ r }} * COLUMNS + {{ o }}) {
      four = acc[{{ r }} * COLUMNS + {{ o }}];
      maximum = row_max[{{ r }}];
      sum = row_sum[{{ r }}];
    }
//#   endcall
//# endcall
    let row_of_tile = {{ row_number.format("(n / COLUMNS)") }};
    let i = first_row + row_of_tile;
    let column = n % COLUMNS * TX + tx;
    if (i > last_row || column >= DV4) {
      continue;
    }
//# if has_splits
    let factor = select(row_end(h, maximum, sum).x, select(1.0 / sum, 0.0, sum == 0.0), is_split);
//# else
    let factor = row_end(h, maximum, sum).x;
//# endif
    four *= factor * UNSHRINK;
    if (!is_finite(sum) || !is_finite(factor) || all(are_finite(four))) {
      continue;
    }
    four = seen_output(at, h, i, begin, end, maximum, factor, 4u * column, four);
//# if has_splits
    if (is_split) {
      partials[((split_tile * params.splits + split) * BQ + row_of_tile) * (DV4 + 1u) + column] = four;
      continue;
    }
//# endif
    out_put4(dot(params.out_strides.xyz, vec3<u32>(b, h, at.query_begin + i)) + 4u * column, four);
  }
//# endif
}
