/** The table of timings: a row per variant, operation or kernel of the visitor's own. */

import { h } from '../dom.js';
import { formatError } from '../format.js';
import { tableCaption, tableHead } from './elements.js';
import { partCells, PARTS, partShares, timeColumns, timesFastest } from './measured.js';

/**
 * @typedef {import('../types').Measurement} Measurement
 *
 * @typedef {object} Line
 * @property {string} name of the measurement
 * @property {string} label
 * @property {string} [title]
 * @property {string} [remark] below the label
 * @property {Measurement | undefined} measured none before it was run
 * @property {(() => void) | null} open what a click on the label does
 */

/** An empty table, and the bodies that are filled later. @param {string} what a row is @param {string[]} bodies classes of the bodies */
export function timingTable(what, bodies) {
  const made = bodies.map((name) => h('tbody', { class: name }));
  const head = tableHead([
    { label: what },
    ...PARTS.map(([part, label, title]) => ({ label, title, numeric: true, swatch: part })),
    { label: 'Total', title: 'the sum of these medians', numeric: true },
    { label: '× fastest', title: 'dispatch time over that of the fastest row that computes the same', numeric: true },
    { label: 'Error', title: 'largest absolute error against float64', numeric: true },
  ]);
  const caption = tableCaption(`Median times of each part of a call, and its error, for each ${what.toLowerCase()}`);
  return { table: h('table', { class: 'timings' }, caption, head, made), bodies: made };
}

/**
 * The rows of a table; each column is in one unit.
 * @param {Line[][]} bodies @param {boolean} same whether all rows compute the same
 * @returns {HTMLTableRowElement[][]}
 */
export function timingLines(bodies, same) {
  const all = bodies.flat().flatMap(({ measured }) => measured ?? []);
  const columns = timeColumns(all);
  return bodies.map((lines) => lines.map((line) => timingLine(line, columns, same ? timesFastest(line.measured, all) : '–')));
}

/** @param {Line} line @param {ReturnType<typeof timeColumns>} columns @param {string} ratio */
function timingLine({ name, label, title = '', remark, measured, open }, columns, ratio) {
  const shown = open ? h('button', { type: 'button', class: 'link', onclick: open, title: 'Show its WGSL' }, label) : label;
  return h(
    'tr',
    { dataset: { name } },
    h('th', { scope: 'row', title }, shown, remark && h('div', { class: 'spread' }, remark), bar(measured)),
    partCells(measured, columns).map(({ text, below }) => numberCell(text, below)),
    numberCell(measured ? ratio : '·', ' '),
    errorCell(measured),
  );
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
  // An output that the kernel does not write stays NaN.
  const text = Number.isNaN(measured.error) ? 'NaN' : formatError(measured.error);
  const error = h('span', { class: measured.ok ? 'ok' : 'not-ok' }, text);
  return numberCell(error, measured.ok ? '≤ 2 × plain' : '> 2 × plain');
}

/** @param {import('../dom.js').Child} content @param {string} below */
function numberCell(content, below) {
  return h('td', { class: 'number' }, content, h('div', { class: 'spread' }, below));
}
