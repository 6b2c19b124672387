/** Sentences with something to be seen in them. Their maps come with the page, so they need no model. */

import { fill, h } from '../dom.js';
import { explained } from '../term.js';
import known from './examples.json';

/**
 * @typedef {typeof known[number]} Example `finding` says what is to be seen; tests/test_page_examples.py checks that it
 *   is true, by `holds` and `weight`
 * @typedef {import('../store.js').State} State
 */

/** The first one is the sample with which the page begins. */
export const EXAMPLES = /** @type {readonly Example[]} */ (known);
const INVITATION = 'Choose an example, or type a sentence of your own.';

/** The file with a sentence's maps, if it is an example. @param {string} text */
export function fileOf(text) {
  return EXAMPLES.find((example) => example.text === text)?.file;
}

/** The example whose finding is on screen. @param {Readonly<State>} state */
export function exampleShown({ source, input, layer, head, over, reading, style, editText }) {
  const isPlain = over === 'head' && !reading.words && reading.special === 'show' && style.show !== 'gradient' && !editText;
  const isSentence = input.kind === 'text' || input.kind === 'sample';
  if (!source || !isPlain || !isSentence) return undefined;
  return EXAMPLES.find((one) => one.text === source.title && one.layer === layer && one.head === head);
}

/**
 * @param {HTMLElement} element
 * @param {import('../store.js').Store} store
 * @param {(example: Example) => void} open
 */
export function mountExamples(element, store, open) {
  const buttons = EXAMPLES.map((example) =>
    h('button', { type: 'button', class: 'example', title: example.text, 'aria-pressed': 'false', onclick: () => open(example) }, example.name),
  );
  const finding = h('p', { class: 'finding', role: 'status' });
  fill(element, h('div', { class: 'example-row', role: 'group', 'aria-label': 'Examples' }, buttons), finding);

  const update = (/** @type {Readonly<State>} */ state) => {
    const shown = exampleShown(state);
    EXAMPLES.forEach((example, i) => buttons[i].setAttribute('aria-pressed', String(example === shown)));
    if (!shown) return void (finding.textContent = INVITATION);
    const text = explained(shown.finding, 'head', 'token', '[CLS]', '##', 'weight');
    fill(finding, h('strong', null, `Layer ${shown.layer}, head ${shown.head}: `), ...text);
  };
  store.on(['source', 'input', 'layer', 'head', 'over', 'reading', 'style', 'editText'], update);
  update(store.state);
}
