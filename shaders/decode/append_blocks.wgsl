//## Writes rows [B, Hkv, S, D] into a cache [B, Hkv, capacity, ROW_WORDS] as blocks of 32 integers with a scale each
//## (lib/integer_rows.wgsl): row n goes to slot row_slot(n). One invocation takes two blocks, whose scales share a word.
//## Integers are rounded as ggml does: of q8_0 to the nearest, ties away from zero; of q4_0 to the nearest, ties up.
//# from "lib/storage.wgsl" import half_types
{{ half_types(dtypes) }}
//# include "lib/new_rows.wgsl"
const NAN = 0x7e00u;

/// Writes the integers of a row's 32 numbers from `begin` on to the words from `at` on; returns the bits of their scale.
fn put_block(b: u32, head: u32, n: u32, begin: u32, at: u32) -> u32 {
  var numbers: array<vec4<f32>, 8>;
  // Compared as bits, in which infinities and NaN are the largest: compilers may assume that there are none.
  var largest = 0u;
  var extreme = 0.0;
  for (var i = 0u; i < 8u; i++) {
    let d = begin + 4u * i;
    numbers[i] = vec4<f32>();
    if (d < D) {
      numbers[i] = new_at4(b, head, n, d);
    }
    for (var k = 0u; k < 4u; k++) {
      let size = bitcast<u32>(numbers[i][k]) & 0x7fffffffu;
      extreme = select(extreme, numbers[i][k], size > largest);
      largest = max(largest, size);
    }
  }
  let finite = largest < 0x7f800000u;
  let scale = {{ "abs(extreme) / 127.0" if format == "q8_0" else "extreme / -8.0" }};
  let inverse = select(0.0, 1.0 / scale, finite && abs(scale) > 1e-37);
  for (var w = 0u; w < {{ bits }}u; w++) {
//# if format == "q8_0"
    let x = numbers[w] * inverse;
    let below = floor(abs(x));
    let whole = min(below + select(vec4<f32>(), vec4<f32>(1.0), abs(x) - below >= vec4<f32>(0.5)), vec4<f32>(127.0));
    let codes = bitcast<vec4<u32>>(vec4<i32>(select(whole, -whole, x < vec4<f32>()))) & vec4<u32>(0xffu);
    cache[at + w] = dot(codes, vec4<u32>(1u, 1u << 8u, 1u << 16u, 1u << 24u));
//# else
    var word = 0u;
//#   for half in range(2)
    let codes{{ half }} = vec4<u32>(clamp(floor(numbers[2u * w + {{ half }}u] * inverse + 8.5), vec4<f32>(), vec4<f32>(15.0)));
    word |= dot(codes{{ half }}, vec4<u32>(1u, 1u << 4u, 1u << 8u, 1u << 12u)) << {{ 16 * half }}u;
//#   endfor
    cache[at + w] = word;
//# endif
  }
  return select(NAN, float16_bits(scale), finite);
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let work = (workgroup.x + workgroup.y * workgroups.x) * WORKGROUP + thread_index;
  let pair = work % SCALE_WORDS;
  let row = work / SCALE_WORDS;
  let n = row % params.count;
  let head = row / params.count % params.heads;
  let b = row / params.count / params.heads;
  if (b >= params.batch) {
    return;
  }
//# if has_totals
  if (!is_stored(b, n)) {
    return;
  }
//# endif
  let at = target_row(b, head, n) * ROW_WORDS;
  var scales = 0u;
  for (var half = 0u; half < 2u; half++) {
    let number = 2u * pair + half;
    if (number >= {{ (D + 31) // 32 }}u) {
      break;
    }
    let bits = put_block(b, head, n, 32u * number, at + SCALE_WORDS + number * {{ bits }}u);
    scales |= bits << (16u * half);
  }
  cache[at + pair] = scales;
}
