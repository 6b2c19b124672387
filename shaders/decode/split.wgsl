//## Decode: one split of the cached keys for the query rows that share a key/value head
//## (split-KV as in Flash-Decoding, Dao et al. 2023).
//##
//## A workgroup takes ROWS rows (heads of a group times new positions), so that every key and value is
//## read once for all of them. Its keys are a run of neighbours, or blocks of STEP · TEAMS keys far from each other:
//## then workgroups read at any time what lies together.
//##
//## A workgroup consists of teams of TEAM invocations, each with an online softmax of its own; teams meet only at
//## the end. At each step a team takes STEP keys. For the scores LANES invocations share a key, each with some
//## pieces of it (lib/pieces.wgsl), and take AHEAD keys one after the other; then they exchange their partial sums
//## so that each is left with the scores of one row with some keys, and nothing of the softmax is computed twice.
//## For the sums VALUE_LANES invocations share a value, each with some pieces of it, and get the weights from
//## those that hold them.
//##
//## Queries lie in workgroup memory, rotated there where keys are codes of rotated ones (`rotates`), unless they come
//## so. Memory is asked for the next keys and values as soon as the registers of these are free. With subgroups a
//## team is within one and nothing waits for a barrier on the way; else teams are as small as LANES and exchange
//## through workgroup memory. Entries past the last are read from the last one and hidden.
//## With one split the result is written at once, else its normalised output, maximum and sum go to decode/reduce.wgsl.
//# from "lib/storage.wgsl" import reader, writer, half_types
//# from "lib/exp.wgsl" import exp_of with context
//# from "lib/turboquant.wgsl" import row_tables, rotation_in_subgroup with context
//# from "lib/pieces.wgsl" import piece_reader with context
//# from "lib/blocks.wgsl" import each
//# if subgroups
//#   from "lib/place.wgsl" import place_memory, place_arguments, find_place, swapped with context
//# endif
{{ half_types(dtypes) }}
{{ reader("query", query_dtype, query_packed, D) }}
{{ piece_reader("key", key_dtype, D, key_row, key_wide) }}
{{ piece_reader("value", value_dtype, DV, value_row, value_wide) }}
{{ writer("out", out_dtype) }}
//# include "lib/score.wgsl"
//# include "lib/row_end.wgsl"
//# include "lib/cache.wgsl"
//# if rotates
{{ rotation_in_subgroup(false) }}
//# endif
//##
//## Pieces of a row, and of those how many an invocation holds.
//# set key_vec4s = 2 if key_wide else 1
//# set value_vec4s = 2 if value_wide else 1
//# set key_pieces = D4 // key_vec4s
//# set value_pieces = DV4 // value_vec4s
//# set key_each = (key_pieces + LANES - 1) // LANES
//# set value_each = (value_pieces + VALUE_LANES - 1) // VALUE_LANES
//# set vec4s = value_each * value_vec4s
//# set query_vec4s = key_each * key_vec4s * LANES
//# set key_scaled = key_wide and key_row
//# set value_scaled = value_wide and value_row
//##
//## Partial sums of an invocation: PADDED rows by AHEAD keys; of LANES invocations each is left with `held`. Where these
//## are more than there are sums, several hold the same.
//# set partial = PADDED * AHEAD
//# set held = [partial // LANES, 1] | max
//# set distinct = [partial, LANES] | min
//##
//## Keys that a team takes at a time, and values.
const GROUPS = {{ TEAM // LANES }}u;
const VALUE_GROUPS = {{ TEAM // VALUE_LANES }}u;
const STEP = {{ TEAM // LANES * AHEAD }}u;
const TEAMS = {{ WORKGROUP // TEAM }}u;
const PARTS = {{ WORKGROUP // VALUE_LANES }}u;
//# set values = TEAM // LANES * AHEAD // (TEAM // VALUE_LANES)
//## The queries lie in the order in which lanes read them: their pieces, of these each vec4, of this all lanes'.
var<workgroup> queries: array<vec4<f32>, {{ ROWS * query_vec4s }}>;
var<workgroup> tops: array<f32, {{ ROWS * WORKGROUP // TEAM }}>;
var<workgroup> totals: array<f32, {{ ROWS * WORKGROUP // TEAM }}>;
var<workgroup> shares: array<f32, {{ ROWS * WORKGROUP // TEAM }}>;
var<workgroup> merged: array<vec4<f32>, {{ ([MERGED, ROWS * vec4s] | min) * WORKGROUP }}>;
//# if not subgroups
var<workgroup> exchanged: array<f32, {{ partial * WORKGROUP }}>;
var<workgroup> exchanged_weight: array<f32, {{ held * WORKGROUP }}>;
var<workgroup> exchanged_top: array<f32, WORKGROUP>;
var<workgroup> exchanged_shrink: array<f32, WORKGROUP>;
//# else
{{ place_memory() }}
//# endif
//##
//## The first element of a piece that an invocation holds, kept within the row.
//# set within = "min({0} + {1}u * {{}}, {2}u)"
//# set key_piece = "KEY_PIECE * " ~ (within if key_pieces % LANES else "({0} + {1}u * {{}})").format("lane", LANES, key_pieces - 1)
//# set value_piece = "VALUE_PIECE * " ~ (within if value_pieces % VALUE_LANES else "({0} + {1}u * {{}})").format("value_lane", VALUE_LANES, value_pieces - 1)
const KEY_PIECE = {{ 4 * key_vec4s }}u;
const VALUE_PIECE = {{ 4 * value_vec4s }}u;
//##
//## The row of the cache at place e of the walk.
//# set row_at = "(cache_row + cache_slot(walked_entry(min({}, end - 1u))))"
//##
//# macro load_keys(first, to)
//# call(a) each("a", AHEAD, unrolled)
    let key_row = {{ row_at.format(first ~ " + GROUPS * " ~ a ~ " + group") }} * KEY_PITCH;
//#   call(n) each("n", key_each, unrolled)
    {{ to }}[{{ a }} * {{ key_each }}u + {{ n }}] = key_load(key_row, {{ key_piece.format(n) }});
//#   endcall
//# endcall
//# endmacro
//##
//# macro load_values(first)
//# call(t) each("t", values, unrolled)
    let value_row = {{ row_at.format(first ~ " + VALUE_GROUPS * " ~ t ~ " + value_group") }} * VALUE_PITCH;
//#   call(n) each("n", value_each, unrolled)
    v[{{ t }} * {{ value_each }}u + {{ n }}] = value_load(value_row, {{ value_piece.format(n) }});
//#   endcall
//# endcall
//# endmacro
//##
//## The factors of the keys and values whose weights this invocation holds.
//# macro load_scales(first)
//# if key_scaled or value_scaled
//#   call(m) each("m", held, unrolled)
    let scale_row = {{ row_at.format(first ~ " + own_key + STEP_OF_HELD * " ~ m) }};
//#     if key_scaled
    key_factor[{{ m }}] = key_scale(scale_row * KEY_PITCH);
//#     endif
//#     if value_scaled
    value_factor[{{ m }}] = value_scale(scale_row * VALUE_PITCH);
//#     endif
//#   endcall
//# endif
//# endmacro
//##
//## From the keys of one number held to those of the next.
const STEP_OF_HELD = {{ TEAM // LANES * (LANES // PADDED) }}u;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
//# if subgroups
{{ place_arguments() }}
//# else
  @builtin(local_invocation_index) place: u32,
//# endif
) {
  let work = workgroup.x + workgroup.y * workgroups.x;
  let split = work % params.splits;
  let chunk = work / params.splits % params.chunks;
  let kv_head = work / params.splits / params.chunks % params.kv_heads;
  let b = work / params.splits / params.chunks / params.kv_heads;
  if (b >= params.batch) {
    return;
  }
//# if subgroups
{{ find_place() }}
//# endif
  let team = place / TEAM;
  let lane = place % LANES;
  let group = place % TEAM / LANES;
  let value_lane = place % VALUE_LANES;
  let value_group = place % TEAM / VALUE_LANES;
  // The first of those that hold the weights of this invocation's values.
  let weights_from = {{ "subgroup_lane" if subgroups else "place" }} - place % TEAM + value_group * LANES;
  let rows = params.group * params.queries;
  let length = i32(params.keys);
  let shift = query_shift(length);
  let begin = params.first_key + split * params.split_first;
  let end = min(begin + params.split_span, params.keys);
  let cache_row = (b * params.kv_heads + kv_head) * params.capacity;
  var sums: array<vec4<f32>, {{ ROWS * vec4s }}>;
  var k: array<key_piece, {{ AHEAD * key_each }}>;
  var v: array<value_piece, {{ values * value_each }}>;
  var s: array<f32, {{ partial }}>;
  var numbers_of: array<vec4<f32>, AHEAD>;
  var next_k: array<key_piece, {{ AHEAD * key_each }}>;
//# if key_scaled
  var key_factor: array<f32, {{ held }}>;
//# endif
//# if value_scaled
  var value_factor: array<f32, {{ held }}>;
//# endif
  // The row and the first of the keys whose scores this invocation is left with, and what the row sees.
  let own_row = min(chunk * ROWS + lane % PADDED, rows - 1u);
  let own_head = kv_head * params.group + own_row / params.queries;
  let own_query = own_row % params.queries;
  let own_key = team * STEP + (lane % {{ distinct }}u / PADDED) * GROUPS + group;
  let position = i32(own_query) + shift;
//# if not (masks or has_score_mod or has_kept)
  let lowest = position - params.window_left;
  let highest = min(i32(end) - 1, position + params.window_right);
//# endif
  var top = LOWEST;
  var total = 0.0;

{{ row_tables("key", key_row) }}
{{ row_tables("value", value_row) }}
  for (var begun = 0u; begun < {{ ROWS * query_vec4s }}u; begun += WORKGROUP) {
    let r = (begun + place) / {{ query_vec4s }}u;
    let vec4_of_row = (begun + place) % {{ query_vec4s }}u;
    let row = chunk * ROWS + r;
    var four = vec4<f32>();
    if (r < ROWS && row < rows && vec4_of_row < D4) {
      let head = kv_head * params.group + row / params.queries;
      let at = params.query_first + dot(params.query_strides.xyz, vec3<u32>(b, head, row % params.queries));
      four = query_at4(at, params.query_strides.w, 4u * vec4_of_row) * params.query_scale;
    }
//# if rotates
    four = rotate(four, 4u * vec4_of_row + vec4<u32>(0u, 1u, 2u, 3u));
//# endif
    let piece = vec4_of_row / {{ key_vec4s }}u;
    let n = piece / LANES * {{ key_vec4s }}u + vec4_of_row % {{ key_vec4s }}u;
    if (r < ROWS) {
      queries[r * {{ query_vec4s }}u + n * LANES + piece % LANES] = four;
    }
  }
  workgroupBarrier();

{{ load_keys("begin + team * STEP", "k") }}
{{ load_scales("begin") }}
{{ load_values("begin + team * STEP") }}

  // Counted by ones: Tint then sees that the loop ends and adds no guard of its own.
  let steps = (max(begin, end) - begin + params.split_stride - 1u) / params.split_stride;
  for (var step = 0u; step < steps; step++) {
    let first = begin + step * params.split_stride;
    let next = first + params.split_stride;
{{ load_keys("next + team * STEP", "next_k") }}
//# call(n) each("n", partial, unrolled)
    s[{{ n }}] = 0.0;
//# endcall
//# call(n) each("n", key_each, unrolled)
//#   for w in range(key_vec4s)
//#     call(a) each("a", AHEAD, unrolled)
    numbers_of[{{ a }}] = key_vec4_{{ w }}(k[{{ a }} * {{ key_each }}u + {{ n }}], {{ key_piece.format(n) }});
//#     endcall
//#     call(r) each("r", ROWS, unrolled)
    let q = queries[{{ r }} * {{ query_vec4s }}u + ({{ n }} * {{ key_vec4s }}u + {{ w }}u) * LANES + lane];
//#       call(a) each("a", AHEAD, unrolled)
    let numbers = numbers_of[{{ a }}];
    let at = {{ a }} * PADDED + {{ r }};
//#         for c in range(4)
    s[at] = fma(q[{{ c }}], numbers[{{ c }}], s[at]);
//#         endfor
//#       endcall
//#     endcall
//#   endfor
//# endcall

//# if subgroups
    // Each gives half of its sums away and gets the other half of what it keeps.
//#   set ns = namespace(count=partial)
//#   for bit in (1, 2, 4, 8, 16, 32) if bit < LANES
//#     if ns.count > 1
//#       set ns.count = ns.count // 2
    {
      let odd = (lane & {{ bit }}u) != 0u;
//#       call(m) each("m", ns.count, unrolled)
      let even_sum = s[2u * {{ m }}];
      let odd_sum = s[2u * {{ m }} + 1u];
      s[{{ m }}] = select(even_sum, odd_sum, odd) + {{ swapped("select(odd_sum, even_sum, odd)", bit) }};
//#       endcall
    }
//#     else
    s[0] += {{ swapped("s[0]", bit) }};
//#     endif
//#   endfor
//# else
//#   call(n) each("n", partial, unrolled)
    exchanged[{{ n }} * WORKGROUP + place] = s[{{ n }}];
//#   endcall
    workgroupBarrier();
//#   call(m) each("m", held, unrolled)
    s[{{ m }}] = 0.0;
    for (var other = 0u; other < LANES; other++) {
      s[{{ m }}] += exchanged[(lane % {{ distinct }}u + LANES * {{ m }}) * WORKGROUP + place - lane + other];
    }
//#   endcall
//# endif

    var high = top;
//# call(m) each("m", held, unrolled)
    let place_of_key = first + own_key + STEP_OF_HELD * {{ m }};
    let product = s[{{ m }}]{{ " * key_factor[" ~ m ~ "]" if key_scaled }};
//#   if masks or has_score_mod or has_kept
    let masked = score(product, b, own_head, own_query, walked_entry(place_of_key), position, length);
    let seen = place_of_key < end;
//#   else
    // Not with &&, which branches.
    let masked = shaped(product);
    let seen = (i32(place_of_key) >= lowest) & (i32(place_of_key) <= highest);
//#   endif
    s[{{ m }}] = select(params.empty_lse, masked, seen);
    high = max(high, s[{{ m }}]);
//# endcall
//# if subgroups
//#   for step in (1, 2, 4, 8, 16, 32)
//#     if PADDED <= step < TEAM and not distinct <= step < LANES
    high = max(high, {{ swapped("high", step) }});
//#     endif
//#   endfor
//# else
    exchanged_top[place] = high;
    workgroupBarrier();
    for (var other = lane % PADDED; other < {{ distinct }}u; other += PADDED) {
      high = max(high, exchanged_top[place - lane + other]);
    }
//# endif
//# if subgroups
    let shrink = {{ exp_of("top - high") }};
    top = high;
    total *= shrink;
//#   call(r) each("r", ROWS, unrolled)
    let shrink_of_row = subgroupShuffle(shrink, weights_from + {{ r }});
//#     call(n) each("n", vec4s, unrolled)
    sums[{{ r }} * {{ vec4s }}u + {{ n }}] *= shrink_of_row;
//#     endcall
//#   endcall
//# else
    exchanged_shrink[place] = {{ exp_of("top - high") }};
    top = high;
    total *= exchanged_shrink[place];
//# endif
//# call(m) each("m", held, unrolled)
    let weight = {{ exp_of("s[" ~ m ~ "] - top") }};
    total += weight;
    s[{{ m }}] = weight{{ " * value_factor[" ~ m ~ "]" if value_scaled }};
//# endcall
{{ load_scales("next") }}
//# if not subgroups
//#   call(m) each("m", held, unrolled)
    exchanged_weight[{{ m }} * WORKGROUP + place] = s[{{ m }}];
//#   endcall
    workgroupBarrier();
//#   call(r) each("r", ROWS, unrolled)
//#     call(n) each("n", vec4s, unrolled)
    sums[{{ r }} * {{ vec4s }}u + {{ n }}] *= exchanged_shrink[weights_from + {{ r }}];
//#     endcall
//#   endcall
//# endif

//# call(t) each("t", values, unrolled)
//#   call(n) each("n", value_each, unrolled)
    let piece = v[{{ t }} * {{ value_each }}u + {{ n }}];
//#     for w in range(value_vec4s)
    let numbers{{ w }} = value_vec4_{{ w }}(piece, {{ value_piece.format(n) }});
//#     endfor
//#     call(r) each("r", ROWS, unrolled)
    // The weight of key VALUE_GROUPS·t + value_group: its group of lanes, then its place among their sums.
    let number = VALUE_GROUPS * {{ t }} / GROUPS * PADDED + {{ r }};
    let holder = weights_from + VALUE_GROUPS * {{ t }} % GROUPS * LANES + number % LANES;
//#       if subgroups
    let weight = subgroupShuffle(s[number / LANES], holder);
//#       else
    let weight = exchanged_weight[number / LANES * WORKGROUP + holder];
//#       endif
//#       for w in range(value_vec4s)
    let at{{ w }} = ({{ r }} * {{ value_each }}u + {{ n }}) * {{ value_vec4s }}u + {{ w }}u;
    sums[at{{ w }}] = fma(vec4<f32>(weight), numbers{{ w }}, sums[at{{ w }}]);
//#       endfor
//#     endcall
//#   endcall
//# endcall
{{ load_values("next + team * STEP") }}
    k = next_k;
  }

//# if subgroups
//#   for step in (1, 2, 4, 8, 16, 32)
//#     if PADDED <= step < TEAM and not distinct <= step < LANES
  total += {{ swapped("total", step) }};
//#     endif
//#   endfor
//# else
  exchanged_top[place] = total;
  workgroupBarrier();
  total = 0.0;
  for (var other = lane % PADDED; other < {{ distinct }}u; other += PADDED) {
    total += exchanged_top[place - lane + other];
  }
//# endif
  if (place % TEAM < ROWS) {
    tops[lane * TEAMS + team] = top;
    totals[lane * TEAMS + team] = total;
  }
  workgroupBarrier();
  if (place < ROWS && chunk * ROWS + place < rows) {
    var most = LOWEST;
    for (var t = 0u; t < TEAMS; t++) {
      most = max(most, tops[place * TEAMS + t]);
    }
    var all = 0.0;
    for (var t = 0u; t < TEAMS; t++) {
      let share = {{ exp_of("tops[place * TEAMS + t] - most") }};
      all = fma(totals[place * TEAMS + t], share, all);
      shares[place * TEAMS + t] = share;
    }
    let end_of_row = row_end(own_head, most, all);
    for (var t = 0u; t < TEAMS; t++) {
      shares[place * TEAMS + t] *= end_of_row.x;
    }
    let row_of_split = ((b * params.heads + own_head) * params.queries + own_query) * params.splits + split;
//# if return_lse
    store_lse(row_of_split, end_of_row);
//# elif is_partial
    partial_rows[row_of_split] = end_of_row.zw;
//# endif
  }
//# for first in range(0, ROWS * vec4s, MERGED)
//#   set some = [MERGED, ROWS * vec4s - first] | min
  workgroupBarrier();
//#   call(n) each("n", some, unrolled)
  merged[{{ n }} * WORKGROUP + place] = sums[{{ first }}u + {{ n }}] * shares[({{ first }}u + {{ n }}) / {{ vec4s }}u * TEAMS + team];
//#   endcall
  workgroupBarrier();
  for (var e = place; e < {{ some }}u * VALUE_LANES; e += WORKGROUP) {
    var sum = vec4<f32>();
    for (var part = 0u; part < PARTS; part++) {
      sum += merged[e / VALUE_LANES * WORKGROUP + part * VALUE_LANES + e % VALUE_LANES];
    }
    let number = {{ first }}u + e / VALUE_LANES;
    let row = chunk * ROWS + number / {{ vec4s }}u;
    let n = number % {{ vec4s }}u;
    let vec4_of_row = {{ value_vec4s }}u * (e % VALUE_LANES + VALUE_LANES * (n / {{ value_vec4s }}u)) + n % {{ value_vec4s }}u;
    if (row < rows && vec4_of_row < DV4) {
      let head = kv_head * params.group + row / params.queries;
      let at = ((b * params.heads + head) * params.queries + row % params.queries) * params.splits + split;
      out_put4(4u * (at * DV4 + vec4_of_row), sum);
    }
  }
//# endfor
}
