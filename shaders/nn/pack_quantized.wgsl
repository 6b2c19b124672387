//## Rearranges the blocks of a file into those of lib/quantized.wgsl: the codes of all blocks first, then their scales.
//## In the file a block is d (float16), for Q4_1 m (float16), then its codes: 20 bytes, or 34, so that every second block
//## of Q8_0 begins in the middle of a word. An invocation moves one block; row n of the blocks becomes row
//## row_first + n · row_step of the matrix.
//# set code_words = 4 if format == "Q4_1" else 8

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let source = (group.x + group.y * groups.x) * WORKGROUP + thread_index;
  if (source >= params.blocks) {
    return;
  }
  let row = params.row_first + source / BLOCKS_OF_ROW * params.row_step;
  let target_block = row * BLOCKS_OF_ROW + source % BLOCKS_OF_ROW;
  let codes = target_block * {{ code_words }}u;
  let scale = BLOCKS * {{ code_words }}u + target_block;
//# if format == "Q4_1"
  let first = params.blocks_first + 5u * source;
  weight[scale] = blocks[first];
  for (var w = 0u; w < 4u; w++) {
    weight[codes + w] = blocks[first + 1u + w];
  }
//# else
  // In half words the block begins at 17 · source.
  let first = params.blocks_first + 17u * source / 2u;
  let odd = source % 2u == 1u;
  var word = blocks[first];
  weight[scale] = select(word & 0xffffu, word >> 16u, odd);
  for (var w = 0u; w < 8u; w++) {
    let next = blocks[first + 1u + w];
    weight[codes + w] = select((word >> 16u) | (next << 16u), next, odd);
    word = next;
  }
//# endif
}
