/** The written text, token by token: its probabilities, and what the chosen token attends to. */

import { fill, h } from '../dom.js';
import { formatPercent, surprise, tokenText } from './write-words.js';

/**
 * @typedef {import('../types').WrittenToken} WrittenToken
 *
 * @typedef {object} Listeners
 * @property {(index: number) => void} onPoint a pointer is over a token
 * @property {() => void} onLeave it has left the text
 * @property {(index: number) => void} onChoose a token was clicked, or reached by a key; -1 by Escape, for the newest
 *
 * @typedef {object} Text
 * @property {HTMLElement} element
 * @property {HTMLElement[]} spans one a token
 * @property {number} chosen index of the token that keys start from, -1 for none
 * @property {number} coloured how many tokens have a colour
 */

const EMPTY = 'What the model writes appears here, token by token.';

/** @param {Listeners} listeners */
export function mountText(listeners) {
  const element = h('div', { class: 'write-text', role: 'group', 'aria-label': 'Text, token by token', tabIndex: 0 });
  /** @type {Text} */
  const text = { element, spans: [], chosen: -1, coloured: 0 };
  const indexOf = (/** @type {EventTarget | null} */ target) =>
    target instanceof HTMLElement && target.dataset.index !== undefined ? Number(target.dataset.index) : -1;
  element.addEventListener('pointerover', ({ target, pointerType }) => {
    if (pointerType !== 'touch' && indexOf(target) >= 0) listeners.onPoint(indexOf(target));
  });
  element.addEventListener('pointerleave', () => listeners.onLeave());
  element.addEventListener('click', ({ target }) => indexOf(target) >= 0 && listeners.onChoose(indexOf(target)));
  element.addEventListener('keydown', (event) => onKey(text, event, listeners));
  show(text, [], 0, 0);

  return {
    element,
    /** @param {WrittenToken[]} tokens all of them @param {number} from the first that is new @param {number} prompt how many were given */
    show: (tokens, from, prompt) => show(text, tokens, from, prompt),
    /** @param {number} index -1 for none */
    choose: (index) => choose(text, index),
    /** Colours the tokens before one by their weights, or none. @param {ArrayLike<number> | null} weights @param {number} [query] */
    colour: (weights, query = -1) => colour(text, weights, query),
  };
}

/** @param {Text} text @param {WrittenToken[]} tokens @param {number} from @param {number} prompt */
function show(text, tokens, from, prompt) {
  const { element, spans } = text;
  const { scrollTop, scrollHeight, clientHeight } = element;
  const atEnd = scrollTop + clientHeight >= scrollHeight - 8;
  // A list box without options would be announced as a broken one.
  element.setAttribute('role', tokens.length ? 'listbox' : 'group');
  if (!tokens.length) fill(element, h('span', { class: 'muted' }, EMPTY));
  else if (!spans.length) fill(element);
  for (const span of spans.splice(from)) span.remove();
  const made = tokens.slice(from).map((token, i) => tokenSpan(token, from + i, from + i < prompt));
  spans.push(...made);
  element.append(...made);
  if (atEnd) element.scrollTop = element.scrollHeight;
  if (text.chosen >= spans.length) choose(text, -1);
}

/** @param {WrittenToken} token @param {number} index @param {boolean} given */
function tokenSpan(token, index, given) {
  const { text, logProbability } = token;
  const share = logProbability == null ? '' : formatPercent(Math.exp(logProbability));
  return h(
    'span',
    {
      class: given ? 'write-token given' : 'write-token',
      role: 'option',
      id: `write-token-${index}`,
      'aria-selected': 'false',
      title: `token ${index}${given ? ', of the prompt' : share && `, probability ${share}`}`,
      dataset: { index, share }, // the share is printed below it
      style: { '--surprise': surprise(token).toFixed(2) },
    },
    tokenText(text),
  );
}

/** @param {Text} text @param {number} index */
function choose(text, index) {
  const { element, spans } = text;
  spans[text.chosen]?.setAttribute('aria-selected', 'false');
  text.chosen = spans[index] ? index : -1;
  spans[index]?.setAttribute('aria-selected', 'true');
  if (text.chosen < 0) element.removeAttribute('aria-activedescendant');
  else element.setAttribute('aria-activedescendant', spans[index].id);
}

/** @param {Text} text @param {ArrayLike<number> | null} weights @param {number} query */
function colour(text, weights, query) {
  const { spans } = text;
  const count = weights ? Math.min(weights.length, query + 1, spans.length) : 0;
  // Small weights are seen better by their roots, as in the maps.
  for (let i = 0; i < count; i++) spans[i].style.setProperty('--weight', Math.sqrt(weights?.[i] ?? 0).toFixed(3));
  for (let i = count; i < text.coloured; i++) spans[i]?.style.removeProperty('--weight');
  for (const span of text.element.querySelectorAll('.looks')) span.classList.remove('looks');
  if (weights) spans[query]?.classList.add('looks');
  text.coloured = count;
}

/** @param {Text} text @param {KeyboardEvent} event @param {Listeners} listeners */
function onKey(text, event, { onChoose }) {
  const { spans, chosen } = text;
  if (event.key === 'Escape') return onChoose(-1);
  const last = spans.length - 1;
  const from = chosen < 0 ? spans.length : chosen;
  const to = /** @type {Record<string, number>} */ ({
    ArrowLeft: from - 1,
    ArrowRight: from + 1,
    ArrowUp: from - 10,
    ArrowDown: from + 10,
    Home: 0,
    End: last,
  })[event.key];
  if (to === undefined || last < 0) return undefined;
  event.preventDefault();
  const index = Math.min(Math.max(to, 0), last);
  onChoose(index);
  return spans[index].scrollIntoView({ block: 'nearest' });
}
