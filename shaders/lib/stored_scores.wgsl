//## Where the gradients of scores lie that attention/backward.wgsl stores and attention/backward_product.wgsl reads: a
//## block for each sequence of each head of the launch, params.stored_length vec4s for a head. A block has a row for
//## each key, with the query innermost.
//## Needs lib/sequences.wgsl.

/// How many vec4s the queries of a sequence take.
fn query_fours(at: Sequence) -> u32 {
  return (at.queries + 3u) / 4u;
}

/// Where key j's row begins in the memory of a head.
fn stored_row(at: Sequence, j: u32) -> u32 {
  return at.scores + j * query_fours(at);
}
