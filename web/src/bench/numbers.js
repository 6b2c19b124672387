/** The inputs of all workloads: numbers of variance 1 by seed and index, as in bench/numbers.py. */

const STEP = Math.fround(Math.sqrt(6) / 65536);

/** @param {number} seed @param {number} index */
export function number(seed, index) {
  let x = (Math.imul(index, 0x9e3779b1) + seed) | 0;
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  x ^= x >>> 16;
  return Math.fround(((x & 0xffff) + (x >>> 16) - 65535) * STEP);
}

/**
 * A [B, H, S, D] array of them, laid out as such or as [B, S, H, D]; with `rows`, only those of S.
 * @param {number} seed
 * @param {[number, number, number, number]} shape
 * @param {'BHSD' | 'BSHD'} layout
 * @param {[number, number]} [rows]
 */
export function numbers(seed, [B, H, S, D], layout, rows = [0, S]) {
  const [first, last] = rows;
  const out = new Float32Array(B * H * (last - first) * D);
  let at = 0;
  const [outer, inner] = layout === 'BHSD' ? [H, last - first] : [last - first, H];
  for (let b = 0; b < B; b++) {
    for (let i = 0; i < outer; i++) {
      for (let j = 0; j < inner; j++) {
        const [h, s] = layout === 'BHSD' ? [i, first + j] : [j, first + i];
        const begin = ((b * H + h) * S + s) * D;
        for (let d = 0; d < D; d++) out[at++] = number(seed, begin + d);
      }
    }
  }
  return out;
}

/** To float16 bits, rounded to nearest even. @param {Float32Array} values */
export function toHalf(values) {
  const scratch = new Float32Array(1);
  const bits = new Uint32Array(scratch.buffer);
  return Uint16Array.from(values, (value) => {
    scratch[0] = value;
    const sign = (bits[0] >>> 16) & 0x8000;
    const size = bits[0] & 0x7fffffff;
    if (size < 0x38800000) {
      scratch[0] = Math.fround(Math.abs(value) + 0.5);
      return sign | (bits[0] - 0x3f000000);
    }
    return sign | ((size - 0x38000000 + 0xfff + ((size >>> 13) & 1)) >>> 13);
  });
}

/** From float16 bits. @param {Uint16Array} halves */
export function fromHalf(halves) {
  return Float32Array.from(halves, (half) => {
    const exponent = (half >> 10) & 31;
    const fraction = half & 1023;
    const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    return half & 0x8000 ? -size : size;
  });
}
