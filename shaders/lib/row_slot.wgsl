/// The slot of a cache that row n of those appended goes to: the first params.kept slots are filled once,
/// the others are a ring behind them.
fn row_slot(n: u32) -> u32 {
  let slot = params.first_slot + n;
  return select(params.kept + (slot - params.kept) % (params.capacity - params.kept), slot, slot < params.kept);
}
