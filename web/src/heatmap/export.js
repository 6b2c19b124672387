/** The part of a map that is on screen as a file: PNG, SVG, or its weights as JSON. */

import { context2d } from '../dom.js';
import { draw } from './draw.js';
import { textWidth } from './measure.js';
import { SvgPen } from './svg.js';

/**
 * @typedef {'png' | 'svg' | 'json'} Format
 * @typedef {{ name: string, type: string, data: Blob }} Exported
 * @typedef {import('./draw.js').Scene} Scene
 */

/** @type {readonly Format[]} */
export const FORMATS = ['png', 'svg', 'json'];
const PNG_SCALE = 2; // sharp on paper and on dense screens

/** @param {Scene} scene @returns {Promise<Blob>} */
export function toPng(scene) {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = PNG_SCALE * scene.width;
  const context = context2d(canvas);
  context.scale(PNG_SCALE, PNG_SCALE);
  drawOn(context, scene);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('The browser could not make a PNG.'))), 'image/png');
  });
}

/** @param {Scene} scene @param {string} title @returns {Blob} */
export function toSvg(scene, title) {
  const pen = new SvgPen(textWidth);
  drawOn(pen, scene);
  return new Blob([pen.finish(scene.width, scene.width, title)], { type: 'image/svg+xml' });
}

/** @param {import('./draw.js').Pen} pen @param {Scene} scene */
function drawOn(pen, scene) {
  draw(pen, { ...scene, background: scene.theme.surface });
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
