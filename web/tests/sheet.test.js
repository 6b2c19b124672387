import { describe, expect, it } from 'vitest';
import { arrangeMaps, drawSheet, sizeOfSheet, wrap } from '../src/heatmap/sheet.js';
import { SvgPen } from '../src/heatmap/svg.js';
import { cellsOf, notesOf } from '../src/panels/overview-sheet.js';

const measure = (/** @type {string} */ text) => 6 * text.length;
const canvas = { toDataURL: () => 'data:image/png;base64,AA==' };
/** @param {{ layers: number, heads: number }} shape @param {number} [layer] */
const sheet = ({ layers, heads }, layer = 0) => /** @type {any} */ ({
  title: 'The cat', subtitle: 'all heads', meaning: 'Attention weight', legend: { canvas, ticks: [{ value: 1, at: 1 }], isSigned: false },
  notes: ['Rows are queries.'], layer, heads, maps: Array.from({ length: layers * heads }, () => canvas),
});
const SHAPES = [{ layers: 6, heads: 12 }, { layers: 1, heads: 1 }, { layers: 1, heads: 12 }, { layers: 30, heads: 9 }, { layers: 32, heads: 32 }, { layers: 1, heads: 64 }];

describe('the places of the maps', () => {
  it.each(SHAPES)('are legible, beside each other and inside of the figure: $layers × $heads', (shape) => {
    const { side, at } = arrangeMaps(shape);
    const { width, height } = sizeOfSheet(sheet(shape), measure);
    const places = Array.from({ length: shape.layers * shape.heads }, (_, i) => at(i));
    expect(side).toBeGreaterThanOrEqual(40);
    for (const { x, y } of places) {
      expect(x + side).toBeLessThan(width);
      expect(y + side).toBeLessThan(height);
    }
    expect(new Set(places.map(({ x, y }) => `${x}/${y}`)).size).toBe(places.length);
    const overlap = places.some((a, i) => places.slice(i + 1).some((b) => Math.abs(a.x - b.x) < side && Math.abs(a.y - b.y) < side));
    expect(overlap).toBe(false);
  });
  it('have a row for each layer; a single layer fills several rows', () => {
    expect(arrangeMaps({ layers: 6, heads: 12 })).toMatchObject({ rows: 6, columns: 12, alone: false });
    const alone = arrangeMaps({ layers: 1, heads: 12 });
    expect(alone.rows).toBeGreaterThan(1);
    expect(alone.side).toBeGreaterThan(arrangeMaps({ layers: 6, heads: 12 }).side);
  });
});

describe('the drawing', () => {
  const draw = (/** @type {any} */ made) => {
    const pen = new SvgPen(measure);
    drawSheet(pen, made, measure);
    return pen.finish(100, 100, 'x');
  };
  it('names layers and heads from 0, and has every map once', () => {
    const drawn = draw(sheet({ layers: 2, heads: 3 }));
    for (const label of ['L0', 'L1', 'H0', 'H1', 'H2']) expect(drawn.split(`>${label}</text>`)).toHaveLength(2);
    expect(drawn.match(/<image /gu)).toHaveLength(2 * 3 + 1); // and the colour bar
    expect(drawn).toContain('fill="#fff"');
  });
  it('names the heads of a single layer only', () => {
    const drawn = draw(sheet({ layers: 1, heads: 5 }, 4));
    expect(drawn).not.toMatch(/>L\d/u);
    expect(drawn.match(/>H\d</gu)).toHaveLength(5);
  });
});

describe('what is said below', () => {
  const source = /** @type {any} */ ({ length: 16384, layers: 1, heads: 4 });
  it('tells how a long text was reduced', () => {
    const cells = cellsOf(source, source);
    expect(cells).toBeLessThan(1000);
    expect(notesOf(source, { cells, step: 8, pool: 'max', alone: true }).at(-1)).toMatch(/^Reduced from 16,384 × 16,384 to \d+ × \d+: each pixel is the largest of .* one of every 8 rows was computed\.$/u);
  });
  it('says nothing of it where each pixel is a weight', () => {
    expect(cellsOf({ ...source, length: 20 }, { layers: 6, heads: 12 })).toBe(20);
    expect(notesOf({ ...source, length: 20 }, { cells: 20, step: 1, pool: 'max', alone: false })).toHaveLength(1);
  });
  it('breaks between words', () => expect(wrap('one two three', measure, 48)).toEqual(['one two', 'three']));
});
