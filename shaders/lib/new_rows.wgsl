//## The rows [B, H, S, D] of a binding `source` that are appended to a cache, and where they go.
//## Needs: what lib/row_slot.wgsl needs, `source_dtype`, `source_packed` and D; and `turns` (bool): whether the rows get
//## rotary position embeddings (lib/rotary.wgsl) at their positions. A writer without a binding `state` or `totals`
//## finds its first row's in params.first_position.
//# from "lib/storage.wgsl" import reader
{{ reader("source", source_dtype, source_packed, D) }}
//# include "lib/row_slot.wgsl"
//# if turns
//# include "lib/rotary.wgsl"
//# endif

/// Numbers d … d + 3 of row n of a batch element and head.
fn new_at4(b: u32, head: u32, n: u32, d: u32) -> vec4<f32> {
  let first = params.source_first + dot(params.source_strides.xyz, vec3<u32>(b, head, n));
//# if turns
  let position = {{ "rows_before(b)" if has_totals else "state_position()" if has_state else "u32(params.first_position)" }} + n;
  return turned_at4(first, params.source_strides.w, d, position);
//# else
  return source_at4(first, params.source_strides.w, d);
//# endif
}

/// The row of the cache that row n of a batch element and head goes to.
fn target_row(b: u32, head: u32, n: u32) -> u32 {
  return (b * params.heads + head) * params.capacity + row_slot({{ "b, " if has_totals }}n);
}
