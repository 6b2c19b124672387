//## Attention weights of a window of rows and columns, recomputed from query, key and the rows' LSE with its parts:
//## exp(score - row_max) / row_sum, pooled to fewer cells where asked, as numbers or as colours. One invocation a
//## cell; a cell covers rows floor(c·R/h) to ceil((c+1)·R/h), so that none is left out.
//## With `gradients` each weight is multiplied by the gradient with respect to it, grad·value.
//## With `scores` each cell has the score itself, -inf where it is hidden.
//# from "lib/storage.wgsl" import reader, half_types
//# from "lib/exp.wgsl" import exp_of with context
{{ half_types(dtypes) }}
{{ reader("query", query_dtype, query_packed, D) }}
{{ reader("key", key_dtype, key_packed, D) }}
//# if gradients
{{ reader("value", value_dtype, value_packed, DV) }}
{{ reader("grad", grad_dtype, grad_packed, DV) }}
//# endif
//# include "lib/score.wgsl"
//# if not scores
//#   include "lib/row_parts.wgsl"
//# endif

fn cell_begin(cell: u32, cells: u32, length: u32) -> u32 {
  return cell * length / cells;
}

fn cell_end(cell: u32, cells: u32, length: u32) -> u32 {
  return max(cell_begin(cell, cells, length) + 1u, ((cell + 1u) * length + cells - 1u) / cells);
}

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  // A workgroup covers a square of cells, whose invocations then share rows of query and key.
  let across = (params.width + 7u) / 8u;
  let down = (params.height + 7u) / 8u;
  let work = workgroup.x + workgroup.y * workgroups.x;
  let picture = work / (across * down);
  let x = (work % across) * 8u + thread_index % 8u;
  let y = (work / across) % down * 8u + thread_index / 8u;
  if (picture >= params.pictures || x >= params.width || y >= params.height) {
    return;
  }
  let h = heads[params.heads_first + picture % params.chosen_heads];
  let b = picture / params.chosen_heads;
  let length = key_count(b);
  let shift = query_shift(length);
  let query_head = params.query_first + dot(params.query_strides.xy, vec2<u32>(b, h));
  let key_head = params.key_first + dot(params.key_strides.xy, vec2<u32>(b, h / params.group));
//# if gradients
  let value_head = params.value_first + dot(params.value_strides.xy, vec2<u32>(b, h / params.group));
  let grad_head = params.grad_first + dot(params.grad_strides.xy, vec2<u32>(b, h));
//# endif

  var pooled = 0.0;
  for (var r = cell_begin(y, params.height, params.rows); r < cell_end(y, params.height, params.rows); r++) {
    let i = params.row_begin + r * params.row_step;
//# if not scores
    let ended = row_parts(params.lse_first + dot(params.lse_strides.xyz, vec3<u32>(b, h, i)));
//# endif
    let query_row = query_head + i * params.query_strides.z;
//# if pool == "mean"
    // Added up row by row and 64 weights at a time, so that a cell of many weights has less rounding error.
    var pooled_sum = 0.0;
    var recent_sum = 0.0;
//# endif
    for (var c = cell_begin(x, params.width, params.columns); c < cell_end(x, params.width, params.columns); c++) {
      let j = params.column_begin + c * params.column_step;
      let position = i32(i) + shift;
      if (!in_window(position, i32(j), length)) {
//# if scores
        pooled = params.empty_lse;
//# endif
        continue;
      }
      let key_row = key_head + j * params.key_strides.z;
      var products = 0.0;
      for (var d = 0u; d < 4u * D4; d += 4u) {
        products += dot(
          query_at4(query_row, params.query_strides.w, d) * params.query_scale,
          key_at4(key_row, params.key_strides.w, d));
      }
      let s = score(products, b, h, i, j, position, length);
//# if scores
      pooled = s{{ "" if natural else " * LN_2" }};
//# else
      // A hidden score gives zero; so does a row that sees nothing, whose 1 / row_sum is 0. No weight exceeds 1, but
      // far from zero a score may round differently than in the forward pass.
      {{ "var" if gradients else "let" }} p = select(0.0, {{ exp_of("min(s - ended.x, 0.0)") }} * ended.y, !is_hidden(s));
//#   if gradients
      let value_row = value_head + j * params.value_strides.z;
      let grad_row = grad_head + i * params.grad_strides.z;
      var slope = 0.0;
      for (var d = 0u; d < 4u * DV4; d += 4u) {
        slope += dot(grad_at4(grad_row, params.grad_strides.w, d), value_at4(value_row, params.value_strides.w, d));
      }
      // Nothing comes from a hidden key, not even NaN.
      p = select(0.0, p * slope, !is_hidden(s));
//#   endif
//#   if pool == "max" and gradients
      pooled = select(pooled, p, is_nan(p) || (abs(p) > abs(pooled) && !is_nan(pooled)));
//#   elif pool == "max"
      pooled = select(pooled, p, is_nan(p) || (p > pooled && !is_nan(pooled)));
//#   else
      recent_sum += p;
      if (c % 64u == 63u) {
        pooled_sum += recent_sum;
        recent_sum = 0.0;
      }
//#   endif
//# endif
    }
//# if pool == "mean"
    pooled += pooled_sum + recent_sum;
//# endif
  }
//# if pool == "mean"
  let covered = (cell_end(y, params.height, params.rows) - cell_begin(y, params.height, params.rows))
    * (cell_end(x, params.width, params.columns) - cell_begin(x, params.width, params.columns));
  pooled /= f32(covered);
//# endif
  let at = (picture * params.height + y) * params.width + x;
//# if colors
  let share = clamp(pooled / params.color_max, 0.0, 1.0);
//#   if color_scale == "sqrt"
  let level = sqrt(share);
//#   elif color_scale == "log"
  let level = clamp(1.0 + log2(max(share, 1e-30)) * params.color_decades, 0.0, 1.0);
//#   else
  let level = share;
//#   endif
  // NaN has no colour.
  out[at] = select(colors[u32(round(level * 255.0))], 0u, is_nan(pooled));
//# else
  out[at] = pooled;
//# endif
}
