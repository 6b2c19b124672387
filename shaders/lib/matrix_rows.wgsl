//## Rows of scores of the kernels on subgroup matrices (attention/matrix.wgsl, attention/matrix_float32.wgsl). Two
//## invocations share a row: of its vec4s in a tile of BK keys, entry n belongs to invocation n % 2 (`part`), which writes
//## the weights of entries 4m + part and 4m + 2 + part to entry 2m + part. So of 16 keys the weights of 4 … 7 and of
//## 8 … 11 change places; the values' lines do the same. Import with context: needs BK.
//##
//## The arguments of both kernels' entry points: which subgroup of its workgroup an invocation is in, and where in it.
//# macro row_arguments()
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(subgroup_id) number: u32,
  @builtin(subgroup_invocation_id) lane: u32,
//#- endmacro
//##
//## Declares the invocation's number in its workgroup, its row among the subgroup's 16 and its part of it. With `spread`
//## neighbours share a row, else invocations 16 apart.
//# macro find_row(spread)
  let thread_index = (number * 32u + lane) % WORKGROUP;
  let row = {{ "lane / 2u" if spread else "lane" }} % 16u;
  let part = {{ "lane" if spread else "lane / 16u" }} % 2u;
//#- endmacro
//##
//# macro turned_lines()
/// Where the values of a key lie: bits 2 and 3 of its number in the tile change places.
fn turned(line: u32) -> u32 {
  return (line & ~12u) | ((line & 4u) << 1u) | ((line & 8u) >> 1u);
}
//# endmacro
//##
//## Hides of the invocation's scores s[0] … those of keys that its row, at `position`, does not see. `first_key` is the
//## first of its keys; the others are find_query_tile's (lib/query_tile.wgsl).
//# macro hide_unseen(tile)
    // Where every row sees every key of the tile there is nothing to check.
    let all_visible = {{ tile }} + BK <= end && i32({{ tile }} + BK) - 1 <= first_position + params.window_right
      && i32({{ tile }}) >= last_position - params.window_left;
    if (!all_visible) {
      // The keys that the row sees, counted from this invocation's first one.
      let lowest = vec4<i32>(position - params.window_left - i32(first_key));
      let highest = vec4<i32>(min(position + params.window_right, length - 1) - i32(first_key));
//#   for c in range(BK // 8)
      {
        let column = {{ 8 * c }} + vec4<i32>(0, 1, 2, 3);
        s[{{ c }}] = select(vec4<f32>(params.empty_lse), s[{{ c }}], (column >= lowest) & (column <= highest));
      }
//#   endfor
    }
//# endmacro
