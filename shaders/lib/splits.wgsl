//## Which part of a decode a workgroup computes: a split of the keys for some query rows of a key/value head.
//##
//## Declares `split`, `row_tile`, `kv_head` and `b` of this workgroup. They are its place in the grid, since dividing
//## a number of the workgroup by sizes that only params know takes 0.2 µs before any memory is asked; with `flat_grid`,
//## where a dimension would be longer than a device allows, they are found that way, and workgroups past the last return.
//# macro find_split()
//# if flat_grid
  let work = workgroup.x + workgroup.y * workgroups.x;
  let split = work % params.splits;
  let row_tile = work / params.splits % params.row_tiles;
  let kv_head = work / params.splits / params.row_tiles % params.kv_heads;
  let b = work / params.splits / params.row_tiles / params.kv_heads;
  if (b >= params.batch) {
    return;
  }
//# else
  let split = {{ "workgroup.x" if one_row_tile else "workgroup.x % params.splits" }};
  let row_tile = {{ "0u" if one_row_tile else "workgroup.x / params.splits" }};
  let kv_head = workgroup.y;
  let b = workgroup.z;
//# endif
//# endmacro
//##
//## The query head and the query of a row, of those that share the key/value head `kv_head`.
//# macro head_of(row)
kv_head * params.group + {{ row if one_query else row ~ " / params.queries" }}
//#- endmacro
//# macro query_of(row)
{{ "0u" if one_query else row ~ " % params.queries" }}
//#- endmacro
//##
//## Declares `at`, where the query of a row begins in its buffer; with `query_in_log` that of the state's position.
//# macro find_query(row)
    let query_row = {{ "state_position()" if query_in_log else query_of(row) }};
    let at = params.query_first + dot(params.query_strides.xyz, vec3<u32>(b, {{ head_of(row) }}, query_row));
//#- endmacro
