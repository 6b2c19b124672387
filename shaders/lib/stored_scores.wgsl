//## Where the gradients of scores lie that attention/backward.wgsl stores and attention/backward_product.wgsl reads: a
//## block for each sequence of each head of the launch, params.stored_length vec4s for a head. A block has a row for
//## each key, with the query innermost. Where the window ends at the right, under a causal mask say, a row begins with
//## the four queries of which the last or an earlier one is the first to see the key, so that the block is about a
//## triangle. stored_vec4s in py_attn/kernels/attention/stored.py has its size.
//## Needs lib/sequences.wgsl and `hides`, which is true where there is a window.

/// How many vec4s the queries of a sequence take.
fn query_fours(at: Sequence) -> u32 {
  return (at.queries + 3u) / 4u;
}
//# if hides

/// How many queries the key at j lies too far to the right for.
fn queries_before(at: Sequence, j: u32) -> u32 {
  return u32(max(0, i32(j) - at.shift - params.window_right));
}

/// The sum of n / 4, rounded down, over all n below `count`.
fn sum_of_fours(count: u32) -> u32 {
  let fours = count / 4u;
  return fours * (2u * fours + count % 4u - 2u);
}
//# endif

/// The first four queries in key j's row.
fn first_four(at: Sequence, j: u32) -> u32 {
  return {{ "queries_before(at, j) / 4u" if hides else "0u" }};
}

/// Where queries 0 … 3 would lie in key j's row in the memory of a head. What all rows up to j leave out is a sum of
/// quarters; numbers below 0 in between wrap around, and back.
fn stored_row(at: Sequence, j: u32) -> u32 {
  return at.scores + j * query_fours(at){{ " + sum_of_fours(queries_before(at, 0u)) - sum_of_fours(queries_before(at, j) + 1u)" if hides }};
}
