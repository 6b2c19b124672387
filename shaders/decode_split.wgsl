//## Decode: one split of the cached keys for the query rows that share a key/value head
//## (split-KV as in Flash-Decoding, Dao et al. 2023).
//##
//## A workgroup takes ROWS rows (heads of a group times new positions), so that every key and value is
//## read once for all of them. LANES invocations share a key: each holds some vec4s of the queries, the
//## key, the value and the output. The groups of LANES take AHEAD keys at a time each and run an online
//## softmax of their own; they meet only at the end. Memory is asked for the next keys and values as soon as the
//## registers of these are free. Nothing waits for a barrier on the way, but where there are no subgroups the
//## products are summed in workgroup memory.
//## Entries past the last are read from the last one and hidden.
//## With one split the result is written at once, else its normalised output and LSE go to decode_reduce.wgsl.
//# from "lib/storage.wgsl" import reader, writer, half_types
//# from "lib/turboquant.wgsl" import row_reader, row_tables
//# from "lib/blocks.wgsl" import each
{{ half_types(dtypes) }}
{{ reader("query", query_dtype, query_packed, D) }}
{{ row_reader("key", key_dtype, True, D, key_row, True) }}
{{ row_reader("value", value_dtype, True, DV, value_row, True) }}
{{ writer("out", out_dtype) }}
//# include "lib/score.wgsl"
//# include "lib/row_end.wgsl"
//# include "lib/cache.wgsl"
//##
//# set key4s = (D4 + LANES - 1) // LANES
//# set value4s = (DV4 + LANES - 1) // LANES
//# set groups = WORKGROUP // LANES
const GROUPS = {{ groups }}u;
var<workgroup> tops: array<f32, {{ ROWS * groups }}>;
var<workgroup> totals: array<f32, {{ ROWS * groups }}>;
var<workgroup> merged: array<vec4<f32>, WORKGROUP>;
//# if not subgroups
var<workgroup> products: array<f32, {{ ROWS * AHEAD * WORKGROUP }}>;
//# elif not subgroup_ids
var<workgroup> subgroups_seen: atomic<u32>;
//# endif
//##
//## Vec4 number n of an operand that a lane holds.
//# set vec4_of = "(lane + LANES * {0})"
//##
//## Asks memory for the keys' or values' vec4s of AHEAD entries.
//# macro load(name, to, first, count, d4)
//# call(a) each("a", AHEAD, unrolled)
    let entry = cache_row + cache_slot(walked_entry(min({{ first }} + {{ a }} * GROUPS + group, end - 1u)));
//#   call(n) each("n", count, unrolled)
    {{ to }}[{{ a }} * {{ count }}u + {{ n }}] = {{ name }}_at4(entry * {{ name | upper }}_PITCH, 1u, 4u * {{ "min(" ~ vec4_of.format(n) ~ ", " ~ (d4 - 1) ~ "u)" if d4 % LANES else vec4_of.format(n) }});
//#   endcall
//# endcall
//# endmacro

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
//# if subgroups
  @builtin(subgroup_size) subgroup_size: u32,
  @builtin(subgroup_invocation_id) subgroup_lane: u32,
//#   if subgroup_ids
  @builtin(subgroup_id) number: u32,
//#   else
  @builtin(local_invocation_index) local: u32,
//#   endif
//# else
  @builtin(local_invocation_index) local: u32,
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
  // See attention_tiled.wgsl: WGSL does not say which invocations share a subgroup.
//#   if not subgroup_ids
  var number = 0u;
  if (subgroup_lane == 0u) {
    number = atomicAdd(&subgroups_seen, 1u);
  }
  number = subgroupBroadcastFirst(number);
//#   endif
  let place = (number * subgroup_size + subgroup_lane) % WORKGROUP;
//# else
  let place = local;
//# endif
  let lane = place % LANES;
  let group = place / LANES;
  let rows = params.group * params.queries;
  let length = i32(params.keys);
  let shift = query_shift(length);
  let begin = params.first_key + split * params.split_keys;
  let end = min(begin + params.split_keys, params.keys);
  let cache_row = (b * params.kv_heads + kv_head) * params.capacity;
{{ row_tables("key", key_row) }}
{{ row_tables("value", value_row) }}
//# if key_row or value_row
  workgroupBarrier();
//# endif

  var q: array<vec4<f32>, {{ ROWS * key4s }}>;
  var sums: array<vec4<f32>, {{ ROWS * value4s }}>;
  // The entries that a row sees.
  var lowest: array<i32, ROWS>;
  var highest: array<i32, ROWS>;
  var heads: array<u32, ROWS>;
  var queries: array<u32, ROWS>;
  var top: array<f32, ROWS>;
  var total: array<f32, ROWS>;
  var s: array<f32, {{ ROWS * AHEAD }}>;
  var k: array<vec4<f32>, {{ AHEAD * key4s }}>;
  var v: array<vec4<f32>, {{ AHEAD * value4s }}>;
//# call(r) each("r", ROWS, unrolled)
  {
    let row = chunk * ROWS + {{ r }};
    heads[{{ r }}] = kv_head * params.group + row / params.queries;
    queries[{{ r }}] = row % params.queries;
    let at = params.query_first + dot(params.query_strides.xyz, vec3<u32>(b, heads[{{ r }}], queries[{{ r }}]));
//#   call(n) each("n", key4s, unrolled)
    q[{{ r }} * {{ key4s }}u + {{ n }}] = vec4<f32>();
    if (row < rows && {{ vec4_of.format(n) }} < D4) {
      q[{{ r }} * {{ key4s }}u + {{ n }}] = query_at4(at, params.query_strides.w, 4u * {{ vec4_of.format(n) }}) * params.query_scale;
    }
//#   endcall
    top[{{ r }}] = FLOOR;
    let position = i32(queries[{{ r }}]) + shift;
    lowest[{{ r }}] = position - params.window_left;
    highest[{{ r }}] = min(i32(end) - 1, position + params.window_right);
  }
//# endcall

{{ load("key", "k", "begin", key4s, D4) }}
{{ load("value", "v", "begin", value4s, DV4) }}
  for (var first = begin; first < end; first += GROUPS * AHEAD) {
    let next = first + GROUPS * AHEAD;
//# call(r) each("r", ROWS, unrolled)
//#   call(a) each("a", AHEAD, unrolled)
    var sum = vec4<f32>();
//#     call(n) each("n", key4s, unrolled)
    sum = fma(q[{{ r }} * {{ key4s }}u + {{ n }}], k[{{ a }} * {{ key4s }}u + {{ n }}], sum);
//#     endcall
    s[{{ r }} * AHEAD + {{ a }}] = (sum.x + sum.y) + (sum.z + sum.w);
//#     if subgroups
//#       for step in (1, 2, 4, 8, 16, 32)
//#         if step < LANES
    s[{{ r }} * AHEAD + {{ a }}] += subgroupShuffleXor(s[{{ r }} * AHEAD + {{ a }}], {{ step }}u);
//#         endif
//#       endfor
//#     else
    products[({{ r }} * AHEAD + {{ a }}) * WORKGROUP + place] = s[{{ r }} * AHEAD + {{ a }}];
//#     endif
//#   endcall
//# endcall
{{ load("key", "k", "next", key4s, D4) }}
//# if not subgroups
    workgroupBarrier();
//#   call(n) each("n", ROWS * AHEAD, unrolled)
    s[{{ n }}] = 0.0;
    for (var other = 0u; other < LANES; other++) {
      s[{{ n }}] += products[{{ n }} * WORKGROUP + group * LANES + other];
    }
//#   endcall
    workgroupBarrier();
//# endif
//# call(r) each("r", ROWS, unrolled)
    {
      let i = queries[{{ r }}];
      var higher = top[{{ r }}];
//#   call(a) each("a", AHEAD, unrolled)
      let place_of_key = first + {{ a }} * GROUPS + group;
//#     if masks or has_score_mod or has_kept
      let j = walked_entry(place_of_key);
      let masked = score(s[{{ r }} * AHEAD + {{ a }}], b, heads[{{ r }}], i, j, i32(i) + shift, length);
      let seen = place_of_key < end;
//#     else
      // Not with &&, which branches.
      let masked = shaped(s[{{ r }} * AHEAD + {{ a }}]);
      let seen = (i32(place_of_key) >= lowest[{{ r }}]) & (i32(place_of_key) <= highest[{{ r }}]);
//#     endif
      s[{{ r }} * AHEAD + {{ a }}] = select(HIDDEN, masked, seen);
      higher = max(higher, s[{{ r }} * AHEAD + {{ a }}]);
//#   endcall
      let shrink = exp2(top[{{ r }}] - higher);
      top[{{ r }}] = higher;
      total[{{ r }}] *= shrink;
//#   call(n) each("n", value4s, unrolled)
      sums[{{ r }} * {{ value4s }}u + {{ n }}] *= shrink;
//#   endcall
//#   call(a) each("a", AHEAD, unrolled)
      let p = exp2(s[{{ r }} * AHEAD + {{ a }}] - higher);
      total[{{ r }}] += p;
//#     call(n) each("n", value4s, unrolled)
      sums[{{ r }} * {{ value4s }}u + {{ n }}] = fma(vec4<f32>(p), v[{{ a }} * {{ value4s }}u + {{ n }}], sums[{{ r }} * {{ value4s }}u + {{ n }}]);
//#     endcall
//#   endcall
    }
//# endcall
{{ load("value", "v", "next", value4s, DV4) }}
  }

//# call(r) each("r", ROWS, unrolled)
  if (lane == 0u) {
    tops[{{ r }} * GROUPS + group] = top[{{ r }}];
    totals[{{ r }} * GROUPS + group] = total[{{ r }}];
  }
//# endcall
  workgroupBarrier();
//# call(r) each("r", ROWS, unrolled)
  {
    let row = chunk * ROWS + {{ r }};
    let at = ((b * params.heads + heads[{{ r }}]) * params.queries + queries[{{ r }}]) * params.splits + split;
    var most = FLOOR;
    for (var g = 0u; g < GROUPS; g++) {
      most = max(most, tops[{{ r }} * GROUPS + g]);
    }
    var all = 0.0;
    for (var g = 0u; g < GROUPS; g++) {
      all += totals[{{ r }} * GROUPS + g] * exp2(tops[{{ r }} * GROUPS + g] - most);
    }
    let end_of_row = row_end(heads[{{ r }}], most, all);
    let share = exp2(top[{{ r }}] - most) * end_of_row.x;
//#   call(n) each("n", value4s, unrolled)
    merged[place] = sums[{{ r }} * {{ value4s }}u + {{ n }}] * share;
    workgroupBarrier();
    if (group == 0u && row < rows && {{ vec4_of.format(n) }} < DV4) {
      var sum = merged[lane];
      for (var g = 1u; g < GROUPS; g++) {
        sum += merged[g * LANES + lane];
      }
      out_put4(4u * (at * DV4 + {{ vec4_of.format(n) }}), sum);
    }
    workgroupBarrier();
//#   endcall
//# if write_lse
    if (place == 0u && row < rows) {
      lse[at] = end_of_row.y;
    }
//# endif
  }
//# endcall
}
