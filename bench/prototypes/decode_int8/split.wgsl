// A prototype (README.md): decode over 4-bit codes with subgroup matrices of int8, for 4 query rows of each of 8 key/value
// heads, D 128, 32,768 keys; a workgroup of four subgroups takes 512 keys, in tiles of 128 that the subgroups share.
enable subgroups;
enable chromium_experimental_subgroup_matrix;
requires subgroup_id;

alias Left = subgroup_matrix_left<i8, 32, 16>;
alias Right = subgroup_matrix_right<i8, 16, 32>;
alias Result = subgroup_matrix_result<i32, 16, 16>;
fn shx(x: f32, k: u32) -> f32 { return subgroupShuffleXor(x, k); }

@group(0) @binding(0) var<storage, read> query: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kcodes: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> kscale: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> vcodes: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> vscale: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> out_rows: array<vec2<f32>>;
// The query's bytes, then weights' bytes of a tile; behind them what each subgroup stages.
var<workgroup> mem: array<vec4<u32>, 748>;
// Of each subgroup and row: maximum, sum, largest weighted value; first the rows' factors.
var<workgroup> stats: array<vec4<f32>, 16>;

// The bytes 0, 1 and 2 of four words, each four to a word.
fn bytes_of(t: vec4<u32>) -> vec3<u32> {
  let x01 = (t.x & 0x00ff00ffu) | ((t.y << 8u) & 0xff00ff00u);
  let x23 = (t.z & 0x00ff00ffu) | ((t.w << 8u) & 0xff00ff00u);
  let y01 = ((t.x >> 8u) & 0xffu) | (t.y & 0xff00u);
  let y23 = ((t.z >> 8u) & 0xffu) | (t.w & 0xff00u);
  return vec3<u32>((x01 & 0xffffu) | (x23 << 16u), y01 | (y23 << 16u), (x01 >> 16u) | (x23 & 0xffff0000u));
}

fn random_signs(e: vec4<u32>, round: u32) -> vec4<f32> {
  var x = e + vec4<u32>(round * 128u + 2654435769u);
  x = (x ^ (x >> vec4<u32>(16u))) * 0x7feb352du;
  x = (x ^ (x >> vec4<u32>(15u))) * 0x846ca68bu;
  x ^= x >> vec4<u32>(16u);
  return 1.0 - 2.0 * vec4<f32>(x & vec4<u32>(1u));
}
fn rotate(v: vec4<f32>, lane: u32) -> vec4<f32> {
  var y = v;
  let e = 4u * lane + vec4<u32>(0u, 1u, 2u, 3u);
  for (var round = 0u; round < 3u; round++) {
    y *= random_signs(e, round);
    { let o = vec4<f32>(shx(y.x, 16u), shx(y.y, 16u), shx(y.z, 16u), shx(y.w, 16u)); y = select(y + o, o - y, (e & vec4<u32>(64u)) != vec4<u32>()); }
    { let o = vec4<f32>(shx(y.x, 8u), shx(y.y, 8u), shx(y.z, 8u), shx(y.w, 8u)); y = select(y + o, o - y, (e & vec4<u32>(32u)) != vec4<u32>()); }
    { let o = vec4<f32>(shx(y.x, 4u), shx(y.y, 4u), shx(y.z, 4u), shx(y.w, 4u)); y = select(y + o, o - y, (e & vec4<u32>(16u)) != vec4<u32>()); }
    { let o = vec4<f32>(shx(y.x, 2u), shx(y.y, 2u), shx(y.z, 2u), shx(y.w, 2u)); y = select(y + o, o - y, (e & vec4<u32>(8u)) != vec4<u32>()); }
    { let o = vec4<f32>(shx(y.x, 1u), shx(y.y, 1u), shx(y.z, 1u), shx(y.w, 1u)); y = select(y + o, o - y, (e & vec4<u32>(4u)) != vec4<u32>()); }
    { let o = y.zwxy; y = select(y + o, o - y, (e & vec4<u32>(2u)) != vec4<u32>()); }
    { let o = y.yxwz; y = select(y + o, o - y, (e & vec4<u32>(1u)) != vec4<u32>()); }
  }
  return y * 0.000690533966002487;
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(subgroup_id) warp_: u32, @builtin(subgroup_invocation_id) lane_: u32) {
  let warp = warp_ % 4u; let lane = lane_ % 32u;
  // 0, which the compiler does not know: two known constants would take another instruction.
  let zero = wg.y;
  let lowest = i32(zero); let highest = 32767 + lowest;
  let c08 = vec4<u32>(0x08080808u | zero);
  let head = wg.x / 64u;
  let split = wg.x % 64u;
  let r = lane / 8u;
  let quad = lane % 8u;
  let stage = 108u + warp * 160u;
  let own_stage = stage + (lane / 4u) * 9u + (lane % 4u) * 2u;
  let own_score = stage + r * 10u + quad;
  let first = head * 32768u + split * 512u;
  let kbase = (first + warp * 32u) * 4u + lane;
  let sbase = first / 4u + warp * 8u + quad;
  let vbase = first * 4u + warp * 128u + lane;

  var k0_0 = vec4<u32>(); var k0_1 = vec4<u32>();
  var k1_0 = vec4<u32>(); var k1_1 = vec4<u32>();
  var k2_0 = vec4<u32>(); var k2_1 = vec4<u32>();
  var k3_0 = vec4<u32>(); var k3_1 = vec4<u32>();
  var k4_0 = vec4<u32>(); var k4_1 = vec4<u32>();
  var k5_0 = vec4<u32>(); var k5_1 = vec4<u32>();
  var k6_0 = vec4<u32>(); var k6_1 = vec4<u32>();
  var k7_0 = vec4<u32>(); var k7_1 = vec4<u32>();
  var v0_0 = vec4<u32>(); var v0_1 = vec4<u32>();
  var v1_0 = vec4<u32>(); var v1_1 = vec4<u32>();
  var v2_0 = vec4<u32>(); var v2_1 = vec4<u32>();
  var v3_0 = vec4<u32>(); var v3_1 = vec4<u32>();
  var v4_0 = vec4<u32>(); var v4_1 = vec4<u32>();
  var v5_0 = vec4<u32>(); var v5_1 = vec4<u32>();
  var v6_0 = vec4<u32>(); var v6_1 = vec4<u32>();
  var v7_0 = vec4<u32>(); var v7_1 = vec4<u32>();
  k0_0 = kcodes[kbase + 0u]; k0_1 = kcodes[kbase + 32u];
  k1_0 = kcodes[kbase + 64u]; k1_1 = kcodes[kbase + 96u];
  k2_0 = kcodes[kbase + 512u]; k2_1 = kcodes[kbase + 544u];

  {
    var q = query[(head * 4u + warp) * 32u + lane] * 0.12751743f;
    q = rotate(q, lane);
    let a4 = abs(q);
    var top = max(max(a4.x, a4.y), max(a4.z, a4.w));
    top = max(top, shx(top, 1u)); top = max(top, shx(top, 2u)); top = max(top, shx(top, 4u)); top = max(top, shx(top, 8u)); top = max(top, shx(top, 16u));
    top = max(top, 1e-30);
    let n = vec4<i32>(round(q * (8355584.0 / top)));
    let words = bytes_of(bitcast<vec4<u32>>(n) + vec4<u32>(0x808080u)) ^ vec3<u32>(0x80808080u);
    mem[warp * 9u + lane / 4u][lane % 4u] = words.x;
    mem[(4u + warp) * 9u + lane / 4u][lane % 4u] = words.y;
    mem[(8u + warp) * 9u + lane / 4u][lane % 4u] = words.z;
    stats[warp].w = top * 7.480027727565182e-9f;
  }
  workgroupBarrier();
  let factor = stats[r].w;
  let q_0 = subgroupMatrixLoad<Left, row_major>(&mem, 0u, 9u);
  let q_1 = subgroupMatrixLoad<Left, row_major>(&mem, 2u, 9u);
  let q_2 = subgroupMatrixLoad<Left, row_major>(&mem, 4u, 9u);
  let q_3 = subgroupMatrixLoad<Left, row_major>(&mem, 6u, 9u);
  workgroupBarrier();
  var high = -3.0e38;

  var s_0 = vec4<f32>();
  var s_1 = vec4<f32>();
  var s_2 = vec4<f32>();
  var s_3 = vec4<f32>();
  // keys of tile 0, part 0
    { mem[own_stage + 0u] = ((k0_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((k0_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((k0_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((k0_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    k3_0 = kcodes[kbase + 576u]; k3_1 = kcodes[kbase + 608u];
    let ks_0 = kscale[sbase + 0u];
    workgroupBarrier();
    var r0_0 = Result();
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); r0_0 = subgroupMatrixMultiplyAccumulate(q_0, b, r0_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); r0_0 = subgroupMatrixMultiplyAccumulate(q_1, b, r0_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); r0_0 = subgroupMatrixMultiplyAccumulate(q_2, b, r0_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); r0_0 = subgroupMatrixMultiplyAccumulate(q_3, b, r0_0); }
    workgroupBarrier();
  // keys of tile 0, part 1
    { mem[own_stage + 0u] = ((k1_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((k1_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((k1_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((k1_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    k4_0 = kcodes[kbase + 1024u]; k4_1 = kcodes[kbase + 1056u];
    workgroupBarrier();
    var r0_1 = Result();
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); r0_1 = subgroupMatrixMultiplyAccumulate(q_0, b, r0_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); r0_1 = subgroupMatrixMultiplyAccumulate(q_1, b, r0_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); r0_1 = subgroupMatrixMultiplyAccumulate(q_2, b, r0_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); r0_1 = subgroupMatrixMultiplyAccumulate(q_3, b, r0_1); }
    subgroupMatrixStore<row_major>(&mem, stage + 0u, r0_0, 10u);
    subgroupMatrixStore<row_major>(&mem, stage + 4u, r0_1, 10u);
    workgroupBarrier();
    {
      let s2 = bitcast<vec4<i32>>(mem[own_score + 80u]);
      let s1 = bitcast<vec4<i32>>(mem[own_score + 40u]);
      let s0 = bitcast<vec4<i32>>(mem[own_score]);
      s_0 = fma(vec4<f32>(s2), vec4<f32>(65536.0), vec4<f32>(s1 * 256 + s0)) * factor * ks_0;
      { let key = vec4<i32>(i32(split * 512u + 0u + warp * 32u + quad * 4u)) + vec4<i32>(0, 1, 2, 3); s_0 = select(vec4<f32>(-3.0e38), s_0, (key >= vec4<i32>(lowest)) & (key <= vec4<i32>(highest))); }
      high = max(high, max(max(s_0.x, s_0.y), max(s_0.z, s_0.w)));
    }
    workgroupBarrier();
  // keys of tile 1, part 0
    { mem[own_stage + 0u] = ((k2_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((k2_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((k2_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((k2_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    k5_0 = kcodes[kbase + 1088u]; k5_1 = kcodes[kbase + 1120u];
    let ks_1 = kscale[sbase + 32u];
    workgroupBarrier();
    var r1_0 = Result();
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); r1_0 = subgroupMatrixMultiplyAccumulate(q_0, b, r1_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); r1_0 = subgroupMatrixMultiplyAccumulate(q_1, b, r1_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); r1_0 = subgroupMatrixMultiplyAccumulate(q_2, b, r1_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); r1_0 = subgroupMatrixMultiplyAccumulate(q_3, b, r1_0); }
    workgroupBarrier();
  // keys of tile 1, part 1
    { mem[own_stage + 0u] = ((k3_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((k3_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((k3_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((k3_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    k6_0 = kcodes[kbase + 1536u]; k6_1 = kcodes[kbase + 1568u];
    workgroupBarrier();
    var r1_1 = Result();
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); r1_1 = subgroupMatrixMultiplyAccumulate(q_0, b, r1_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); r1_1 = subgroupMatrixMultiplyAccumulate(q_1, b, r1_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); r1_1 = subgroupMatrixMultiplyAccumulate(q_2, b, r1_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); r1_1 = subgroupMatrixMultiplyAccumulate(q_3, b, r1_1); }
    subgroupMatrixStore<row_major>(&mem, stage + 0u, r1_0, 10u);
    subgroupMatrixStore<row_major>(&mem, stage + 4u, r1_1, 10u);
    workgroupBarrier();
    {
      let s2 = bitcast<vec4<i32>>(mem[own_score + 80u]);
      let s1 = bitcast<vec4<i32>>(mem[own_score + 40u]);
      let s0 = bitcast<vec4<i32>>(mem[own_score]);
      s_1 = fma(vec4<f32>(s2), vec4<f32>(65536.0), vec4<f32>(s1 * 256 + s0)) * factor * ks_1;
      { let key = vec4<i32>(i32(split * 512u + 128u + warp * 32u + quad * 4u)) + vec4<i32>(0, 1, 2, 3); s_1 = select(vec4<f32>(-3.0e38), s_1, (key >= vec4<i32>(lowest)) & (key <= vec4<i32>(highest))); }
      high = max(high, max(max(s_1.x, s_1.y), max(s_1.z, s_1.w)));
    }
    workgroupBarrier();
  // keys of tile 2, part 0
    { mem[own_stage + 0u] = ((k4_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((k4_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((k4_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((k4_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    k7_0 = kcodes[kbase + 1600u]; k7_1 = kcodes[kbase + 1632u];
    let ks_2 = kscale[sbase + 64u];
    workgroupBarrier();
    var r2_0 = Result();
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); r2_0 = subgroupMatrixMultiplyAccumulate(q_0, b, r2_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); r2_0 = subgroupMatrixMultiplyAccumulate(q_1, b, r2_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); r2_0 = subgroupMatrixMultiplyAccumulate(q_2, b, r2_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); r2_0 = subgroupMatrixMultiplyAccumulate(q_3, b, r2_0); }
    workgroupBarrier();
  // keys of tile 2, part 1
    { mem[own_stage + 0u] = ((k5_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((k5_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((k5_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((k5_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }

    workgroupBarrier();
    var r2_1 = Result();
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); r2_1 = subgroupMatrixMultiplyAccumulate(q_0, b, r2_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); r2_1 = subgroupMatrixMultiplyAccumulate(q_1, b, r2_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); r2_1 = subgroupMatrixMultiplyAccumulate(q_2, b, r2_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); r2_1 = subgroupMatrixMultiplyAccumulate(q_3, b, r2_1); }
    subgroupMatrixStore<row_major>(&mem, stage + 0u, r2_0, 10u);
    subgroupMatrixStore<row_major>(&mem, stage + 4u, r2_1, 10u);
    workgroupBarrier();
    {
      let s2 = bitcast<vec4<i32>>(mem[own_score + 80u]);
      let s1 = bitcast<vec4<i32>>(mem[own_score + 40u]);
      let s0 = bitcast<vec4<i32>>(mem[own_score]);
      s_2 = fma(vec4<f32>(s2), vec4<f32>(65536.0), vec4<f32>(s1 * 256 + s0)) * factor * ks_2;
      { let key = vec4<i32>(i32(split * 512u + 256u + warp * 32u + quad * 4u)) + vec4<i32>(0, 1, 2, 3); s_2 = select(vec4<f32>(-3.0e38), s_2, (key >= vec4<i32>(lowest)) & (key <= vec4<i32>(highest))); }
      high = max(high, max(max(s_2.x, s_2.y), max(s_2.z, s_2.w)));
    }
    workgroupBarrier();
  // keys of tile 3, part 0
    { mem[own_stage + 0u] = ((k6_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((k6_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((k6_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((k6_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    let ks_3 = kscale[sbase + 96u];
    workgroupBarrier();
    var r3_0 = Result();
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); r3_0 = subgroupMatrixMultiplyAccumulate(q_0, b, r3_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); r3_0 = subgroupMatrixMultiplyAccumulate(q_1, b, r3_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); r3_0 = subgroupMatrixMultiplyAccumulate(q_2, b, r3_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); r3_0 = subgroupMatrixMultiplyAccumulate(q_3, b, r3_0); }
    workgroupBarrier();
  // keys of tile 3, part 1
    { mem[own_stage + 0u] = ((k7_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((k7_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((k7_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((k7_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }

    workgroupBarrier();
    var r3_1 = Result();
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); r3_1 = subgroupMatrixMultiplyAccumulate(q_0, b, r3_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); r3_1 = subgroupMatrixMultiplyAccumulate(q_1, b, r3_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); r3_1 = subgroupMatrixMultiplyAccumulate(q_2, b, r3_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); r3_1 = subgroupMatrixMultiplyAccumulate(q_3, b, r3_1); }
    subgroupMatrixStore<row_major>(&mem, stage + 0u, r3_0, 10u);
    subgroupMatrixStore<row_major>(&mem, stage + 4u, r3_1, 10u);
    workgroupBarrier();
    {
      let s2 = bitcast<vec4<i32>>(mem[own_score + 80u]);
      let s1 = bitcast<vec4<i32>>(mem[own_score + 40u]);
      let s0 = bitcast<vec4<i32>>(mem[own_score]);
      s_3 = fma(vec4<f32>(s2), vec4<f32>(65536.0), vec4<f32>(s1 * 256 + s0)) * factor * ks_3;
      { let key = vec4<i32>(i32(split * 512u + 384u + warp * 32u + quad * 4u)) + vec4<i32>(0, 1, 2, 3); s_3 = select(vec4<f32>(-3.0e38), s_3, (key >= vec4<i32>(lowest)) & (key <= vec4<i32>(highest))); }
      high = max(high, max(max(s_3.x, s_3.y), max(s_3.z, s_3.w)));
    }
    workgroupBarrier();
  v0_0 = vcodes[vbase + 0u]; v0_1 = vcodes[vbase + 32u];
  v1_0 = vcodes[vbase + 64u]; v1_1 = vcodes[vbase + 96u];
  v2_0 = vcodes[vbase + 512u]; v2_1 = vcodes[vbase + 544u];

  let vs_0 = vscale[sbase + 0u]; let vs_1 = vscale[sbase + 32u]; let vs_2 = vscale[sbase + 64u]; let vs_3 = vscale[sbase + 96u];
  high = max(high, shx(high, 1u)); high = max(high, shx(high, 2u)); high = max(high, shx(high, 4u));
  var sum4 = vec4<f32>();
  var top4 = vec4<f32>();
  s_0 = exp2(s_0 - high); sum4 += s_0; s_0 *= vs_0; top4 = max(top4, s_0);
  s_1 = exp2(s_1 - high); sum4 += s_1; s_1 *= vs_1; top4 = max(top4, s_1);
  s_2 = exp2(s_2 - high); sum4 += s_2; s_2 *= vs_2; top4 = max(top4, s_2);
  s_3 = exp2(s_3 - high); sum4 += s_3; s_3 *= vs_3; top4 = max(top4, s_3);
  var sum = (sum4.x + sum4.y) + (sum4.z + sum4.w);
  var top = max(max(top4.x, top4.y), max(top4.z, top4.w));
  let wsum = 0.0;
  sum += shx(sum, 1u); top = max(top, shx(top, 1u)); sum += shx(sum, 2u); top = max(top, shx(top, 2u)); sum += shx(sum, 4u); top = max(top, shx(top, 4u));
  if (quad == 0u) { stats[warp * 4u + r] = vec4<f32>(high, sum, top, wsum); }
  workgroupBarrier();
  let x_0 = stats[r]; let x_1 = stats[4u + r]; let x_2 = stats[8u + r]; let x_3 = stats[12u + r];
  let all_high = max(max(x_0.x, x_1.x), max(x_2.x, x_3.x));
  let f4 = exp2(vec4<f32>(x_0.x, x_1.x, x_2.x, x_3.x) - all_high);
  let all_sum = dot(f4, vec4<f32>(x_0.y, x_1.y, x_2.y, x_3.y));
  let t4 = f4 * vec4<f32>(x_0.z, x_1.z, x_2.z, x_3.z);
  let all_top = max(max(max(t4.x, t4.y), max(t4.z, t4.w)), 1e-30);
  let to_int = exp2(high - all_high) * (8355584.0 / all_top);
  let own_weight = r * 9u + warp * 2u + quad / 4u;
  let own_part = quad % 4u;
  var acc_0 = Result(); var acc_1 = Result();
  var w_0 = Left(); var w_1 = Left(); var w_2 = Left(); var w_3 = Left();

  { // values of tile 0, part 0
    {
      let words = bytes_of(bitcast<vec4<u32>>(fma(s_0, vec4<f32>(to_int), vec4<f32>(8388608.0))) + vec4<u32>(0x8080u));
      mem[own_weight][own_part] = words.x ^ 0x80808080u;
      mem[own_weight + 36u][own_part] = words.y ^ 0x80808080u;
      mem[own_weight + 72u][own_part] = words.z;
    }
    { mem[own_stage + 0u] = ((v0_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((v0_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((v0_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((v0_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    v3_0 = vcodes[vbase + 576u]; v3_1 = vcodes[vbase + 608u];
    workgroupBarrier();
    w_0 = subgroupMatrixLoad<Left, row_major>(&mem, 0u, 9u);
    w_1 = subgroupMatrixLoad<Left, row_major>(&mem, 2u, 9u);
    w_2 = subgroupMatrixLoad<Left, row_major>(&mem, 4u, 9u);
    w_3 = subgroupMatrixLoad<Left, row_major>(&mem, 6u, 9u);
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_0, b, acc_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_1, b, acc_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_2, b, acc_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_3, b, acc_0); }
    workgroupBarrier();
  }
  { // values of tile 0, part 1
    { mem[own_stage + 0u] = ((v1_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((v1_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((v1_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((v1_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    v4_0 = vcodes[vbase + 1024u]; v4_1 = vcodes[vbase + 1056u];
    workgroupBarrier();
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_0, b, acc_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_1, b, acc_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_2, b, acc_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_3, b, acc_1); }
    workgroupBarrier();
  }
  { // values of tile 1, part 0
    {
      let words = bytes_of(bitcast<vec4<u32>>(fma(s_1, vec4<f32>(to_int), vec4<f32>(8388608.0))) + vec4<u32>(0x8080u));
      mem[own_weight][own_part] = words.x ^ 0x80808080u;
      mem[own_weight + 36u][own_part] = words.y ^ 0x80808080u;
      mem[own_weight + 72u][own_part] = words.z;
    }
    { mem[own_stage + 0u] = ((v2_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((v2_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((v2_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((v2_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    v5_0 = vcodes[vbase + 1088u]; v5_1 = vcodes[vbase + 1120u];
    workgroupBarrier();
    w_0 = subgroupMatrixLoad<Left, row_major>(&mem, 0u, 9u);
    w_1 = subgroupMatrixLoad<Left, row_major>(&mem, 2u, 9u);
    w_2 = subgroupMatrixLoad<Left, row_major>(&mem, 4u, 9u);
    w_3 = subgroupMatrixLoad<Left, row_major>(&mem, 6u, 9u);
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_0, b, acc_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_1, b, acc_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_2, b, acc_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_3, b, acc_0); }
    workgroupBarrier();
  }
  { // values of tile 1, part 1
    { mem[own_stage + 0u] = ((v3_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((v3_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((v3_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((v3_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    v6_0 = vcodes[vbase + 1536u]; v6_1 = vcodes[vbase + 1568u];
    workgroupBarrier();
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_0, b, acc_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_1, b, acc_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_2, b, acc_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_3, b, acc_1); }
    workgroupBarrier();
  }
  { // values of tile 2, part 0
    {
      let words = bytes_of(bitcast<vec4<u32>>(fma(s_2, vec4<f32>(to_int), vec4<f32>(8388608.0))) + vec4<u32>(0x8080u));
      mem[own_weight][own_part] = words.x ^ 0x80808080u;
      mem[own_weight + 36u][own_part] = words.y ^ 0x80808080u;
      mem[own_weight + 72u][own_part] = words.z;
    }
    { mem[own_stage + 0u] = ((v4_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((v4_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((v4_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((v4_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    v7_0 = vcodes[vbase + 1600u]; v7_1 = vcodes[vbase + 1632u];
    workgroupBarrier();
    w_0 = subgroupMatrixLoad<Left, row_major>(&mem, 0u, 9u);
    w_1 = subgroupMatrixLoad<Left, row_major>(&mem, 2u, 9u);
    w_2 = subgroupMatrixLoad<Left, row_major>(&mem, 4u, 9u);
    w_3 = subgroupMatrixLoad<Left, row_major>(&mem, 6u, 9u);
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_0, b, acc_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_1, b, acc_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_2, b, acc_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_3, b, acc_0); }
    workgroupBarrier();
  }
  { // values of tile 2, part 1
    { mem[own_stage + 0u] = ((v5_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((v5_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((v5_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((v5_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    workgroupBarrier();
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_0, b, acc_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_1, b, acc_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_2, b, acc_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_3, b, acc_1); }
    workgroupBarrier();
  }
  { // values of tile 3, part 0
    {
      let words = bytes_of(bitcast<vec4<u32>>(fma(s_3, vec4<f32>(to_int), vec4<f32>(8388608.0))) + vec4<u32>(0x8080u));
      mem[own_weight][own_part] = words.x ^ 0x80808080u;
      mem[own_weight + 36u][own_part] = words.y ^ 0x80808080u;
      mem[own_weight + 72u][own_part] = words.z;
    }
    { mem[own_stage + 0u] = ((v6_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((v6_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((v6_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((v6_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    workgroupBarrier();
    w_0 = subgroupMatrixLoad<Left, row_major>(&mem, 0u, 9u);
    w_1 = subgroupMatrixLoad<Left, row_major>(&mem, 2u, 9u);
    w_2 = subgroupMatrixLoad<Left, row_major>(&mem, 4u, 9u);
    w_3 = subgroupMatrixLoad<Left, row_major>(&mem, 6u, 9u);
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_0, b, acc_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_1, b, acc_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_2, b, acc_0); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); acc_0 = subgroupMatrixMultiplyAccumulate(w_3, b, acc_0); }
    workgroupBarrier();
  }
  { // values of tile 3, part 1
    { mem[own_stage + 0u] = ((v7_0 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 0u + 1u] = (((v7_0 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    { mem[own_stage + 72u] = ((v7_1 & vec4<u32>(0xf0f0f0f0u)) | c08); mem[own_stage + 72u + 1u] = (((v7_1 << vec4<u32>(4u)) & vec4<u32>(0xf0f0f0f0u)) | c08); }
    workgroupBarrier();
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 0u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_0, b, acc_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 2u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_1, b, acc_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 4u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_2, b, acc_1); }
    { let b = subgroupMatrixLoad<Right, col_major>(&mem, stage + 6u, 9u); acc_1 = subgroupMatrixMultiplyAccumulate(w_3, b, acc_1); }
  }
  let end_factor = all_top / (all_sum * 133689344.0);
  subgroupMatrixStore<row_major>(&mem, stage, acc_0, 10u);
  subgroupMatrixStore<row_major>(&mem, stage + 4u, acc_1, 10u);
  workgroupBarrier();
  {
    let s2 = vec4<f32>(bitcast<vec4<i32>>(mem[own_score + 80u]));
    let s1 = vec4<f32>(bitcast<vec4<i32>>(mem[own_score + 40u]));
    let s0 = vec4<f32>(bitcast<vec4<i32>>(mem[own_score]));
    let o = fma(s2, vec4<f32>(65536.0), fma(s1, vec4<f32>(256.0), s0)) * end_factor;
    out[((head * 4u + r) * 64u + split) * 32u + warp * 8u + quad] = o;
  }
  if ((warp == 0u) & (quad == 0u)) { out_rows[(head * 4u + r) * 64u + split] = vec2<f32>(all_high, all_sum); }
}