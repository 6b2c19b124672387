//## Sums over the keys of each row of attention weights p: Σp, Σp·log2(p) and Σp², and Σp over sets of keys that say
//## what a head does (py_attn/findings has their definitions, and the papers). A workgroup for each row; its invocations
//## take every WORKGROUP-th key, and add up 8 of them by themselves, as a long sum would lose digits.
//## Negative weights count as 0.
//# include "lib/math.wgsl"

// Partial sums of each invocation: 3 vec4s, of which some places stay 0.
var<workgroup> partial_sums: array<array<vec4<f32>, 3>, WORKGROUP>;

/// p where the condition holds.
fn where_true(condition: bool, p: f32) -> f32 {
  return select(0.0, p, condition);
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let row = group.x + group.y * groups.x;
  if (row >= params.rows) {
    return;
  }
  let first = params.weights_first + row * params.keys;
  let i = i32(params.row_begin + row % params.rows_of_head * params.row_step);
  let own = identities[params.identities_first + u32(i)];
  var sums = array<vec4<f32>, 3>();
  var recent = array<vec4<f32>, 3>();
  var count = 0u;
  for (var key = thread_index; key < params.keys; key += WORKGROUP) {
    let j = i32(key);
    let p = max(weights[first + key], 0.0);
    let kind = kinds[params.kinds_first + key];
    let same = identities[params.identities_first + key] == own;
    let after_same = key > 0u && identities[params.identities_first + max(key, 1u) - 1u] == own;
    let distance = abs(i - j);
    recent[0] += vec4<f32>(p, where_true(p > 0.0, p * accurate_log2(p)), p * p, where_true(j == i - 1, p));
    recent[1] += vec4<f32>(
      where_true(j == i + 1, p),
      where_true(j == i, p),
      where_true(same && j != i, p),
      where_true(after_same && j < i && params.causal != 0u, p));
    recent[2] += vec4<f32>(
      where_true(j == 0, p),
      where_true((kind & {{ separator }}u) != 0u, p),
      where_true((kind & {{ punctuation }}u) != 0u, p),
      where_true(distance >= 1 && distance <= {{ nearby }}, p));
    count++;
    if (count % 8u == 0u) {
      for (var part = 0u; part < 3u; part++) {
        sums[part] += recent[part];
        recent[part] = vec4<f32>();
      }
    }
  }
  for (var part = 0u; part < 3u; part++) {
    partial_sums[thread_index][part] = sums[part] + recent[part];
  }
  workgroupBarrier();
  // One barrier, and then 12 sums, of sums of 8: on a CPU every barrier costs time.
  for (var n = thread_index; n < 12u; n += WORKGROUP) {
    var sum = 0.0;
    for (var eight = 0u; eight < WORKGROUP; eight += 8u) {
      var part = 0.0;
      for (var other = eight; other < eight + 8u; other++) {
        part += partial_sums[other][n / 4u][n % 4u];
      }
      sum += part;
    }
    out[row * 12u + n] = sum;
  }
}
