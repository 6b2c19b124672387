//## Gumbel noise from a counter-based hash. Needs lib/math.wgsl.
/// PCG3D (Jarzynski & Olano 2020, Hash Functions for GPU Rendering, https://jcgt.org/published/0009/03/02/), of which
/// the first word is taken.
fn hash_of(seed: u32, position: u32, id: u32) -> u32 {
  var v = vec3<u32>(seed, position, id) * 1664525u + 1013904223u;
  v.x += v.y * v.z;
  v.y += v.z * v.x;
  v.z += v.x * v.y;
  v ^= v >> vec3<u32>(16u);
  v.x += v.y * v.z;
  v.y += v.z * v.x;
  v.z += v.x * v.y;
  return v.x;
}

// Larger than any noise.
const MOST_NOISE = 17.5;

/// -log(-log(u)) with u = ((hash >> 8) + 0.5) / 2^24, between -2.86 and 17.33.
fn gumbel_noise(hash: u32) -> f32 {
  let n = hash >> 8u;
  let u = (f32(n) + 0.5) * 0x1p-24f;
  // Near 1 float32 does not hold u but does hold 1 - u, and -log(u) = 2 artanh((1 - u) / (1 + u)).
  let rest = (f32(0xffffffu - n) + 0.5) * 0x1p-24f;
  let t = rest / (2.0 - rest);
  let y = t * t;
  let near = 2.0 * (t + t * y * (1.0 / 3.0 + y * (1.0 / 5.0 + y * (1.0 / 7.0 + y * (1.0 / 9.0)))));
  let minus_log = select(-LN_2 * accurate_log2(u), near, rest < 0.25);
  return -LN_2 * accurate_log2(minus_log);
}
