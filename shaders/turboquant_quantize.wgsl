//## Quantises rows [B, H, S, D] and writes their codes into a cache [B, H, capacity, ROW_WORDS]: row n goes
//## to slot (first_slot + n) mod capacity (TurboQuant, arXiv 2504.19874; lib/turboquant.wgsl has the format).
//## LANES invocations take a row: rotate it, choose levels, fit the scale, pack.
//# from "lib/storage.wgsl" import reader, half_types
//# from "lib/turboquant.wgsl" import rotation
{{ half_types(dtypes) }}
{{ reader("source", source_dtype, source_packed, D) }}
{{ rotation() }}
var<workgroup> largest: array<u32, WORKGROUP>;

/// The largest of the row's numbers.
fn row_max(value: u32, local: u32) -> u32 {
  let lane = local % LANES;
  largest[local] = value;
  workgroupBarrier();
  for (var half = LANES / 2u; half > 0u; half /= 2u) {
    if (lane < half) {
      largest[local] = max(largest[local], largest[local + half]);
    }
    workgroupBarrier();
  }
  return largest[local - lane];
}

/// The sums of the row's two numbers.
fn row_sum(value: vec2<f32>, local: u32) -> vec2<f32> {
  let lane = local % LANES;
  let at = local / LANES * WIDTH + lane;
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

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let row = (workgroup.x + workgroup.y * workgroups.x) * VECTORS + local / LANES;
  let n = row % params.count;
  let head = row / params.count % params.heads;
  let b = row / params.count / params.heads;
  let lane = local % LANES;
  let vector = local / LANES * WIDTH;
  let d = 4u * lane;
  let e = d + vec4<u32>(0u, 1u, 2u, 3u);
  // Barriers follow: nobody may leave early.
  let exists = b < params.batch;
  var v = vec4<f32>();
  if (exists && d < D) {
    let from_row = params.source_first + dot(params.source_strides.xyz, vec3<u32>(b, head, n));
    v = source_at4(from_row, params.source_strides.w, d);
  }

  // Scaled by a power of two first, so that no square overflows or vanishes. Compared as bits, in which
  // infinities and NaN are the largest: compilers may assume that there are none.
  let sizes = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
  let top = row_max(max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)), local);
  let finite = top < 0x7f800000u;
  let exponent = clamp(top >> 23u, 1u, 253u);
  v = select(vec4<f32>(), v * bitcast<f32>((254u - exponent) << 23u), finite);

  v = rotate(v, e, vector);
  let inside = e < vec4<u32>(D);
  v = select(vec4<f32>(), v, inside);
  let rms = sqrt(row_sum(vec2<f32>(dot(v, v), 0.0), local).x / f32(D));
  let size = abs(v) * select(0.0, 1.0 / rms, rms > 0.0);
  var codes = select(vec4<u32>(), vec4<u32>({{ 2 ** (bits - 1) }}u), v < vec4<f32>());
  var level = vec4<f32>({{ levels[0] }}f);
//# for threshold in thresholds
  codes += vec4<u32>(size > vec4<f32>({{ threshold }}f));
  level = select(level, vec4<f32>({{ levels[loop.index] }}f), size > vec4<f32>({{ threshold }}f));
//# endfor
  // The norm's correction: of all multiples of the levels the one that comes closest to the vector.
  level = select(vec4<f32>(), level, inside);
  let products = row_sum(vec2<f32>(dot(size, level), dot(level, level)), local);
  let scale = bitcast<f32>(exponent << 23u) * (rms * products.x / products.y);

  workgroupBarrier();
  for (var k = 0u; k < 4u; k++) {
    exchanged[vector + e[k]] = f32(codes[k]);
  }
  workgroupBarrier();
  let slot = (params.first_slot + n) % params.capacity;
  let to_row = ((b * params.heads + head) * params.capacity + slot) * ROW_WORDS;
  if (exists && lane == 0u) {
    cache[to_row] = select(0x7fc00000u, bitcast<u32>(scale), finite);
  }
  if (exists && lane < ROW_WORDS - 1u) {
    var word = 0u;
    for (var i = 32u * lane / BITS; i < min((32u * lane + 31u) / BITS + 1u, 4u * D4); i++) {
      let code = u32(exchanged[vector + i]);
      // Three bits may begin in the word before.
      let at = i32(i * BITS) - i32(32u * lane);
      word |= select(code >> u32(-at), code << u32(at), at >= 0);
    }
    cache[to_row + 1u + lane] = word;
  }
}
