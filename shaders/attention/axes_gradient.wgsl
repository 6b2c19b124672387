//## The gradient of what is added to the scores, or looked up for them, by batch element, head, query and key: a mask,
//## or a tensor that score_mod indexes by some of these. An element's gradient is the sum over the axes that it is
//## broadcast along, which LANES invocations and params.parts workgroups share; the order of the sum is fixed.
//##
//## Needs: `factor`, what a score's gradient is multiplied by. params.shape and params.strides are those of the result
//## along [B, Hq, Sq, Sk], params.sums the lengths of the axes that are summed up, else 1.
//# include "lib/score_gradient.wgsl"
// A sum of sums loses fewer digits than one long sum.
const TERMS_OF_A_SUM = 64u;
//# if LANES > 1
var<workgroup> sums: array<f32, WORKGROUP>;
//# endif

/// Place n of an array of this shape, the last axis first.
fn place(n: u32, shape: vec4<u32>) -> vec4<u32> {
  return vec4<u32>(n / shape.w / shape.z / shape.y, n / shape.w / shape.z % shape.y, n / shape.w % shape.z, n % shape.w);
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let work = workgroup.x + workgroup.y * workgroups.x;
  let part = work % params.parts;
  let element = work / params.parts * (WORKGROUP / LANES) + thread_index / LANES;
  let own = place(element, params.shape);
  let count = params.sums.x * params.sums.y * params.sums.z * params.sums.w;
  var total = 0.0;
  // A tensor may be longer than the axis that it is indexed by.
  if (element < params.elements && all(own < vec4<u32>(params.batch, params.heads, params.queries, params.keys))) {
    var sum = 0.0;
    var terms = 0u;
    for (var n = part * LANES + thread_index % LANES; n < count; n += params.parts * LANES) {
      let at = own + place(n, params.sums);
      let found = score_gradient(sequence(at.x), at.y, at.z, at.w);
      // Nothing comes from a hidden score, whatever the factor is there.
      sum += select({{ factor.format("found.score, i32(at.x), i32(at.y), i32(at.z), i32(at.w)") }} * found.gradient, 0.0, found.gradient == 0.0);
      terms++;
      if (terms % TERMS_OF_A_SUM == 0u) {
        total += sum;
        sum = 0.0;
      }
    }
    total += sum;
  }
//# if LANES > 1
  sums[thread_index] = total;
  workgroupBarrier();
  for (var half = LANES / 2u; half > 0u; half /= 2u) {
    if (thread_index < half) {
      sums[thread_index] += sums[thread_index + half];
    }
    workgroupBarrier();
  }
  if (thread_index == 0u && element < params.elements) {
    out[part * params.part_length + dot(own, params.strides)] = sums[0];
  }
//# else
  if (element < params.elements) {
    out[part * params.part_length + dot(own, params.strides)] = total;
  }
//# endif
}
