/**
 * The front end itself, wherever it is shown: all maps, one of them large with its inspector, the strongest links
 * of a row, and the kernel's timings. The page, the notebook widget and the <py-attn> element differ only in the
 * model that they put behind it.
 */

import { createApi } from './api.js';
import { fill, h } from './dom.js';
import { mountCompare } from './panels/compare.js';
import { mountFocus } from './panels/focus.js';
import { mountKernel } from './panels/kernel.js';
import { mountLinks } from './panels/links.js';
import { mountOverview } from './panels/overview.js';
import { PARTS } from './parts.js';
import { mountWhy } from './panels/why.js';
import { scopedStore } from './store.js';

/**
 * @typedef {import('./store.js').Model} Model
 * @typedef {import('./parts.js').Part} Part
 * @typedef {object} View
 * @property {Record<Part, HTMLElement>} parts
 * @property {(format: import('./heatmap/export.js').Format) => Promise<import('./heatmap/export.js').Exported>} exported
 *   what is on screen of the large map, as a file
 * @property {() => void} destroy removes everything that the view has set up
 */

/**
 * @param {HTMLElement} element filled by the view
 * @param {Model} model
 * @param {{ kernel?: HTMLElement, only?: readonly Part[], own?: import('./panels/kernel.js').Own }} [options] `kernel`: the element of a
 *   part that stands outside of `element`; `only`: the parts that are shown, and for which Python computes; `own`: where
 *   the visitor can edit kernels, what ends Python
 * @returns {View}
 */
export function mount(element, model, { kernel, only = PARTS, own } = {}) {
  const store = scopedStore(model);
  const api = createApi(model.call);
  const parts = {
    overview: card('overview', 'Overview'),
    focus: card('focus', 'Focus'),
    links: card('links', 'Strongest links'),
    compare: card('compare', 'Compare'),
    kernel: kernel ?? card('kernel', 'Kernel'),
  };
  element.classList.add('attention-view');
  const has = (/** @type {Part} */ part) => only.includes(part);
  const stage = /** @type {const} */ (['overview', 'focus', 'links']).filter(has).map((part) => parts[part]);
  fill(
    element,
    stage.length > 0 && h('div', { class: 'stage' }, stage),
    has('compare') && parts.compare,
    !kernel && has('kernel') && parts.kernel,
  );
  const overview = has('overview') ? mountOverview(parts.overview, api, store) : null;
  const focus = has('focus') ? mountFocus(parts.focus, api, store) : null;
  const links = has('links') ? mountLinks(parts.links, api, store) : null;
  if (has('links')) mountWhy(parts.links, api, store);
  const compare = has('compare') ? mountCompare(parts.compare, api, store, { canEdit: kernel !== undefined }) : null;
  if (has('kernel')) mountKernel(parts.kernel, api, store, own);
  // Weights that were given have no kernel behind them.
  store.on(['source'], ({ source }) => (parts.kernel.hidden = source?.kind === 'weights'));
  if (store.state.source) store.begin();

  return {
    parts,
    async exported(format) {
      if (!focus) throw new Error('There is no map to be saved: the part “focus” is not shown.');
      return focus.exported(format);
    },
    destroy() {
      store.end();
      overview?.destroy();
      focus?.destroy();
      links?.destroy();
      compare?.destroy();
      element.replaceChildren();
    },
  };
}

/** A panel's frame. @param {string} name @param {string} label */
export function card(name, label) {
  return h('section', { class: `card ${name}`, 'aria-label': label });
}
