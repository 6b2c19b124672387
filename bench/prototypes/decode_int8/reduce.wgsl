// A prototype (README.md): combines 64 splits of a row and rotates it back. A workgroup takes a row, and asks memory for
// all splits before it adds the first.
enable subgroups;
requires subgroup_id;
@group(0) @binding(0) var<storage, read> partial_out: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> partial_rows: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
var<workgroup> sums: array<vec4<f32>, 256>;
fn shx(x: f32, k: u32) -> f32 { return subgroupShuffleXor(x, k); }

fn random_signs(e: vec4<u32>, round: u32) -> vec4<f32> {
  var x = e + vec4<u32>(round * 128u + 2654435769u);
  x = (x ^ (x >> vec4<u32>(16u))) * 0x7feb352du;
  x = (x ^ (x >> vec4<u32>(15u))) * 0x846ca68bu;
  x ^= x >> vec4<u32>(16u);
  return 1.0 - 2.0 * vec4<f32>(x & vec4<u32>(1u));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(subgroup_id) warp_: u32, @builtin(subgroup_invocation_id) lane_: u32) {
  let warp = warp_ % 8u; let lane = lane_ % 32u; let row = wg.x;
  let p_0 = partial_out[(row * 64u + warp + 0u) * 32u + lane];
  let p_1 = partial_out[(row * 64u + warp + 8u) * 32u + lane];
  let p_2 = partial_out[(row * 64u + warp + 16u) * 32u + lane];
  let p_3 = partial_out[(row * 64u + warp + 24u) * 32u + lane];
  let p_4 = partial_out[(row * 64u + warp + 32u) * 32u + lane];
  let p_5 = partial_out[(row * 64u + warp + 40u) * 32u + lane];
  let p_6 = partial_out[(row * 64u + warp + 48u) * 32u + lane];
  let p_7 = partial_out[(row * 64u + warp + 56u) * 32u + lane];
  let x_0 = partial_rows[row * 64u + lane + 0u];
  let x_1 = partial_rows[row * 64u + lane + 32u];
  let high = subgroupMax(max(x_0.x, x_1.x));
  let w_0 = x_0.y * exp2(x_0.x - high);
  let w_1 = x_1.y * exp2(x_1.x - high);
  let total = subgroupAdd(w_0 + w_1);
  var acc = vec4<f32>();
  acc = fma(vec4<f32>(subgroupShuffle(w_0, warp + 0u)), p_0, acc);
  acc = fma(vec4<f32>(subgroupShuffle(w_0, warp + 8u)), p_1, acc);
  acc = fma(vec4<f32>(subgroupShuffle(w_0, warp + 16u)), p_2, acc);
  acc = fma(vec4<f32>(subgroupShuffle(w_0, warp + 24u)), p_3, acc);
  acc = fma(vec4<f32>(subgroupShuffle(w_1, warp + 0u)), p_4, acc);
  acc = fma(vec4<f32>(subgroupShuffle(w_1, warp + 8u)), p_5, acc);
  acc = fma(vec4<f32>(subgroupShuffle(w_1, warp + 16u)), p_6, acc);
  acc = fma(vec4<f32>(subgroupShuffle(w_1, warp + 24u)), p_7, acc);
  sums[warp * 32u + lane] = acc;
  workgroupBarrier();
  if (warp == 0u) {
    acc += sums[32u + lane]; acc += sums[64u + lane]; acc += sums[96u + lane]; acc += sums[128u + lane]; acc += sums[160u + lane]; acc += sums[192u + lane]; acc += sums[224u + lane];
    var y = acc / total;
    let e = 4u * lane + vec4<u32>(0u, 1u, 2u, 3u);
    for (var round = 0u; round < 3u; round++) {
      { let o = y.yxwz; y = select(y + o, o - y, (e & vec4<u32>(1u)) != vec4<u32>()) * 0.7071067811865476; }
      { let o = y.zwxy; y = select(y + o, o - y, (e & vec4<u32>(2u)) != vec4<u32>()) * 0.7071067811865476; }
      { let o = vec4<f32>(shx(y.x, 1u), shx(y.y, 1u), shx(y.z, 1u), shx(y.w, 1u)); y = select(y + o, o - y, (e & vec4<u32>(4u)) != vec4<u32>()) * 0.7071067811865476; }
      { let o = vec4<f32>(shx(y.x, 2u), shx(y.y, 2u), shx(y.z, 2u), shx(y.w, 2u)); y = select(y + o, o - y, (e & vec4<u32>(8u)) != vec4<u32>()) * 0.7071067811865476; }
      { let o = vec4<f32>(shx(y.x, 4u), shx(y.y, 4u), shx(y.z, 4u), shx(y.w, 4u)); y = select(y + o, o - y, (e & vec4<u32>(16u)) != vec4<u32>()) * 0.7071067811865476; }
      { let o = vec4<f32>(shx(y.x, 8u), shx(y.y, 8u), shx(y.z, 8u), shx(y.w, 8u)); y = select(y + o, o - y, (e & vec4<u32>(32u)) != vec4<u32>()) * 0.7071067811865476; }
      { let o = vec4<f32>(shx(y.x, 16u), shx(y.y, 16u), shx(y.z, 16u), shx(y.w, 16u)); y = select(y + o, o - y, (e & vec4<u32>(64u)) != vec4<u32>()) * 0.7071067811865476; }
      y *= random_signs(e, 2u - round);
    }
    out[row * 32u + lane] = y;
  }
}