//## Tiles of codes, as matrices of 8-bit integers read them (decode/integer_split.wgsl): the codes of 128 rows of 128
//## numbers, 4 bits each, then the rows' 128 scales (f32).
//##
//## A code's four bits stand for a level (NIBBLES in py_attn/turboquant_reference.py). Where levels are at equal distances
//## they are an integer n in two's complement, and n + 1/2 is the level in steps. Otherwise a byte is made of them that is
//## 38 above the level in quarters of a step, which is even: upper_halves and lower_halves in decode/integer_split.wgsl.
//##
//## Codes lie in groups of 16 words that hold 128 of them: of one row in tiles of keys, of one of the
//## rows' 128 numbers in tiles of values. So neighbours in a group are what a product sums over. Code i of a group lies in
//## word code_word(i) of it, from bit code_shift(i) on: a mask then cuts out of four neighbouring words the upper halves
//## of 16 bytes, which are codes 32 a … 32 a + 15 in order, and after a shift by four codes 32 a + 16 … 32 a + 31.
const TILE_ROWS = 128u;
const GROUP_WORDS = 16u;
const TILE_WORDS = TILE_ROWS * (GROUP_WORDS + 1u);

fn code_word(i: u32) -> u32 {
  return (i >> 5u) * 4u + ((i >> 2u) & 3u);
}

fn code_shift(i: u32) -> u32 {
  return 8u * (i & 3u) + 4u - ((i >> 2u) & 4u);
}

/// How many tiles hold so many rows.
fn tiles_of(rows: u32) -> u32 {
  return (rows + TILE_ROWS - 1u) / TILE_ROWS;
}
