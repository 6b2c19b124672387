//## Where appended rows go. Needs: `has_state` (bool): whether the first row is that of the position in a binding
//## `state` (lib/state.wgsl); else its slot is params.first_slot.
//# if has_state
//# include "lib/state.wgsl"
//# endif
/// The slot of a cache that row n of those appended goes to: the first params.kept slots are filled once,
/// the others are a ring behind them.
fn row_slot(n: u32) -> u32 {
  let slot = {{ "state_position()" if has_state else "params.first_slot" }} + n;
  return select(params.kept + (slot - params.kept) % (params.capacity - params.kept), slot, slot < params.kept);
}
