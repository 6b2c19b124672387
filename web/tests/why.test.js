import { describe, expect, it } from 'vitest';
import { barShapes, summary } from '../src/panels/why-bars.js';
import { steps } from '../src/panels/why.js';

const FOUND = /** @type {any} */ ({
  products: new Float32Array(4), dot: 3, scale: 0.5, scaled: 1.5, hiddenBy: [], score: 1.5, rowMax: 2, exp: Math.exp(-0.5),
  rowSum: 2.5, visible: 6, weight: Math.exp(-0.5) / 2.5, computed: 0.24,
});
/** @param {any} changes */
const lines = (changes) => steps({ ...FOUND, ...changes }).map(({ what, figure }) => [what, figure]);

describe('the steps to a weight', () => {
  it('are those that apply', () => {
    expect(lines({})).toEqual([
      ['query · key', '3.0000'], ['× scale', '1.5000'], ['exp(score − largest score)', '0.6065'], ['÷ the row’s sum', '2.5000'],
      ['= weight', '0.2426'],
    ]);
    expect(lines({ softcap: 5, capped: 1.4, modded: -2e-5, bias: -1, score: -1.00002 }).slice(2, 6)).toEqual([
      ['softcap', '1.4000'], ['your score_mod', '−2.000e-5'], ['+ mask', '−1.0000'], ['score', '−1.0000'],
    ]);
  });

  it('end where a rule hides the key', () => {
    const hidden = steps({ ...FOUND, bias: -Infinity, hiddenBy: ['causal masking'], exp: 0, weight: 0 });
    expect(hidden[2]).toEqual({ what: 'hidden', figure: '−∞', value: -Infinity, note: 'by causal masking' });
    expect(hidden.at(-1)?.figure).toBe('0');
  });
});

describe('the bars', () => {
  it('share one line of zero', () => {
    expect(barShapes([3, -1, 0], 40)).toEqual([
      { x: 0, y: 0, height: 30, isAbove: true },
      { x: 1, y: 30, height: 10, isAbove: false },
      { x: 2, y: 30, height: 0, isAbove: true },
    ]);
    expect(barShapes([0, NaN], 40).map(({ height }) => height)).toEqual([0, 0]);
  });

  it('name the dimensions that count most', () => {
    expect(summary([0.1, -7, 2, 0.5])).toBe('Products by dimension; the largest are at 1 (−7.000), 2 (2.000), 3 (0.500).');
  });
});
