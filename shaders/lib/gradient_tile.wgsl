//## Which rows a workgroup of a backward pass computes: a tile of the queries of one head (`by_query`), or of the keys of
//## one key/value head, of one sequence. Import with context: needs `varlen` and lib/sequences.wgsl.
//##
//## find_gradient_tile returns from the kernel where there is no work for the workgroup. It declares b, head and the
//## sequence `at`, its length and shift; which tile of the head's rows it is, and how many rows there are. A launch goes
//## through params.launched_heads heads, counted through the batch, from params.first_head on; `launched_head` counts
//## them from 0. In a batch the same tile of all these heads comes first (`heads_first`), or all tiles of a head. Of
//## packed sequences it goes through params.tiles slots of the table of tiles, from params.first_slot on.
//# macro find_gradient_tile(by_query, heads_first)
  let work = workgroup.x + workgroup.y * workgroups.x;
  if (work >= params.tiles * params.launched_heads) {
    return;
  }
//# if varlen
  let at = sequence_of(params.first_slot + work % params.tiles);
  let b = at.b;
  if (b >= params.batch) {
    return;
  }
  let launched_head = work / params.tiles;
  let head = params.first_head + launched_head;
  let tile_of_rows = at.tile;
//# else
//#   if heads_first
  let tile_of_work = work / params.launched_heads;
  let launched_head = work % params.launched_heads;
  // Under a causal mask the tiles with most work begin first, those of all heads.
  let tile_of_rows = {{ "params.tiles - 1u - tile_of_work" if by_query else "tile_of_work" }};
//#   else
  let launched_head = work / params.tiles;
  let tile_of_rows = work % params.tiles;
//#   endif
  let head_of_batch = params.first_head + launched_head;
  let heads = {{ "params.heads" if by_query else "params.heads / params.group" }};
  let head = head_of_batch % heads;
  let b = head_of_batch / heads;
  let at = sequence(b);
//# endif
  let length = at.keys;
  let shift = at.shift;
  let row_count = {{ "at.queries" if by_query else "u32(length)" if varlen else "params.keys" }};
//# endmacro
