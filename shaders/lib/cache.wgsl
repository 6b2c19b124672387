//## Where the entries of a KV cache lie and which positions they are.
//## Needs: `has_kept` (bool): whether the first params.kept entries stay when the others make room, as
//## StreamingLLM's sink tokens do (arXiv 2309.17453); the others lie in a ring behind them. And `has_state` (bool):
//## whether the newest entry is that of the position in a binding `state` (lib/state.wgsl); else params say how many
//## entries there are.
//# if has_state
//# include "lib/state.wgsl"

/// How many entries the cache holds.
fn cache_length() -> u32 {
  return min(state_position() + 1u, params.capacity);
}

/// How far the ring is turned.
fn cache_start() -> u32 {
  return (state_position() + 1u - cache_length()) % (params.capacity - params.kept);
}
//# else

/// How many entries the cache holds.
fn cache_length() -> u32 {
  return params.keys;
}

/// How far the ring is turned.
fn cache_start() -> u32 {
  return params.start;
}
//# endif

/// The slot of entry j of the cache, the oldest being entry 0; `start` is cache_start().
fn cache_slot(j: u32, start: u32) -> u32 {
  let slot = start + j;
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

/// The entry whose number among the visible ones is e - params.first_key, for e from params.first_key on: where a window
/// hides the entries before, the kept ones come first.
fn visible_entry(e: u32) -> u32 {
//# if has_kept
  return select(e, e - params.first_key, e < params.first_key + params.kept);
//# else
  return e;
//# endif
}
