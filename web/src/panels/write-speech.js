/** What a screen reader is told of the text while it is written: whole sentences, no faster than they are spoken. */

import { h } from '../dom.js';

/** @typedef {import('../types').WrittenToken} WrittenToken */

const SHORTEST = 40; // characters that are worth an announcement
const LONGEST = 300; // characters of one
const MS_PER_CHARACTER = 60; // about as fast as a screen reader speaks
const SENTENCE = /^[^]*[.!?…]["”’)]*(?=\s)/u;

/**
 * The beginning of a text that is to be spoken next; empty where more of it has to be written first.
 * @param {string} text @param {boolean} ended whether nothing follows
 */
export function nextPortion(text, ended) {
  if (ended && text.length <= LONGEST) return text;
  const start = text.slice(0, LONGEST);
  const sentence = SENTENCE.exec(start)?.[0] ?? '';
  if (sentence.trim().length >= SHORTEST) return sentence;
  return text.length < LONGEST ? '' : start.slice(0, Math.max(start.search(/\s\S*$/u), 0)) || start;
}

/** @param {() => number} [now] in milliseconds */
export function mountSpeech(now = () => performance.now()) {
  const element = h('p', { class: 'sr-only', role: 'status', 'aria-live': 'polite' });
  let from = 0;
  let said = 0; // characters from there on
  let free = 0; // when the last portion has been spoken

  return {
    element,
    /** The tokens from this one on are new. @param {number} index */
    begin(index) {
      [from, said, free] = [index, 0, now()];
    },
    /** @param {WrittenToken[]} tokens all of them @param {boolean} ended whether no more will come */
    tell(tokens, ended) {
      if (!ended && now() < free) return;
      const text = tokens.slice(from).map((token) => token.text).join('');
      const portion = nextPortion(text.slice(said), ended);
      said += portion.length;
      if (!portion.trim()) return;
      element.textContent = portion.trim() + (ended && said < text.length ? ' … The text goes on.' : '');
      free = now() + MS_PER_CHARACTER * portion.length;
    },
  };
}
