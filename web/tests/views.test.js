import { describe, expect, it } from 'vitest';
import { SvgPen } from '../src/heatmap/svg.js';
import { createStore, keepHead, MAX_HEADS, openSource, shownHeads, toggleHead } from '../src/store.js';
import { drawLines, inView, tokenAt } from '../src/views/draw-lines.js';
import { flow, linesDrawing } from '../src/views/figure.js';
import { linksOfToken } from '../src/views/lines.js';
import { colorAt, drawnHeads, HUES, meanOf, pageOf, position } from '../src/views/shade.js';

const heads = (/** @type {string} */ text) => text.split(' ').filter(Boolean).map((one) => ({ layer: Number(one.split('.')[0]), head: Number(one.split('.')[1]) }));

describe('heads that are shown together', () => {
  it('are those that are kept and the one in focus, which keep their places', () => {
    const store = createStore({ layer: 3, head: 1 });
    expect(shownHeads(store.state)).toEqual(heads('3.1'));
    toggleHead(store, { layer: 2, head: 0 });
    expect(store.state).toMatchObject({ layer: 3, head: 1, heads: heads('3.1 2.0') });
    store.set({ layer: 5, head: 11 });
    expect(shownHeads(store.state)).toEqual(heads('3.1 2.0 5.11'));
    toggleHead(store, { layer: 3, head: 1 });
    expect(shownHeads(store.state)).toEqual(heads('2.0 5.11'));
  });

  it('give the focus to another one when the one in focus is let go, and the last one stays', () => {
    const store = createStore({ layer: 3, head: 1, heads: heads('3.1 2.0') });
    toggleHead(store, { layer: 3, head: 1 });
    expect(store.state).toMatchObject({ layer: 2, head: 0, heads: [] });
    toggleHead(store, { layer: 2, head: 0 });
    expect(shownHeads(store.state)).toEqual(heads('2.0'));
  });

  it('can be kept one by one', () => {
    const store = createStore();
    keepHead(store);
    store.set({ layer: 0, head: 4 });
    expect(shownHeads(store.state)).toEqual(heads('0.0 0.4'));
    store.set({ layer: 0, head: 0 });
    keepHead(store);
    expect(store.state.heads).toEqual([]);
  });

  it('are no more than there are hues', () => {
    const store = createStore();
    for (let head = 1; head < MAX_HEADS; head++) expect(toggleHead(store, { layer: 0, head })).toBe(true);
    expect(toggleHead(store, { layer: 1, head: 0 })).toBe(false);
    store.set({ layer: 4, head: 4 });
    expect(shownHeads(store.state)).toHaveLength(MAX_HEADS);
    expect(shownHeads(store.state).at(-1)).toEqual({ layer: 4, head: 4 });
    expect(HUES).toHaveLength(MAX_HEADS);
  });

  it('are those that another source has', () => {
    const store = createStore({ heads: heads('0.0 5.3 0.7') });
    openSource(store, /** @type {any} */ ({ layers: 2, heads: 4, length: 9, tokens: [] }));
    expect(store.state.heads).toEqual(heads('0.0'));
  });

  it('are one where the map is that of several', () => {
    const state = /** @type {any} */ ({ layer: 2, head: 1, heads: heads('0.0'), over: 'layer' });
    expect(drawnHeads(state)).toEqual(heads('2.1'));
    expect(drawnHeads({ ...state, over: 'head' })).toEqual(heads('0.0 2.1'));
  });
});

describe('shades', () => {
  it('lie where Python’s colours lie', () => {
    for (const [scale, expected] of /** @type {const} */ ([['linear', 0.25], ['sqrt', 0.5], ['log', 1 + Math.log10(0.25) / 4]])) {
      expect(position(0.25, scale, 1)).toBeCloseTo(expected, 6);
      expect(position(0.05, scale, 0.2)).toBeCloseTo(expected, 6);
      expect(position(-0.25, scale, 1)).toBeCloseTo(expected, 6);
      expect([position(0, scale, 1), position(3, scale, 1), position(NaN, scale, 1)]).toEqual([0, 1, 0]);
    }
    expect(position(1e-6, 'log', 1)).toBe(0);
  });

  it('carry ink that can be read', () => {
    for (let level = 0; level < 256; level += 5) {
      const legend = new Uint8Array(1024).fill(level);
      const { ground, ink } = colorAt(legend, 0.5);
      expect(ground).toBe(`rgb(${level},${level},${level})`);
      expect(contrast([level, level, level], ink === '#000' ? [0, 0, 0] : [255, 255, 255])).toBeGreaterThan(4.5);
    }
  });

  it('are means over heads', () => {
    expect([...meanOf([new Float32Array([1, 0, 0.5]), new Float32Array([0, 0, 0.25])], 3)]).toEqual([0.5, 0, 0.375]);
  });

  it('have hues that stay apart for every kind of colour vision', () => {
    for (const [theme, ground] of /** @type {const} */ ([[0, [255, 255, 255]], [1, [23, 21, 29]]])) {
      const hues = HUES.map((pair) => rgb(pair[theme]));
      for (const hue of hues) expect(contrast(hue, [...ground])).toBeGreaterThanOrEqual(3);
      for (const sight of SIGHTS) {
        const seen = hues.map((hue) => lab(sight.map((row) => clip(row[0] * linear(hue[0]) + row[1] * linear(hue[1]) + row[2] * linear(hue[2])))));
        seen.forEach((one, i) => seen.slice(i + 1).forEach((other) => expect(Math.hypot(...one.map((x, k) => x - other[k]))).toBeGreaterThan(20)));
      }
    }
  });
});

describe('a part of a long text', () => {
  it('has the token in it', () => {
    expect(pageOf(0, 1000, 20)).toEqual([0, 20]);
    expect(pageOf(999, 1000, 16_384)).toEqual([0, 1000]);
    expect(pageOf(16_383, 1000, 16_384)).toEqual([16_000, 16_384]);
  });
});

const LINES = { head: [0, 1, 0], query: [0, 2, 1], key: [1, 0, 1], weight: [0.9, 0.5, -0.3] };
const SCENE = /** @type {any} */ ({
  left: 0, top: 0, width: 300, height: 66, scrolled: 0, row: 22, room: 60, tokens: ['a', 'b', '<c>'], links: LINES, hues: ['#111', '#222'], scale: 'linear',
  maximum: 1, query: 0, key: 1, pointed: null, pins: [], theme: { ink: '#000', muted: '#333', accent: '#444', surface: '#fff', line: '#eee', sunken: '#ddd' },
});

/** @param {object} [changes] */
function drawing(changes) {
  const pen = new SvgPen((text) => 7 * text.length);
  drawLines(pen, { ...SCENE, ...changes });
  return pen.finish(300, 66, 'lines');
}
const count = (/** @type {string} */ text, /** @type {RegExp} */ what) => text.match(what)?.length ?? 0;

describe('lines', () => {
  it('go from each query to each key, in the hue of their head, the strongest above the others', () => {
    const svg = drawing();
    expect(count(svg, /stroke="#111"/gu)).toBe(2);
    expect(count(svg, /stroke="#222"/gu)).toBe(1);
    expect(svg.indexOf('stroke-opacity="0.9"')).toBeGreaterThan(svg.indexOf('stroke-opacity="0.5"'));
    expect(svg).toMatch(/stroke-dasharray="4 3" stroke-opacity="0.3"/u);
    expect(count(svg, /&#60;c&#62;<\/text>/gu)).toBe(2);
  });

  it('are those of the token that is pointed at', () => {
    expect(count(drawing({ pointed: { side: 'query', index: 0 } }), /stroke-opacity/gu)).toBe(1);
    expect(count(drawing({ pointed: { side: 'key', index: 1 } }), /stroke-opacity/gu)).toBe(2);
  });

  it('are drawn where they are in view', () => {
    expect(inView({ scrolled: 30, height: 50, row: 22 }, 300)).toEqual([1, 4]);
    const tokens = Array(300).fill('t');
    const far = drawing({ tokens, scrolled: 2200 });
    expect(count(far, /stroke-opacity/gu)).toBe(0);
    expect(count(far, /<text/gu)).toBe(6);
  });

  it('mark pinned links', () => expect(drawing({ pins: [{ query: 2, key: 2 }] })).toContain('stroke-dasharray="1.5 3"'));

  it('know which token is at a point', () => {
    expect(tokenAt(SCENE, 20, 30, 3)).toEqual({ side: 'query', index: 1 });
    expect(tokenAt(SCENE, 290, 60, 3)).toEqual({ side: 'key', index: 2 });
    expect(tokenAt(SCENE, 150, 30, 3)).toBeNull();
    expect(tokenAt(SCENE, 20, 70, 3)).toBeNull();
  });

  it('of a token are all that are not zero', () => {
    const rows = [new Float32Array([0, 0.5, 0.25]), new Float32Array([1, 0, 0])];
    const found = linksOfToken({ side: 'key', index: 1 }, rows, [0, 1]);
    expect(found).toEqual({ head: [1, 0, 0], query: [0, 1, 2], key: [1, 1, 1], weight: [1, 0.5, 0.25] });
    expect(linksOfToken({ side: 'query', index: 2 }, rows, [1])).toEqual({ head: [1], query: [2], key: [0], weight: [1] });
  });

  it('are a figure on white, without marks', () => {
    const pen = new SvgPen((text) => 7 * text.length);
    const about = { title: 'A cat', subtitle: 'Several heads', heads: [{ name: 'L3 H1', hue: '#0072b2' }, { name: 'L2 H0', hue: '#d55e00' }] };
    const { width, height, title, draw } = linesDrawing(about, SCENE, ['#0072b2', '#d55e00']);
    draw(pen);
    const svg = pen.finish(width, height, title);
    expect(svg).toContain('<title>A cat – Several heads</title>');
    expect(svg).toContain('<rect x="0" y="0" width="420"');
    for (const text of ['L3 H1', 'L2 H0', 'A cat']) expect(svg).toContain(`>${text}</text>`);
    expect(svg).not.toContain('600 12px');
  });
});

describe('running text', () => {
  it('breaks where a line is full', () => {
    expect(flow([40, 40, 40, 200], 100)).toEqual([
      { x: 0, line: 0, width: 40 }, { x: 44, line: 0, width: 40 }, { x: 0, line: 1, width: 40 }, { x: 0, line: 2, width: 100 },
    ]);
  });
});

// Machado, Oliveira and Fernandes 2009, severity 1: protanopia, deuteranopia, tritanopia; and full colour vision.
const SIGHTS = [
  [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
];

/** @param {string} hex */
function rgb(hex) {
  return [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

/** @param {number} channel */
function linear(channel) {
  return channel <= 10.31475 ? channel / 3294.6 : ((channel / 255 + 0.055) / 1.055) ** 2.4;
}

/** @param {number} value */
function clip(value) {
  return Math.min(Math.max(value, 0), 1);
}

/** @param {number[]} one @param {number[]} other */
function contrast(one, other) {
  const luminance = (/** @type {number[]} */ [r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

/** CIELAB under D65. @param {number[]} light linear red, green and blue */
function lab([r, g, b]) {
  const [x, y, z] = [(0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047, 0.2126 * r + 0.7152 * g + 0.0722 * b, (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883].map(
    (value) => (value > 0.008856 ? Math.cbrt(value) : 7.787 * value + 16 / 116),
  );
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}
