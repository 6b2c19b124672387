//## BERT's input: word[ids[t]] + position[t] + token_type[0], one invocation an element.

const WORKGROUP = 64u;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let at = (group.x + group.y * groups.x) * WORKGROUP + thread_index;
  if at >= params.tokens * params.width {
    return;
  }
  let column = at % params.width;
  let id = ids[params.ids_first + at / params.width];
  out[at] = word[params.word_first + id * params.width + column]
    + position[params.position_first + at]
    + token_type[params.token_type_first + column];
}
