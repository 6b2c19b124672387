/**
 * A language model that writes: the prompt, the text with its probabilities and alternatives, the cache it is kept in,
 * and the heads that take part. What it has written is the page's source, so that all maps show it.
 */

import '../styles/write.css';
import '../styles/write-media.css';
import { fill, h } from '../dom.js';
import { latest } from '../latest.js';
import { keepInAddress, resume } from './write-address.js';
import { createWriteApi } from './write-api.js';
import { mountCache, mountTimes } from './write-cache.js';
import { mountCompare } from './write-compare.js';
import { keepFocus } from './write-focus.js';
import { mountHeads } from './write-heads.js';
import { lost } from './write-load.js';
import { choose, colour, look, refresh, showAlternatives, showColours } from './write-maps.js';
import { countOf, label, report, say } from './write-panel.js';
import { back, begin, changeCache, goOn, stop, switchHeads } from './write-session.js';
import { mountSpeech } from './write-speech.js';
import { mountText } from './write-text.js';
import { mountToken } from './write-token.js';
import { buildWrite } from './write-view.js';
import { describeEstimate } from './write-words.js';

/**
 * @typedef {import('./write-panel.js').Panel} Panel
 * @typedef {import('./write-panel.js').Actions} Actions
 */

/**
 * @param {HTMLElement} element
 * @param {import('../store.js').Model} store
 * @param {import('../api.js').Api} maps
 * @param {Actions} actions
 */
export function mountWrite(element, store, maps, actions) {
  const api = createWriteApi(store.call);
  const view = buildWrite({
    generate: () => (panel.busy === 'writing' ? stop(panel) : void begin(panel)),
    goOn: () => void goOn(panel, countOf(panel)),
    step: () => void (panel.tokens.length ? goOn(panel, 1) : begin(panel, 1)),
    back: () => void back(panel, panel.tokens.length - 1),
    cancel: actions.cancelModel,
    colourBy: (over) => {
      panel.over = over;
      colour(panel);
      panel.address.changed();
    },
  });
  /** @type {Panel} */
  const panel = {
    store,
    maps,
    api,
    actions,
    view,
    text: mountText({
      onPoint: (index) => look(panel, index),
      onLeave: () => look(panel, panel.chosen < 0 ? panel.tokens.length - 1 : panel.chosen),
      onChoose: (index) => choose(panel, index),
    }),
    token: mountToken({
      take: (token) => void back(panel, panel.chosen, token),
      backHere: () => void back(panel, panel.chosen + 1),
    }),
    cache: mountCache((choice) => void changeCache(panel, choice)),
    times: mountTimes(api, store),
    heads: mountHeads(store, (off) => {
      panel.address.changed();
      void switchHeads(panel, off);
    }),
    compare: mountCompare(api, () => ({ length: panel.tokens.length, choice: panel.cache.choice() })),
    speech: mountSpeech(),
    tokens: [],
    written: null,
    entered: false,
    loaded: false,
    kept: false,
    unread: false,
    follows: 0,
    waiting: [],
    address: { changed() {} },
    busy: '',
    stopping: false,
    chosen: -1,
    over: 'head',
    refreshed: 0,
    refreshing: false,
    askAlternatives: latest((/** @type {number} */ index) => showAlternatives(panel, index), (error) => report(panel, error)),
    askColours: latest((/** @type {number} */ query) => showColours(panel, query), () => {}),
  };
  layOut(element, panel);
  listen(element, panel);
  panel.address = keepInAddress(panel);
  keepFocus(element);

  return {
    /** The panel is shown: so is what it has written. */
    enter: () => enter(element, panel),
    /** Another input is shown. */
    leave() {
      panel.entered = false;
      stop(panel);
    },
    /** Python or the GPU has gone, and the model with it. @param {string} what */
    lost: (what) => lost(panel, what),
  };
}

/** @param {HTMLElement} element @param {Panel} panel */
function layOut(element, { view, text, token, cache, times, heads, compare, speech }) {
  fill(
    element,
    h('h2', { class: 'sr-only' }, 'Write'),
    view.form,
    view.prompts,
    h('div', { class: 'write-foot' }, view.loading.element, view.message),
    view.controls,
    h(
      'div',
      { class: 'write-body' },
      h(
        'div',
        { class: 'write-page' },
        h('div', { class: 'write-page-head' }, view.colours, view.looking),
        text.element,
        view.figures,
      ),
      token.element,
    ),
    h('div', { class: 'write-more' }, cache.element, heads.element, times.element),
    compare.element,
    speech.element,
  );
}

/** @param {HTMLElement} element @param {Panel} panel */
function listen(element, panel) {
  const { store } = panel;
  store.on(['info'], () => panel.entered && void enter(element, panel));
  store.on(['sourceNumber', 'layer', 'head', 'query', 'edit'], () => colour(panel));
  for (const type of ['input', 'change']) element.addEventListener(type, () => panel.address.changed());
  label(panel);
}

/** @param {HTMLElement} element @param {Panel} panel */
async function enter(element, panel) {
  const { store, tokens, busy } = panel;
  panel.entered = true;
  const { info } = store.state;
  element.classList.toggle('unable', info?.webgpu === false);
  label(panel);
  if (info?.webgpu === false) return sayEstimate(panel);
  if (tokens.length && panel.kept && !busy) await refresh(panel, false);
  return resume(panel);
}

/** @param {Panel} panel */
async function sayEstimate(panel) {
  try {
    say(panel, describeEstimate(await panel.api.estimate()));
  } catch (error) {
    report(panel, error);
  }
}
