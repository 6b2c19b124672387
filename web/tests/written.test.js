import { describe, expect, it } from 'vitest';
import source from '../../py_attn/colormaps.py?raw';
import { draw } from '../src/heatmap/draw.js';
import { SvgPen } from '../src/heatmap/svg.js';
import { cellFigure, contrast, decimalsFor, inkOn, luminance, WRITTEN_FROM } from '../src/heatmap/written.js';

const READABLE = 4.5; // WCAG 2.2, 1.4.3

/** The colours of every map between its anchors, as Python interpolates them. */
function colors() {
  const maps = [...source.matchAll(/"(rocket|magma|viridis)": ((?:"[0-9a-f ]+"\s*)+)/gu)];
  expect(maps).toHaveLength(3);
  return maps.flatMap(([, , words]) => {
    const anchors = (words.match(/[0-9a-f]{6}/gu) ?? []).map((word) => [0, 2, 4].map((at) => parseInt(word.slice(at, at + 2), 16)));
    expect(anchors).toHaveLength(17);
    return anchors.slice(1).flatMap((to, i) => Array.from({ length: 16 }, (_, step) => to.map((end, channel) => Math.round(anchors[i][channel] + ((end - anchors[i][channel]) * step) / 16))));
  });
}

/** @param {number[]} color */
function contrastOn([red, green, blue]) {
  return contrast(luminance(red, green, blue), inkOn(red, green, blue) === '#fff' ? 1 : 0);
}

describe('the ink on a cell', () => {
  it('is readable on every colour of every map', () => {
    expect(Math.min(...colors().map(contrastOn))).toBeGreaterThanOrEqual(READABLE);
  });
  it('is readable on any colour at all, so also on those of differences and gradients', () => {
    const levels = Array.from({ length: 18 }, (_, i) => 15 * i);
    const all = levels.flatMap((red) => levels.flatMap((green) => levels.map((blue) => contrastOn([red, green, blue]))));
    expect(Math.min(...all)).toBeGreaterThanOrEqual(READABLE);
  });
});

describe('the figure in a cell', () => {
  it('has as many decimals as fit', () => {
    expect([WRITTEN_FROM, 40, 46, 100].map((cell) => decimalsFor(cell, false))).toEqual([2, 3, 4, 4]);
    expect(decimalsFor(WRITTEN_FROM, true)).toBe(1);
  });
  it('has a true minus, and none before zero', () => {
    expect([0.12345, 1, 0, -0.0226, -0.001].map((value) => cellFigure(value, 2))).toEqual(['0.12', '1.00', '0', '−0.02', '0.00']);
  });
});

describe('the drawing', () => {
  const theme = { ink: '#111', muted: '#222', line: '#333', accent: '#444', sunken: '#555', surface: '#666' };
  const picture = {
    canvas: { toDataURL: () => 'data:,' }, rows: [1, 3], columns: [0, 2],
    written: { values: [0.125, NaN, 1, 0], rgba: [255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0, 0] },
  };
  const texts = (/** @type {number} */ side) => {
    const pen = new SvgPen((text) => 7 * text.length);
    draw(pen, /** @type {any} */ ({ width: 400, left: 90, top: 90, side, view: { x: 0, y: 0, span: 4 }, tokens: ['a', 'b', 'c', 'd'], picture, row: 0, column: 0, theme }));
    return [...pen.finish(1, 1, 'x').matchAll(/<text x="([\d.]+)" y="([\d.]+)"[^>]* fill="([^"]+)"[^>]*>([\d.]+)<\/text>/gu)].map((found) => found.slice(1));
  };
  it('writes each weight into the middle of its cell, and none where there is none', () => {
    expect(texts(200)).toEqual([['115', '165', '#000', '0.1250'], ['115', '215', '#fff', '1.0000'], ['165', '215', '#111', '0']]);
  });
  it('writes nothing into small cells', () => expect(texts(4 * WRITTEN_FROM - 1)).toEqual([]));
});
