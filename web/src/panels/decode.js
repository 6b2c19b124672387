/** The layer in focus run position by position through a KV cache, with what every split contributes. */

import { fill, icon, ICONS } from '../dom.js';
import { shortError } from '../format.js';
import { latest } from '../latest.js';
import { allTokens } from '../reading.js';
import { mountCaches } from './caches.js';
import { splitsTable } from './tables.js';
import { buildDecode, clearStep, fillCapacities, showStep } from './decode-view.js';
import { MAX_LENGTH } from './slots.js';
import { mountVisited } from './visited.js';

/**
 * @typedef {import('../types').DecodeStep} DecodeStep
 *
 * @typedef {object} Panel
 * @property {HTMLElement} element
 * @property {import('../api.js').Api} api
 * @property {import('../store.js').Store} store
 * @property {ReturnType<typeof buildDecode>} view
 * @property {ReturnType<typeof mountVisited>} visited
 * @property {ReturnType<typeof mountCaches>} caches
 * @property {(position: number) => void} load
 * @property {number} position asked for last
 * @property {number} length of the source
 * @property {string} title of the source
 * @property {boolean} playing
 * @property {ReturnType<typeof setTimeout> | undefined} timer until the next position is played
 * @property {string} opened the decoding that Python has open, by what it depends on
 * @property {DecodeStep | null} step shown last
 */

/**
 * @param {HTMLElement} element
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountDecode(element, api, store) {
  const view = buildDecode({
    reopen: () => {
      pause(panel);
      go(panel, panel.position);
    },
    table: () => panel.step && splitsTable(panel.step),
    repeat: () => go(panel, panel.position),
    play: () => (panel.playing ? pause(panel) : play(panel)),
    seek: (to) => {
      pause(panel);
      go(panel, to === 'last' ? panel.length - 1 : to);
    },
    stepBy: (steps) => {
      pause(panel);
      go(panel, panel.position + steps);
    },
  });
  const visited = mountVisited(api, store);
  const caches = mountCaches(api, store);
  view.result.append(visited.element);
  fill(element, ...view.parts, caches.element);
  /** @type {Panel} */
  const panel = {
    element,
    api,
    store,
    view,
    visited,
    caches,
    load: latest(
      (/** @type {number} */ position) => load(panel, position),
      (error) => {
        panel.opened = '';
        pause(panel);
        view.now.textContent = `The step could not be computed: ${shortError(error)}`;
      },
    ),
    position: 0,
    length: 0,
    title: '',
    playing: false,
    timer: undefined,
    opened: '',
    step: null,
  };
  store.on(['sourceNumber'], ({ source }) => begin(panel, source));
  store.on(['edit', 'layer', 'head'], ({ source }) => source && go(panel, panel.position));
}

/** Begins with another source. @param {Panel} panel @param {import('../types').SourceInfo | null} source */
function begin(panel, source) {
  pause(panel);
  if (source?.growing) return; // it begins with the text that is complete
  panel.opened = '';
  // Weights that were given have no keys and values for a cache.
  panel.element.hidden = source?.kind === 'weights';
  const before = panel.length;
  panel.length = 0;
  if (!source || panel.element.hidden) return;
  const { view, caches } = panel;
  // Decoding goes token by token, however they are read.
  const { length } = allTokens(source);
  // On a new device, or in a new Python, one goes on where one was.
  const { title } = source;
  const again = title === panel.title && length === before ? { position: panel.position, capacity: view.capacity.value } : null;
  Object.assign(panel, { title, length });
  view.differs.hidden = source.causal !== false;
  view.slider.max = String(length - 1);
  fillCapacities(view, length);
  if (again) view.capacity.value = again.capacity;
  caches.element.hidden = length > MAX_LENGTH;
  if (length > MAX_LENGTH) clearStep(view, `Decoding is shown up to ${MAX_LENGTH} positions.`);
  else go(panel, again?.position ?? Math.floor(length / 2));
}

/** Shows a position, or the nearest one that exists. @param {Panel} panel @param {number} to */
function go(panel, to) {
  const { length, view, store } = panel;
  // What is shown belongs to a text that has grown since.
  if (!length || length > MAX_LENGTH || store.state.source?.growing) return;
  panel.position = Math.min(Math.max(to, 0), length - 1);
  view.slider.value = String(panel.position);
  panel.load(panel.position);
}

/** @param {Panel} panel @param {number} position */
async function load(panel, position) {
  const { api, store, view } = panel;
  const { layer, head, sourceNumber, edit } = store.state;
  const capacity = Number(view.capacity.value);
  const key = `${sourceNumber}/${edit}/${layer}/${capacity}`;
  if (panel.opened !== key) {
    await api.decodeOpen(layer, capacity);
    panel.opened = key;
  }
  const step = await api.decodeStep(position, head, Number(view.splits.value));
  if (store.state.sourceNumber !== sourceNumber) return;
  show(panel, step);
  if (!panel.playing || panel.position !== position) return;
  if (position + 1 < panel.length) panel.timer = setTimeout(() => go(panel, position + 1), Number(view.speed.value));
  else pause(panel);
}

/** @param {Panel} panel @param {DecodeStep} step */
function show(panel, step) {
  const { element, store, view, visited, caches } = panel;
  const { source, layer, head } = store.state;
  if (!source) return;
  showStep(view, step, allTokens(source), `layer ${layer}, head ${head}`);
  void visited.add(step);
  panel.step = step;
  if (!panel.playing) caches.follow(step.position, step.capacity);
  element.dataset.position = String(step.position);
}

/** Plays from here, or from the beginning when this is the last position. @param {Panel} panel */
function play(panel) {
  panel.playing = true;
  label(panel.view.play, 'Pause', ICONS.pause);
  go(panel, panel.position + 1 >= panel.length ? 0 : panel.position + 1);
}

/** @param {Panel} panel */
function pause(panel) {
  const { playing, step, caches, view } = panel;
  if (playing && step) caches.follow(step.position, step.capacity);
  panel.playing = false;
  clearTimeout(panel.timer);
  label(view.play, 'Play', ICONS.play);
}

/** @param {HTMLButtonElement} button @param {string} text @param {string} path of its icon */
function label(button, text, path) {
  fill(button, icon(path));
  button.title = text;
  button.setAttribute('aria-label', text);
}
