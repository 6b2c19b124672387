/** The chosen token: its probability, the ten likeliest tokens at its place, and the way back to it. */

import { fill, h } from '../dom.js';
import { tokenMark } from './elements.js';
import { formatPercent } from './write-words.js';

/**
 * @typedef {import('../types').WrittenToken} WrittenToken
 *
 * @typedef {object} Actions
 * @property {(token: WrittenToken) => void} take an alternative
 * @property {() => void} backHere keep the text up to the chosen token
 */

const LINES = 10;
const NOTHING = 'Click a token, or move with the arrow keys, to see what else the model would have written there.';
const UNREAD = 'What else the model would have written here is known once it has read the text again.';
const FIRST = 'This is the first token: there is nothing before it that the model could go on from.';

/** @param {Actions} actions */
export function mountToken(actions) {
  const title = h('p', { class: 'write-chosen' }, ' ');
  const lines = Array.from({ length: LINES }, (_, i) => line(actions, i));
  const list = h('ol', { class: 'alternatives', 'aria-label': 'The likeliest tokens here' }, lines.map(({ element }) => element));
  const note = h('p', { class: 'muted small write-note' }, NOTHING);
  const back = h('button', { class: 'button compact', type: 'button', disabled: true, onclick: actions.backHere }, 'Back to here');
  const element = h(
    'section',
    { class: 'write-alternatives', 'aria-label': 'Alternatives' },
    h('div', { class: 'write-alternatives-head' }, title, back),
    list,
    note,
  );
  let busy = false;
  const enable = () => {
    for (const each of lines) each.enable(!busy);
    back.disabled = busy || !shown;
  };
  let shown = false;

  return {
    element,
    clear() {
      shown = false;
      fill(title, ' ');
      for (const each of lines) each.show(null, false);
      note.textContent = NOTHING;
      enable();
    },
    /** @param {WrittenToken} token @param {number} index @param {WrittenToken[]} alternatives */
    show(token, index, alternatives) {
      shown = true;
      const { logProbability } = token;
      fill(title, tokenMark(token.text, index), ` token ${index}`, logProbability != null && `, ${formatPercent(Math.exp(logProbability))}`);
      lines.forEach((each, i) => each.show(alternatives[i] ?? null, alternatives[i]?.id === token.id));
      note.textContent = describe(token, index, alternatives);
      enable();
    },
    /** While the model writes nothing can be taken. @param {boolean} now */
    setBusy(now) {
      busy = now;
      enable();
    },
  };
}

/** @param {WrittenToken} token @param {number} index @param {WrittenToken[]} alternatives */
function describe({ id }, index, alternatives) {
  if (!alternatives.length) return index ? UNREAD : FIRST;
  const sum = alternatives.reduce((total, { logProbability }) => total + Math.exp(logProbability ?? -Infinity), 0);
  const together = `Together ${formatPercent(Math.min(1, sum))}. Click one to go on from it.`;
  return alternatives.some((each) => each.id === id) ? together : `The token that stands here is none of the ten likeliest. ${together}`;
}

/** @param {Actions} actions @param {number} index */
function line({ take }, index) {
  /** @type {WrittenToken | null} */
  let token = null;
  let current = false;
  const text = h('span', { class: 'alternative-text' });
  const figure = h('span', { class: 'alternative-figure' });
  const button = h('button', { class: 'alternative', type: 'button', disabled: true, onclick: () => token && !current && take(token) }, text, figure);
  const element = h('li', { style: { visibility: 'hidden' } }, button);
  return {
    element,
    /** @param {WrittenToken | null} given @param {boolean} chosen whether it is what stands there */
    show(given, chosen) {
      [token, current] = [given, chosen];
      element.style.visibility = given ? '' : 'hidden';
      const share = given ? Math.exp(given.logProbability ?? -Infinity) : 0;
      button.style.setProperty('--share', share.toFixed(4));
      button.setAttribute('aria-current', String(chosen));
      button.setAttribute('aria-disabled', String(chosen)); // it can be reached, so that the keyboard keeps its place
      fill(text, given ? tokenMark(given.text, index) : ' ');
      figure.textContent = given ? formatPercent(share) : '';
    },
    /** @param {boolean} able */
    enable(able) {
      button.disabled = !able || !token;
    },
  };
}
