//## FlashAttention-2 (Dao, arXiv 2307.08691) with register tiles, all arithmetic in f32.
//##
//## A workgroup of TX × TY invocations owns BQ = TY·ROWS query rows and walks along the keys BK at a
//## time. An invocation holds ROWS × BK/TX scores and ROWS × DV/TX outputs in registers. Operands are
//## staged in workgroup memory as vec4s along the head dim, so that a score is a chain of dot products
//## and every read is a vec4; rows are one vec4 longer than their data to spread over the banks.
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
//# include "lib/row_end.wgsl"
//# include "lib/sequences.wgsl"
//##
const SCORES = BK / TX;
const COLUMNS = {{ (DV4 + TX - 1) // TX }}u;
const KEY_PITCH = DEPTH4 + 1u;
//# if query_resident
const QUERY_PITCH = D4 + 1u;
var<workgroup> query_tile: array<vec4<f32>, BQ * QUERY_PITCH>;
var<workgroup> stage: array<vec4<f32>, {{ [BK * (DEPTH4 + 1), VALUE_KEYS * DV4] | max }}>;
//# else
const QUERY_PITCH = KEY_PITCH;
const QUERY_STAGE = BK * KEY_PITCH;
var<workgroup> stage: array<vec4<f32>, {{ [(BK + BQ) * (DEPTH4 + 1), VALUE_KEYS * DV4] | max }}>;
//# endif
var<workgroup> weights: array<vec4<f32>, BQ * BK / 4u>;
//# if subgroups
var<workgroup> subgroups_seen: atomic<u32>;
//# else
var<workgroup> row_values: array<f32, BQ * TX>;
//# endif
//# if masks
var<workgroup> tile_seen: atomic<u32>;
var<workgroup> tile_live: u32;
//# endif

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
    row_values[(ty * ROWS + {{ r }}) * TX + tx] = {{ values }}[{{ r }}];
//#   endcall
    workgroupBarrier();
//#   call(r) each("r", ROWS, unrolled)
    {{ values }}[{{ r }}] = row_values[(ty * ROWS + {{ r }}) * TX];
    for (var x = 1u; x < TX; x++) {
      {{ values }}[{{ r }}] = {{ combine.format(values ~ "[" ~ r ~ "]", "row_values[(ty * ROWS + " ~ r ~ ") * TX + x]") }};
    }
//#   endcall
//# endif
//# endmacro
//##
@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
//# if subgroups
  @builtin(subgroup_size) subgroup_size: u32,
  @builtin(subgroup_invocation_id) lane: u32,
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
  if (work >= params.tiles * params.heads * params.batch) {
    return;
  }
  // The last tiles have most to do under a causal mask, so they begin first.
  let tile = params.tiles - 1u - work % params.tiles;
  let h = (work / params.tiles) % params.heads;
  let b = work / params.tiles / params.heads;
  let at = sequence(b);
//# endif
//# if subgroups
  // WGSL does not say which invocations share a subgroup, so subgroups draw numbers and invocations
  // take their place from the number and their lane.
  var number = 0u;
  if (lane == 0u) {
    number = atomicAdd(&subgroups_seen, 1u);
  }
  let place = subgroupBroadcastFirst(number) * subgroup_size + lane;
//# else
  let place = local;
//# endif
  let tx = place % TX;
  let ty = place / TX;

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

//# if query_resident
  for (var e = place; e < BQ * D4; e += WORKGROUP) {
    let row = first_row + e / D4;
    var v = vec4<f32>();
    if (row <= last_row) {
      v = query_at4(query_head + row * params.query_strides.z, params.query_strides.w, 4u * (e % D4));
    }
    query_tile[(e / D4) * QUERY_PITCH + e % D4] = v * params.query_scale;
  }
//# endif
  var top: array<f32, ROWS>;
  var total: array<f32, ROWS>;
  var high: array<f32, ROWS>;
  var q: array<vec4<f32>, ROWS>;
  var s: array<f32, ROWS * SCORES>;
  var sums: array<vec4<f32>, ROWS * COLUMNS>;
//# call(r) each("r", ROWS, unrolled)
  top[{{ r }}] = FLOOR;
//# endcall

  for (var tile_key = begin; tile_key < end; tile_key += i32(BK)) {
    // Where every row sees every key of the tile there is nothing to check.
    let last_key = tile_key + i32(BK) - 1;
    let whole = {{ "false" if masks or has_score_mod else "true" }} && last_key < end
      && last_key <= first_position + params.window_right
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

//# call(n) each("n", ROWS * BK // TX, unrolled)
    s[{{ n }}] = 0.0;
//# endcall
    for (var depth = 0u; depth < D4; depth += DEPTH4) {
      workgroupBarrier();
      for (var e = place; e < BK * DEPTH4; e += WORKGROUP) {
        // Key 4·(tx + TX·g) + c goes to slot (4g + c)·TX + tx: neighbours in tx read neighbouring rows.
        let slot = e / DEPTH4;
        let column = 4u * (slot % TX + TX * (slot / (4u * TX))) + (slot / TX) % 4u;
        let j = tile_key + i32(column);
        let d = depth + e % DEPTH4;
        var v = vec4<f32>();
        if (j < end{{ " && d < D4" if D4 % DEPTH4 else "" }}) {
          v = key_at4(key_head + u32(j) * params.key_strides.z, params.key_strides.w, 4u * d);
        }
        stage[slot * KEY_PITCH + e % DEPTH4] = v;
      }
//# if not query_resident
      for (var e = place; e < BQ * DEPTH4; e += WORKGROUP) {
        let row = first_row + e / DEPTH4;
        let d = depth + e % DEPTH4;
        var v = vec4<f32>();
        if (row <= last_row{{ " && d < D4" if D4 % DEPTH4 else "" }}) {
          v = query_at4(query_head + row * params.query_strides.z, params.query_strides.w, 4u * d);
        }
        stage[QUERY_STAGE + (e / DEPTH4) * QUERY_PITCH + e % DEPTH4] = v * params.query_scale;
      }
//# endif
      workgroupBarrier();
      for (var d = 0u; d < {{ "min(DEPTH4, D4 - depth)" if D4 % DEPTH4 else "DEPTH4" }}; d++) {
//# call(r) each("r", ROWS, unrolled)
//#   if query_resident
        q[{{ r }}] = query_tile[(ty * ROWS + {{ r }}) * QUERY_PITCH + depth + d];
//#   else
        q[{{ r }}] = stage[QUERY_STAGE + (ty * ROWS + {{ r }}) * QUERY_PITCH + d];
//#   endif
//# endcall
//# call(n) each("n", BK // TX, unrolled)
        let k = stage[({{ n }} * TX + tx) * KEY_PITCH + d];
//#   call(r) each("r", ROWS, unrolled)
        s[{{ r }} * SCORES + {{ n }}] += dot(q[{{ r }}], k);
//#   endcall
//# endcall
      }
    }

//# macro shape(check)
//# call(r) each("r", ROWS, unrolled)
//#   call(n) each("n", BK // TX, unrolled)
//#     if check
      let i = first_row + ty * ROWS + {{ r }};
      let j = u32(tile_key) + 4u * (tx + TX * ({{ n }} / 4u)) + {{ n }} % 4u;
      s[{{ r }} * SCORES + {{ n }}] = score(s[{{ r }} * SCORES + {{ n }}], b, h, i, j, i32(i) + shift, length);
//#     else
      s[{{ r }} * SCORES + {{ n }}] = shaped(s[{{ r }} * SCORES + {{ n }}]);
//#     endif
//#   endcall
//# endcall
//# endmacro
    if (!whole) {
{{ shape(true) }}
//# if softcap
    } else {
{{ shape(false) }}
//# endif
    }

//# call(r) each("r", ROWS, unrolled)
    high[{{ r }}] = top[{{ r }}];
//#   call(n) each("n", BK // TX, unrolled)
    high[{{ r }}] = max(high[{{ r }}], s[{{ r }} * SCORES + {{ n }}]);
//#   endcall
//# endcall
{{ across_row("high", "max") }}
//# call(r) each("r", ROWS, unrolled)
    let higher = high[{{ r }}];
    let shrink = exp2(top[{{ r }}] - higher);
    top[{{ r }}] = higher;
    total[{{ r }}] *= shrink;
//#   call(g) each("g", BK // (4 * TX), unrolled)
    let n = {{ r }} * SCORES + 4u * {{ g }};
    let p = exp2(vec4<f32>(s[n], s[n + 1u], s[n + 2u], s[n + 3u]) - higher);
    total[{{ r }}] += (p.x + p.y) + (p.z + p.w);
    weights[(ty * ROWS + {{ r }}) * (BK / 4u) + {{ g }} * TX + tx] = p;
//#   endcall
//#   call(o) each("o", (DV4 + TX - 1) // TX, unrolled)
    sums[{{ r }} * COLUMNS + {{ o }}] *= shrink;
//#   endcall
//# endcall

    for (var part = 0u; part < BK; part += VALUE_KEYS) {
      workgroupBarrier();
      for (var e = place; e < VALUE_KEYS * DV4; e += WORKGROUP) {
        let j = tile_key + i32(part + e / DV4);
        var v = vec4<f32>();
        if (j < end) {
          v = value_at4(value_head + u32(j) * params.value_strides.z, params.value_strides.w, 4u * (e % DV4));
        }
        stage[e] = v;
      }
      workgroupBarrier();
      for (var k = 0u; k < VALUE_KEYS; k += 4u) {
//# call(r) each("r", ROWS, unrolled)
        q[{{ r }}] = weights[(ty * ROWS + {{ r }}) * (BK / 4u) + (part + k) / 4u];
//# endcall
//# call(c) each("c", 4, unrolled)
//#   call(o) each("o", (DV4 + TX - 1) // TX, unrolled)
        let v = stage[(k + {{ c }}) * DV4 + {{ o }} * TX + tx];
//#     call(r) each("r", ROWS, unrolled)
        sums[{{ r }} * COLUMNS + {{ o }}] += q[{{ r }}][{{ c }}] * v;
//#     endcall
//#   endcall
//# endcall
      }
    }
  }

//# if not subgroups
  workgroupBarrier();
//# endif
{{ across_row("total", "sum") }}
//# call(r) each("r", ROWS, unrolled)
  let i = first_row + ty * ROWS + {{ r }};
  if (i <= last_row) {
    let end_of_row = row_end(h, top[{{ r }}], total[{{ r }}]);
    let out_row = dot(params.out_strides.xyz, vec3<u32>(b, h, at.query_begin + i));
//#   call(o) each("o", (DV4 + TX - 1) // TX, unrolled)
    if ({{ o }} * TX + tx < DV4) {
      out_put4(out_row + 4u * ({{ o }} * TX + tx), sums[{{ r }} * COLUMNS + {{ o }}] * end_of_row.x);
    }
//#   endcall
//#   if return_lse
    if (tx == 0u) {
      lse[{{ "h" if varlen else "(b * params.heads + h)" }} * params.queries + at.query_begin + i] = end_of_row.y;
    }
//#   endif
  }
//# endcall
}
