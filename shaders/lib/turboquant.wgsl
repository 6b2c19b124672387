//## TurboQuant (arXiv 2504.19874): rows of packed codes, and the rotation.
//##
//## A row of D numbers is a scale (f32) and a stream of `bits` bits for each number, low bits first, padded
//## to whole groups of four and whole words. A code is a magnitude's index with the sign above it. With
//## `qjl` a second such row follows, of the residual's signs; it reads on behind the numbers' padding.
//##
//## row_reader(name, dtype, packed, length, row) defines for the buffer `name`, as reader in storage.wgsl,
//##   name_at4(first, stride, d)  the rotated numbers d … d+3 of the row whose first word is `first`
//## `row` is what Format.row() in kernels/quantization/turboquant.py gives, or none for floats.
//# from "lib/storage.wgsl" import reader
//# from "lib/thread_index.wgsl" import swapped
//##
//## With `table` the numbers of codes are looked up in workgroup memory, which row_tables(name, row) fills
//## in a kernel that has `thread_index` (a barrier must follow); otherwise they are selected bit by bit.
//# macro row_reader(name, dtype, packed, length, row, table=False)
//# if not row
{{ reader(name, dtype, packed, length) }}
//# elif not row.qjl
{{ (table_reader if table else code_reader)(name ~ "_at4", name, row.bits, row.levels) }}
//# else
{{ (table_reader if table else code_reader)(name ~ "_code4", name, row.bits, row.levels) }}
{{ code_reader(name ~ "_sign4", name, 1, [1.0]) }}
fn {{ name }}_at4(first: u32, stride: u32, d: u32) -> vec4<f32> {
  if (d < {{ row.numbers }}u) {
    return {{ name }}_code4(first, stride, d);
  }
  return {{ name }}_sign4(first + {{ row.words }}u, stride, d - {{ row.numbers }}u);
}
//# endif
//# endmacro
//##
//## The four codes from `d` on in the low bits of `group`, of the row whose first word is `first`.
//# macro read_group(buffer, bits)
  let position = d * {{ bits }}u;
  let word = first + 1u + (position >> 5u);
  let shift = position & 31u;
  var group = {{ buffer }}[word] >> shift;
//# if bits == 3
  if (shift > 20u) {
    group |= {{ buffer }}[word + 1u] << (32u - shift);
  }
//# endif
//# endmacro
//##
//# macro row_table(buffer, bits)
var<workgroup> {{ buffer }}_numbers: array<f32, {{ 2 ** bits }}>;
//# endmacro
//##
//# macro table_reader(function, buffer, bits, levels)
{{ row_table(buffer, bits) }}
fn {{ function }}(first: u32, stride: u32, d: u32) -> vec4<f32> {
{{ read_group(buffer, bits) }}
  return bitcast<f32>({{ buffer }}[first]) * vec4<f32>(
//# for n in range(4)
    {{ buffer }}_numbers[(group >> {{ n * bits }}u) % {{ 2 ** bits }}u],
//# endfor
  );
}
//# endmacro
//##
//# macro row_tables(name, row)
//# if row
  if (thread_index == 0u) {
//#   for level in row.levels
    {{ name }}_numbers[{{ loop.index0 }}] = {{ level }}f;
    {{ name }}_numbers[{{ loop.index0 + 2 ** (row.bits - 1) }}] = {{ -level }}f;
//#   endfor
  }
//# endif
//# endmacro
//##
//# macro code_reader(function, buffer, bits, levels)
fn {{ function }}(first: u32, stride: u32, d: u32) -> vec4<f32> {
{{ read_group(buffer, bits) }}
  let codes = vec4<u32>(group) >> vec4<u32>(0u, {{ bits }}u, {{ 2 * bits }}u, {{ 3 * bits }}u);
  // Selected bit by bit: an array that is indexed at run time costs more than these selections.
//# for level in levels
  let pick0_{{ loop.index0 }} = vec4<f32>({{ level }}f);
//# endfor
//# for stage in range(1, bits)
  let bit{{ stage }} = (codes & vec4<u32>({{ 2 ** (stage - 1) }}u)) != vec4<u32>();
//#   for i in range(2 ** (bits - 1 - stage))
  let pick{{ stage }}_{{ i }} = select(pick{{ stage - 1 }}_{{ 2 * i }}, pick{{ stage - 1 }}_{{ 2 * i + 1 }}, bit{{ stage }});
//#   endfor
//# endfor
  let negative = (codes << vec4<u32>({{ 32 - bits }}u)) & vec4<u32>(0x80000000u);
  return bitcast<f32>({{ buffer }}[first]) * bitcast<vec4<f32>>(bitcast<vec4<u32>>(pick{{ bits - 1 }}_0) ^ negative);
}
//# endmacro
//##
//# macro random_signs()
/// The sign bits of the numbers e of a round, by a hash (Wellons' lowbias32).
fn random_signs(e: vec4<u32>, round: u32) -> vec4<u32> {
  var x = e + vec4<u32>(round * D + SEED);
  x = (x ^ (x >> vec4<u32>(16u))) * 0x7feb352du;
  x = (x ^ (x >> vec4<u32>(15u))) * 0x846ca68bu;
  return (x ^ (x >> vec4<u32>(16u))) << vec4<u32>(31u);
}

/// v, negative where it was positive and the other way round for the numbers whose bit is set.
fn with_signs(v: vec4<f32>, signs: vec4<u32>) -> vec4<f32> {
  return bitcast<vec4<f32>>(bitcast<vec4<u32>>(v) ^ signs);
}
//# endmacro
//##
//## rotation() needs the constants D, LANES, VECTORS, ROUNDS and SEED. A workgroup holds VECTORS vectors;
//## LANES invocations share one, and each of them keeps four neighbouring numbers of it.
//# macro rotation()
const WIDTH = 4u * LANES;
var<workgroup> exchanged: array<f32, VECTORS * WIDTH>;

{{ random_signs() }}
/// One stage of the orthogonal transform: halves every block of numbers, the odd one going to the first
/// half, and pairs the halves. Without odd ones that is a stage of the Walsh–Hadamard transform.
fn butterflies(v: vec4<f32>, e: vec4<u32>, vector: u32, stage: u32) -> vec4<f32> {
  var begin = vec4<u32>();
  var size = vec4<u32>(D);
  var half = (size + 1u) / 2u;
  for (var s = 0u; s < stage; s++) {
    let upper = e - begin >= half;
    begin = select(begin, begin + half, upper);
    size = select(half, size - half, upper);
    half = (size + 1u) / 2u;
  }
  let upper = e - begin >= half;
  let paired = upper | (e + half < begin + size);
  let partner = vector + select(e, select(e + half, e - half, upper), paired);
  workgroupBarrier();
  for (var k = 0u; k < 4u; k++) {
    exchanged[vector + e[k]] = v[k];
  }
  workgroupBarrier();
  let other = vec4<f32>(exchanged[partner.x], exchanged[partner.y], exchanged[partner.z], exchanged[partner.w]);
  return select(v, select(v + other, other - v, upper) * 0.7071067811865476, paired);
}

/// Rotates; v holds the numbers e of the vector that begins at `vector` in `exchanged`. The rounds from
/// ROUNDS on are another rotation, for residuals.
fn rotate(v: vec4<f32>, e: vec4<u32>, vector: u32, first_round: u32) -> vec4<f32> {
  var y = v;
  for (var round = first_round; round < first_round + ROUNDS; round++) {
    y = with_signs(y, random_signs(e, round));
    for (var stage = 0u; stage < STAGES; stage++) {
      y = butterflies(y, e, vector, stage);
    }
  }
  return y;
}

/// The inverse of rotate.
fn rotate_back(v: vec4<f32>, e: vec4<u32>, vector: u32, first_round: u32) -> vec4<f32> {
  var x = v;
  for (var round = first_round + ROUNDS; round > first_round; round--) {
    for (var stage = STAGES; stage > 0u; stage--) {
      x = butterflies(x, e, vector, stage - 1u);
    }
    x = with_signs(x, random_signs(e, round - 1u));
  }
  return x;
}
//# endmacro
//##
//## The same within a subgroup and without memory, where D is a power of two: D / 4 neighbours, at least one, keep a
//## vector, the one that is lane `lane` of its subgroup the four numbers from 4 · lane modulo D on. Defines
//## rotate(v, lane, rounds), or rotate_back with `inverse`. Import with context: needs D, ROUNDS and SEED.
//##
//## The signs come first, since v may still be on its way from memory. `rounds` is ROUNDS; where the caller has asked for
//## other memory before, it should not be known to the compiler, which writes the loop out otherwise and moves what was
//## asked for behind it.
//# macro rotation_in_subgroup(inverse)
{{ random_signs() }}

fn {{ "rotate_back" if inverse else "rotate" }}(v: vec4<f32>, lane: u32, rounds: u32) -> vec4<f32> {
//# set bits = range(D.bit_length() - 1) | list
  let e = 4u * (lane % {{ [D // 4, 1] | max }}u) + vec4<u32>(0u, 1u, 2u, 3u);
  // The signs of one round after the other, from the highest bit on.
  var signs = vec4<u32>();
//# for round in (range(ROUNDS) | reverse if inverse else range(ROUNDS))
  signs |= random_signs(e, {{ round }}u) >> vec4<u32>({{ loop.index0 }}u);
//# endfor
//# for bit in bits[2:]
  let side_{{ bit }} = select(1.0, -1.0, (lane & {{ 2 ** (bit - 2) }}u) != 0u);
//# endfor
  var y = v;
  for (var round = 0u; round < rounds; round++) {
    // The factor of all stages at once, and first, so that no sum overflows.
    y *= {{ D ** -0.5 }}f;
    let signs_of_round = signs & vec4<u32>(0x80000000u);
    signs <<= vec4<u32>(1u);
//# if not inverse
    y = with_signs(y, signs_of_round);
//# endif
//# for bit in (bits if inverse else bits | reverse)
{{ stage(bit) }}
//# endfor
//# if inverse
    y = with_signs(y, signs_of_round);
//# endif
  }
  return y;
}
//# endmacro
//##
//## Sums and differences of numbers that differ in a bit. Lanes are named by their number: with subgroupShuffleXor
//## compilers add a check to each number (lib/thread_index.wgsl).
//# macro stage(bit)
//# if bit == 0
    y = vec4<f32>(y.x + y.y, y.x - y.y, y.z + y.w, y.z - y.w);
//# elif bit == 1
    y = vec4<f32>(y.xy + y.zw, y.xy - y.zw);
//# else
//#   set lane_bit = 2 ** (bit - 2)
    y = fma(y, vec4<f32>(side_{{ bit }}), {{ swapped("y", lane_bit) if lane_bit < 4 else "subgroupShuffle(y, lane ^ " ~ lane_bit ~ "u)" }});
//# endif
//# endmacro
