//## Rows of logits, one number for each token of a vocabulary. The invocations of a workgroup share a row: neighbours
//## take neighbouring vec4s where PACKED, which means that the rows' length and first element divide by 4, else
//## neighbouring numbers. Each invocation meets its ids in ascending order.
//##
//## A block for each of the invocation's ids from element `first` of `logits` on; in it x{0}, x{1}, … are the logits of
//## `id` in the rows of the given bindings. With `sum`, a block adds to `recent`, which is of `type`: each of thousands
//## of numbers would lose digits when added to the sum of all before it, so 16 iterations are added up by themselves.
//# macro over_vocabulary(rows, sum="", type="f32")
//# if sum
  var {{ sum }} = {{ type }}();
  {
  var recent = {{ type }}();
//# endif
//# if PACKED
  for (var i = thread_index; i < params.vocabulary / 4u; i += WORKGROUP) {
//#   for name, first in rows
    let four{{ loop.index0 }} = {{ name }}[({{ first }}) / 4u + i];
//#   endfor
//#   for c in range(4)
    {
      let id = 4u * i + {{ c }}u;
//#     for name, first in rows
      let x{{ loop.index0 }} = four{{ loop.index0 }}[{{ c }}];
//#     endfor
{{ caller() }}
    }
//#   endfor
//# else
  for (var i = thread_index; i < params.vocabulary; i += WORKGROUP) {
    let id = i;
//#   for name, first in rows
    let x{{ loop.index0 }} = {{ name }}[({{ first }}) + id];
//#   endfor
{{ caller() }}
//# endif
//# if sum
    if (i / WORKGROUP % 16u == 15u) {
      {{ sum }} += recent;
      recent = {{ type }}();
    }
//# endif
  }
//# if sum
  {{ sum }} += recent;
  }
//# endif
//# endmacro
//##
//## Functions on logits. Needs lib/math.wgsl.
//# macro logit_functions()
// The id of no token.
const NO_ID = 0xffffffffu;
const NO_TOKEN = vec2<u32>(0u, NO_ID);
const KEY_OF_MINUS_INFINITY = 0x007fffffu;

/// A number whose order among others is that of the logits. NaN is the largest, as for numpy's argmax, and the two
/// zeros are equal. No key is 0.
fn key_of(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let size = bits & 0x7fffffffu;
  let key = select(0x80000000u | size, ~bits, bits > 0x80000000u);
  return select(key, 0xffffffffu, size > 0x7f800000u);
}

/// The logit of a key.
fn logit_of(key: u32) -> f32 {
  return bitcast<f32>(select(~key, key ^ 0x80000000u, key >= 0x80000000u));
}

/// Whether there are probabilities: not where the largest logit is NaN or infinite, or all are minus infinity.
fn has_probabilities(largest: u32) -> bool {
  return is_finite(logit_of(largest));
}

/// exp(x - largest); exactly 0 for minus infinity.
fn weight_of(x: f32, largest: f32) -> f32 {
  return select(exp2((x - largest) * LOG2_E), 0.0, is_hidden(x));
}

fn minus_infinity() -> f32 {
  // WGSL refuses to compute infinities ahead, so it comes from a variable.
  var bits = 0xff800000u;
  return bitcast<f32>(bits);
}

/// The log-probability of a token with logit x; `log_sum` is the logarithm of the sum of all weights.
fn log_probability(x: f32, largest: u32, log_sum: f32) -> f32 {
  let value = select((x - logit_of(largest)) - log_sum, minus_infinity(), is_hidden(x));
  return select(not_a_number(), value, has_probabilities(largest));
}
//# endmacro
