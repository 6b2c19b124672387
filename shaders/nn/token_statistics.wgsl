//## Of each row of logits: the target's log-probability, the likeliest id, and the entropy in nats. A workgroup for each
//## row.
//# from "lib/vocabulary.wgsl" import over_vocabulary, logit_functions with context
//# include "lib/math.wgsl"
//# include "lib/workgroup.wgsl"
{{ logit_functions() }}
//# set rows = [("logits", "row_first")]

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
  let row_first = params.logits_first + row * params.vocabulary;
  var best = NO_TOKEN;
//# call over_vocabulary(rows)
  let key = key_of(x0);
  best = select(best, vec2<u32>(key, id), key > best.x);
//# endcall
  let top = best_over_workgroup(best, thread_index);
  let largest = logit_of(top.x);

  // Of the weights, and of the weighted distances from the largest logit; far below it weights are 0.
//# call over_vocabulary(rows, "sums", "vec2<f32>")
  if (!is_hidden(x0)) {
    let weight = weight_of(x0, largest);
    recent += vec2<f32>(weight, weight * min(largest - x0, 1e3));
  }
//# endcall
  let total = sums_over_workgroup(sums, thread_index);
  if (thread_index == 0u) {
    let log_sum = LN_2 * accurate_log2(total.x);
    let target_id = targets[params.targets_first + row];
    var value = not_a_number();
    if (target_id < params.vocabulary) {
//# if PACKED
      let x = logits[(row_first + target_id) / 4u][target_id % 4u];
//# else
      let x = logits[row_first + target_id];
//# endif
      value = log_probability(x, top.x, log_sum);
    }
    out[3u * row] = value;
    out[3u * row + 1u] = f32(top.y);
    out[3u * row + 2u] = select(not_a_number(), log_sum + total.y / total.x, has_probabilities(top.x));
  }
}
