//## The state of a text that is being written (py_attn/kernels/steps.py): reading it.
//## Needs: a binding `state` of u32 and the param state_first.

/// The index of the token that this step processes.
fn state_position() -> u32 {
  return state[params.state_first];
}
