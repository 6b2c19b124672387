//## Where a sequence lies: one of a batch, or (`varlen`) one of many packed behind each other.
struct Sequence {
  b: u32,
  // The tile of its rows that a slot of the table stands for; 0 in a batch.
  tile: u32,
  query_begin: u32,
  queries: u32,
  key_begin: u32,
  keys: i32,
  // What to add to a query's index to get its position among the keys.
  shift: i32,
  // Where the gradients of a head's scores are stored among those of the sequences of a launch, in vec4s.
  scores: u32,
}

//# if varlen
/// Slot `slot` of the table that attention/varlen_tiles.wgsl wrote; b is params.batch where the slot is left over.
fn sequence_of(slot: u32) -> Sequence {
  let rows = tiles[2u * slot];
  let columns = tiles[2u * slot + 1u];
  let keys = i32(columns.y);
  return Sequence(rows.x, rows.y, rows.z, rows.w, columns.x, keys, select(keys - i32(rows.w), 0, params.top_left != 0u), columns.z);
}
//# else
fn sequence(b: u32) -> Sequence {
  let keys = key_count(b);
  return Sequence(b, 0u, 0u, params.queries, 0u, keys, query_shift(keys), 0u);
}
//# endif
