/** The Write panel's state, its buttons and its message. */

import { shortError } from '../format.js';
import { buttonStates, describeError } from './write-words.js';

/**
 * @typedef {import('../types').Written} Written
 * @typedef {import('../types').CacheChoice} CacheChoice
 * @typedef {import('../types').WrittenToken} WrittenToken
 *
 * @typedef {object} Actions what the page does when it is asked to
 * @property {(choice: CacheChoice, onProgress: (stage: string, loaded: number, total: number) => void) => Promise<boolean>} loadModel
 * @property {() => void} cancelModel
 * @property {() => Promise<boolean>} hasModel whether the model is in the browser's cache
 * @property {(source: import('../types').SourceInfo, focus: Partial<import('../store.js').State>) => boolean} open shows a
 *   source; whether the address had asked for a focus in it, which was taken instead
 * @property {() => void} forget the focus that the address asks for
 * @property {() => void} unclear the address has something that is no state of this panel
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
 * @property {boolean} unread whether the text came with the address, and the model has not read it
 * @property {number} follows counts up as an address begins to be followed and as it is shown: what was begun before is over
 * @property {(() => void)[]} waiting until the panel is not busy
 * @property {ReturnType<typeof import('./write-address.js').keepInAddress>} address
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
  if (!busy) for (const go of panel.waiting.splice(0)) go();
  panel.token.setBusy(Boolean(busy));
  panel.cache.setBusy(Boolean(busy));
  panel.times.reset(panel.kept && panel.tokens.length > 0 && !busy);
  panel.compare.reset(panel.kept && panel.tokens.length > 1 && !busy);
  label(panel);
}

/** Resolves when the panel is not busy. @param {Panel} panel @returns {Promise<void>} */
export function idle({ busy, waiting }) {
  return busy ? new Promise((resolve) => waiting.push(resolve)) : Promise.resolve();
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
  const detail = shortError(error);
  say(panel, describeError(detail, panel.tokens.length > 0), 'bad', detail);
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

/** What stands in the fields. @param {Panel['view']} view */
export function fieldsOf({ prompt, chat, sampling }) {
  const { value } = /** @type {HTMLInputElement} */ (chat.querySelector('input:checked'));
  return { prompt: prompt.value, chat: value === 'chat', numbers: Object.values(sampling).map((one) => one.read()) };
}

/** How many tokens are asked for. @param {Panel} panel */
export function countOf({ view }) {
  return Math.max(0, Math.round(view.sampling.count.read() ?? 0));
}
