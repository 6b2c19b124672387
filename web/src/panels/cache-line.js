/** A cache's lines in the comparison: its figures, and below them its weights as a strip of colours. */

import { fill, h, putPixels } from '../dom.js';
import { formatBytes, formatError, timeColumn } from '../format.js';
import { comparisonPixels } from './palette.js';

/** @typedef {import('../types').CacheStep} CacheStep */

/** dtype, name and a remark. */
export const CACHES = /** @type {[string, string, string][]} */ ([
  ['float32', 'float32', ''],
  ['float16', 'float16', 'two per word'],
  ['turboquant4', '4 bits', 'TurboQuant'],
  ['turboquant3', '3 bits', 'TurboQuant'],
  ['turboquant2', '2 bits', 'TurboQuant'],
]);

/** @param {[dtype: string, name: string, about: string]} cache */
export function cacheLine([dtype, name, about]) {
  const cells = Array.from({ length: 4 }, () => h('td', { class: 'number' }, '·'));
  const strip = h('canvas', { width: 1, height: 2, role: 'img', 'aria-label': `Weights over the ${name} cache` });
  const body = h(
    'tbody',
    { dataset: { dtype } },
    h('tr', null, h('th', { scope: 'row' }, name, about && h('span', { class: 'muted small' }, ` ${about}`)), cells),
    h('tr', { class: 'strip' }, h('td', { colSpan: 5 }, strip)),
  );
  return {
    dtype,
    body,
    /** @param {CacheStep} step @param {CacheStep} first of float32 @param {Uint8Array} colors @param {Uint8Array} signed */
    show(step, first, colors, signed) {
      showFigures(cells, step, first);
      putPixels(strip, comparisonPixels(step.weights, first.weights, colors, signed), step.weights.length, 2);
    },
    clear() {
      for (const cell of cells) cell.textContent = '·';
      strip.width = 1;
    },
  };
}

/** @param {HTMLElement[]} cells @param {CacheStep} step @param {CacheStep} first */
function showFigures([bytes, time, error, change], step, first) {
  const smaller = first.nbytes / step.nbytes;
  fill(bytes, formatBytes(step.nbytes), smaller > 1 && h('span', { class: 'muted small' }, ` ÷ ${smaller.toFixed(1)}`));
  time.textContent = step.time == null ? '–' : timeColumn(first.time ?? step.time).time(step.time); // all in one unit
  error.textContent = formatError(step.relative);
  error.title = `largest error of a single number: ${formatError(step.error)}`;
  change.textContent = formatError(step.change);
}
