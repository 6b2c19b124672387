//## Mean over the rows of x [rows, width], then division by the L2 norm; one workgroup in all.

const LANES = 256u;

var<workgroup> partial: array<f32, LANES>;

@compute @workgroup_size(LANES)
fn main(@builtin(local_invocation_index) lane: u32) {
  var squares = 0.0;
  for (var column = lane; column < params.width; column += LANES) {
    var sum = 0.0;
    for (var row = 0u; row < params.rows; row++) {
      sum += x[params.x_first + row * params.width + column];
    }
    let mean = sum / f32(params.rows);
    out[column] = mean;
    squares += mean * mean;
  }
  partial[lane] = squares;
  workgroupBarrier();
  for (var half = LANES / 2u; half > 0u; half /= 2u) {
    if lane < half {
      partial[lane] += partial[lane + half];
    }
    workgroupBarrier();
  }
  // The same floor as torch.nn.functional.normalize: an all-zero mean stays zero.
  let norm = max(sqrt(partial[0]), 1e-12);
  // Each lane scales what it wrote itself, so no other lane's write needs to be seen.
  for (var column = lane; column < params.width; column += LANES) {
    out[column] /= norm;
  }
}
