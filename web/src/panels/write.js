/**
 * A language model that writes: the prompt, the text with its probabilities and alternatives, the cache it is kept in,
 * and the heads that take part. What it has written is the page's source, so that all maps show it.
 */

import '../styles/write.css';
import { fill, h } from '../dom.js';
import { formatBytes, shortError } from '../format.js';
import { latest } from '../latest.js';
import { byToken, positionOf, tokenAt } from '../reading.js';
import { openSource } from '../store.js';
import { createWriteApi } from './write-api.js';
import { mountCache, mountTimes } from './write-cache.js';
import { mountCompare } from './write-compare.js';
import { mountHeads } from './write-heads.js';
import { mountText } from './write-text.js';
import { mountToken } from './write-token.js';
import { buildWrite, MODEL_BYTES } from './write-view.js';
import { describeEnd, describeEstimate, describeWritten } from './write-words.js';

/**
 * @typedef {import('../types').Written} Written
 * @typedef {import('../types').CacheChoice} CacheChoice
 * @typedef {import('../types').WrittenToken} WrittenToken
 *
 * @typedef {object} Actions what the page does when it is asked to
 * @property {(choice: CacheChoice, onProgress: (stage: string, loaded: number, total: number) => void) => Promise<boolean>} loadModel
 * @property {() => void} cancelModel
 *
 * @typedef {object} Panel
 * @property {import('../store.js').Store} store
 * @property {import('../api.js').Api} maps the calls for maps
 * @property {import('./write-api.js').WriteApi} api
 * @property {Actions} actions
 * @property {ReturnType<typeof buildWrite>} view
 * @property {ReturnType<typeof mountText>} text
 * @property {ReturnType<typeof mountToken>} token
 * @property {ReturnType<typeof mountCache>} cache
 * @property {ReturnType<typeof mountTimes>} times
 * @property {ReturnType<typeof mountHeads>} heads
 * @property {ReturnType<typeof mountCompare>} compare
 * @property {WrittenToken[]} tokens
 * @property {Written | null} written what Python told last
 * @property {boolean} entered whether the panel is shown
 * @property {boolean} loaded whether the model is there
 * @property {boolean} kept whether Python has the text; it has lost it when the GPU was lost
 * @property {'' | 'loading' | 'writing'} busy
 * @property {boolean} stopping
 * @property {number} chosen index of the token that was clicked, -1 for the newest
 * @property {Exclude<import('../types').Over, 'rollout'>} over what the text is coloured by
 * @property {number} refreshed when the maps were brought up to date last
 * @property {boolean} refreshing
 * @property {(index: number) => void} askAlternatives
 * @property {(query: number) => void} askColours
 */

const REFRESH_MS = 250; // between two versions of the maps while the text grows
const SPOKEN = 300; // characters of what was written, for a screen reader

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
    heads: mountHeads(store, (off) => void switchHeads(panel, off)),
    compare: mountCompare(api, () => ({ length: panel.tokens.length, choice: panel.cache.choice() })),
    tokens: [],
    written: null,
    entered: false,
    loaded: false,
    kept: false,
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
function layOut(element, { view, text, token, cache, times, heads, compare }) {
  fill(
    element,
    h('h2', { class: 'sr-only' }, 'Write'),
    view.form,
    view.controls,
    h('div', { class: 'write-foot' }, view.loading.element, view.message),
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
    view.spoken,
  );
}

/** @param {HTMLElement} element @param {Panel} panel */
function listen(element, panel) {
  const { store } = panel;
  store.on(['info'], () => panel.entered && void enter(element, panel));
  store.on(['sourceNumber', 'layer', 'head', 'query', 'edit'], () => colour(panel));
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
  return undefined;
}

/** @param {Panel} panel */
async function sayEstimate(panel) {
  try {
    say(panel, describeEstimate(await panel.api.estimate()));
  } catch (error) {
    report(panel, error);
  }
}

// writing

/** Begins a text with the prompt. @param {Panel} panel @param {number} [count] tokens to write */
async function begin(panel, count = countOf(panel)) {
  const { api, view } = panel;
  const prompt = view.prompt.value;
  if (!prompt.trim()) return say(panel, 'Type a few words first: a text begins with its prompt.');
  const chat = /** @type {HTMLInputElement} */ (view.chat.querySelector('input:checked')).value === 'chat';
  return working(panel, async () => {
    const answer = await api.start(prompt, chat);
    panel.kept = true;
    panel.chosen = -1;
    take(panel, answer);
    await write(panel, count);
  });
}

/** @param {Panel} panel @param {number} count */
function goOn(panel, count) {
  return working(panel, async () => {
    await restore(panel);
    await write(panel, count);
  });
}

/** Reads the text again where Python has lost it. @param {Panel} panel */
async function restore(panel) {
  const { api, tokens, written } = panel;
  if (panel.kept || !written) return;
  const told = tokens.slice();
  const answer = await api.restore(tokens.map(({ id }) => id), written.prompt);
  panel.kept = true;
  take(panel, { ...answer, tokens: told });
}

/** Runs what the model does, one thing at a time, once the model is there. @param {Panel} panel @param {() => Promise<void>} work */
async function working(panel, work) {
  if (panel.busy) return;
  if (!panel.loaded && !(await load(panel))) return;
  setBusy(panel, 'writing');
  panel.stopping = false;
  say(panel, 'Writing …');
  const before = panel.tokens.length;
  try {
    await work();
    say(panel, ended(panel));
  } catch (error) {
    // What is gone with Python or the GPU is said elsewhere.
    if (panel.loaded) report(panel, error);
  } finally {
    setBusy(panel, '');
  }
  speak(panel, before);
  if (panel.kept) await refresh(panel, false);
}

/** @param {Panel} panel */
function ended({ written, stopping }) {
  return (written && describeEnd(written.finished, written)) || (stopping ? 'Stopped.' : '');
}

/** Writes in short calls, between which everything else is answered. @param {Panel} panel @param {number} count */
async function write(panel, count) {
  const { api, tokens } = panel;
  const end = tokens.length + count;
  while (panel.tokens.length < end && !panel.stopping && !panel.written?.finished) {
    const before = panel.tokens.length;
    const answer = await api.next(end - before, samplingOf(panel));
    take(panel, answer);
    if (answer.length === before) return;
    void refreshSometimes(panel);
  }
}

/** @param {Panel} panel @param {Written} answer */
function take(panel, answer) {
  const { tokens, text, view, cache, times } = panel;
  tokens.splice(answer.from, Infinity, ...answer.tokens);
  panel.written = answer;
  if (panel.chosen >= tokens.length) {
    panel.chosen = -1;
    panel.token.clear();
  }
  text.show(tokens, answer.from, answer.prompt);
  view.figures.textContent = describeWritten(answer);
  cache.show(answer);
  cache.showFigures(answer);
  times.reset(!panel.busy);
  panel.compare.reset(tokens.length > 1 && !panel.busy);
}

/** Drops tokens, and puts another one in their place. @param {Panel} panel @param {number} length that stays @param {WrittenToken} [token] */
function back(panel, length, token) {
  return working(panel, async () => {
    await restore(panel);
    take(panel, await panel.api.back(length, token?.id ?? null));
    if (token) choose(panel, length);
  });
}

/** @param {Panel} panel */
function stop(panel) {
  panel.stopping = true;
}

/** @param {Panel} panel @param {string} what happened */
function lost(panel, what) {
  Object.assign(panel, { loaded: false, kept: false, stopping: true });
  label(panel);
  if (panel.tokens.length) say(panel, `${what} The text is kept: “Go on” loads the model again and rebuilds its cache.`);
}

/** @param {Panel} panel */
async function load(panel) {
  const { view, actions, cache } = panel;
  setBusy(panel, 'loading');
  view.loading.element.hidden = false;
  view.loading.show('weights', 0, MODEL_BYTES);
  say(panel, '');
  try {
    panel.loaded = await actions.loadModel(cache.choice(), view.loading.show);
    if (!panel.loaded) say(panel, 'Loading was cancelled; press the button to load again.');
    else if (panel.heads.list().length) await panel.api.headsOff(panel.heads.list());
  } catch (error) {
    say(panel, `SmolLM2 could not be loaded: ${shortError(error)} Press the button to try again.`, 'bad');
  } finally {
    view.loading.element.hidden = true;
    setBusy(panel, '');
  }
  return panel.loaded;
}

// what the model works with

/** @param {Panel} panel @param {CacheChoice} choice */
async function changeCache(panel, choice) {
  const { api, written, cache } = panel;
  if (!panel.loaded || !panel.kept) return;
  await working(panel, async () => {
    try {
      take(panel, await api.cache(choice));
    } catch (error) {
      if (written) cache.show(written);
      throw error;
    }
  });
}

/** @param {Panel} panel @param {[layer: number, head: number][]} off */
async function switchHeads(panel, off) {
  if (!panel.loaded) return;
  try {
    await panel.api.headsOff(off);
  } catch (error) {
    report(panel, error);
  }
}

/** @param {Panel} panel @returns {import('../types').Sampling} */
function samplingOf({ view: { sampling } }) {
  return {
    temperature: sampling.temperature.read() ?? 0,
    top_k: sampling.topK.read(),
    top_p: sampling.topP.read(),
    seed: sampling.seed.read() ?? 0,
  };
}

/** @param {Panel} panel */
function countOf({ view }) {
  return Math.max(0, Math.round(view.sampling.count.read() ?? 0));
}

// the maps

/** While the text grows, the maps follow when they have shown the last version. @param {Panel} panel */
async function refreshSometimes(panel) {
  const { store } = panel;
  const { source, sourceNumber, painted } = store.state;
  const waits = source?.kind === 'written' && source.growing && painted !== sourceNumber;
  if (waits || performance.now() - panel.refreshed < REFRESH_MS) return;
  await refresh(panel, true);
}

/** Makes the text the source of all maps. @param {Panel} panel @param {boolean} growing */
async function refresh(panel, growing) {
  if (!panel.entered || (growing && panel.refreshing)) return;
  panel.refreshing = true;
  try {
    const source = await panel.api.view(growing);
    // The newest token is in focus unless the visitor has chosen one.
    const query = panel.chosen < 0 ? source.length - 1 : Math.min(positionOf(source, panel.chosen), source.length - 1);
    if (panel.entered) openSource(panel.store, source, { query });
  } catch (error) {
    if (!growing) report(panel, error);
  } finally {
    panel.refreshing = false;
    panel.refreshed = performance.now();
  }
}

/** Moves the row in focus of all maps to a token. @param {Panel} panel @param {number} index */
function look({ store }, index) {
  const { source } = store.state;
  if (source?.kind === 'written' && index >= 0) store.set({ query: Math.min(positionOf(source, index), source.length - 1) });
}

/** @param {Panel} panel @param {number} index */
function choose(panel, index) {
  panel.chosen = index;
  panel.text.choose(index);
  panel.askAlternatives(index);
  look(panel, index);
}

/** @param {Panel} panel @param {number} index */
async function showAlternatives({ api, token, tokens, kept, written }, index) {
  if (!tokens[index] || !written) return;
  token.show(tokens[index], index, kept && index > 0 ? await api.alternatives(index) : []);
}

/** Colours the text by what the token in focus attends to. @param {Panel} panel */
function colour(panel) {
  const { source, query, layer, head } = panel.store.state;
  if (!panel.entered || source?.kind !== 'written') return panel.text.colour(null);
  panel.view.looking.textContent = describeLooking(panel, layer, head);
  return panel.askColours(query);
}

/** @param {Panel} panel @param {number} layer @param {number} head */
function describeLooking({ over }, layer, head) {
  const what = { head: `Layer ${layer}, head ${head}`, layer: `The mean of layer ${layer}`, all: 'The mean of all heads' };
  return `${what[over]}: what the token under the pointer attends to.`;
}

/** @param {Panel} panel @param {number} query */
async function showColours(panel, query) {
  const { maps, store, over } = panel;
  const { layer, head, source, sourceNumber } = store.state;
  const { weights } = await maps.row(layer, head, query, 'weights', over);
  if (source && store.state.sourceNumber === sourceNumber && store.state.query === query) {
    panel.text.colour(byToken(source, weights), tokenAt(source, query));
  }
}

// messages and buttons

/** @param {Panel} panel @param {'' | 'loading' | 'writing'} busy */
function setBusy(panel, busy) {
  panel.busy = busy;
  panel.token.setBusy(Boolean(busy));
  panel.cache.setBusy(Boolean(busy));
  panel.times.reset(panel.tokens.length > 0 && !busy);
  panel.compare.reset(panel.tokens.length > 1 && !busy);
  label(panel);
}

/** @param {Panel} panel */
function label({ view, loaded, busy, tokens, written, store }) {
  const { generate } = view;
  const writing = busy === 'writing';
  generate.textContent = writing ? 'Stop' : loaded ? 'Generate' : `Load SmolLM2 (${formatBytes(MODEL_BYTES)}) and generate`;
  generate.dataset.does = writing ? 'stop' : 'generate';
  generate.disabled = busy === 'loading' || !store.state.info?.webgpu;
  const idle = !busy && Boolean(store.state.info?.webgpu);
  view.goOn.disabled = !idle || !tokens.length || Boolean(written?.finished);
  view.step.disabled = !idle || Boolean(written?.finished);
  view.back.disabled = !idle || tokens.length <= Math.max(1, written?.prompt ?? 0);
}

/** @param {Panel} panel @param {string} text @param {'' | 'bad'} [tone] */
function say({ view: { message } }, text, tone = '') {
  message.textContent = text || ' ';
  message.dataset.tone = tone;
}

/** @param {Panel} panel @param {unknown} error */
function report(panel, error) {
  say(panel, shortError(error), 'bad');
}

/** For screen readers, once and not token by token. @param {Panel} panel @param {number} from */
function speak({ tokens, view }, from) {
  const text = tokens.slice(from).map((token) => token.text).join('').trim();
  if (text) view.spoken.textContent = `Written: ${text.slice(0, SPOKEN)}`;
}
