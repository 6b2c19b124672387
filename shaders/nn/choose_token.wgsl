//## The next token of a text, from one row of logits: the likeliest, or with SAMPLED a random one by the Gumbel-max
//## trick (https://arxiv.org/abs/1411.0030, section 2): the argmax of logit / temperature + Gumbel noise is distributed
//## as softmax(logit / temperature). One workgroup in all, which also writes log-probabilities and advances the state.
//##
//## HAS_TOP_K and HAS_TOP_P leave only logits from a threshold on. Both thresholds are found by bisection over the keys
//## of logits (lib/vocabulary.wgsl), whose order is that of the logits, so that at most 32 rounds do.
//# from "lib/vocabulary.wgsl" import over_vocabulary, logit_functions with context
//# include "lib/math.wgsl"
//# include "lib/workgroup.wgsl"
//# include "lib/state.wgsl"
//# if SAMPLED
//# include "lib/gumbel.wgsl"
//# endif
{{ logit_functions() }}
//# set rows = [("logits", "params.logits_first")]
// The words of the state (py_attn/kernels/steps.py).
const POSITION = 0u;
const GIVEN = 1u;
const FINISHED = 2u;
const SEED = 3u;
var<workgroup> shared_state: vec4<u32>;
//# if HAS_ALTERNATIVES

/// The best of an invocation's pairs (key, id) that come after `last`.
fn best_after(last: vec2<u32>, thread_index: u32) -> vec2<u32> {
  var best = NO_TOKEN;
//# call over_vocabulary(rows)
  let key = key_of(x0);
  if (key > best.x && (key < last.x || (key == last.x && id > last.y))) {
    best = vec2<u32>(key, id);
  }
//# endcall
  return best;
}
//# endif
//# if SAMPLED

/// The weight of a logit at the temperature.
fn warm_weight_of(x: f32, largest: f32) -> f32 {
  return select(exp2((x - largest) * params.inverse_temperature * LOG2_E), 0.0, is_hidden(x));
}
//# endif

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) thread_index: u32) {
  if (thread_index == 0u) {
    let first = params.state_first;
    shared_state = vec4<u32>(
      state_position() + params.advance, state[first + GIVEN], state[first + FINISHED], state[first + SEED]);
  }
  let current = workgroupUniformLoad(&shared_state);
  let position = current[POSITION];
  if (current[FINISHED] != 0u || position >= params.length) {
    return;
  }
  let is_given = position < current[GIVEN];

  var best = NO_TOKEN;
//# if HAS_ALTERNATIVES
  // Each invocation's two best ones; nearly always these are all of its pairs among the ten best.
  var second = NO_TOKEN;
//# endif
//# call over_vocabulary(rows)
  let key = key_of(x0);
//#   if HAS_ALTERNATIVES
  if (key > second.x) {
    let pair = vec2<u32>(key, id);
    second = select(pair, best, key > best.x);
    best = select(best, pair, key > best.x);
  }
//#   else
  best = select(best, vec2<u32>(key, id), key > best.x);
//#   endif
//# endcall
  let top = best_over_workgroup(best, thread_index);
  let largest = logit_of(top.x);

//# call over_vocabulary(rows, "sum")
  recent += weight_of(x0, largest);
//# endcall
  let log_sum = LN_2 * accurate_log2(sums_over_workgroup(vec2<f32>(sum, 0.0), thread_index).x);

  var chosen = top.y;
//# if SAMPLED
  if (!is_given) {
    // Keys of logits that stay, and of the first one that is too large to be the threshold.
    var low = KEY_OF_MINUS_INFINITY;
    var high = top.x + 1u;
//#   if HAS_TOP_K
    for (var round = 0u; round < 32u; round++) {
      let middle = low + (high - low) / 2u;
      let threshold = logit_of(middle);
      var count = 0.0;
      if (low + 1u < high) {
//# call over_vocabulary(rows)
        count += select(0.0, 1.0, x0 >= threshold);
//# endcall
      }
      let staying = sums_over_workgroup(vec2<f32>(count, 0.0), thread_index).x;
      if (low + 1u < high) {
        low = select(low, middle, staying >= params.top_k);
        high = select(high, middle, staying < params.top_k);
        high = select(high, low + 1u, staying == params.top_k);
      }
    }
//#   endif
//#   if HAS_TOP_P
    let threshold_of_top_k = logit_of(low);
//# call over_vocabulary(rows, "warm_sum")
    if (x0 >= threshold_of_top_k) {
      recent += warm_weight_of(x0, largest);
    }
//# endcall
    let enough = params.top_p * sums_over_workgroup(vec2<f32>(warm_sum, 0.0), thread_index).x;
    high = top.x + 1u;
    for (var round = 0u; round < 32u; round++) {
      let middle = low + (high - low) / 2u;
      let threshold = logit_of(middle);
      var sum_of_staying = 0.0;
      if (low + 1u < high) {
//# call over_vocabulary(rows, "sum_of_some")
        if (x0 >= threshold) {
          recent += warm_weight_of(x0, largest);
        }
//# endcall
        sum_of_staying = sum_of_some;
      }
      let staying = sums_over_workgroup(vec2<f32>(sum_of_staying, 0.0), thread_index).x;
      if (low + 1u < high) {
        low = select(low, middle, staying >= enough);
        high = select(high, middle, staying < enough);
      }
    }
//#   endif
    let threshold = logit_of(low);
    var warmest = NO_TOKEN;
    // The likeliest token's score is not below this, so that smaller ones need no noise.
    var least = -3.0;
//# call over_vocabulary(rows)
    let warm = (x0 - largest) * params.inverse_temperature;
    if (x0 >= threshold && warm + MOST_NOISE > least && !is_hidden(x0)) {
      let score = warm + gumbel_noise(hash_of(current[SEED], position, id));
      let key = key_of(score);
      if (key > warmest.x) {
        warmest = vec2<u32>(key, id);
        least = max(least, score);
      }
    }
//# endcall
    warmest = best_over_workgroup(warmest, thread_index);
    // Without probabilities the first of the largest logits is chosen.
    chosen = select(chosen, warmest.y, has_probabilities(top.x));
  }
//# endif

//# if HAS_ALTERNATIVES
  // The best of all invocations' best ones, ten times; whose it was goes on to its next one.
  var has_second = true;
  for (var n = 0u; n < 10u; n++) {
    let next = best_over_workgroup(best, thread_index);
    if (best.y == next.y && next.y != NO_ID) {
      if (has_second) {
        best = second;
        has_second = false;
      } else {
        best = best_after(best, thread_index);
      }
    }
    if (thread_index == 0u) {
      let at = position * 10u + n;
      let value = log_probability(logit_of(next.x), top.x, log_sum);
      alternative_ids[params.alternative_ids_first + at] = next.y;
      alternative_log_probs[params.alternative_log_probs_first + at] =
        select(value, minus_infinity(), next.y == NO_ID);
    }
  }
//# endif
  if (thread_index == 0u) {
    var token = chosen;
    if (is_given) {
      token = tokens[params.tokens_first + position];
    } else {
      tokens[params.tokens_first + position] = token;
      let is_end = any(params.end_tokens_low == vec4<u32>(token)) || any(params.end_tokens_high == vec4<u32>(token));
      state[params.state_first + FINISHED] = select(0u, 1u, is_end);
    }
    var value = not_a_number();
    if (token < params.vocabulary) {
//# if PACKED
      let x = logits[(params.logits_first + token) / 4u][token % 4u];
//# else
      let x = logits[params.logits_first + token];
//# endif
      value = log_probability(x, top.x, log_sum);
    }
    log_probs[params.log_probs_first + position] = value;
    state[params.state_first + POSITION] = position;
  }
}
