//## Where appended rows go. Needs: `has_state` (bool): whether the first row is that of the position in a binding
//## `state` (lib/state.wgsl); else its slot is params.first_slot. And `has_totals` (bool): whether each batch element's
//## first row goes behind those that a binding `totals` says it has; with `has_counts` only as many of its rows are new
//## as a binding `counts` says.
//# if has_totals
/// How many of the rows given for batch element b are new.
fn new_rows(b: u32) -> u32 {
//#   if has_counts
  return u32(clamp(i32(counts[params.counts_first + b * params.counts_stride]), 0, i32(params.count)));
//#   else
  return params.count;
//#   endif
}

/// How many positions batch element b had before.
fn rows_before(b: u32) -> u32 {
  return u32(max(totals[params.totals_first + b], 0));
}

/// Whether row n of batch element b is new, and no later row of the same call displaces it: writes have no order.
fn row_stays(b: u32, n: u32) -> bool {
  let count = new_rows(b);
  return n < count && (rows_before(b) + n < params.kept || count - n <= params.capacity - params.kept);
}
//# endif
//# if has_state
//# include "lib/state.wgsl"
//# endif
/// The slot of a cache that row n of those appended goes to: the first params.kept slots are filled once,
/// the others are a ring behind them.
fn row_slot({{ "b: u32, " if has_totals }}n: u32) -> u32 {
  let slot = {{ "rows_before(b)" if has_totals else "state_position()" if has_state else "params.first_slot" }} + n;
  return select(params.kept + (slot - params.kept) % (params.capacity - params.kept), slot, slot < params.kept);
}
