/** Terms that explain themselves: a tooltip for the mouse, for the keyboard and for touch. */

import { h } from './dom.js';
import { GLOSSARY } from './glossary.js';

/** @typedef {import('./glossary.js').Term} Term */

const GAP = 6; // CSS pixels between a term and its explanation
const MARGIN = 8; // between the explanation and the edges of the window
const LEAVE_MS = 150; // for the way from the term to its explanation

let count = 0;
/** @type {(() => void) | null} closes the explanation that is open */
let closeOpen = null;

/**
 * A term of the glossary, as it stands in a sentence.
 * @param {Term} name @param {string} [text] if it is written otherwise
 */
export function term(name, text = name) {
  // Not a <button>: lines break before and behind those, even before a full stop.
  const button = h('span', { class: 'term', role: 'button', tabIndex: 0 }, text);
  /** @type {HTMLElement | null} */
  let tip = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  const close = () => {
    clearTimeout(timer);
    tip?.remove();
    tip = null;
    button.removeAttribute('aria-describedby');
    removeEventListener('scroll', follow, true);
    removeEventListener('pointerdown', away, true);
    removeEventListener('keydown', onKey, true);
    if (closeOpen === close) closeOpen = null;
  };
  const follow = () => tip && place(tip, button);
  const away = (/** @type {Event} */ event) => {
    if (!event.composedPath().some((one) => one === button || one === tip)) close();
  };
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    close();
  };
  const stay = () => clearTimeout(timer);
  const leave = () => {
    clearTimeout(timer);
    timer = setTimeout(close, LEAVE_MS);
  };
  const open = () => {
    stay();
    if (tip) return;
    closeOpen?.();
    closeOpen = close;
    tip = h('span', { class: 'term-tip', role: 'tooltip', id: `term-${++count}`, popover: 'manual' }, GLOSSARY[name]);
    tip.addEventListener('pointerenter', stay);
    tip.addEventListener('pointerleave', leave);
    button.after(tip);
    button.setAttribute('aria-describedby', tip.id);
    tip.showPopover?.();
    place(tip, button);
    addEventListener('scroll', follow, { capture: true, passive: true });
    addEventListener('pointerdown', away, true);
    addEventListener('keydown', onKey, true);
  };

  button.addEventListener('pointerenter', (event) => event.pointerType === 'mouse' && open());
  button.addEventListener('pointerleave', (event) => event.pointerType === 'mouse' && document.activeElement !== button && leave());
  button.addEventListener('focus', open);
  button.addEventListener('blur', close);
  // Safari does not focus a button that is tapped or clicked.
  button.addEventListener('click', open);
  button.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' && event.key !== ' ') return;
    event.preventDefault();
    open();
  });
  return button;
}

/**
 * A sentence in which the first mention of each of some terms explains itself.
 * @param {string} sentence @param {...Term} names
 * @returns {(string | HTMLElement)[]}
 */
export function explained(sentence, ...names) {
  /** @type {(string | HTMLElement)[]} */
  const parts = [];
  let end = 0;
  for (const { name, from, to } of mentions(sentence, names)) {
    parts.push(sentence.slice(end, from), term(name, sentence.slice(from, to)));
    end = to;
  }
  return [...parts, sentence.slice(end)];
}

/** Where terms are mentioned first, in their order in the sentence; plurals count. @param {string} sentence @param {Term[]} names */
export function mentions(sentence, names) {
  const found = names.map((name) => ({ name, from: indexOfWord(sentence, name) })).filter(({ from }) => from >= 0);
  found.sort((a, b) => a.from - b.from);
  return found.map(({ name, from }) => {
    const end = from + name.length;
    return { name, from, to: end + Number(/^s(?!\p{L})/u.test(sentence.slice(end))) };
  });
}

/** Where a word begins, not counting other words that contain it; -1 where it is not. @param {string} text @param {string} word */
function indexOfWord(text, word) {
  const isLetter = (/** @type {string | undefined} */ letter) => letter !== undefined && /[\p{L}_]/u.test(letter);
  const [lowText, lowWord] = [text.toLowerCase(), word.toLowerCase()];
  for (let at = lowText.indexOf(lowWord); at >= 0; at = lowText.indexOf(lowWord, at + 1)) {
    const rest = text.slice(at + word.length).replace(/^s(?!\p{L})/u, '');
    if (!isLetter(word[0]) || (!isLetter(text[at - 1]) && !isLetter(rest[0]))) return at;
  }
  return -1;
}

/** Puts an explanation below its term, or above it, within the window. @param {HTMLElement} tip @param {HTMLElement} button */
function place(tip, button) {
  const [line] = button.getClientRects();
  const { width, height } = tip.getBoundingClientRect();
  const { clientWidth, clientHeight } = document.documentElement;
  const left = Math.max(MARGIN, Math.min(line.left, clientWidth - width - MARGIN));
  const below = line.bottom + GAP;
  const top = below + height + MARGIN <= clientHeight ? below : line.top - GAP - height;
  tip.style.left = `${left}px`;
  tip.style.top = `${Math.max(MARGIN, Math.min(top, clientHeight - height - MARGIN))}px`;
}
