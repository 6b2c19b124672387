/** The part of a map that is on screen as a file: PNG, SVG, or its weights as JSON. */

import { context2d } from '../dom.js';
import { drawFigure, layOut } from './figure.js';
import { textWidth } from './measure.js';
import { drawSheet, sizeOfSheet } from './sheet.js';
import { SvgPen } from './svg.js';

/**
 * @typedef {'png' | 'svg' | 'json'} Format
 * @typedef {{ name: string, type: string, data: Blob }} Exported
 */

/** @type {readonly Format[]} */
export const FORMATS = ['png', 'svg', 'json'];
const PNG_SCALE = 3; // sharp on paper: 288 dots an inch
const MOST_PIXELS = 8000; // along a side: what browsers draw without failing

/**
 * Anything that a pen draws, its white ground too; lengths in CSS pixels.
 * @typedef {{ width: number, height: number, title: string, draw: (pen: import('./draw.js').Pen) => void }} Drawing
 */

/** @param {import('./figure.js').Figure} figure @returns {Drawing} */
export function drawingOf(figure) {
  const { width, height } = layOut(figure);
  return { width, height, title: `${figure.title} – ${figure.subtitle}`, draw: (pen) => drawFigure(pen, figure) };
}

/** @param {import('./sheet.js').Sheet} sheet @returns {Drawing} */
export function drawingOfSheet(sheet) {
  const title = `${sheet.title} – ${sheet.subtitle}`;
  return { ...sizeOfSheet(sheet, textWidth), title, draw: (pen) => drawSheet(pen, sheet, textWidth) };
}

/** @param {Drawing} drawing @returns {Promise<Blob>} */
export function toPng({ width, height, draw }) {
  const scale = Math.min(PNG_SCALE, MOST_PIXELS / Math.max(width, height));
  const canvas = document.createElement('canvas');
  canvas.width = Math.round(scale * width);
  canvas.height = Math.round(scale * height);
  const context = context2d(canvas);
  context.scale(scale, scale);
  draw(context);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('The browser could not make a PNG.'))), 'image/png');
  });
}

/** @param {Drawing} drawing @param {number} [mostRects] see SvgPen @returns {Blob} */
export function toSvg({ width, height, title, draw }, mostRects) {
  const pen = new SvgPen(textWidth, mostRects);
  draw(pen);
  return new Blob([pen.finish(width, height, title)], { type: 'image/svg+xml' });
}

/**
 * The weights of a part of a map, with what is needed to interpret them. Positions, layers and heads count from 0.
 * @param {{ source: import('../types').SourceInfo, layer: number, head: number, query: number, key: number,
 *   show: import('../types').Show, over?: import('../types').Over }} state
 * @param {import('../types').Weights} part
 * @returns {Blob}
 */
export function toJson({ source, layer, head, query, key, show, over = 'head' }, { weights, rows, columns }) {
  const width = columns[1] - columns[0];
  const content = {
    format: 'py-attn/attention-map',
    title: source.title,
    engine: source.engine,
    show,
    over,
    reading: source.reading,
    layer,
    head,
    rows,
    columns,
    selection: [query, key],
    tokens: source.tokens,
    // float32's nine digits, not the seventeen of the double that JavaScript holds it in
    weights: Array.from({ length: rows[1] - rows[0] }, (_, row) =>
      Array.from(weights.subarray(row * width, (row + 1) * width), (weight) => Number(weight.toPrecision(9))),
    ),
  };
  return new Blob([`${JSON.stringify(content)}\n`], { type: 'application/json' });
}

/** Downloads a file that the page has made. @param {Exported} file */
export function download({ name, data }) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(data);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // by then the browser has read it
}
