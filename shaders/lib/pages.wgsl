//## Where the entries of a paged cache lie: a binding `block_table` [B, max_blocks] says in which block of the pool
//## [blocks, heads, BLOCK_SIZE] each run of BLOCK_SIZE slots of a batch element is (PagedAttention, Kwon et al., arXiv
//## 2309.06180). Needs PAGE_PARAMS of kernels/decode/pages.py and params.capacity.

/// The block of a slot; params.blocks or more where the table has none.
fn block_of(b: u32, slot: u32) -> u32 {
  let at = vec2<u32>(b, min(slot, params.capacity - 1u) / BLOCK_SIZE);
  return block_table[params.block_table_first + dot(params.block_table_strides, at)];
}

/// The row of the pool where a slot of a head lies; always one of the pool's.
fn page_row(b: u32, head: u32, heads: u32, slot: u32) -> u32 {
  return (min(block_of(b, slot), params.blocks - 1u) * heads + head) * BLOCK_SIZE + slot % BLOCK_SIZE;
}
