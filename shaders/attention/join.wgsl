//## Joins tiles of attention that attention/tiled.wgsl computed in pieces, each with a softmax of its own. One
//## invocation for each vec4 of each row.
//# from "lib/storage.wgsl" import writer, half_types
//# from "lib/query_tile.wgsl" import tile_of_work
{{ half_types(dtypes) }}
{{ writer("out", out_dtype) }}
//# include "lib/math.wgsl"
//# include "lib/row_end.wgsl"

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let n = (workgroup.x + workgroup.y * workgroups.x) * WORKGROUP + thread_index;
  let column = n % DV4;
  let row_of_tile = n / DV4 % BQ;
  let tile = n / (DV4 * BQ);
  if (tile >= params.cut) {
    return;
  }
  let work = params.whole + tile;
{{ tile_of_work() }}
  let row = tile_of_rows * BQ + row_of_tile;
  if (row >= params.queries) {
    return;
  }
  var top = LOWEST;
  var total = 0.0;
  var sum = vec4<f32>();
  for (var p = 0u; p < params.pieces; p++) {
    let first = ((tile * params.pieces + p) * BQ + row_of_tile) * (DV4 + 1u);
    let end = pieces[first + DV4];
    let higher = max(top, end.x);
    let shrink = exp2(top - higher);
    let weight = exp2(end.x - higher);
    top = higher;
    total = fma(end.y, weight, total * shrink);
    sum = fma(vec4<f32>(weight), pieces[first + column], sum * shrink);
  }
  let end_of_row = row_end(h, top, total);
  out_put4(dot(params.out_strides.xyz, vec3<u32>(b, h, row)) + 4u * column, sum * end_of_row.x);
//# if return_lse
  if (column == 0u) {
    store_lse((b * params.heads + h) * params.queries + row, end_of_row);
  }
//# endif
}
