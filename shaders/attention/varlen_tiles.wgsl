//## The table of a packed call's tiles. A slot tells the workgroups of one tile what they compute, in two vec4s:
//## (sequence, tile, first query, queries), (first key, keys, place, 0). Slots that are left over name a sequence past the
//## last. The place is where a backward pass stores the gradients of a head's scores (`stores_scores`), see
//## lib/stored_scores.wgsl; sequences then come in the order of `score_places`. A tile has `tile_rows` queries or, with
//## `by_key`, keys. One invocation writes one slot.
fn query_edge(s: u32) -> u32 {
  return u32(clamp(cu_queries[params.cu_queries_first + s * params.query_stride], 0, i32(params.queries)));
}

fn key_edge(s: u32) -> u32 {
  return u32(clamp(cu_keys[params.cu_keys_first + s * params.key_stride], 0, i32(params.keys)));
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let slot = (workgroup.x + workgroup.y * workgroups.x) * WORKGROUP + thread_index;
  if (slot >= params.slots) {
    return;
  }
  var left = slot;
  for (var n = 0u; n < params.sequences; n++) {
    let s = {{ "score_places[n].x" if stores_scores else "n" }};
    let q = query_edge(s);
    let queries = max(query_edge(s + 1u), q) - q;
    let k = key_edge(s);
    let keys = max(key_edge(s + 1u), k) - k;
    let count = (select(queries, keys, params.by_key != 0u) + params.tile_rows - 1u) / params.tile_rows;
    if (left < count) {
//# if stores_scores
      // Under a causal mask the last queries and the first keys have most work, and begin first.
      let tile = select(count - 1u - left, left, params.by_key != 0u);
//# else
      let tile = left;
//# endif
      tiles[2u * slot] = vec4<u32>(s, tile, q, queries);
      tiles[2u * slot + 1u] = vec4<u32>(k, keys, {{ "score_places[n].y" if stores_scores else "0u" }}, 0u);
      return;
    }
    left -= count;
  }
  tiles[2u * slot] = vec4<u32>(params.sequences, 0u, 0u, 0u);
  tiles[2u * slot + 1u] = vec4<u32>();
}
