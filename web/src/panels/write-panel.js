/** The Write panel's state, its buttons and its message. */

import { shortError } from '../format.js';
import { buttonStates } from './write-words.js';

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
 * @property {ReturnType<typeof import('./write-view.js').buildWrite>} view
 * @property {ReturnType<typeof import('./write-text.js').mountText>} text
 * @property {ReturnType<typeof import('./write-token.js').mountToken>} token
 * @property {ReturnType<typeof import('./write-cache.js').mountCache>} cache
 * @property {ReturnType<typeof import('./write-cache.js').mountTimes>} times
 * @property {ReturnType<typeof import('./write-heads.js').mountHeads>} heads
 * @property {ReturnType<typeof import('./write-compare.js').mountCompare>} compare
 * @property {WrittenToken[]} tokens
 * @property {Written | null} written what Python told last
 * @property {boolean} entered whether the panel is shown
 * @property {boolean} loaded whether the model is there
 * @property {boolean} kept whether Python has the text; it has lost it when the GPU was lost
 * @property {'' | 'loading' | 'writing'} busy
 * @property {boolean} stopping
 * @property {number} chosen index of the token that was clicked, -1 for the newest
 * @property {Exclude<import('../types').Over, 'rollout'>} over what the text is coloured by
 * @property {ReturnType<typeof import('./write-speech.js').mountSpeech>} speech what a screen reader is told of the text
 * @property {number} refreshed when the maps were brought up to date last
 * @property {boolean} refreshing
 * @property {(index: number) => void} askAlternatives
 * @property {(query: number) => void} askColours
 */

/** What can be done follows what the model does. @param {Panel} panel @param {'' | 'loading' | 'writing'} busy */
export function setBusy(panel, busy) {
  panel.busy = busy;
  panel.token.setBusy(Boolean(busy));
  panel.cache.setBusy(Boolean(busy));
  panel.times.reset(panel.tokens.length > 0 && !busy);
  panel.compare.reset(panel.tokens.length > 1 && !busy);
  label(panel);
}

/** @param {Panel} panel */
export function label({ view, loaded, busy, tokens, written, store }) {
  const { generate, goOn, step, back } = view;
  const able = Boolean(store.state.info?.webgpu);
  const states = buttonStates({ able, loaded, busy, length: tokens.length, prompt: written?.prompt ?? 0, finished: written?.finished ?? '' });
  generate.textContent = states.label;
  generate.dataset.does = states.does;
  generate.disabled = !states.generate;
  goOn.disabled = !states.goOn;
  step.disabled = !states.step;
  back.disabled = !states.back;
}

/**
 * @param {Panel} panel @param {string} text @param {'' | 'bad'} [tone]
 * @param {string} [detail] what went wrong in technical words, as a tooltip
 */
export function say({ view: { message } }, text, tone = '', detail = '') {
  message.textContent = text || ' ';
  message.title = detail;
  message.dataset.tone = tone;
}

/** @param {Panel} panel @param {unknown} error */
export function report(panel, error) {
  say(panel, shortError(error), 'bad');
}

/** @param {Panel} panel @returns {import('../types').Sampling} */
export function samplingOf({ view: { sampling } }) {
  return {
    temperature: sampling.temperature.read() ?? 0,
    top_k: sampling.topK.read(),
    top_p: sampling.topP.read(),
    seed: sampling.seed.read() ?? 0,
  };
}

/** How many tokens are asked for. @param {Panel} panel */
export function countOf({ view }) {
  return Math.max(0, Math.round(view.sampling.count.read() ?? 0));
}
