//## Where the entries of a KV cache lie and which positions they are.
//## Needs: `has_kept` (bool): whether the first params.kept entries stay when the others make room, as
//## StreamingLLM's sink tokens do (arXiv 2309.17453); the others lie in a ring behind them. And `has_state` (bool):
//## whether the newest entry is that of the position in a binding `state` (lib/state.wgsl); else params say how many
//## entries there are, and with `has_totals` a binding `totals` says how many positions each batch element has.
//## `has_left_padding` (bool): whether a binding `left_padding` says how many of its first positions nobody may see.
//# set of_cache = "" if has_totals else "params."
//# if has_totals
// What find_cache found out about the batch element: positions that the ring has dropped, the position of the first
// query, and the first entry that a query may see.
var<private> dropped: i32;
var<private> query_position: i32;
var<private> first_key: u32;

/// How many positions were appended to batch element b.
fn cache_total(b: u32) -> u32 {
  return u32(max(totals[params.totals_first + b], 0));
}

/// How many entries the cache holds of batch element b.
fn cache_length(b: u32) -> u32 {
  return min(cache_total(b), params.capacity);
}

/// How far the ring of batch element b is turned.
fn cache_start(b: u32) -> u32 {
  return (cache_total(b) - cache_length(b)) % (params.capacity - params.kept);
}

/// The first entry of batch element b that any query may see; the kept ones count as those before it.
fn cache_first_key(b: u32) -> u32 {
  return u32(max(i32(cache_length(b)) - i32(params.queries) - params.window_left - i32(params.kept), 0));
}

/// Notes what is read of batch element b.
fn find_cache(b: u32) {
  dropped = i32(cache_total(b) - cache_length(b));
  query_position = i32(cache_total(b)) - i32(params.queries);
  first_key = cache_first_key(b);
}
//# elif has_state
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
  return select(e, e - {{ of_cache }}first_key, e < {{ of_cache }}first_key + params.kept);
//# else
  return e;
//# endif
}
//# if has_left_padding

/// How many of batch element b's first positions are padding.
fn padding_of(b: u32) -> i32 {
  return i32(left_padding[params.left_padding_first + b * params.left_padding_stride]);
}

/// Whether entry j lies behind the padding.
fn is_behind_padding(j: u32, padding: i32) -> bool {
  return select(i32(j) + {{ of_cache }}dropped, i32(j), j < params.kept) >= padding;
}
//# endif
