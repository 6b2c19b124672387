//## Where the entries of a KV cache lie and which positions they are.
//## Needs: `has_kept` (bool): whether the first params.kept entries stay when the others make room, as
//## StreamingLLM's sink tokens do (arXiv 2309.17453); the others lie in a ring behind them.

/// The slot of entry j of the cache, the oldest being entry 0.
fn cache_slot(j: u32) -> u32 {
  let slot = params.start + j;
//# if has_kept
  if (j < params.kept) {
    return j;
  }
//# endif
//# if has_kept
  return select(slot, slot - (params.capacity - params.kept), slot >= params.capacity);
//# else
  // Before the ring's end the difference wraps around to a far larger number.
  return min(slot, slot - params.capacity);
//# endif
}

/// The entry whose number among the visible ones is e - params.first_key, for e from params.first_key to params.keys:
/// where a window hides the entries before, the kept ones come first.
fn visible_entry(e: u32) -> u32 {
//# if has_kept
  return select(e, e - params.first_key, e < params.first_key + params.kept);
//# else
  return e;
//# endif
}
