import { describe, expect, it } from 'vitest';
import { decodeWords } from '../src/gpu/words.js';

/** As py_attn/gpu/recorder.py writes a dispatch. @param {number[]} head @param {number[][]} buffers */
const record = (head, buffers) => [...head, buffers.length, ...buffers.flat()];

describe('decodeWords', () => {
  it('reads dispatches with any number of buffers, and finds their params one behind the other', () => {
    const words = Uint32Array.from([
      ...record([7, 272, 4, 2, 1], [[11, 0, 1024], [12, 512, 64]]),
      ...record([8, 16, 65_535, 1, 3], []),
      ...record([7, 48, 1, 1, 1], [[4_294_967_295, 4, 8]]),
    ]);
    const records = decodeWords(words).map(({ buffers, ...rest }) => ({ ...rest, buffers: [...buffers] }));
    expect(records).toEqual([
      { pipeline: 7, offset: 0, size: 272, grid: [4, 2, 1], buffers: [11, 0, 1024, 12, 512, 64] },
      { pipeline: 8, offset: 512, size: 16, grid: [65_535, 1, 3], buffers: [] },
      { pipeline: 7, offset: 768, size: 48, grid: [1, 1, 1], buffers: [4_294_967_295, 4, 8] },
    ]);
  });

  it('copies the buffers, as the words are memory of Python’s', () => {
    const words = Uint32Array.from(record([1, 16, 1, 1, 1], [[2, 0, 4]]));
    const [{ buffers }] = decodeWords(words);
    words.fill(0);
    expect([...buffers]).toEqual([2, 0, 4]);
  });

  it('reads nothing from nothing', () => {
    expect(decodeWords(new Uint32Array())).toEqual([]);
  });
});
