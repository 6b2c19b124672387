/** The causal map as decoding fills it: a row for every position that was visited. */

import { fill, h, putPixels } from '../dom.js';
import { allTokens } from '../reading.js';
import { rowPixels } from './palette.js';

/**
 * @typedef {import('../types').DecodeStep} DecodeStep
 *
 * @typedef {object} Panel
 * @property {import('../api.js').Api} api
 * @property {import('../store.js').Store} store
 * @property {HTMLElement} element
 * @property {HTMLCanvasElement} canvas
 * @property {HTMLElement} caption
 * @property {Map<number, DecodeStep>} steps by position
 * @property {string} of what the steps are, by what they depend on
 * @property {{ name: string, legend: Promise<import('../types').Legend> } | null} palette asked for last
 */

const MAX_SIDE = 512; // positions

/**
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountVisited(api, store) {
  const canvas = h('canvas', { width: 1, height: 1, role: 'img', 'aria-label': 'Rows decoded so far' });
  const caption = h('figcaption', { class: 'muted small' }, 'Rows so far');
  const element = h('figure', { class: 'decode-map' });
  fill(element, canvas, caption);
  /** @type {Panel} */
  const panel = { api, store, element, canvas, caption, steps: new Map(), of: '', palette: null };
  store.on(['style'], ({ source }) => {
    const length = source ? allTokens(source).length : 0;
    if (length && length <= MAX_SIDE && panel.steps.size) void paint(panel, length);
  });
  return { element, add: (/** @type {DecodeStep} */ step) => add(panel, step) };
}

/** @param {Panel} panel @param {DecodeStep} step */
async function add(panel, step) {
  const { source, sourceNumber, edit, layer, head } = panel.store.state;
  const length = source ? allTokens(source).length : 0;
  panel.element.hidden = !length || length > MAX_SIDE;
  if (panel.element.hidden) return;
  const of = `${sourceNumber}/${edit}/${layer}/${head}/${step.capacity}`;
  if (of !== panel.of) panel.steps = new Map();
  panel.of = of;
  panel.steps.set(step.position, step);
  panel.caption.textContent = `${panel.steps.size} of ${length} rows so far`;
  await paint(panel, length);
}

/** @param {Panel} panel @param {number} length of the source */
async function paint(panel, length) {
  const { rgba } = await colors(panel);
  putPixels(panel.canvas, rowPixels(length, panel.steps.values(), rgba), length, length);
}

/** @param {Panel} panel */
function colors(panel) {
  const { colormap } = panel.store.state.style;
  if (panel.palette?.name !== colormap) panel.palette = { name: colormap, legend: panel.api.legend(colormap, 'sqrt') };
  return panel.palette.legend;
}
