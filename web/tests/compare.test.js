import { describe, expect, it } from 'vitest';
import { formatSigned, formatTick } from '../src/format.js';
import { beginning, defineFigures, describeFigures, namesOf, roundSpan } from '../src/panels/compare-words.js';

const FOCUS = { layer: 5, head: 11 };
const MODEL = { layers: 6, heads: 12 };

describe('the maps’ names', () => {
  it('say what each of them is', () => {
    expect(namesOf({ with: 'head', layer: 0, head: 1 }, FOCUS)).toEqual({ a: 'A: layer 5, head 11', b: 'B: layer 0, head 1' });
    expect(namesOf({ with: 'cache', dtype: 'turboquant3' }, FOCUS).b).toBe('B: the same head over TurboQuant, 3 bits');
    expect(namesOf({ with: 'cache', dtype: 'float16' }, FOCUS).b).toBe('B: the same head over a float16 cache');
    expect(namesOf({ with: 'unedited' }, FOCUS).b).toBe('B: the same head without them');
    expect(namesOf({ with: 'text', text: 'x' }, FOCUS).b).toContain('another text');
  });
});

describe('the beginning of a comparison', () => {
  it('is a neighbour of the head in focus, never itself', () => {
    expect(beginning('head', FOCUS, MODEL)).toEqual({ with: 'head', layer: 5, head: 0 });
    expect(beginning('head', { layer: 1, head: 0 }, { layers: 2, heads: 1 })).toEqual({ with: 'head', layer: 0, head: 0 });
  });

  it('has all that is needed to show something at once', () => {
    expect(beginning('cache', FOCUS, MODEL)).toEqual({ with: 'cache', dtype: 'turboquant3' });
    expect(beginning('unedited', FOCUS, MODEL)).toEqual({ with: 'unedited' });
    expect(beginning('text', FOCUS, MODEL)).toMatchObject({ with: 'text', text: expect.stringMatching(/\w/u) });
  });
});

describe('the span of the difference’s colours', () => {
  it.each([
    [0, 1],
    [1, 1],
    [-0.57, 1],
    [0.5, 0.5],
    [0.21, 0.5],
    [-0.2, 0.2],
    [0.1, 0.1],
    [0.0013, 0.002],
    [3e-7, 5e-7],
    [Number.NaN, 1],
  ])('of %d is %d', (largest, span) => expect(roundSpan(largest)).toBe(span));
});

describe('numbers with a sign', () => {
  it('have one, and zero has none', () => {
    expect([0.25, -0.25, 0].map(formatSigned)).toEqual(['+0.2500', '−0.2500', '0']);
    expect(formatSigned(-2e-6)).toBe('−2.0e−6');
  });

  it('are short beside a legend', () => {
    expect([-1, -0.125, 0, 0.5].map((value) => formatTick(value, true))).toEqual(['−1', '−0.13', '0', '+0.5']);
    expect(formatTick(0.25, false)).toBe('0.25');
  });
});

describe('the figures', () => {
  const figures = {
    tokens: ['a', 'b'],
    maximum: 1,
    note: '',
    whyNot: '',
    step: 1,
    rows: 2,
    variation: 0.5,
    shannon: 0.25,
    largest: { query: 1, key: 0, a: 0.75, b: 0.25, difference: 0.5 },
  };

  it('are read out in a sentence', () => {
    expect(describeFigures(figures, ['a', 'b'])).toBe(
      'The maps differ most from b to a: A 0.7500, B 0.2500. Mean total variation distance 0.500, mean Jensen–Shannon divergence 0.250 bits.',
    );
    expect(describeFigures({ ...figures, largest: undefined }, ['a', 'b'])).toBe('');
  });

  it('say which rows they are means over', () => {
    expect(defineFigures(figures)).toContain('means over 2 rows:');
    expect(defineFigures({ ...figures, rows: 1024, step: 4 })).toContain('1,024 rows, every 4th:');
  });
});
