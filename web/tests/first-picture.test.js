import { expect, test } from 'vitest';
import { firstPicture } from '../src/first/picture.js';

const picture = firstPicture();
const { source, start } = picture;
const STYLE = { colormap: 'rocket', scale: 'sqrt', pool: 'max' };
const WHOLE = { rows: [0, source.length], columns: [0, source.length], size: [500, 500] };

test('the row of the landing head has its largest weight on the animal', () => {
  const row = picture.answer('row', { layer: start.layer, head: start.head, query: start.query, show: 'weights', over: 'head' });
  expect(source.tokens[start.query]).toBe('it');
  expect(source.tokens[row.links[0].key]).toBe('animal');
  expect(row.links).toHaveLength(8);
  expect(row.links.map((link) => link.weight)).toEqual([...row.weights].sort((a, b) => b - a).slice(0, 8));
  expect(row.weights.reduce((sum, weight) => sum + weight, 0)).toBeCloseTo(1, 5);
});

test('a window is a part of the overview', () => {
  const { rgba, size } = picture.answer('overview', { layer: 3, ...STYLE });
  const whole = picture.answer('window', { layer: 3, head: 1, ...WHOLE, ...STYLE });
  expect(whole.rgba).toEqual(rgba.subarray(4 * size * size, 8 * size * size));
  const part = picture.answer('window', { layer: 3, head: 1, rows: [9, 11], columns: [2, 5], size: [500, 500], ...STYLE });
  expect(part).toMatchObject({ height: 2, width: 3, exact: true, rows: [9, 11], columns: [2, 5] });
  expect(part.rgba.subarray(0, 12)).toEqual(whole.rgba.subarray(4 * (9 * 20 + 2), 4 * (9 * 20 + 5)));
  expect(part.rgba.subarray(12)).toEqual(whole.rgba.subarray(4 * (10 * 20 + 2), 4 * (10 * 20 + 5)));
});

test('the light theme has the colours in reverse', () => {
  const dark = picture.answer('legend', { colormap: 'rocket', scale: 'sqrt', show: undefined });
  const light = picture.answer('legend', { colormap: 'rocket_r', scale: 'sqrt' });
  expect(light.rgba.subarray(0, 4)).toEqual(dark.rgba.subarray(255 * 4));
  expect(light.rgba.subarray(255 * 4)).toEqual(dark.rgba.subarray(0, 4));
  expect(light.ticks).toEqual(dark.ticks);
});

test('what it was not made for is left to Python', () => {
  const head = { layer: start.layer, head: start.head };
  /** @type {[string, Record<string, unknown>][]} */
  const calls = [
    ['row', { ...head, head: 0, query: 9 }],
    ['row', { ...head, query: 9, over: 'layer' }],
    ['row', { ...head, query: 9, show: 'gradient' }],
    ['row', { ...head, query: 9, unheard: true }],
    ['window', { ...head, ...WHOLE, size: [10, 10], ...STYLE }],
    ['window', { ...head, ...WHOLE, ...STYLE, colormap: 'viridis' }],
    ['window', { ...head, ...WHOLE, ...STYLE, scale: 'log' }],
    ['overview', { layer: 0, ...STYLE, range: 'map' }],
    ['decode_open', { layer: 0 }],
    ['constructor', {}],
  ];
  for (const [method, payload] of calls) {
    expect(picture.answer(method, payload)).toBeUndefined();
  }
});
