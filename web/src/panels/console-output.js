/** What the console prints: lines, values and tables. */

import { h, putPixels } from '../dom.js';
import { formatCount, withMinus } from '../format.js';

/** @typedef {import('../types').Shown} Shown */

const MAX_LINES = 3000; // kept on the page
const AT_END = 40; // CSS pixels from the end that still count as its end

/** Adds to an output; its end stays in view, unless the visitor has scrolled away from it. @param {HTMLElement} output @param {...Node} nodes */
export function append(output, ...nodes) {
  const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < AT_END;
  output.append(...nodes);
  while (output.childElementCount > MAX_LINES) output.firstElementChild?.remove();
  if (atEnd) output.scrollTop = output.scrollHeight;
}

/** The first line of a source that is code. @param {string} source */
export function summary(source) {
  const lines = source.trimEnd().split('\n');
  const first = lines.find((line) => line.trim() && !line.trim().startsWith('#')) ?? lines[0];
  return `>>> ${first}${lines.length > 1 ? '  …' : ''}`;
}

/** The value of the last expression. @param {Shown} shown @returns {Node | null} */
export function resultElement(shown) {
  if (shown.kind === 'none') return null;
  if (shown.kind === 'text') return h('pre', { class: 'value' }, shown.text);
  return shown.kind === 'map' ? mapElement(shown) : tableElement(shown);
}

/** @param {Extract<Shown, { kind: 'map' }>} map */
function mapElement({ text, rgba, width, height, low, high }) {
  const canvas = h('canvas', { class: 'value-map', role: 'img', 'aria-label': text });
  putPixels(canvas, rgba, width, height);
  canvas.style.aspectRatio = `${width} / ${height}`;
  const range = [low, high].map((one) => withMinus(one.toPrecision(4))).join(' … ');
  return h('figure', { class: 'value' }, canvas, h('figcaption', null, `${text}, ${range}`));
}

/** @param {Extract<Shown, { kind: 'table' }>} table */
function tableElement({ columns, rows, total }) {
  const head = h('thead', null, h('tr', null, columns.map((name) => h('th', { scope: 'col' }, name))));
  const body = h('tbody', null, rows.map((row) => h('tr', null, row.map((cell) => h('td', null, cell)))));
  const more = total > rows.length && h('p', { class: 'muted small' }, `${formatCount(total - rows.length)} more rows`);
  return h('div', { class: 'value scroll-x' }, h('table', null, head, body), more);
}
