//## Which rows a workgroup computes: a tile of the queries of one head of one sequence. Import with context: needs
//## `varlen`, BQ and lib/sequences.wgsl, `has_splits`: whether the last tiles are split along the keys
//## (choose_tail_split in py_attn/kernels/attention/tiles.py), and `grid_of_tiles`: whether a workgroup's place in the grid
//## is its head, batch element and tile, which otherwise are found by divisions.
//##
//## find_query_tile returns from the kernel where there is no work for the workgroup. It declares h, b and the sequence
//## `at`; the tile's first_row and last_row, counted in the sequence, and their positions among its keys; the keys
//## begin … end - 1 that any of these rows may see; and where in their buffers the head's query, key and value begin.
//##
//## tile_of_work declares, for the tile number `work` of a batch, its head h, its batch element b and which of the
//## head's tiles it is.
//# macro tile_of_work()
  let all_heads = params.heads * params.batch;
  // The last tiles have most to do under a causal mask, so those of all heads begin first.
  let tile_of_rows = params.tiles - 1u - work / all_heads;
  let h = work % params.heads;
  let b = work / params.heads % params.batch;
//# endmacro
//##
//# macro find_query_tile()
//# if has_splits
  // Whole tiles come first, then the first splits of the tiles that are split, then their second ones.
  let turn = workgroup.x + workgroup.y * workgroups.x;
  let is_split = turn >= params.whole_tiles;
  let split_tile = select(0u, (turn - params.whole_tiles) % params.split_tiles, is_split);
  let split = select(0u, (turn - params.whole_tiles) / params.split_tiles, is_split);
  if (split >= params.splits) {
    return;
  }
  let work = min(turn, params.whole_tiles) + split_tile;
//# elif not grid_of_tiles
  let work = workgroup.x + workgroup.y * workgroups.x;
//# endif
//# if varlen
  let at = sequence_of(work % params.tiles);
  let b = at.b;
  let h = work / params.tiles;
  let tile_of_rows = at.tile;
  if (b >= params.batch || h >= params.heads) {
    return;
  }
//# else
//#   if grid_of_tiles
  // The last tiles begin first, as in tile_of_work.
  let h = workgroup.x;
  let b = workgroup.y;
  let tile_of_rows = params.tiles - 1u - workgroup.z;
//#   else
{{ tile_of_work() }}
  if (work >= params.tiles * all_heads) {
    return;
  }
//#   endif
  let at = sequence(b);
//# endif
  let length = at.keys;
  let shift = at.shift;
  let first_row = tile_of_rows * BQ;
  let last_row = min(first_row + BQ, at.queries) - 1u;
  let first_position = i32(first_row) + shift;
  let last_position = i32(last_row) + shift;
//# if has_splits
  let begin = split * params.split_keys;
  let end = min(u32(length), begin + select(u32(length), params.split_keys, is_split));
//# else
  let begin = u32(max(0, first_position - params.window_left));
  let end = u32(max(0, min(length, last_position + params.window_right + 1)));
//# endif

  let kv_head = h / params.group;
  let query_head = params.query_first + dot(params.query_strides.xyz, vec3<u32>(b, h, at.query_begin));
  let key_head = params.key_first + dot(params.key_strides.xyz, vec3<u32>(b, kv_head, at.key_begin));
  let value_head = params.value_first + dot(params.value_strides.xyz, vec3<u32>(b, kv_head, at.key_begin));
//# endmacro
