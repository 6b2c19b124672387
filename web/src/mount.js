/**
 * The front end itself, wherever it is shown: all maps, one of them large with its inspector, the strongest links
 * of a row, and the kernel's timings. The page, the notebook widget and the <py-attn> element differ only in the
 * model that they put behind it.
 */

import { createApi } from './api.js';
import { fill, h } from './dom.js';
import { mountFocus } from './panels/focus.js';
import { mountKernel } from './panels/kernel.js';
import { mountLinks } from './panels/links.js';
import { mountOverview } from './panels/overview.js';
import { scopedStore } from './store.js';

/**
 * @typedef {import('./store.js').Model} Model
 * @typedef {'overview' | 'focus' | 'links' | 'kernel'} Part
 * @typedef {object} View
 * @property {Record<Part, HTMLElement>} parts
 * @property {(format: import('./heatmap/export.js').Format) => Promise<import('./heatmap/export.js').Exported>} exported
 *   what is on screen of the large map, as a file
 * @property {() => void} destroy removes everything that the view has set up
 */

/**
 * @param {HTMLElement} element filled by the view
 * @param {Model} model
 * @param {{ kernel?: HTMLElement, own?: { stop: () => void } }} [page] the element of a part that stands outside of
 *   `element`; and, where the visitor can edit kernels, what ends Python
 * @returns {View}
 */
export function mount(element, model, { kernel, own } = {}) {
  const store = scopedStore(model);
  const api = createApi(model.call);
  const parts = {
    overview: card('overview', 'Overview'),
    focus: card('focus', 'Focus'),
    links: card('links', 'Strongest links'),
    kernel: kernel ?? card('kernel', 'Kernel'),
  };
  element.classList.add('attention-view');
  fill(element, h('div', { class: 'stage' }, parts.overview, parts.focus, parts.links), !kernel && parts.kernel);
  mountOverview(parts.overview, api, store);
  const focus = mountFocus(parts.focus, api, store);
  const links = mountLinks(parts.links, api, store);
  mountKernel(parts.kernel, api, store, own);
  // Weights that were given have no kernel behind them.
  store.on(['source'], ({ source }) => (parts.kernel.hidden = source?.kind === 'weights'));
  if (store.state.source) store.begin();

  return {
    parts,
    exported: focus.exported,
    destroy() {
      store.end();
      focus.destroy();
      links.destroy();
      element.replaceChildren();
    },
  };
}

/** A panel's frame. @param {string} name @param {string} label */
export function card(name, label) {
  return h('section', { class: `card ${name}`, 'aria-label': label });
}
