//## FlashAttention-2 (Dao, arXiv 2307.08691) with register tiles, all arithmetic in f32.
//##
//## A workgroup of TX × TY invocations owns BQ = TY·ROWS query rows and walks along the keys BK at a
//## time. An invocation holds ROWS × BK/TX scores and ROWS × DV/TX outputs in registers. Query and key are
//## staged DEPTH elements of the head dim at a time with the head dim outermost, the weights with the keys
//## outermost, so that both products are sums of outer products: of one vec4 or two of rows with some vec4s
//## of columns. An invocation's rows are 4·(ty + TY·i) + 0…3, its keys 4·(tx + TX·g) + 0…3; key
//## 4·(tx + TX·g) + c lies in slot (4g + c)·TX + tx of weights and values.
//##
//## Indices are sums and products of constants, remainders and loop counters that go up by one: Tint then
//## knows them to be within their arrays and leaves out the clamp that it puts around every other index.
//##
//## What one step of staging needs is asked of memory before the step before it is computed (`staged`). Rows past the last are read from the
//## last one, as a branch would have to wait for what it reads.
//##
//## The per-invocation arrays are indexed by constants where `unrolled`, which puts them in registers;
//## a software adapter's compiler prefers loops.
//##
//## With `subgroups` the row maximum goes through shuffles among the TX invocations of a row, else
//## through workgroup memory. Nothing depends on how large a subgroup is, only that TX divides it.
//# from "lib/storage.wgsl" import reader, writer, half_types
//# from "lib/blocks.wgsl" import each
{{ half_types(dtypes) }}
{{ reader("query", query_dtype, query_packed, D) }}
{{ reader("key", key_dtype, key_packed, D) }}
{{ reader("value", value_dtype, value_packed, DV) }}
{{ writer("out", query_dtype) }}
//# if mask_kind not in ("none", "bool")
{{ reader("mask", mask_kind, False, 1) }}
//# endif
//# include "lib/score.wgsl"
//# include "lib/sequences.wgsl"
//##
const SCORES = {{ BK // (4 * TX) }}u;
const PARTS = BK / VALUE_KEYS;
const COLUMNS = {{ (DV4 + TX - 1) // TX }}u;
// In vec4s; a row of the stage is one longer than its data, so that pairs of columns spread over the banks.
const KEY_PITCH = BK / 4u + 1u;
const QUERY_PITCH = BQ / 4u + 1u;
const WEIGHTS_PITCH = BQ / 4u + 1u;
//# set chunks = (D4 + DEPTH4 - 1) // DEPTH4
//# set key_vec4s = 4 * DEPTH4 * (BK // 4 + 1)
//# set query_vec4s = 4 * DEPTH4 * (BQ // 4 + 1) * (chunks if query_resident else 1)
const CHUNKS = {{ chunks }}u;
//# if query_resident
const QUERY_STAGE = {{ [key_vec4s, VALUE_KEYS * DV4] | max }}u;
var<workgroup> stage: array<vec4<f32>, {{ ([key_vec4s, VALUE_KEYS * DV4] | max) + query_vec4s }}>;
//# else
const QUERY_STAGE = {{ key_vec4s }}u;
var<workgroup> stage: array<vec4<f32>, {{ [key_vec4s + query_vec4s, VALUE_KEYS * DV4] | max }}>;
//# endif
var<workgroup> weights: array<vec4<f32>, VALUE_KEYS * WEIGHTS_PITCH>;
//# if subgroups and not subgroup_ids
var<workgroup> subgroups_seen: atomic<u32>;
//# endif
//# if masks
var<workgroup> tile_seen: atomic<u32>;
var<workgroup> tile_live: u32;
//# endif

//## One step of staging is taken in two: what it needs is read into `staged`, later put into `stage`.
//# set key_loads = (BK * DEPTH4 + WORKGROUP - 1) // WORKGROUP
//# set query_loads = (BQ * DEPTH4 + WORKGROUP - 1) // WORKGROUP
//# set value_loads = (VALUE_KEYS * DV4 + WORKGROUP - 1) // WORKGROUP
fn query_vec4(head: u32, row: u32, last_row: u32, d: u32) -> vec4<f32> {
  return query_at4(head + min(row, last_row) * params.query_strides.z, params.query_strides.w, 4u * {{ "min(d, D4 - 1u)" if D4 % DEPTH4 else "d" }});
}

fn key_vec4(head: u32, j: i32, end: i32, d: u32) -> vec4<f32> {
  return key_at4(head + u32(min(j, end - 1)) * params.key_strides.z, params.key_strides.w, 4u * {{ "min(d, D4 - 1u)" if D4 % DEPTH4 else "d" }});
}

fn value_vec4(head: u32, j: i32, end: i32, d: u32) -> vec4<f32> {
  return value_at4(head + u32(min(j, end - 1)) * params.value_strides.z, params.value_strides.w, 4u * d);
}

//## Entry e of a stage: neighbours take two vec4s of one row, then go on to the next row.
//# macro load_keys(depth)
//# call(n) each("n", key_loads, unrolled)
        let e = place + {{ n }} * WORKGROUP;
        staged[{{ n }}] = key_vec4(key_head, tile_key + i32((e / 2u) % BK), end, {{ depth }} + 2u * (e / (2u * BK)) + e % 2u);
//# endcall
//# if not query_resident
//#   call(n) each("n", query_loads, unrolled)
        let e = place + {{ n }} * WORKGROUP;
        staged[{{ key_loads }}u + {{ n }}] = query_vec4(query_head, first_row + (e / 2u) % BQ, last_row, {{ depth }} + 2u * (e / (2u * BQ)) + e % 2u);
//#   endcall
//# endif
//# endmacro
//# macro put(first, pitch, rows, value)
      let v = {{ value }};
      let row = (e / 2u) % {{ rows }};
      let d = 4u * (2u * (e / (2u * {{ rows }})) + e % 2u);
//# for c in range(4)
      stage[{{ first }} + (d + {{ c }}u) * {{ pitch }} + row / 4u][row % 4u] = v[{{ c }}];
//# endfor
//# endmacro
//# macro store_keys()
//# call(n) each("n", key_loads, unrolled)
      let e = place + {{ n }} * WORKGROUP;
//#   if BK * DEPTH4 % WORKGROUP
      if (e < BK * DEPTH4) {
{{ put("0u", "KEY_PITCH", "BK", "staged[" ~ n ~ "]") }}
      }
//#   else
{{ put("0u", "KEY_PITCH", "BK", "staged[" ~ n ~ "]") }}
//#   endif
//# endcall
//# if not query_resident
//#   call(n) each("n", query_loads, unrolled)
      let e = place + {{ n }} * WORKGROUP;
//#     if BQ * DEPTH4 % WORKGROUP
      if (e < BQ * DEPTH4) {
{{ put("QUERY_STAGE", "QUERY_PITCH", "BQ", "staged[" ~ key_loads ~ "u + " ~ n ~ "] * params.query_scale") }}
      }
//#     else
{{ put("QUERY_STAGE", "QUERY_PITCH", "BQ", "staged[" ~ key_loads ~ "u + " ~ n ~ "] * params.query_scale") }}
//#     endif
//#   endcall
//# endif
//# endmacro
//# macro load_values(part)
//# call(n) each("n", value_loads, unrolled)
        let e = place + {{ n }} * WORKGROUP;
        let slot = {{ part }} + e / DV4;
        let column = 4u * (slot % TX + TX * (slot / (4u * TX))) + (slot / TX) % 4u;
        staged[{{ n }}] = value_vec4(value_head, tile_key + i32(column), end, e % DV4);
//# endcall
//# endmacro
//## The weights of one part's keys. The scores' index must be constant, so every part has its own branch.
//# macro store_weights()
//# call(part) each("p", BK // VALUE_KEYS, unrolled)
//#   if BK > VALUE_KEYS
      if (part == {{ part }}) {
//#   endif
//#   call(n) each("n", VALUE_KEYS // TX, unrolled)
//#     call(i) each("i", ROWS // 4, unrolled)
        let number = {{ part }} * (VALUE_KEYS / TX) + {{ n }};
        let at = 4u * {{ i }} * SCORES + number / 4u;
        let c = number % 4u;
        weights[({{ n }} * TX + tx) * WEIGHTS_PITCH + {{ i }} * TY + ty] =
          vec4<f32>(s[at][c], s[at + SCORES][c], s[at + 2u * SCORES][c], s[at + 3u * SCORES][c]);
//#     endcall
//#   endcall
//#   if BK > VALUE_KEYS
      }
//#   endif
//# endcall
//# endmacro
//# macro store_values()
//# call(n) each("n", value_loads, unrolled)
      let e = place + {{ n }} * WORKGROUP;
//#   if VALUE_KEYS * DV4 % WORKGROUP
      if (e < VALUE_KEYS * DV4) {
        stage[e] = staged[{{ n }}];
      }
//#   else
      stage[e] = staged[{{ n }}];
//#   endif
//# endcall
//# endmacro
//## The number in its tile of an invocation's row r.
//# macro row(r)
4u * (ty + TY * ({{ r }} / 4u)) + {{ r }} % 4u
//# endmacro
//## Combine values[r] over the TX invocations of each row r.
//# macro across_row(values, op)
//# set combine = "max({}, {})" if op == "max" else "({} + {})"
//# if subgroups
//#   call(r) each("r", ROWS, unrolled)
//#     for step in (1, 2, 4, 8, 16, 32)
//#       if step < TX
    {{ values }}[{{ r }}] = {{ combine.format(values ~ "[" ~ r ~ "]", "subgroupShuffleXor(" ~ values ~ "[" ~ r ~ "], " ~ step ~ "u)") }};
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
//# endif
//# endmacro
//##
@compute @workgroup_size(TX, TY)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
//# if subgroups
  @builtin(subgroup_size) subgroup_size: u32,
  @builtin(subgroup_invocation_id) lane: u32,
//#   if subgroup_ids
  @builtin(subgroup_id) number: u32,
//#   endif
//# else
  @builtin(local_invocation_id) local: vec3<u32>,
//# endif
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
  let all_heads = params.heads * params.batch;
  if (work >= params.tiles * all_heads) {
    return;
  }
  // The last tiles have most to do under a causal mask, so those of all heads begin first.
  let tile = params.tiles - 1u - work / all_heads;
  let h = work % params.heads;
  let b = work / params.heads % params.batch;
  let at = sequence(b);
//# endif
//# if subgroups
  // WGSL does not say which invocations share a subgroup: they take their place from the subgroup's number
  // and their lane{{ "" if subgroup_ids else "; the subgroups draw their numbers" }}.
//#   if not subgroup_ids
  var number = 0u;
  if (lane == 0u) {
    number = atomicAdd(&subgroups_seen, 1u);
  }
  number = subgroupBroadcastFirst(number);
//#   endif
  let place = (number * subgroup_size + lane) % WORKGROUP;
  let tx = place % TX;
  let ty = place / TX;
//# else
  let tx = local.x;
  let ty = local.y;
  let place = ty * TX + tx;
//# endif

  let length = at.keys;
  let shift = at.shift;
  let first_row = tile * BQ;
  let last_row = min(first_row + BQ, at.queries) - 1u;
  let first_position = i32(first_row) + shift;
  let last_position = i32(last_row) + shift;
  let begin = max(0, first_position - params.window_left);
  let end = min(length, last_position + params.window_right + 1);

  let kv_head = h / params.group;
  let query_head = params.query_first + dot(params.query_strides.xyz, vec3<u32>(b, h, at.query_begin));
  let key_head = params.key_first + dot(params.key_strides.xyz, vec3<u32>(b, kv_head, at.key_begin));
  let value_head = params.value_first + dot(params.value_strides.xyz, vec3<u32>(b, kv_head, at.key_begin));

  var top: array<f32, ROWS>;
  var total: array<f32, ROWS>;
  var high: array<f32, ROWS>;
  var q: array<vec4<f32>, ROWS / 4u>;
  var s: array<vec4<f32>, ROWS * SCORES>;
  var sums: array<vec4<f32>, ROWS * COLUMNS>;
  var staged: array<vec4<f32>, {{ [key_loads + (0 if query_resident else query_loads), value_loads] | max }}>;
//# call(r) each("r", ROWS, unrolled)
  top[{{ r }}] = FLOOR;
//# endcall
//# if query_resident
//#   call(n) each("n", query_loads * chunks, unrolled)
  let e = place + {{ n }} * WORKGROUP;
  if (e < BQ * DEPTH4 * CHUNKS) {
    let d4 = 2u * (e / (2u * BQ)) + e % 2u;
{{ put("QUERY_STAGE", "QUERY_PITCH", "BQ", "query_vec4(query_head, first_row + (e / 2u) % BQ, last_row, d4) * params.query_scale") }}
  }
//#   endcall
//# endif

  for (var tile_key = begin; tile_key < end; tile_key += i32(BK)) {
    // Where every row sees every key of the tile there is nothing to check.
    let last_key = tile_key + i32(BK) - 1;
    let whole = last_key < end && last_key <= first_position + params.window_right
      && tile_key >= last_position - params.window_left;
//# if masks
    // A tile that the mask hides from every row is not computed.
    var seen = false;
    for (var e = place; e < BQ * BK; e += WORKGROUP) {
      let i = first_row + e / BK;
      let j = tile_key + i32(e % BK);
      if (i <= last_row && in_window(i32(i) + shift, j, length)) {
        seen = seen || mask_allows(b, h, i, u32(j));
      }
    }
    if (seen) {
      atomicStore(&tile_seen, 1u);
    }
    workgroupBarrier();
    if (place == 0u) {
      tile_live = atomicExchange(&tile_seen, 0u);
    }
    if (workgroupUniformLoad(&tile_live) == 0u) {
      continue;
    }
//# endif

//# call(n) each("n", ROWS * BK // (4 * TX), unrolled)
    s[{{ n }}] = vec4<f32>();
//# endcall
{{ load_keys("0u") }}
    for (var chunk = 0u; chunk < CHUNKS; chunk++) {
      workgroupBarrier();
{{ store_keys() }}
      workgroupBarrier();
//# if D4 > DEPTH4
      if (chunk + 1u < CHUNKS) {
{{ load_keys("(chunk + 1u) * DEPTH4") }}
      }
//# endif
//# call(d) each("d", 4 * DEPTH4, unrolled)
//#   if D4 % DEPTH4
      if (4u * DEPTH4 * chunk + {{ d }} < 4u * D4) {
//#   endif
//#   call(i) each("i", ROWS // 4, unrolled)
      q[{{ i }}] = stage[QUERY_STAGE + ({{ "4u * DEPTH4 * chunk + " if query_resident }}{{ d }}) * QUERY_PITCH + {{ i }} * TY + ty];
//#   endcall
//#   call(g) each("g", BK // (4 * TX), unrolled)
      let k = stage[{{ d }} * KEY_PITCH + {{ g }} * TX + tx];
//#     call(r) each("r", ROWS, unrolled)
      s[{{ r }} * SCORES + {{ g }}] = fma(vec4<f32>(q[{{ r }} / 4u][{{ r }} % 4u]), k, s[{{ r }} * SCORES + {{ g }}]);
//#     endcall
//#   endcall
//#   if D4 % DEPTH4
      }
//#   endif
//# endcall
    }
{{ load_values("0u") }}

//# if masks or has_score_mod
//#   call(r) each("r", ROWS, unrolled)
//#     call(n) each("n", BK // TX, unrolled)
    let i = first_row + {{ row(r) }};
    let j = u32(tile_key) + 4u * (tx + TX * ({{ n }} / 4u)) + {{ n }} % 4u;
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
    if (!whole) {
//#   call(r) each("r", ROWS, unrolled)
      // The keys that the row sees, counted from this invocation's first one.
      let position = first_position + i32({{ row(r) }});
      let lowest = vec4<i32>(position - params.window_left - tile_key - i32(4u * tx));
      let highest = vec4<i32>(min(position + params.window_right, length - 1) - tile_key - i32(4u * tx));
//#     call(g) each("g", BK // (4 * TX), unrolled)
      let column = i32(4u * TX * {{ g }}) + vec4<i32>(0, 1, 2, 3);
      let at = {{ r }} * SCORES + {{ g }};
      s[at] = select(vec4<f32>(HIDDEN), s[at], (column >= lowest) & (column <= highest));
//#     endcall
//#   endcall
    }
//# endif

//# call(r) each("r", ROWS, unrolled)
    var highs = s[{{ r }} * SCORES];
//#   call(g) each("g", BK // (4 * TX), unrolled)
    highs = max(highs, s[{{ r }} * SCORES + {{ g }}]);
//#   endcall
    high[{{ r }}] = max(max(top[{{ r }}], max(highs.x, highs.y)), max(highs.z, highs.w));
//# endcall
{{ across_row("high", "max") }}
//# call(r) each("r", ROWS, unrolled)
    let higher = high[{{ r }}];
    let shrink = exp2(top[{{ r }}] - higher);
    top[{{ r }}] = higher;
    var sum = vec4<f32>();
//#   call(g) each("g", BK // (4 * TX), unrolled)
    s[{{ r }} * SCORES + {{ g }}] = exp2(s[{{ r }} * SCORES + {{ g }}] - higher);
    sum += s[{{ r }} * SCORES + {{ g }}];
//#   endcall
    total[{{ r }}] = total[{{ r }}] * shrink + ((sum.x + sum.y) + (sum.z + sum.w));
//#   call(o) each("o", (DV4 + TX - 1) // TX, unrolled)
    sums[{{ r }} * COLUMNS + {{ o }}] *= shrink;
//#   endcall
//# endcall
    for (var part = 0u; part < PARTS; part++) {
      workgroupBarrier();
{{ store_weights() }}
{{ store_values() }}
      workgroupBarrier();
//# if BK > VALUE_KEYS
      if (part + 1u < PARTS) {
{{ load_values("(part + 1u) * VALUE_KEYS") }}
      }
//# endif
//# call(k) each("k", VALUE_KEYS, unrolled)
//#   call(i) each("i", ROWS // 4, unrolled)
      q[{{ i }}] = weights[{{ k }} * WEIGHTS_PITCH + {{ i }} * TY + ty];
//#   endcall
//#   call(o) each("o", (DV4 + TX - 1) // TX, unrolled)
      let v = stage[{{ k }} * DV4 + {{ o }} * TX + tx];
//#     call(r) each("r", ROWS, unrolled)
      sums[{{ r }} * COLUMNS + {{ o }}] = fma(vec4<f32>(q[{{ r }} / 4u][{{ r }} % 4u]), v, sums[{{ r }} * COLUMNS + {{ o }}]);
//#     endcall
//#   endcall
//# endcall
    }
  }

//# if not subgroups
  workgroupBarrier();
//# endif
{{ across_row("total", "sum") }}
//# call(r) each("r", ROWS, unrolled)
  let i = first_row + {{ row(r) }};
  if (i <= last_row) {
    let factor = select(0.0, 1.0 / total[{{ r }}], total[{{ r }}] > 0.0);
    let out_row = dot(params.out_strides.xyz, vec3<u32>(b, h, at.query_begin + i));
//#   call(o) each("o", (DV4 + TX - 1) // TX, unrolled)
    if ({{ o }} * TX + tx < DV4) {
      out_put4(out_row + 4u * ({{ o }} * TX + tx), sums[{{ r }} * COLUMNS + {{ o }}] * factor);
    }
//#   endcall
//#   if return_lse
    if (tx == 0u) {
      lse[{{ "h" if varlen else "(b * params.heads + h)" }} * params.queries + at.query_begin + i] = row_lse(top[{{ r }}], total[{{ r }}]);
    }
//#   endif
  }
//# endcall
}
