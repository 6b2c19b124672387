//## Mean over the rows of x [rows, width], then division by the L2 norm; one workgroup in all.

var<workgroup> thread_sums: array<f32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) thread_index: u32) {
  var squares = 0.0;
  for (var column = thread_index; column < params.width; column += WORKGROUP) {
    var sum = 0.0;
    for (var row = 0u; row < params.rows; row++) {
      sum += x[params.x_first + row * params.width + column];
    }
    let mean = sum / f32(params.rows);
    out[column] = mean;
    squares += mean * mean;
  }
  thread_sums[thread_index] = squares;
  workgroupBarrier();
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    if thread_index < half {
      thread_sums[thread_index] += thread_sums[thread_index + half];
    }
    workgroupBarrier();
  }
  // The same floor as torch.nn.functional.normalize: an all-zero mean stays zero.
  let norm = max(sqrt(thread_sums[0]), 1e-12);
  // Each invocation scales what it wrote itself, so no other invocation's write needs to be visible.
  for (var column = thread_index; column < params.width; column += WORKGROUP) {
    out[column] /= norm;
  }
}
