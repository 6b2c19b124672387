//## Quantises rows [B, H, S, D] and writes their codes into a cache [B, H, capacity, ROW_WORDS]: row n goes
//## to slot row_slot(n) (TurboQuant, arXiv 2504.19874; lib/turboquant.wgsl has the format). With `tiles`, "keys" or
//## "values", the cache is of tiles [B, H, tiles, TILE_WORDS] (lib/code_tiles.wgsl).
//## LANES invocations take a row: they rotate it, choose levels, fit the scale and pack the codes; with `qjl` they also
//## rotate the residual again and pack its signs (QJL, arXiv 2406.03482).
//# from "lib/storage.wgsl" import half_types
//# from "lib/turboquant.wgsl" import rotation
{{ half_types(dtypes) }}
{{ rotation() }}
//# include "lib/new_rows.wgsl"
//# if tiles
//# include "lib/code_tiles.wgsl"
//# endif
const NAN = 0x7fc00000u;
var<workgroup> largest: array<u32, WORKGROUP>;

/// The largest of the numbers that a row's invocations give.
fn max_over_row(value: u32, thread_index: u32) -> u32 {
  let lane = thread_index % LANES;
  largest[thread_index] = value;
  workgroupBarrier();
  for (var half = LANES / 2u; half > 0u; half /= 2u) {
    if (lane < half) {
      largest[thread_index] = max(largest[thread_index], largest[thread_index + half]);
    }
    workgroupBarrier();
  }
  return largest[thread_index - lane];
}

/// The sums of the two numbers that a row's invocations give.
fn sum_over_row(value: vec2<f32>, thread_index: u32) -> vec2<f32> {
  let lane = thread_index % LANES;
  let at = thread_index / LANES * WIDTH + lane;
  workgroupBarrier();
  exchanged[at] = value.x;
  exchanged[at + LANES] = value.y;
  workgroupBarrier();
  for (var half = LANES / 2u; half > 0u; half /= 2u) {
    if (lane < half) {
      exchanged[at] += exchanged[at + half];
      exchanged[at + LANES] += exchanged[at + LANES + half];
    }
    workgroupBarrier();
  }
  return vec2<f32>(exchanged[at - lane], exchanged[at - lane + LANES]);
}

//# if tiles
/// Writes a scale and the row's codes to row `row` of the tile that begins at word `tile`.
fn put_in_tile(scale: u32, codes: vec4<u32>, tile: u32, row: u32, exists: bool, thread_index: u32) {
  let lane = thread_index % LANES;
  let of_eight = select(vec4<u32>({{ nibbles[0] }}u), vec4<u32>({{ nibbles[1] }}u), codes >= vec4<u32>(8u));
  let nibbles = (of_eight >> (4u * (codes & vec4<u32>(7u)))) & vec4<u32>(15u);
//#   if tiles == "keys"
  let vector = thread_index / LANES * WIDTH;
  workgroupBarrier();
  for (var k = 0u; k < 4u; k++) {
    exchanged[vector + 4u * lane + k] = f32(nibbles[k]);
  }
  workgroupBarrier();
  if (exists && lane < GROUP_WORDS) {
    // The word's codes are 16 numbers apart.
    let first = (lane >> 2u) * 32u + (lane & 3u) * 4u;
    var word = 0u;
    for (var k = 0u; k < 4u; k++) {
      word |= u32(exchanged[vector + first + k]) << code_shift(first + k);
      word |= u32(exchanged[vector + first + 16u + k]) << code_shift(first + 16u + k);
    }
    cache[tile + row * GROUP_WORDS + lane] = word;
  }
  if (exists && lane == 0u) {
    cache[tile + TILE_ROWS * GROUP_WORDS + row] = scale;
  }
//#   else
  if (exists) {
    for (var k = 0u; k < 4u; k++) {
      // Other rows of the same call may write the word's other codes.
      let at = tile + (4u * lane + k) * GROUP_WORDS + code_word(row);
      atomicAnd(&cache[at], ~(15u << code_shift(row)));
      atomicOr(&cache[at], nibbles[k] << code_shift(row));
    }
    if (lane == 0u) {
      atomicStore(&cache[tile + TILE_ROWS * GROUP_WORDS + row], scale);
    }
  }
//#   endif
}
//# else
/// Writes a scale and the row's codes of `bits` bits each from word `at` on.
fn put_row(scale: u32, codes: vec4<u32>, bits: u32, at: u32, exists: bool, thread_index: u32) {
  let lane = thread_index % LANES;
  let vector = thread_index / LANES * WIDTH;
  workgroupBarrier();
  for (var k = 0u; k < 4u; k++) {
    exchanged[vector + 4u * lane + k] = f32(codes[k]);
  }
  workgroupBarrier();
  if (exists && lane == 0u) {
    cache[at] = scale;
  }
  if (exists && 32u * lane < 4u * D4 * bits) {
    var word = 0u;
    for (var i = 32u * lane / bits; i < min((32u * lane + 31u) / bits + 1u, 4u * D4); i++) {
      let code = u32(exchanged[vector + i]);
      // Three bits may begin in the word before.
      let shift = i32(i * bits) - i32(32u * lane);
      word |= select(code >> u32(-shift), code << u32(shift), shift >= 0);
    }
    cache[at + 1u + lane] = word;
  }
}
//# endif

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let row = (workgroup.x + workgroup.y * workgroups.x) * VECTORS + thread_index / LANES;
  let n = row % params.count;
  let head = row / params.count % params.heads;
  let b = row / params.count / params.heads;
  let lane = thread_index % LANES;
  let vector = thread_index / LANES * WIDTH;
  let d = 4u * lane;
  let e = d + vec4<u32>(0u, 1u, 2u, 3u);
  // Barriers follow: nobody may leave early.
  let exists = b < params.batch{{ " && is_stored(b, n)" if has_totals }};
  var v = vec4<f32>();
  if (exists && d < D) {
    v = new_at4(b, head, n, d);
  }

  // Scaled by a power of two first, so that no square overflows or vanishes. Compared as bits, in which
  // infinities and NaN are the largest: compilers may assume that there are none.
  let sizes = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
  let largest_bits = max_over_row(max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)), thread_index);
  let finite = largest_bits < 0x7f800000u;
  let exponent = clamp(largest_bits >> 23u, 1u, 253u);
  v = select(vec4<f32>(), v * bitcast<f32>((254u - exponent) << 23u), finite);

  v = rotate(v, e, vector, 0u);
  let inside = e < vec4<u32>(D);
  v = select(vec4<f32>(), v, inside);
  let rms = sqrt(sum_over_row(vec2<f32>(dot(v, v), 0.0), thread_index).x / f32(D));
  let size = abs(v) * select(0.0, 1.0 / rms, rms > 0.0);
  var codes = select(vec4<u32>(), vec4<u32>(1u << (BITS - 1u)), v < vec4<f32>());
  var level = vec4<f32>({{ levels[0] }}f);
//# for threshold in thresholds
  codes += vec4<u32>(size > vec4<f32>({{ threshold }}f));
  level = select(level, vec4<f32>({{ levels[loop.index] }}f), size > vec4<f32>({{ threshold }}f));
//# endfor
  // The norm's correction: of all multiples of the levels the one that comes closest to the vector.
  level = select(vec4<f32>(), level, inside);
  let products = sum_over_row(vec2<f32>(dot(size, level), dot(level, level)), thread_index);
  let fit = products.x / products.y;
  let unit = bitcast<f32>(exponent << 23u) * rms;

//# if tiles
  let slot = row_slot({{ "b, " if has_totals }}n);
  let tile = ((b * params.heads + head) * tiles_of(params.capacity) + slot / TILE_ROWS) * TILE_WORDS;
  put_in_tile(select(NAN, bitcast<u32>(unit * fit), finite), codes, tile, slot % TILE_ROWS, exists, thread_index);
//# else
  let at = target_row(b, head, n) * ROW_WORDS;
  put_row(select(NAN, bitcast<u32>(unit * fit), finite), codes, BITS, at, exists, thread_index);
//# endif
//# if qjl
  let missing = size - fit * level;
  let rest = select(missing, -missing, v < vec4<f32>());
  let z = rotate(rest, e, vector, ROUNDS);
  let sums = sum_over_row(vec2<f32>(dot(rest, rest), dot(abs(z), vec4<f32>(inside))), thread_index);
  // Scaled so that the signs' inner product with the residual is its square.
  let rest_scale = unit * select(0.0, sums.x / sums.y, sums.y > 0.0);
  let negative = select(vec4<u32>(), vec4<u32>(1u), z < vec4<f32>());
  put_row(select(NAN, bitcast<u32>(rest_scale), finite), negative, 1u, at + CODE_WORDS, exists, thread_index);
//# endif
}
