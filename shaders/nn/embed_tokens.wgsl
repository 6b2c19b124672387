//## Rows of the embedding table into the residual stream: x[position + t] = table[tokens[position + t]]. The table stays
//## quantised; an invocation widens eight weights.
//# include "lib/quantized.wgsl"
//# include "lib/state.wgsl"

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let work = (group.x + group.y * groups.x) * WORKGROUP + thread_index;
  let t = work / (INNER / 8u);
  if (t >= params.count) {
    return;
  }
  let row = state_position() + t;
  let part = work % (INNER / 8u);
  let word = part % 4u;
  let row_block = tokens[params.tokens_first + row] * (INNER / 32u) + part / 4u;
  let scale = block_scale(row_block);
  let to = (params.x_first + row * INNER) / 4u + part / 4u * 8u + word;
  x[to] = low_codes(low_word(row_block, word)) * CODE_UNITS * scale.x + scale.y;
  x[to + 4u] = high_codes(high_word(row_block, word)) * CODE_UNITS * scale.x + scale.y;
}
