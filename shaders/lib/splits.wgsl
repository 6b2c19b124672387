//## Which part of a decode a workgroup computes: a split of the keys for some query rows of a key/value head.
//##
//## Declares `split`, `row_tile`, `kv_head` and `b` of this workgroup; one beyond the last batch element returns.
//# macro find_split()
  let work = workgroup.x + workgroup.y * workgroups.x;
  let split = work % params.splits;
  let row_tile = work / params.splits % params.row_tiles;
  let kv_head = work / params.splits / params.row_tiles % params.kv_heads;
  let b = work / params.splits / params.row_tiles / params.kv_heads;
  if (b >= params.batch) {
    return;
  }
//# endmacro
