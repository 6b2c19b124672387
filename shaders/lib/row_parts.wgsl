//## What the softmax of a row was, read from its LSE and from what store_lse in lib/row_end.wgsl wrote behind it.
//## Needs: lib/math.wgsl and the binding `lse`; params.lse_plane is the distance to row_max, and from there to row_sum,
//## or 0 where there is nothing but the LSE; params.lse_unit turns row_max, or the LSE, into this kernel's units.
/// (row_max, 1 / row_sum) of the row whose LSE is element n: its weights are exp(score - row_max) · (1 / row_sum).
fn row_parts(n: u32) -> vec2<f32> {
  let row_lse = lse[n];
  if (is_hidden(row_lse)) {
    return vec2<f32>(LOWEST, 0.0);
  }
  if (params.lse_plane == 0u) {
    return vec2<f32>(row_lse * params.lse_unit, select(1.0, row_lse, is_nan(row_lse)));
  }
  return vec2<f32>(lse[n + params.lse_plane] * params.lse_unit, 1.0 / lse[n + 2u * params.lse_plane]);
}
