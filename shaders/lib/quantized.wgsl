//## Weights that stay quantised, in blocks of 32 neighbours along a row (the block formats of ggml, ggml-quants.h):
//##
//##   Q4_1   weight = q · d + m    q of 4 bits: byte j of a block holds element j (low half) and element j + 16
//##   Q8_0   weight = q · d        q of 8 bits, signed: byte j holds element j
//##
//## The buffer `weight` of vec4<u32> has the codes of all blocks first (a vec4 for a block of Q4_1, two for Q8_0), then
//## a word for each block with d in its low half and m in its high half, in float16. Blocks are numbered row by row.
//##
//## Word w of a block (w = 0 … 3) stands for eight weights here: elements 4w … 4w + 3 (`low`) and 16 + 4w … 16 + 4w + 3
//## (`high`). Their codes come multiplied by powers of two, because a shift would take an instruction for each code:
//## what they are multiplied with has to be multiplied by CODE_UNITS, which is exact.
//## Needs: `format`, BLOCKS (blocks of the whole matrix) and the param weight_first.

/// d and m of block b.
fn block_scale(b: u32) -> vec2<f32> {
  let word = params.weight_first / 4u + BLOCKS * CODES_OF_BLOCK + (b >> 2u);
  return unpack2x16float(weight[word][b & 3u]);
}
//# if format == "Q4_1"
const CODES_OF_BLOCK = 1u;
const CODE_UNITS = vec4<f32>(1.0, 0x1p-8f, 0x1p-16f, 0x1p-24f);

fn low_codes(word: u32) -> vec4<f32> {
  return vec4<f32>(vec4<i32>(vec4<u32>(word) & vec4<u32>(0xfu, 0xf00u, 0xf0000u, 0xf000000u)));
}
fn high_codes(word: u32) -> vec4<f32> {
  return low_codes(word >> 4u);
}
//# else
const CODES_OF_BLOCK = 2u;
const CODE_UNITS = vec4<f32>(0x1p-24f);

fn low_codes(word: u32) -> vec4<f32> {
  return vec4<f32>(vec4<i32>((vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) & vec4<u32>(0xff000000u)));
}
fn high_codes(word: u32) -> vec4<f32> {
  return low_codes(word);
}
//# endif

/// The words of block b that hold the low elements, and those that hold the high ones (the same for Q4_1).
fn low_words(b: u32) -> vec4<u32> {
  return weight[params.weight_first / 4u + b * CODES_OF_BLOCK];
}
fn high_words(b: u32) -> vec4<u32> {
  return weight[params.weight_first / 4u + b * CODES_OF_BLOCK + CODES_OF_BLOCK - 1u];
}

/// One of these words.
fn low_word(b: u32, w: u32) -> u32 {
  return weight[params.weight_first / 4u + b * CODES_OF_BLOCK][w];
}
fn high_word(b: u32, w: u32) -> u32 {
  return weight[params.weight_first / 4u + b * CODES_OF_BLOCK + CODES_OF_BLOCK - 1u][w];
}
