/** Layers × heads as thumbnails, one of which is in focus. */

import { fill, h, putPixels, segmented } from '../dom.js';
import { formatTime, shortError } from '../format.js';
import { latest } from '../latest.js';
import { describeEngine, describeMaps, describeRow } from './wording.js';

/**
 * @typedef {import('../store.js').State} State
 * @typedef {object} Panel
 * @property {HTMLElement} element
 * @property {import('../api.js').Api} api
 * @property {import('../store.js').Store} store
 * @property {HTMLElement} summary
 * @property {HTMLElement} grid
 * @property {HTMLElement} choice what a thumbnail shows of a written text
 * @property {boolean} whole whether that is its whole map, not a row
 * @property {HTMLButtonElement[][]} buttons by layer and head
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
  const grid = h('div', { class: 'thumbs', role: 'grid', 'aria-label': 'Attention maps by layer and head' });
  const hint = h('p', { class: 'muted small thumbs-hint' }, 'Click a map, or move with the arrow keys.');
  const choice = segmented('What the thumbnails show', PARTS, 'row', (value) => {
    panel.whole = value === 'map';
    load(store.state);
  });
  choice.hidden = true;
  fill(element, h('header', null, h('div', null, h('h2', null, 'Overview'), summary), choice), grid, hint);
  /** @type {Panel} */
  const panel = { element, api, store, summary, grid, choice, whole: false, buttons: [] };

  grid.addEventListener('keydown', (event) => onKey(panel, event));
  const load = latest(
    (/** @type {State} */ state) => loadMaps(panel, state),
    (error) => {
      grid.setAttribute('aria-busy', 'false');
      summary.textContent = `The maps could not be computed: ${shortError(error)}`;
    },
  );
  store.on(['sourceNumber'], (state) => {
    if (!state.source) return;
    build(panel, state.source);
    choice.hidden = state.source.kind !== 'written';
    if (!state.source.growing) summary.textContent = describeMaps(state.source);
    load(state);
  });
  store.on(['query'], (state) => showsRow(panel, state) && load(state));
  store.on(['style', 'edit'], load);
  store.on(['layer', 'head'], () => mark(panel));
  build(panel, SAMPLE_SHAPE);
}

/** @param {Panel} panel @param {{ layers: number, heads: number }} source */
function build(panel, { layers, heads }) {
  const { grid, buttons } = panel;
  // A source of the same shape keeps the grid; its maps replace the earlier ones as they arrive.
  if (buttons.length === layers && buttons[0].length === heads) return mark(panel);
  grid.style.setProperty('--heads', String(Math.min(heads, 16)));
  grid.style.setProperty('--lines', String(Math.ceil(heads / 4)));
  grid.classList.toggle('few', layers * heads <= 16);
  panel.buttons = Array.from({ length: layers }, (_, layer) =>
    Array.from({ length: heads }, (_, head) => thumbnail(panel.store, layer, head)),
  );
  fill(grid, panel.buttons.map(gridRow));
  return mark(panel);
}

/** @param {import('../store.js').Store} store @param {number} layer @param {number} head */
function thumbnail(store, layer, head) {
  const focus = () => store.set({ layer, head });
  return h(
    'button',
    {
      class: 'thumb',
      type: 'button',
      role: 'gridcell',
      tabIndex: -1,
      'aria-label': `Layer ${layer}, head ${head}`,
      title: `Layer ${layer} · head ${head}`,
      onclick: focus,
      onfocus: focus,
    },
    h('canvas', { width: 1, height: 1 }),
  );
}

/** @param {HTMLButtonElement[]} buttons @param {number} layer */
function gridRow(buttons, layer) {
  const label = h('span', { class: 'thumb-label', role: 'rowheader', 'aria-label': `Layer ${layer}` }, `L${layer}`);
  return h('div', { role: 'row', class: 'thumb-row' }, label, buttons);
}

/** Marks the map in focus. @param {Panel} panel */
function mark({ buttons, store }) {
  const { layer, head } = store.state;
  buttons.forEach((row, l) =>
    row.forEach((button, i) => {
      const chosen = l === layer && i === head;
      button.tabIndex = chosen ? 0 : -1;
      button.setAttribute('aria-selected', String(chosen));
    }),
  );
}

/** @param {Panel} panel @param {KeyboardEvent} event */
function onKey({ buttons, store }, event) {
  const { layer, head, source } = store.state;
  if (!source) return;
  const moves = /** @type {Record<string, [number, number]>} */ ({
    ArrowUp: [layer - 1, head],
    ArrowDown: [layer + 1, head],
    ArrowLeft: [layer, head - 1],
    ArrowRight: [layer, head + 1],
    Home: [layer, 0],
    End: [layer, source.heads - 1],
  });
  const to = moves[event.key];
  if (!to) return;
  event.preventDefault();
  buttons[to[0]]?.[to[1]]?.focus();
}

/** Of a text that grows only rows are shown, as all maps would be computed anew for every token. @param {Panel} panel @param {Readonly<State>} state */
function showsRow({ whole }, { source }) {
  return source?.kind === 'written' && (!whole || source.growing);
}

/** @param {Panel} panel @param {State} state */
async function loadMaps(panel, state) {
  const { source, sourceNumber } = state;
  if (!source) return;
  const { element, grid, store } = panel;
  const row = showsRow(panel, state);
  grid.classList.toggle('rows', row);
  grid.classList.toggle('deep', source.kind === 'written');
  grid.setAttribute('aria-busy', 'true');
  if (!(await (row ? loadRow(panel, state) : loadWhole(panel, state)))) return;
  grid.setAttribute('aria-busy', 'false');
  performance.mark('py-attn:maps');
  element.dataset.painted = String(sourceNumber);
  store.set({ painted: sourceNumber });
}

/** One row of every map. @param {Panel} panel @param {State} state @returns {Promise<boolean>} whether it is still wanted */
async function loadRow({ api, store, summary, buttons }, { source, sourceNumber, query, style }) {
  const { size, rgba } = await api.overviewRow(query, style);
  if (store.state.sourceNumber !== sourceNumber || !source) return false;
  const bytes = 4 * size;
  buttons.flat().forEach((button, i) => paintCanvas(button, rgba.subarray(i * bytes, (i + 1) * bytes), size, 1));
  summary.textContent = describeRow(source, query);
  return true;
}

/** @param {Panel} panel @param {State} state @returns {Promise<boolean>} whether they are still wanted */
async function loadWhole({ api, store, summary, buttons }, { source, sourceNumber, style }) {
  if (!source) return false;
  const began = performance.now();
  let step = 1;
  for (let layer = 0; layer < source.layers; layer++) {
    const answer = await api.overview(layer, style);
    step = answer.step;
    if (store.state.sourceNumber !== sourceNumber || store.state.style !== style) return false;
    paint(buttons[layer], answer);
  }
  const elapsed = formatTime(1000 * (performance.now() - began));
  const sampled = step > 1 ? `, from one of every ${step} rows` : '';
  summary.textContent = `${describeMaps(source)} ${elapsed} for all maps, ${describeEngine(source, store.state.info)}${sampled}.`;
  return true;
}

/** @param {HTMLButtonElement[]} buttons of a layer @param {import('../types').Overview} answer */
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
