//## Of each pair of rows of logits: the Kullback-Leibler divergence KL(a‖b) in nats, and the likeliest id of each. A
//## workgroup for each pair.
//##
//## Σ a·log(a/b) cancels where the distributions nearly agree. With r = log(a/b) it is also Σ (a·r - a + b), whose terms
//## a·(r - 1 + exp(-r)) are all positive.
//# from "lib/vocabulary.wgsl" import over_vocabulary, logit_functions with context
//# include "lib/math.wgsl"
//# include "lib/workgroup.wgsl"
{{ logit_functions() }}
//# set rows = [("logits_a", "params.logits_a_first + from_row"), ("logits_b", "params.logits_b_first + from_row")]

/// r - 1 + exp(-r) by its series, for |r| < 0.5.
fn near_zero(r: f32) -> f32 {
  let tail = -1.0 / 120.0 + r * (1.0 / 720.0 + r * (-1.0 / 5040.0 + r * (1.0 / 40320.0)));
  return r * r * (1.0 / 2.0 + r * (-1.0 / 6.0 + r * (1.0 / 24.0 + r * tail)));
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
  let from_row = row * params.vocabulary;
  var best_a = NO_TOKEN;
  var best_b = NO_TOKEN;
//# call over_vocabulary(rows)
  let key_a = key_of(x0);
  let key_b = key_of(x1);
  best_a = select(best_a, vec2<u32>(key_a, id), key_a > best_a.x);
  best_b = select(best_b, vec2<u32>(key_b, id), key_b > best_b.x);
//# endcall
  let top_a = best_over_workgroup(best_a, thread_index);
  let top_b = best_over_workgroup(best_b, thread_index);
  let largest_a = logit_of(top_a.x);
  let largest_b = logit_of(top_b.x);

//# call over_vocabulary(rows, "sums", "vec2<f32>")
  recent += vec2<f32>(weight_of(x0, largest_a), weight_of(x1, largest_b));
//# endcall
  let total = sums_over_workgroup(sums, thread_index);
  let log_ratio = LN_2 * (accurate_log2(total.y) - accurate_log2(total.x));

  // The divergence: its small terms, which would lose digits when added to large ones, and its few large ones. Between
  // them, how many tokens only b rules out.
//# call over_vocabulary(rows, "terms", "vec3<f32>")
  let a = weight_of(x0, largest_a) / total.x;
  let b = weight_of(x1, largest_b) / total.y;
  if (is_hidden(x0)) {
    recent.x += b;
  } else if (is_hidden(x1)) {
    recent.y += 1.0;
  } else {
    // Where a is 0, r may be anything finite.
    let r = (max(x0 - largest_a, -1e3) - max(x1 - largest_b, LOWEST)) + log_ratio;
    let term = select(fma(a, r, b - a), a * near_zero(r), abs(r) < 0.5);
    let is_small = term < 1.0 / 16.0;
    recent += vec3<f32>(select(0.0, term, is_small), 0.0, select(term, 0.0, is_small));
  }
//# endcall
  let divergence = sums_over_workgroup(terms.xy, thread_index);
  let large = sums_over_workgroup(vec2<f32>(terms.z, 0.0), thread_index).x;
  if (thread_index == 0u) {
    var value = select(divergence.x + large, -minus_infinity(), divergence.y > 0.0);
    value = select(not_a_number(), value, has_probabilities(top_a.x) && has_probabilities(top_b.x));
    out[3u * row] = value;
    out[3u * row + 1u] = f32(top_a.y);
    out[3u * row + 2u] = f32(top_b.y);
  }
}
