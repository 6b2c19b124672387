/** The table of timings: a row per variant or operation. */

import { h } from '../dom.js';
import { formatError } from '../format.js';
import { tableCaption, tableHead } from './elements.js';
import { partCells, PARTS, partShares } from './measured.js';

/** @typedef {import('../types').Measurement} Measurement */

/** An empty table, and the two bodies that are filled later. */
export function timingTable() {
  const variants = h('tbody');
  const operations = h('tbody', { class: 'operations' });
  const head = tableHead([
    { label: 'Variant' },
    ...PARTS.map(([part, label, title]) => ({ label, title, numeric: true, swatch: part })),
    { label: 'Error', title: 'largest absolute error against float64', numeric: true },
  ]);
  const caption = tableCaption('Median times of each part of an attention call, and its error');
  return { table: h('table', { class: 'timings' }, caption, head, variants, operations), variants, operations };
}

/**
 * @param {string} name
 * @param {import('../worker.js').OperationInfo | undefined} operation
 * @param {Measurement | undefined} measured none before it was run
 * @param {(measured: Measurement) => void} onShow
 */
export function timingLine(name, operation, measured, onShow) {
  const title = operation ? `${operation.call}: ${operation.about}` : '';
  return h(
    'tr',
    { dataset: { name } },
    h('th', { scope: 'row', title }, nameCell(operation?.label ?? name, measured, onShow), bar(measured)),
    partCells(measured).map(({ text, below }) => numberCell(text, below)),
    errorCell(measured),
  );
}

/** @param {string} label @param {Measurement | undefined} measured @param {(measured: Measurement) => void} onShow */
function nameCell(label, measured, onShow) {
  if (!measured?.wgsl) return label;
  return h('button', { type: 'button', class: 'link', onclick: () => onShow(measured), title: 'Show its WGSL' }, label);
}

/** The parts as a stacked bar. @param {Measurement | undefined} measured */
function bar(measured) {
  const shares = measured ? partShares(measured) : [];
  return h(
    'div',
    { class: 'stack', 'aria-hidden': 'true' },
    shares.map(([part, share]) => h('i', { class: part, style: { '--share': share } })),
  );
}

/** @param {Measurement | undefined} measured */
function errorCell(measured) {
  if (!measured) return numberCell('·', ' ');
  const error = h('span', { class: measured.ok ? 'ok' : 'not-ok' }, formatError(measured.error));
  return numberCell(error, measured.ok ? '≤ 2 × plain' : '> 2 × plain');
}

/** @param {import('../dom.js').Child} content @param {string} below */
function numberCell(content, below) {
  return h('td', { class: 'number' }, content, h('div', { class: 'spread' }, below));
}
