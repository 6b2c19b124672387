import { describe, expect, it } from 'vitest';
import { decodeWords } from '../src/gpu/words.js';

/** As py_attn/gpu/recorder.py writes a dispatch. @param {number[]} head @param {number[][]} bindings */
const record = (head, bindings) => [...head, bindings.length, ...bindings.flat()];

describe('decodeWords', () => {
  it('reads dispatches with any number of bindings, and finds their params one behind the other', () => {
    const words = Uint32Array.from([
      ...record([7, 272, 4, 2, 1], [[11, 0, 1024], [12, 512, 64]]),
      ...record([8, 16, 65_535, 1, 3], []),
      ...record([7, 48, 1, 1, 1], [[4_294_967_295, 4, 8]]),
    ]);
    const records = decodeWords(words).map(({ bindings, ...rest }) => ({ ...rest, bindings: [...bindings] }));
    expect(records).toEqual([
      { pipeline: 7, offset: 0, size: 272, grid: [4, 2, 1], bindings: [11, 0, 1024, 12, 512, 64] },
      { pipeline: 8, offset: 512, size: 16, grid: [65_535, 1, 3], bindings: [] },
      { pipeline: 7, offset: 768, size: 48, grid: [1, 1, 1], bindings: [4_294_967_295, 4, 8] },
    ]);
  });

  it('gives bindings as parts of the words, without a copy', () => {
    const words = Uint32Array.from(record([1, 16, 1, 1, 1], [[2, 0, 4]]));
    expect(decodeWords(words)[0].bindings.buffer).toBe(words.buffer);
  });

  it('reads nothing from nothing', () => {
    expect(decodeWords(new Uint32Array())).toEqual([]);
  });
});
