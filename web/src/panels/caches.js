/** The decoding step over smaller caches: their bytes, times and errors, and what they change in the map. */

import { h } from '../dom.js';
import { isLoss, shortError } from '../format.js';
import { latest } from '../latest.js';
import { CACHES, cacheLine } from './cache-line.js';
import { tableCaption, tableHead } from './elements.js';
import { tableMenu } from './table-menu.js';
import { cachesTable } from './tables.js';
import { describeComparison } from './wording.js';

/**
 * @typedef {import('../types').CacheStep} CacheStep
 * @typedef {{ position: number, capacity: number }} Place
 *
 * @typedef {object} Panel
 * @property {HTMLElement} element
 * @property {import('../api.js').Api} api
 * @property {import('../store.js').Store} store
 * @property {ReturnType<typeof cacheLine>[]} lines
 * @property {HTMLElement} note
 * @property {(place: Place) => void} run
 * @property {boolean} active once the visitor has asked for the comparison
 * @property {boolean} lost whether the last comparison ended with the loss of the GPU
 * @property {Place | null} place decoded now
 * @property {CacheStep[]} steps what the table shows
 * @property {ReturnType<typeof setTimeout> | undefined} timer
 */

const PAUSE_MS = 250; // without a step, before the caches follow
const LOST = 'The GPU was lost while the caches were compared. Press “Compare” to begin again.';
const INTRODUCTION =
  'The memory that a cache with fewer bits takes, the time of a step, and the error of its output and weights against float64.';

/**
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountCaches(api, store) {
  const start = h('button', { class: 'button compact', type: 'button', disabled: true, onclick: () => compare(panel) }, 'Compare');
  const lines = CACHES.map(cacheLine);
  const note = h('p', { class: 'muted small caches-note', role: 'status' }, INTRODUCTION);
  const element = h(
    'section',
    { class: 'caches', 'aria-label': 'Caches side by side' },
    h('div', { class: 'caches-head' }, h('h3', null, 'The same step with smaller caches'), start, tableMenu('The caches', () => cachesTable(panel.steps))),
    h('div', { class: 'scroll-x', tabIndex: 0, role: 'region', 'aria-label': 'Caches' }, table(lines)),
    note,
  );
  const run = latest(
    (/** @type {Place} */ place) => runAll(panel, place),
    (error) => {
      element.setAttribute('aria-busy', 'false');
      panel.lost = isLoss(error);
      note.textContent = panel.lost ? LOST : `The caches could not be compared: ${shortError(error)}`;
    },
  );
  /** @type {Panel} */
  const panel = { element, api, store, lines, note, run, active: false, lost: false, place: null, steps: [], timer: undefined };

  store.on(['sourceNumber'], ({ source }) => {
    Object.assign(panel, { active: false, place: null, steps: [] });
    start.disabled = !source;
    note.textContent = panel.lost ? LOST : INTRODUCTION;
    for (const line of lines) line.clear();
  });

  return {
    element,
    /** Takes over what is decoded now; once it was asked for, the comparison follows. @param {number} position @param {number} capacity */
    follow: (position, capacity) => follow(panel, { position, capacity }),
  };
}

/** @param {ReturnType<typeof cacheLine>[]} lines */
function table(lines) {
  const head = tableHead([
    { label: 'Cache' },
    { label: 'Bytes', numeric: true },
    { label: 'Step', title: 'time of all dispatches together, median of three', numeric: true },
    { label: 'Output error', title: '‖out − float64‖ / ‖float64‖ over all heads', numeric: true },
    { label: 'Weight error', title: 'largest difference of a weight of this head to float64', numeric: true },
  ]);
  const caption = tableCaption('Bytes, time and error of a decoding step by the dtype of its cache');
  return h('table', null, caption, head, lines.map(({ body }) => body));
}

/** @param {Panel} panel */
function compare(panel) {
  panel.active = true;
  if (panel.place) panel.run(panel.place);
}

/** @param {Panel} panel @param {Place} place */
function follow(panel, place) {
  panel.place = place;
  clearTimeout(panel.timer);
  if (panel.active) panel.timer = setTimeout(() => panel.place === place && panel.run(place), PAUSE_MS);
}

/** @param {Panel} panel @param {Place} place */
async function runAll(panel, place) {
  const { element, api, store, lines, note } = panel;
  const { layer, head, sourceNumber, style } = store.state;
  element.setAttribute('aria-busy', 'true');
  panel.lost = false;
  const [colors, signed] = await Promise.all([
    api.legend(style.colormap, 'sqrt'),
    api.legend(style.colormap, 'sqrt', 'gradient'),
  ]);
  /** @type {CacheStep | null} */
  let first = null;
  panel.steps = [];
  for (const line of lines) {
    const step = await api.decodeCache({ layer, head, dtype: line.dtype, ...place });
    if (store.state.sourceNumber !== sourceNumber || panel.place !== place) break;
    first ??= step;
    panel.steps.push(step);
    line.show(step, first, colors.rgba, signed.rgba);
  }
  element.setAttribute('aria-busy', 'false');
  if (first && panel.place === place) note.textContent = describeComparison(first, head, store.state.source);
}
