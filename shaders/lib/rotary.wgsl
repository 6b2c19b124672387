//## Rotary position embeddings of a row of `source`, which a reader of lib/storage.wgsl reads, by tables of cosines and
//## sines [positions, ROTARY_DIM / 2]. Only the first ROTARY_DIM numbers of a row turn.
//## Needs: `cos_dtype`, `sin_dtype`, ROTARY_DIM, `interleaved` (bool): whether a pair is the numbers 2i and 2i + 1; else
//## i and i + ROTARY_DIM / 2. And ROTARY_PARAMS of kernels/rotary.py.
//# from "lib/storage.wgsl" import reader
{{ reader("cos_table", cos_dtype, False, 1) }}
{{ reader("sin_table", sin_dtype, False, 1) }}
//# include "lib/turned.wgsl"

/// Numbers d … d + 3 of the row that begins at `first`, turned as at a position; NaN at one that the tables lack.
fn turned_at4(first: u32, stride: u32, d: u32, position: u32) -> vec4<f32> {
  var four = source_at4(first, stride, d);
  let row = min(position, params.table_positions - 1u);
  for (var k = 0u; k < 4u; k++) {
    let e = d + k;
    if (e >= ROTARY_DIM) {
      break;
    }
//# if interleaved
    let is_second = (e & 1u) != 0u;
    let pair = e / 2u;
    let partner = e ^ 1u;
//# else
    let is_second = e >= ROTARY_DIM / 2u;
    let pair = e % (ROTARY_DIM / 2u);
    let partner = (e + ROTARY_DIM / 2u) % ROTARY_DIM;
//# endif
    let angle = vec2<f32>(
      cos_table_at(params.cos_table_first + dot(params.cos_strides, vec2<u32>(row, pair))),
      sin_table_at(params.sin_table_first + dot(params.sin_strides, vec2<u32>(row, pair))),
    );
    let other = source_at(first + partner * stride);
    let turned_pair = turned(select(vec2<f32>(four[k], other), vec2<f32>(other, four[k]), is_second), angle);
    four[k] = select(turned_pair.x, turned_pair.y, is_second);
  }
  return select(four, vec4<f32>(params.not_a_number), position >= params.table_positions);
}
