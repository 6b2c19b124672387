//## Joins the splits of tiles of attention: attention/tiled.wgsl left a partial result of each, with a softmax of its
//## own. One invocation computes one vec4 of one row.
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
  if (tile >= params.split_tiles) {
    return;
  }
  let work = params.whole_tiles + tile;
{{ tile_of_work() }}
  let row = tile_of_rows * BQ + row_of_tile;
  if (row >= params.queries) {
    return;
  }
  var row_max = LOWEST;
  var row_sum = 0.0;
  for (var split = 0u; split < params.splits; split++) {
    let partial_end = partials[((tile * params.splits + split) * BQ + row_of_tile) * (DV4 + 1u) + DV4];
    let new_max = max(row_max, partial_end.x);
    row_sum = fma(partial_end.y, exp2(partial_end.x - new_max), row_sum * exp2(row_max - new_max));
    row_max = new_max;
  }
  let end_of_row = row_end(h, row_max, row_sum);
  // The weights' sum is 1 at most, so that no sum is larger than the largest value.
  var four = vec4<f32>();
  for (var split = 0u; split < params.splits; split++) {
    let first = ((tile * params.splits + split) * BQ + row_of_tile) * (DV4 + 1u);
    let partial_end = partials[first + DV4];
    let weight = partial_end.y * exp2(partial_end.x - row_max) * end_of_row.x;
    four = fma(vec4<f32>(weight), partials[first + column], four);
  }
  out_put4(dot(params.out_strides.xyz, vec3<u32>(b, h, row)) + 4u * column, four);
//# if return_lse
  if (column == 0u) {
    store_lse((b * params.heads + h) * params.queries + row, end_of_row);
  }
//# endif
}
