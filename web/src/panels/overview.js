/** Layers × heads as thumbnails, one of which is in focus. */

import { fill, h, putPixels, segmented } from '../dom.js';
import { formatTime, shortError } from '../format.js';
import { latest } from '../latest.js';
import { buildFind } from './overview-find.js';
import { explained } from '../term.js';
import { mountGrid } from './overview-grid.js';
import { arrange } from './overview-heads.js';
import { sheetMenu } from './overview-sheet.js';
import { tableMenu } from './table-menu.js';
import { headsTable } from './tables.js';
import { describeEngine, describeMaps, describeRow, isBuilt, modelOf } from './wording.js';

/**
 * @typedef {import('../store.js').State} State
 * @typedef {object} Panel
 * @property {HTMLElement} element
 * @property {import('../api.js').Api} api
 * @property {import('../store.js').Store} store
 * @property {HTMLElement} summary
 * @property {ReturnType<typeof mountGrid>} grid
 * @property {HTMLElement} choice what a thumbnail shows of a written text
 * @property {boolean} whole whether that is its whole map, not a row
 * @property {ReturnType<typeof buildFind>} find
 * @property {import('./overview-heads.js').Sort} sort
 * @property {import('../types').HeadFindings | null} findings of the maps that are shown, once they are there
 * @property {string} looked the source and the edit that were looked at last
 * @property {(state: State) => void} look finds out what the heads of the maps do
 */

/** Shown before the first source: the sample's shape, so that nothing moves when it arrives. */
const SAMPLE_SHAPE = { layers: 6, heads: 12 };
const PARTS = [
  { value: 'row', label: 'Chosen token', title: 'what the token in focus attends to, from left to right' },
  { value: 'map', label: 'Whole maps' },
];

/**
 * @param {HTMLElement} element
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountOverview(element, api, store) {
  const summary = h('p', { 'aria-live': 'polite' }, ' ');
  const grid = mountGrid(store);
  const find = buildFind({
    onFound: (found) => grid.emphasise(found && found.heads),
    onGo: (head) => grid.buttons[head].focus(),
    onSort: (sort) => {
      panel.sort = sort;
      order(panel);
    },
  });
  const choice = segmented('What the thumbnails show', PARTS, 'row', (value) => {
    panel.whole = value === 'map';
    load(store.state);
  });
  choice.hidden = true;
  const table = tableMenu('All heads', () => {
    const { source } = store.state;
    return source && panel.findings && headsTable(panel.findings, find.labels, source.heads);
  });
  const printed = h('div', { class: 'print-only printed-source' });
  const tools = h('div', { class: 'tools overview-tools' }, choice, table, sheetMenu(api, store));
  fill(element, h('header', null, h('div', null, h('h2', null, 'Overview'), printed, summary), tools), find.element, grid.element);
  /** @type {Panel} */
  const panel = { element, api, store, summary, grid, choice, whole: false, find, sort: 'layer', findings: null, looked: '', look: (state) => look(state) };
  const look = latest(
    (/** @type {State} */ state) => loadFindings(panel, state),
    (error) => find.fail(`What the heads do could not be computed: ${shortError(error)}`),
  );
  const load = latest(
    (/** @type {State} */ state) => loadMaps(panel, state),
    (error) => {
      grid.element.setAttribute('aria-busy', 'false');
      summary.textContent = `The maps could not be computed: ${shortError(error)}`;
    },
  );
  store.on(['sourceNumber', 'source'], (state) => {
    if (!state.source) return;
    printed.textContent = [state.source.title, modelOf(state.source)].filter(Boolean).join(' · ');
    build(panel, state.source);
    forget(panel, state.source);
    choice.hidden = state.source.kind !== 'written';
    if (!state.source.growing) say(summary, describeMaps(state.source));
    load(state);
  });
  store.on(['query'], (state) => showsRow(panel, state) && load(state));
  store.on(['style', 'edit'], load);
  store.on(['edit'], ({ source }) => source && forget(panel, source));
  store.on(['layer', 'head', 'heads'], () => mark(panel));
  build(panel, SAMPLE_SHAPE);
  return { destroy: () => grid.destroy() };
}

/** @param {Panel} panel @param {{ layers: number, heads: number }} source */
function build(panel, source) {
  panel.grid.build(source);
  mark(panel);
}

/** Marks the map in focus. @param {Panel} panel */
function mark({ grid, find, store }) {
  const { layer, head, source } = store.state;
  grid.mark();
  if (source) find.mark(layer * source.heads + head);
}

/** What was found about other maps. @param {Panel} panel @param {{ layers: number, heads: number }} source */
function forget(panel, source) {
  // A text that grows is another source with every token: names that say nothing yet are not written anew.
  if (panel.findings) panel.grid.describe(null, []);
  panel.findings = null;
  delete panel.element.dataset.findings;
  panel.find.begin(source);
  mark(panel);
}

/** Asks what the heads do, once all maps are there; not for each token of a text that grows. @param {Panel} panel @param {State} state */
async function loadFindings(panel, { sourceNumber, edit }) {
  const { api, store, find, grid } = panel;
  const isOver = () => store.state.sourceNumber !== sourceNumber || store.state.edit !== edit;
  const of = `${sourceNumber}/${edit}`;
  if (isOver() || of === panel.looked) return;
  const labels = find.labels.length ? find.labels : await api.labels();
  const findings = isOver() ? null : await api.heads();
  if (!findings || isOver()) return;
  panel.looked = of;
  panel.findings = findings;
  grid.describe(findings, labels);
  find.show(findings, labels);
  order(panel);
  mark(panel);
  panel.element.dataset.findings = String(sourceNumber);
}

/** The heads in the order that was chosen, or by layer as long as that is not known. @param {Panel} panel */
function order({ grid, find, sort, findings }) {
  if (sort === 'layer') grid.arrange(null);
  else if (findings) grid.arrange(arrange(sort, findings, find.labels));
}

/** Of a text that grows only rows are shown, as all maps would be computed anew for every token. @param {Panel} panel @param {Readonly<State>} state */
function showsRow({ whole }, { source }) {
  return source?.kind === 'written' && (!whole || source.growing);
}

/** @param {Panel} panel @param {State} state */
async function loadMaps(panel, state) {
  const { source, sourceNumber } = state;
  if (!source) return;
  const { element, store } = panel;
  const grid = panel.grid.element;
  const row = showsRow(panel, state);
  grid.classList.toggle('rows', row);
  grid.classList.toggle('deep', source.kind === 'written');
  grid.setAttribute('aria-busy', 'true');
  if (!(await (row ? loadRow(panel, state) : loadWhole(panel, state)))) return;
  grid.setAttribute('aria-busy', 'false');
  if (isBuilt(source)) return;
  performance.mark('py-attn:maps');
  element.dataset.painted = String(sourceNumber);
  store.set({ painted: sourceNumber });
  if (!source.growing) panel.look(state);
}

/** One row of every map. @param {Panel} panel @param {State} state @returns {Promise<boolean>} whether it is still wanted */
async function loadRow({ api, store, summary, grid }, { source, sourceNumber, query, style }) {
  const { size, rgba } = await api.overviewRow(query, style);
  if (store.state.sourceNumber !== sourceNumber || !source) return false;
  const bytes = 4 * size;
  grid.buttons.forEach((button, i) => paintCanvas(button, rgba.subarray(i * bytes, (i + 1) * bytes), size, 1));
  summary.textContent = describeRow(source, query);
  return true;
}

/** @param {Panel} panel @param {State} state @returns {Promise<boolean>} whether they are still wanted */
async function loadWhole({ api, store, summary, grid }, { source, sourceNumber, style }) {
  if (!source) return false;
  const began = performance.now();
  let step = 1;
  for (let layer = 0; layer < source.layers; layer++) {
    const answer = await api.overview(layer, style);
    step = answer.step;
    if (store.state.sourceNumber !== sourceNumber || store.state.style !== style) return false;
    paint(grid.buttons.slice(layer * answer.heads), answer);
  }
  if (isBuilt(source)) {
    say(summary, `${describeMaps(source)} Made together with this page; Python computes them anew when it is ready.`);
    return true;
  }
  const elapsed = formatTime(1000 * (performance.now() - began));
  const sampled = step > 1 ? `, from one of every ${step} rows` : '';
  say(summary, `${describeMaps(source)} ${elapsed} for all maps, ${describeEngine(source, store.state.info)}${sampled}.`);
  return true;
}

/** @param {HTMLElement} summary @param {string} text */
function say(summary, text) {
  fill(summary, ...explained(text, 'layer', 'head', 'weight', 'WGSL'));
}

/** @param {HTMLButtonElement[]} buttons from the first of a layer on @param {import('../types').Overview} answer */
function paint(buttons, { heads, size, rgba }) {
  const bytes = 4 * size * size;
  for (let head = 0; head < heads; head++) {
    paintCanvas(buttons[head], rgba.subarray(head * bytes, (head + 1) * bytes), size, size);
  }
}

/** @param {HTMLButtonElement} button @param {Uint8Array<ArrayBuffer>} rgba @param {number} width @param {number} height */
function paintCanvas(button, rgba, width, height) {
  putPixels(/** @type {HTMLCanvasElement} */ (button.firstElementChild), rgba, width, height);
  button.classList.add('painted');
}
