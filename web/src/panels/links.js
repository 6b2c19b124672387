/** The strongest links of the chosen cell's row in words and figures: for those who cannot see the map, too. */

import { fill, h } from '../dom.js';
import { formatWeight } from '../format.js';
import { showOf } from '../reading.js';
import { createRows } from '../rows.js';
import { tableCaption, tokenMark } from './elements.js';
import { tableMenu } from './table-menu.js';
import { linksTable } from './tables.js';
import { describeLinks, describeRest, relation } from './wording.js';

/**
 * @typedef {object} Panel
 * @property {import('../store.js').Store} store
 * @property {ReturnType<typeof createRows>} rows
 * @property {ReturnType<typeof buildView>} view
 * @property {() => void} update shows the chosen cell's row
 * @property {ReturnType<typeof setTimeout> | undefined} timer until the row is spoken
 */

const SHOWN = 8;
const REST_MS = 500; // until the choice is taken to rest on its row

/**
 * @param {HTMLElement} element
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountLinks(element, api, store) {
  const view = buildView(() => {
    const { source } = store.state;
    const row = panel.rows.peek();
    return source && row ? linksTable(source.tokens, row, showOf(store.state) === 'gradient') : null;
  });
  fill(element, ...view.parts);
  fill(view.body, Array.from({ length: SHOWN }, emptyLine));
  /** @type {Panel} */
  const panel = { store, rows: createRows(api, store), view, update: () => update(panel), timer: undefined };
  store.on(['sourceNumber', 'source', 'edit', 'layer', 'head', 'over', 'query', 'style'], panel.update);
  return { destroy: () => clearTimeout(panel.timer) };
}

/** @param {() => import('../table-text.js').Table | null} current */
function buildView(current) {
  const figure = h('th', { scope: 'col', class: 'number' }, 'Weight');
  const subtitle = h('p', { class: 'links-row' }, ' ');
  const body = h('tbody');
  const table = h(
    'table',
    { class: 'links-table' },
    tableCaption('Keys that the chosen query attends to most'),
    h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Key'), figure)),
    body,
  );
  const spoken = h('p', { class: 'sr-only', role: 'status', 'aria-live': 'polite' });
  const rest = h('p', { class: 'muted small' }, ' ');
  const parts = [h('header', null, h('div', null, h('h2', null, 'Strongest links'), subtitle), tableMenu('Strongest links', current)), table, rest, spoken];
  return { parts, figure, subtitle, body, rest, spoken };
}

/** @param {Panel} panel */
function update(panel) {
  const { store, rows, view } = panel;
  const { source, query } = store.state;
  if (!source) return;
  const row = rows.peek();
  if (!row) return rows.ask(panel.update);
  const shares = showOf(store.state) === 'gradient';
  view.figure.textContent = shares ? 'Share of the output' : 'Weight';
  fill(view.subtitle, tokenMark(source.tokens[query], query), ` at position ${query} ${relation(shares)}`);
  const top = Math.abs(row.links[0]?.weight) || 1;
  const lines = Array.from({ length: SHOWN }, (_, i) => {
    const link = row.links[i];
    return link ? linkLine(store, source.tokens, link, top) : emptyLine();
  });
  fill(view.body, lines);
  view.rest.textContent = describeRest(row, shares);
  // Spoken once the choice rests, not for every row on its way.
  clearTimeout(panel.timer);
  panel.timer = setTimeout(() => (view.spoken.textContent = describeLinks(row, source.tokens, shares)), REST_MS);
}

/**
 * @param {import('../store.js').Store} store @param {string[]} tokens
 * @param {{ key: number, weight: number }} link @param {number} top the largest weight of the row
 */
function linkLine(store, tokens, { key, weight }, top) {
  const position = String(key) !== tokens[key] && h('span', { class: 'muted small' }, ` ${key}`);
  return h(
    'tr',
    { style: { '--share': Math.abs(weight) / top }, class: weight < 0 ? 'against' : '' },
    h('td', null, h('button', { type: 'button', class: 'link', onclick: () => store.set({ key }) }, tokenMark(tokens[key], key), position)),
    h('td', { class: 'number' }, formatWeight(weight)),
  );
}

function emptyLine() {
  return h('tr', { style: { '--share': 0 } }, h('td', null, ' '), h('td', { class: 'number' }, ' '));
}
