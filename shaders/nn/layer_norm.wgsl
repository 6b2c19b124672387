//## Layer norm of x, or of x + residual, along the last axis; one workgroup for each row.
//##
//## Ba, Kiros & Hinton 2016 (https://arxiv.org/abs/1607.06450). The variance is the mean of the squared
//## distances from the mean, in a second pass: E[x^2] - E[x]^2 would cancel.

const WORKGROUP = 64u;

var<workgroup> thread_sums: array<f32, WORKGROUP>;

// Sum of `value` over the workgroup; every invocation must call it.
fn sum_over_workgroup(value: f32, thread_index: u32) -> f32 {
  thread_sums[thread_index] = value;
  workgroupBarrier();
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    if thread_index < half {
      thread_sums[thread_index] += thread_sums[thread_index + half];
    }
    workgroupBarrier();
  }
  let total = thread_sums[0];
  workgroupBarrier();
  return total;
}

fn element(row: u32, column: u32) -> f32 {
  let at = row * params.width + column;
//# if HAS_RESIDUAL
  return x[params.x_first + at] + residual[params.residual_first + at];
//# else
  return x[params.x_first + at];
//# endif
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let row = group.x + group.y * groups.x;
  if row >= params.rows {
    return;
  }
  var sum = 0.0;
  for (var column = thread_index; column < params.width; column += WORKGROUP) {
    sum += element(row, column);
  }
  let mean = sum_over_workgroup(sum, thread_index) / f32(params.width);
  var squares = 0.0;
  for (var column = thread_index; column < params.width; column += WORKGROUP) {
    let distance = element(row, column) - mean;
    squares += distance * distance;
  }
  let factor = inverseSqrt(sum_over_workgroup(squares, thread_index) / f32(params.width) + params.epsilon);
  for (var column = thread_index; column < params.width; column += WORKGROUP) {
    let scale = weight[params.weight_first + column];
    let shift = bias[params.bias_first + column];
    out[row * params.width + column] = (element(row, column) - mean) * factor * scale + shift;
  }
}
