//## The rows [B, H, S, D] of a binding `source` that are appended to a cache, and where they go.
//## Needs: what lib/row_slot.wgsl needs, `source_dtype`, `source_packed` and D; and `turns` (bool): whether the rows get
//## rotary position embeddings (lib/rotary.wgsl) at their positions. A writer without a binding `state` or `totals`
//## finds its first row's in params.first_position. `has_pages` (bool): whether the cache's entries lie in blocks of a
//## pool (lib/pages.wgsl).
//# from "lib/storage.wgsl" import reader
{{ reader("source", source_dtype, source_packed, D) }}
//# include "lib/row_slot.wgsl"
//# if turns
//# include "lib/rotary.wgsl"
//# endif
//# if has_pages
//# include "lib/pages.wgsl"
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
//# if has_pages
  return page_row(b, head, params.heads, row_slot(b, n));
//# else
  return (b * params.heads + head) * params.capacity + row_slot({{ "b, " if has_totals }}n);
//# endif
}
//# if has_totals

/// Whether row n of batch element b is stored: it stays, and its slot has a block.
fn is_stored(b: u32, n: u32) -> bool {
  return row_stays(b, n){{ " && block_of(b, row_slot(b, n)) < params.blocks" if has_pages }};
}
//# endif
