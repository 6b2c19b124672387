//## Decode: one split of the cached keys for the query rows that share a key/value head
//## (split-KV as in Flash-Decoding, Dao et al. 2023; online softmax over tiles of keys).
//##
//## A workgroup takes ROWS rows (heads of a group times new positions), so that every key and value
//## is read once for all of them. LANES invocations share a key's head dim; for the values, the
//## invocations spread over the columns first and over keys with what is left.
//## With `direct` there is one split and the result is written at once, else its normalised output
//## and LSE go to decode_reduce.wgsl. No subgroups.
//# from "lib/storage.wgsl" import reader, writer, half_types
//# from "lib/turboquant.wgsl" import row_reader
{{ half_types(dtypes) }}
{{ reader("query", query_dtype, query_packed, D) }}
{{ row_reader("key", key_dtype, True, D, key_row) }}
{{ row_reader("value", value_dtype, True, DV, value_row) }}
{{ writer("out", out_dtype) }}
//# include "lib/score.wgsl"
//# include "lib/row_end.wgsl"
//# include "lib/cache.wgsl"

const KEYS = WORKGROUP / LANES;
const KEY_GROUPS = WORKGROUP / DV4;
var<workgroup> query_tile: array<vec4<f32>, ROWS * D4>;
var<workgroup> products: array<f32, ROWS * WORKGROUP>;
var<workgroup> weights: array<f32, ROWS * KEYS>;
var<workgroup> tops: array<f32, ROWS>;
var<workgroup> shrinks: array<f32, ROWS>;
var<workgroup> merged: array<vec4<f32>, WORKGROUP>;
var<workgroup> totals: array<f32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let work = workgroup.x + workgroup.y * workgroups.x;
  let split = work % params.splits;
  let chunk = work / params.splits % params.chunks;
  let kv_head = work / params.splits / params.chunks % params.kv_heads;
  let b = work / params.splits / params.chunks / params.kv_heads;
  if (b >= params.batch) {
    return;
  }
  let rows = params.group * params.queries;
  let length = i32(params.keys);
  let shift = query_shift(length);
  let begin = params.first_key + split * params.split_keys;
  let end = min(begin + params.split_keys, params.keys);
  let cache_row = (b * params.kv_heads + kv_head) * params.capacity;

  for (var e = local; e < ROWS * D4; e += WORKGROUP) {
    let row = chunk * ROWS + e / D4;
    var v = vec4<f32>();
    if (row < rows) {
      let h = kv_head * params.group + row / params.queries;
      let at = params.query_first + dot(params.query_strides.xyz, vec3<u32>(b, h, row % params.queries));
      v = query_at4(at, params.query_strides.w, 4u * (e % D4)) * params.query_scale;
    }
    query_tile[e] = v;
  }
  if (local < ROWS) {
    tops[local] = FLOOR;
  }
  let column = local % DV4;
  let key_group = local / DV4;
  var sums: array<vec4<f32>, ROWS>;
  var total: array<f32, ROWS>;
  var dots: array<f32, ROWS>;
  workgroupBarrier();

  for (var tile_key = begin; tile_key < end; tile_key += KEYS) {
    let my_key = tile_key + local / LANES;
    // Zeroed by hand: compilers were seen to carry an array declared in a loop over to the next pass.
    for (var r = 0u; r < ROWS; r++) {
      dots[r] = 0.0;
    }
    if (my_key < end) {
      let first = (cache_row + cache_slot(walked_entry(my_key))) * KEY_PITCH;
      for (var d = local % LANES; d < D4; d += LANES) {
        let k = key_at4(first, 1u, 4u * d);
        for (var r = 0u; r < ROWS; r++) {
          dots[r] += dot(query_tile[r * D4 + d], k);
        }
      }
    }
    for (var r = 0u; r < ROWS; r++) {
      products[r * WORKGROUP + local] = dots[r];
    }
    workgroupBarrier();
    for (var e = local; e < ROWS * KEYS; e += WORKGROUP) {
      let row = chunk * ROWS + e / KEYS;
      let j = tile_key + e % KEYS;
      var s = HIDDEN;
      if (row < rows && j < end) {
        var sum = 0.0;
        for (var lane = 0u; lane < LANES; lane++) {
          sum += products[(e / KEYS) * WORKGROUP + (e % KEYS) * LANES + lane];
        }
        let h = kv_head * params.group + row / params.queries;
        let i = row % params.queries;
        s = score(sum, b, h, i, walked_entry(j), i32(i) + shift, length);
      }
      weights[e] = s;
    }
    workgroupBarrier();
    if (local < ROWS) {
      var top = tops[local];
      for (var k = 0u; k < KEYS; k++) {
        top = max(top, weights[local * KEYS + k]);
      }
      shrinks[local] = exp2(tops[local] - top);
      tops[local] = top;
    }
    workgroupBarrier();
    for (var e = local; e < ROWS * KEYS; e += WORKGROUP) {
      weights[e] = exp2(weights[e] - tops[e / KEYS]);
    }
    workgroupBarrier();
    if (key_group < KEY_GROUPS) {
      for (var r = 0u; r < ROWS; r++) {
        sums[r] *= shrinks[r];
        total[r] *= shrinks[r];
      }
      for (var k = key_group; k < min(KEYS, end - tile_key); k += KEY_GROUPS) {
        let first = (cache_row + cache_slot(walked_entry(tile_key + k))) * VALUE_PITCH;
        let v = value_at4(first, 1u, 4u * column);
        for (var r = 0u; r < ROWS; r++) {
          let p = weights[r * KEYS + k];
          total[r] += p;
          sums[r] += p * v;
        }
      }
    }
  }

  for (var r = 0u; r < ROWS; r++) {
    workgroupBarrier();
    merged[local] = sums[r];
    totals[local] = total[r];
    workgroupBarrier();
    let row = chunk * ROWS + r;
    if (local < DV4 && row < rows) {
      var sum = merged[local];
      var all = totals[local];
      for (var g = 1u; g < KEY_GROUPS; g++) {
        sum += merged[g * DV4 + local];
        all += totals[g * DV4 + local];
      }
      let h = kv_head * params.group + row / params.queries;
      let i = row % params.queries;
      let end_of_row = row_end(h, tops[r], all);
      let number = ((b * params.heads + h) * params.queries + i) * params.splits + split;
      out_put4(4u * (number * DV4 + local), sum * end_of_row.x);
      if (local == 0u) {
//# if write_lse
        lse[number] = end_of_row.y;
//# endif
      }
    }
  }
}
