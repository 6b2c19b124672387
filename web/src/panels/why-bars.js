/** The products of a query and a key by dimension, as bars: above the line they raise the score, below they lower it. */

import { fill, h } from '../dom.js';

const HEIGHT = 72; // CSS pixels
const NAMED = 3; // dimensions that are named beneath

/**
 * @typedef {{ query: Float32Array, key: Float32Array, products: Float32Array }} Vectors each by dimension
 */

/** @param {Vectors} vectors */
export function bars(vectors) {
  const { products } = vectors;
  const note = h('figcaption', { class: 'muted small' }, summary(products));
  const svg = draw(barShapes(products, HEIGHT), products.length);
  const name = (/** @type {PointerEvent} */ event) => {
    const box = svg.getBoundingClientRect();
    const at = Math.floor(((event.clientX - box.left) / box.width) * products.length);
    if (at >= 0 && at < products.length) fill(note, describe(vectors, at));
  };
  svg.addEventListener('pointermove', name);
  svg.addEventListener('pointerdown', name);
  svg.addEventListener('pointerleave', () => fill(note, summary(products)));
  return h('figure', { class: 'why-bars' }, /** @type {any} */ (svg), note);
}

/**
 * Each bar's place: one unit wide, in the given height, from the line of zero.
 * @param {ArrayLike<number>} products @param {number} height
 * @returns {{ x: number, y: number, height: number, isAbove: boolean }[]}
 */
export function barShapes(products, height) {
  const values = Array.from(products, (value) => (Number.isFinite(value) ? value : 0));
  const [high, low] = [Math.max(0, ...values), Math.min(0, ...values)];
  const scale = high > low ? height / (high - low) : 0;
  return values.map((value, x) => ({
    x,
    y: (high - Math.max(value, 0)) * scale,
    height: Math.abs(value) * scale,
    isAbove: value >= 0,
  }));
}

/** @param {ReturnType<typeof barShapes>} shapes @param {number} count */
function draw(shapes, count) {
  const svg = svgElement('svg', { viewBox: `0 0 ${count} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img' });
  svg.setAttribute('aria-label', 'Products of query and key, by dimension');
  for (const { x, y, height, isAbove } of shapes) {
    svg.append(svgElement('rect', { x: x + 0.1, y, width: 0.8, height: Math.max(height, 0.4), class: isAbove ? 'raises' : 'lowers' }));
  }
  return svg;
}

/** @param {string} tag @param {Record<string, string | number>} attributes */
function svgElement(tag, attributes) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

/** The dimensions that count most. @param {ArrayLike<number>} products */
export function summary(products) {
  const order = Array.from(products, (value, dimension) => ({ value, dimension })).sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const named = order.slice(0, NAMED).map(({ value, dimension }) => `${dimension} (${signed(value)})`);
  return `Products by dimension; the largest are at ${named.join(', ')}.`;
}

/** @param {Vectors} vectors @param {number} at */
function describe({ query, key, products }, at) {
  return `Dimension ${at}: query ${signed(query[at])} × key ${signed(key[at])} = ${signed(products[at])}`;
}

/** @param {number} value */
function signed(value) {
  return `${value < 0 ? '−' : ''}${Math.abs(value).toFixed(3)}`;
}
