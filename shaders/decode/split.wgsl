//## Decode: attention of the query rows that share a key/value head, over one split of the cached keys (split-KV as in
//## Flash-Decoding, Dao et al. 2023). With one split the result is written at once; with several, each split writes its
//## normalised output, its maximum and its sum, which decode/reduce.wgsl combines.
//##
//## A workgroup computes ROWS rows (heads of a group times new positions; PADDED is the next power of two), so that it
//## reads every key and value once for all of them. The keys of its split are neighbours, or blocks of STEP · TEAMS
//## keys with those of the other splits between them: then all workgroups read neighbouring keys at any time.
//##
//## A workgroup consists of teams of TEAM invocations. A team has an online softmax of its own; teams meet only at the
//## end. At each step a team takes STEP keys, and this is which lane holds which keys, segments (lib/segments.wgsl) and
//## rows, drawn for TEAM 16, LANES 4, VALUE_LANES 8, KEYS_PER_GROUP 4, ROWS 2, and keys and values of 8 segments:
//##
//##   thread of the team   0    1    2    3     4    5    6    7     8    9    10   11    12   13   14   15
//##
//##   Products: the LANES lanes of a group share KEYS_PER_GROUP keys, GROUPS apart. Each lane multiplies its segments of
//##   them with all rows. It gets the sums number 0 … 7: number PADDED · a + r is of the group's key a and row r.
//##   group, lane          0,0  0,1  0,2  0,3 | 1,0  1,1  1,2  1,3 | 2,0  2,1  2,2  2,3 | 3,0  3,1  3,2  3,3
//##   keys                 0 4 8 12           | 1 5 9 13           | 2 6 10 14          | 3 7 11 15
//##   segments             0,4  1,5  2,6  3,7 | 0,4  1,5  2,6  3,7 | 0,4  1,5  2,6  3,7 | 0,4  1,5  2,6  3,7
//##
//##   Scores: the lanes of a group add up their sums, and each is left with `held` scores: those whose number is
//##   lane + LANES · m. So nothing of the softmax is computed twice. (Where a group has more lanes than scores,
//##   lane + `holders` holds the same as lane.)
//##   row                  0    1    0    1   | 0    1    0    1   | 0    1    0    1   | 0    1    0    1
//##   key of m = 0, 1      0,8  0,8  4,12 4,12| 1,9  1,9  5,13 5,13| 2,10 2,10 6,14 6,14| 3,11 3,11 7,15 7,15
//##
//##   Sums: the VALUE_LANES lanes of a value group share values that are VALUE_GROUPS apart. Each lane gets the weights
//##   from the lanes that hold them, and adds its segments of the values, times the weights, to `acc` of all rows.
//##   value group, lane    0,0  0,1  0,2  0,3   0,4  0,5  0,6  0,7 | 1,0  1,1  1,2  1,3   1,4  1,5  1,6  1,7
//##   values               0 2 4 6 8 10 12 14                      | 1 3 5 7 9 11 13 15
//##   segment              0    1    2    3     4    5    6    7   | 0    1    2    3     4    5    6    7
//##
//## Queries lie in workgroup memory. Where keys are codes of rotated keys, queries are rotated too: on the way there
//## with `rotates`, else before this launch. Memory is asked for the next keys and values as soon as their registers
//## are free, for keys with `in_pairs` a step before. With subgroups a team lies within one subgroup, and no step waits
//## for a barrier; otherwise a team is one group, which exchanges through workgroup memory.
//##
//## Past the end of the split lanes read its last key again, and hide its score. A weight of 0 would make NaN of an
//## infinite value, though: where rows see every key, what such a copy's value is multiplied by is a part of the key's
//## weight (OF_COPY in lib/math.wgsl); with `hides`, `seen_output` looks for infinities.
//##
//## With `has_state` the only query stands at the position in `state` (lib/state.wgsl), and sees all entries up to its
//## own; with `query_in_log` it is the row of that position in `query`. With `has_totals` each batch element has as many
//## positions as `totals` says, and its queries are the last of them; with `has_left_padding` nobody sees its first ones.
//## With `has_pages` the entries of a batch element lie in blocks that `block_table` names (lib/pages.wgsl).
//## Where keys or values are "int8", `scales` [B, Hkv] has a pair of theirs for each head.
//# from "lib/storage.wgsl" import reader, writer, half_types
//# from "lib/exp.wgsl" import exp_of with context
//# from "lib/turboquant.wgsl" import row_tables, rotation_in_subgroup with context
//# from "lib/segments.wgsl" import segment_reader with context
//# from "lib/blocks.wgsl" import each
//# from "lib/splits.wgsl" import find_split, find_query, head_of, query_of with context
//# if subgroups
//#   from "lib/thread_index.wgsl" import thread_index_memory, thread_index_arguments, find_thread_index, swapped with context
//# endif
{{ half_types(dtypes) }}
{{ reader("query", query_dtype, query_packed, D) }}
{{ segment_reader("key", key_dtype, D, key_row, key_wide) }}
{{ segment_reader("value", value_dtype, DV, value_row, value_wide) }}
{{ writer("out", out_dtype) }}
//# include "lib/score.wgsl"
//# include "lib/row_end.wgsl"
//# include "lib/cache.wgsl"
//# if has_pages
//#   include "lib/pages.wgsl"
//# endif
//# if rotates
{{ rotation_in_subgroup(false) }}
//# endif
//##
//## Vec4s of a segment, segments of a row, and how many of these an invocation holds.
//# set key_vec4s = 2 if key_wide else 1
//# set value_vec4s = 2 if value_wide else 1
//# set key_segments = D4 // key_vec4s
//# set value_segments = DV4 // value_vec4s
//# set key_segments_each = (key_segments + LANES - 1) // LANES
//# set value_segments_each = (value_segments + VALUE_LANES - 1) // VALUE_LANES
//## Vec4s of a row of `acc`, and of a row of the queries as they are staged, in an invocation and in all lanes.
//# set acc_vec4s = value_segments_each * value_vec4s
//# set query_vec4s = key_segments_each * key_vec4s * LANES
//# set key_scaled = key_wide and key_row
//# set value_scaled = value_wide and value_row
//## Whether what a row sees is more than a run of entries.
//# set of_cache = "" if has_totals else "params."
//# set asks_each_key = hides and (masks or has_score_mod or has_kept)
//## Sums of an invocation, scores that it is left with, and the lanes of a group that hold different scores.
//# set sum_count = PADDED * KEYS_PER_GROUP
//# set held = [sum_count // LANES, 1] | max
//# set holders = [sum_count, LANES] | min
//## Whether two neighbouring value groups, which lie in one subgroup, add up their sums before those of the workgroup meet.
//# set adds_pairs = subgroups and TEAM > VALUE_LANES and acc_vec4s % 2 == 0
//# set groups_added = 2 if adds_pairs else 1
//## Values that a value group takes at a step.
//# set values_per_group = TEAM // LANES * KEYS_PER_GROUP // (TEAM // VALUE_LANES)
//##
const GROUPS = {{ TEAM // LANES }}u;
const VALUE_GROUPS = {{ TEAM // VALUE_LANES }}u;
const STEP = {{ TEAM // LANES * KEYS_PER_GROUP }}u;
const TEAMS = {{ WORKGROUP // TEAM }}u;
// Neighbouring invocations whose sums are of different numbers when the workgroup's are added up.
const MERGED_LANES = {{ VALUE_LANES * groups_added }}u;
//## The queries lie in the order in which lanes read them: by segment of a lane, by vec4 of the segment, by lane.
var<workgroup> queries: array<vec4<f32>, {{ ROWS * query_vec4s }}>;
var<workgroup> team_max: array<f32, {{ ROWS * WORKGROUP // TEAM }}>;
var<workgroup> team_sum: array<f32, {{ ROWS * WORKGROUP // TEAM }}>;
var<workgroup> merged: array<vec4<f32>, {{ ([MERGED, ROWS * acc_vec4s] | min) * WORKGROUP }}>;
//# if not subgroups
var<workgroup> exchanged: array<f32, {{ sum_count * WORKGROUP }}>;
var<workgroup> exchanged_weight: array<f32, {{ held * WORKGROUP }}>;
var<workgroup> exchanged_of_row: array<f32, WORKGROUP>;
var<workgroup> exchanged_rescale: array<f32, WORKGROUP>;
//# else
{{ thread_index_memory() }}
//# endif
//## Numbers of a segment.
const KEY_SEGMENT = {{ 4 * key_vec4s }}u;
const VALUE_SEGMENT = {{ 4 * value_vec4s }}u;
//## From the key of one score that an invocation holds to the key of the next.
const STEP_OF_HELD = {{ TEAM // LANES * (LANES // PADDED) }}u;
//##
//## The segment that is the n-th of a lane, kept within the row.
//# macro segment_of_lane(lane, n, lanes, segments)
//#   if segments % lanes
min({{ lane }} + {{ lanes }}u * {{ n }}, {{ segments - 1 }}u)
//#-  else
({{ lane }} + {{ lanes }}u * {{ n }})
//#-  endif
//#- endmacro
//##
//## The first number of the n-th segment of a key, and of a value, that this invocation holds.
//# macro key_element(n)
KEY_SEGMENT * {{ segment_of_lane("lane", n, LANES, key_segments) }}
//#- endmacro
//# macro value_element(n)
VALUE_SEGMENT * {{ segment_of_lane("value_lane", n, VALUE_LANES, value_segments) }}
//#- endmacro
//##
//## The row of the cache where a key lies, the last one of the split for those behind it.
//# macro cache_row_of(key)
//# if has_pages
page_row(b, kv_head, params.kv_heads, cache_slot(visible_entry(min({{ key }}, end - 1u)), start))
//#-  else
(first_cache_row + cache_slot(visible_entry(min({{ key }}, end - 1u)), start))
//#-  endif
//#- endmacro
//##
//## Asks for this invocation's segments of the keys of the step that begins at `first`.
//# macro load_keys(first, to)
//# call(a) each("a", KEYS_PER_GROUP, unrolled)
    let key_row = {{ cache_row_of(first ~ " + GROUPS * " ~ a ~ " + group") }} * KEY_PITCH;
//#   call(n) each("n", key_segments_each, unrolled)
    {{ to }}[{{ a }} * {{ key_segments_each }}u + {{ n }}] = key_load(key_row, {{ key_element(n) }});
//#   endcall
//# endcall
//# endmacro
//##
//## The same of the values.
//# macro load_values(first)
//# call(t) each("t", values_per_group, unrolled)
    let value_row = {{ cache_row_of(first ~ " + VALUE_GROUPS * " ~ t ~ " + value_group") }} * VALUE_PITCH;
//#   call(n) each("n", value_segments_each, unrolled)
    v[{{ t }} * {{ value_segments_each }}u + {{ n }}] = value_load(value_row, {{ value_element(n) }});
//#   endcall
//# endcall
//# endmacro
//##
//## Asks for the factors of the keys whose scores this invocation holds, and of their values, where they are codes.
//# macro load_scales(first)
//# if key_scaled or value_scaled
//#   call(m) each("m", held, unrolled)
    let scale_row = {{ cache_row_of(first ~ " + own_key + STEP_OF_HELD * " ~ m) }};
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
//## Brings the rows' queries to workgroup memory, scaled.
//# macro stage_queries()
  for (var begun = 0u; begun < {{ ROWS * query_vec4s }}u; begun += WORKGROUP) {
    let r = (begun + thread_index) / {{ query_vec4s }}u;
    let vec4_of_row = (begun + thread_index) % {{ query_vec4s }}u;
    // Without a branch, in which compilers would wait for memory: rows past the end have the last query.
    let row = min(row_tile * ROWS + min(r, ROWS - 1u), rows - 1u);
{{ find_query("row") }}
    var four = query_at4(at, params.query_strides.w, 4u * {{ "min(vec4_of_row, D4 - 1u)" if query_vec4s > D4 else "vec4_of_row" }});
    four *= params.query_scale{{ " * scales[2u * (b * params.kv_heads + kv_head)]" if key_dtype == "int8" }};
//# if query_vec4s > D4
    four = select(four, vec4<f32>(), vec4_of_row >= D4);
//# endif
//# if rotates
    four = rotate(four, subgroup_lane, ROUNDS);
//# endif
    let segment = vec4_of_row / {{ key_vec4s }}u;
    let n = segment / LANES * {{ key_vec4s }}u + vec4_of_row % {{ key_vec4s }}u;
    if (r < ROWS) {
      queries[r * {{ query_vec4s }}u + n * LANES + segment % LANES] = four;
    }
  }
  workgroupBarrier();
//# endmacro
//##
//## s[PADDED · a + r]: this lane's part of the product of its group's key a, of those in the array `keys`, and row r.
//# macro multiply_keys(keys)
//# call(n) each("n", sum_count, unrolled)
    s[{{ n }}] = 0.0;
//# endcall
//# call(n) each("n", key_segments_each, unrolled)
//#   for w in range(key_vec4s)
//#     call(a) each("a", KEYS_PER_GROUP, unrolled)
    key4[{{ a }}] = key_vec4_{{ w }}({{ keys }}[{{ a }} * {{ key_segments_each }}u + {{ n }}], {{ key_element(n) }});
//#     endcall
//#     call(r) each("r", ROWS, unrolled)
    let q = queries[{{ r }} * {{ query_vec4s }}u + ({{ n }} * {{ key_vec4s }}u + {{ w }}u) * LANES + lane];
//#       call(a) each("a", KEYS_PER_GROUP, unrolled)
    let numbers = key4[{{ a }}];
    let at = {{ a }} * PADDED + {{ r }};
//#         for c in range(4)
    s[at] = fma(q[{{ c }}], numbers[{{ c }}], s[at]);
//#         endfor
//#       endcall
//#     endcall
//#   endfor
//# endcall
//# endmacro
//##
//## Adds the sums up over a group's lanes: s[m] becomes the whole sum number lane + LANES · m.
//# macro sum_over_lanes()
//# if subgroups
    // At each step a lane gives half of its sums away and gets the other half of those that it keeps.
//#   set ns = namespace(count=sum_count)
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
//#   call(n) each("n", sum_count, unrolled)
    exchanged[{{ n }} * WORKGROUP + thread_index] = s[{{ n }}];
//#   endcall
    workgroupBarrier();
//#   call(m) each("m", held, unrolled)
    s[{{ m }}] = 0.0;
    for (var other = 0u; other < LANES; other++) {
      s[{{ m }}] += exchanged[(lane % {{ holders }}u + LANES * {{ m }}) * WORKGROUP + thread_index - lane + other];
    }
//#   endcall
//# endif
//# endmacro
//##
//## Runs a block for each other invocation of the team that holds scores of the same row: with subgroups by the bits in
//## which thread indices differ, each block having taken in what those before it found; else by `other`, a lane.
//# macro each_holder_of_row()
//# if subgroups
//#   for bit in (1, 2, 4, 8, 16, 32) if PADDED <= bit < TEAM and not holders <= bit < LANES
{{ caller(bit) }}
//#   endfor
//# else
  for (var other = lane % PADDED; other < {{ holders }}u; other += PADDED) {
{{ caller("other") }}
  }
//# endif
//# endmacro
//##
//## s[m] becomes the score: scaled, capped, and hidden where the row may not see the key. Finds the row's new_max.
//# macro mask_scores()
    var new_max = row_max;
//# call(m) each("m", held, unrolled)
    let held_key = first + own_key + STEP_OF_HELD * {{ m }};
    let product = s[{{ m }}]{{ " * key_factor[" ~ m ~ "]" if key_scaled }};
//#   if asks_each_key
    let masked = score(product, b, own_head, own_query, visible_entry(held_key), position, length);
    let seen = {{ "(held_key < end) & is_behind_padding(visible_entry(held_key), padding)" if has_left_padding else "held_key < end" }};
//#   else
    // Not with &&, which branches. Without `lowest`, where nothing is hidden, NVIDIA's driver asks for the first keys
    // only behind the barrier of the queries (bench/NOTES.md).
    let masked = shaped(product);
    let seen = (i32(held_key) >= lowest) & (i32(held_key) <= highest);
//#   endif
//#   if not hides
    unhidden[{{ m }}] = masked;
//#   endif
    s[{{ m }}] = select(params.empty_lse, masked, seen);
    new_max = max(new_max, s[{{ m }}]);
//# endcall
//# if not subgroups
    exchanged_of_row[thread_index] = new_max;
    workgroupBarrier();
//# endif
//# call(other) each_holder_of_row()
    new_max = max(new_max, {{ swapped("new_max", other) if subgroups else "exchanged_of_row[thread_index - lane + other]" }});
//# endcall
//# endmacro
//##
//## Takes the new maximum as the row's.
//# macro rescale_row_sum()
//# if subgroups
    let rescale = {{ exp_of("row_max - new_max") }};
    row_max = new_max;
    row_sum *= rescale;
//# else
    exchanged_rescale[thread_index] = {{ exp_of("row_max - new_max") }};
    row_max = new_max;
    row_sum *= exchanged_rescale[thread_index];
//# endif
//# endmacro
//##
//## `acc` has all rows: row r's factor comes from lane r.
//# macro rescale_acc()
//# call(r) each("r", ROWS, unrolled)
//#   if subgroups
    let rescale_of_row = subgroupShuffle(rescale, weights_from + {{ r }});
//#   endif
//#   call(n) each("n", acc_vec4s, unrolled)
    acc[{{ r }} * {{ acc_vec4s }}u + {{ n }}] *= {{ "rescale_of_row" if subgroups else "exchanged_rescale[weights_from + " ~ r ~ "]" }};
//#   endcall
//# endcall
//# endmacro
//##
//## s[m] becomes what the value is multiplied by: the weight, exp(score - row_max), times the value's factor.
//# macro weigh_scores()
//# call(m) each("m", held, unrolled)
    let weight = {{ exp_of("s[" ~ m ~ "] - row_max") }};
    row_sum += weight;
//#   if hides
    let of_value = weight;
//#   else
    let of_copy = OF_COPY * {{ exp_of("min(unhidden[" ~ m ~ "] - row_max, 0.0)") }};
    let of_value = select(of_copy, weight, first + own_key + STEP_OF_HELD * {{ m }} < end);
//#   endif
    s[{{ m }}] = of_value * SHRINK{{ " * value_factor[" ~ m ~ "]" if value_scaled }};
//# endcall
//# endmacro
//##
//# macro exchange_weights()
//# call(m) each("m", held, unrolled)
    exchanged_weight[{{ m }} * WORKGROUP + thread_index] = s[{{ m }}];
//# endcall
    workgroupBarrier();
//# endmacro
//##
//## acc += weights · values.
//# macro add_values()
//# call(t) each("t", values_per_group, unrolled)
//#   call(n) each("n", value_segments_each, unrolled)
    let segment = v[{{ t }} * {{ value_segments_each }}u + {{ n }}];
//#     for w in range(value_vec4s)
    let numbers{{ w }} = value_vec4_{{ w }}(segment, {{ value_element(n) }});
//#     endfor
//#     call(r) each("r", ROWS, unrolled)
    // The weight of key VALUE_GROUPS·t + value_group and row r: its number among its group's scores, and its lane.
    let number = VALUE_GROUPS * {{ t }} / GROUPS * PADDED + {{ r }};
    let holder = weights_from + VALUE_GROUPS * {{ t }} % GROUPS * LANES + number % LANES;
//#       if subgroups
    let weight = subgroupShuffle(s[number / LANES], holder);
//#       else
    let weight = exchanged_weight[number / LANES * WORKGROUP + holder];
//#       endif
//#       for w in range(value_vec4s)
    let at{{ w }} = ({{ r }} * {{ value_segments_each }}u + {{ n }}) * {{ value_vec4s }}u + {{ w }}u;
    acc[at{{ w }}] = fma(vec4<f32>(weight), numbers{{ w }}, acc[at{{ w }}]);
//#       endfor
//#     endcall
//#   endcall
//# endcall
//# endmacro
//##
//## Gives the workgroup each team's row_max and row_sum of each row.
//# macro share_softmaxes()
//# if not subgroups
  exchanged_of_row[thread_index] = row_sum;
  workgroupBarrier();
  row_sum = 0.0;
//# endif
//# call(other) each_holder_of_row()
  row_sum += {{ swapped("row_sum", other) if subgroups else "exchanged_of_row[thread_index - lane + other]" }};
//# endcall
  if (thread_index % TEAM < ROWS) {
    team_max[lane * TEAMS + team] = row_max;
    team_sum[lane * TEAMS + team] = row_sum;
  }
//# endmacro
//##
//## Of two neighbouring value groups one gives its odd vec4s of acc away and gets the other's even ones, which it adds to
//## its own: vec4 n of acc then is vec4 2n of both in the first group, and 2n + 1 in the second.
//# macro add_pairs()
  let keeps_odd = value_group % 2u == 1u;
//# call(n) each("n", ROWS * acc_vec4s // 2, unrolled)
  let even_sum = acc[2u * {{ n }}];
  let odd_sum = acc[2u * {{ n }} + 1u];
  acc[{{ n }}] = select(even_sum, odd_sum, keeps_odd) + {{ swapped("select(odd_sum, even_sum, keeps_odd)", VALUE_LANES) }};
//# endcall
//# endmacro
//##
//## Adds up acc over the workgroup, `count` vec4s of every invocation from vec4 `first` on, and writes them. Each
//## invocation finds the teams' softmax of its row by itself, so that nothing waits for it.
//# macro merge_and_write(first, count)
//# if first
  workgroupBarrier();
//# endif
//# call(n) each("n", count, unrolled)
  merged[{{ n }} * WORKGROUP + thread_index] = {{ ("acc[%su + %s]" if hides else "select(vec4<f32>(), acc[%su + %s], has_keys)") | format(first, n) }};
//# endcall
  workgroupBarrier();
  for (var e = thread_index; e < {{ count }}u * MERGED_LANES; e += WORKGROUP) {
    let number = {{ groups_added }}u * ({{ first }}u + e / MERGED_LANES) + e % MERGED_LANES / VALUE_LANES;
    let r = number / {{ acc_vec4s }}u;
    let n = number % {{ acc_vec4s }}u;
    let vec4_of_row = {{ value_vec4s }}u * (e % VALUE_LANES + VALUE_LANES * (n / {{ value_vec4s }}u)) + n % {{ value_vec4s }}u;
    let row = row_tile * ROWS + r;
    if (row < rows && vec4_of_row < DV4) {
      let head = {{ head_of("row") }};
      var max_of_teams = LOWEST;
      for (var t = 0u; t < TEAMS; t++) {
        max_of_teams = max(max_of_teams, team_max[r * TEAMS + t]);
      }
      var sum_of_teams = 0.0;
      for (var t = 0u; t < TEAMS; t++) {
        sum_of_teams = fma(team_sum[r * TEAMS + t], {{ exp_of("team_max[r * TEAMS + t] - max_of_teams") }}, sum_of_teams);
      }
      let end_of_row = row_end(head, max_of_teams, sum_of_teams);
      let factor = end_of_row.x{{ " * scales[2u * (b * params.kv_heads + kv_head) + 1u]" if value_dtype == "int8" }};
      // Normalised before they are added, so that nothing overflows.
      var sum = vec4<f32>();
      for (var t = 0u; t < TEAMS; t++) {
        let weight = {{ exp_of("team_max[r * TEAMS + t] - max_of_teams") }} * (factor * UNSHRINK);
//# for part in range(TEAM // (VALUE_LANES * groups_added))
        sum += merged[e / MERGED_LANES * WORKGROUP + t * TEAM + {{ part }}u * MERGED_LANES + e % MERGED_LANES] * weight;
//# endfor
      }
//# if hides
      if (!all(are_finite(sum))) {
        sum = seen_output(b, kv_head, r, row, begin, end, vec4_of_row, max_of_teams, factor, sum);
      }
//# endif
      let at = ((b * params.heads + head) * params.queries + {{ query_of("row") }}) * params.splits + split;
      out_put4(4u * (at * DV4 + vec4_of_row), sum);
      if (vec4_of_row == 0u) {
//# if return_lse
        store_lse(at, end_of_row);
//# elif is_partial
        partial_rows[at] = end_of_row.zw;
//# endif
      }
    }
  }
//# endmacro
//##
//## The step whose keys begin at `first`. They are in the array `keys`; with `prefetches` memory is asked for those of the
//## next step, which come to the array `next_keys`.
//# macro take_step(keys, next_keys)
//# if prefetches
    let next = first + params.split_stride;
{{ load_keys("next + team * STEP", next_keys) }}
//# else
{{ load_keys("first + team * STEP", keys) }}
{{ load_scales("first") }}
//# endif
{{ multiply_keys(keys) }}
{{ sum_over_lanes() }}
{{ mask_scores() }}
{{ rescale_row_sum() }}
//# if subgroups
{{ rescale_acc() }}
//# endif
{{ weigh_scores() }}
//# if prefetches
{{ load_scales("next") }}
//# endif
//# if not subgroups
{{ exchange_weights() }}
{{ rescale_acc() }}
//# endif
//# if prefetches
{{ add_values() }}
{{ load_values("next + team * STEP") }}
//# else
{{ load_values("first + team * STEP") }}
{{ add_values() }}
//# endif
//# endmacro
//# set element = "b" if has_totals else ""
//# if hides

/// A vec4 of the output of row `row`, the r-th of the workgroup, over the split's keys that it sees, where what the
/// kernel found is not finite: as in lib/seen_output.wgsl. `row_max` is of the row over the split, and `factor` what its
/// sum of weights times values is multiplied with.
fn seen_output(
  b: u32, kv_head: u32, r: u32, row: u32, begin: u32, end: u32, vec4_of_row: u32, row_max: f32, factor: f32, found: vec4<f32>,
) -> vec4<f32> {
  if (!is_finite(factor)) {
    return found;
  }
  let first_cache_row = (b * params.kv_heads + kv_head) * params.capacity;
  let start = cache_start({{ element }});
  let length = i32(cache_length({{ element }}));
  let position = i32({{ query_of("row") }}) + query_shift(length);
  let value_segment = vec4_of_row / {{ value_vec4s }}u;
  var lost = vec4<f32>();
  var sum = vec4<f32>();
  const TOGETHER = STEP * TEAMS;
  let blocks = (max(begin, end) - begin + params.split_stride - 1u) / params.split_stride;
  for (var n = 0u; n < blocks * TOGETHER; n++) {
    let key = begin + n / TOGETHER * params.split_stride + n % TOGETHER;
    if (key >= end) {
      continue;
    }
    let cache_row = {{ cache_row_of("key") }};
    var product = 0.0;
    for (var segment = 0u; segment < {{ key_segments }}u; segment++) {
      let loaded = key_load(cache_row * KEY_PITCH, KEY_SEGMENT * segment);
      let query = r * {{ query_vec4s }}u + segment / LANES * {{ key_vec4s }}u * LANES + segment % LANES;
//# for w in range(key_vec4s)
      product += dot(queries[query + {{ w }}u * LANES], key_vec4_{{ w }}(loaded, KEY_SEGMENT * segment));
//# endfor
    }
//# if key_scaled
    product *= key_scale(cache_row * KEY_PITCH);
//# endif
    let entry = visible_entry(key);
//# if asks_each_key
    let s = score(product, b, {{ head_of("row") }}, {{ query_of("row") }}, entry, position, length);
    let seen = !is_hidden(s){{ " && is_behind_padding(entry, padding_of(b))" if has_left_padding }};
//# else
    let s = shaped(product);
    let seen = !is_hidden(s) && in_window(position, i32(entry), length){{ " && is_behind_padding(entry, padding_of(b))" if has_left_padding }};
//# endif
    if (!seen) {
      continue;
    }
    let value_load_of_key = value_load(cache_row * VALUE_PITCH, VALUE_SEGMENT * value_segment);
    var value = value_vec4_0(value_load_of_key, VALUE_SEGMENT * value_segment);
//# if value_vec4s == 2
    value = select(value, value_vec4_1(value_load_of_key, VALUE_SEGMENT * value_segment), vec4_of_row % 2u == 1u);
//# endif
//# if value_scaled
    value *= value_scale(cache_row * VALUE_PITCH);
//# endif
    lost += select(value, vec4<f32>(), are_finite(value));
    let weight = {{ exp_of("s - row_max") }} * factor;
    sum = clamp(fma(vec4<f32>(weight), select(vec4<f32>(), value, are_finite(value)), sum), vec4<f32>(LOWEST), vec4<f32>(-LOWEST));
  }
  return select(select(lost, sum, are_finite(lost)), found, are_finite(found));
}
//# endif

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
{{ find_split() }}
//# if subgroups
{{ find_thread_index() }}
//# endif
  let team = thread_index / TEAM;
  let lane = thread_index % LANES;
  let group = thread_index % TEAM / LANES;
  let value_lane = thread_index % VALUE_LANES;
  let value_group = thread_index % TEAM / VALUE_LANES;
  // The first invocation of those that hold the weights of this invocation's values.
  let weights_from = {{ "subgroup_lane" if subgroups else "thread_index" }} - thread_index % TEAM + value_group * LANES;
  let rows = params.group * params.queries;
  let keys = cache_length({{ element }});
  let start = cache_start({{ element }});
  let length = i32(keys);
  let shift = query_shift(length);
//# if has_totals
  find_cache(b);
//# endif
//# if has_left_padding
  let padding = padding_of(b);
//# endif
  let begin = {{ "cache_first_key(b)" if has_totals else "params.first_key" }} + split * params.split_first;
  let end = min(begin + params.split_span, keys);
  let first_cache_row = (b * params.kv_heads + kv_head) * params.capacity;
  var acc: array<vec4<f32>, {{ ROWS * acc_vec4s }}>;
  var k: array<key_segment, {{ KEYS_PER_GROUP * key_segments_each }}>;
  var v: array<value_segment, {{ values_per_group * value_segments_each }}>;
  var s: array<f32, {{ sum_count }}>;
  var key4: array<vec4<f32>, KEYS_PER_GROUP>;
//# if not hides
  var unhidden: array<f32, {{ held }}>;
//# endif
//# if prefetches
  var next_k: array<key_segment, {{ KEYS_PER_GROUP * key_segments_each }}>;
//# endif
//# if key_scaled
  var key_factor: array<f32, {{ held }}>;
//# endif
//# if value_scaled
  var value_factor: array<f32, {{ held }}>;
//# endif
  // The row whose scores this invocation is left with, the first of their keys, and what the row sees.
  let own_row = min(row_tile * ROWS + lane % PADDED, rows - 1u);
  let own_head = {{ head_of("own_row") }};
  let own_query = {{ query_of("own_row") }};
  let own_key = team * STEP + (lane % {{ holders }}u / PADDED) * GROUPS + group;
  let position = i32(own_query) + shift;
//# if not asks_each_key
//#   if has_left_padding
  let lowest = max(position - params.window_left, padding - {{ of_cache }}dropped);
//#   else
  let lowest = position - params.window_left;
//#   endif
  let highest = min(i32(end) - 1, position + params.window_right);
//# endif
  var row_max = LOWEST;
  var row_sum = 0.0;

{{ row_tables("key", key_row) }}
{{ row_tables("value", value_row) }}
{{ stage_queries() }}
//# if prefetches
{{ load_keys("begin + team * STEP", "k") }}
{{ load_scales("begin") }}
{{ load_values("begin + team * STEP") }}
//# endif
  // Counted by ones: Tint then sees that the loop ends and adds no guard of its own.
  let steps = (max(begin, end) - begin + params.split_stride - 1u) / params.split_stride;
//# if in_pairs
  // With an odd number of steps one more has nothing but copies.
  for (var pair = 0u; pair < (steps + 1u) / 2u; pair++) {
    {
    let first = begin + 2u * pair * params.split_stride;
{{ take_step("k", "next_k") }}
    }
    {
    let first = begin + (2u * pair + 1u) * params.split_stride;
{{ take_step("next_k", "k") }}
    }
  }
//# else
  for (var step = 0u; step < steps; step++) {
    let first = begin + step * params.split_stride;
{{ take_step("k", "next_k") }}
//#   if prefetches
    k = next_k;
//#   endif
  }
//# endif

{{ share_softmaxes() }}
//# if not hides
  // A team that has nothing but copies adds nothing, neither 0 nor 0 · infinity.
  let has_keys = begin + team * STEP < end;
//# endif
//# if adds_pairs
{{ add_pairs() }}
//# endif
//# set sums = ROWS * acc_vec4s // groups_added
//# for first in range(0, sums, MERGED)
{{ merge_and_write(first, [MERGED, sums - first] | min) }}
//# endfor
}
