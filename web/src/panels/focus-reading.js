/** How the tokens of the maps are read: word pieces merged into words, special tokens hidden. */

import { h } from '../dom.js';
import { shortError } from '../format.js';
import { latest } from '../latest.js';
import { isSame, refocus } from '../reading.js';
import { focusOf, openSource } from '../store.js';
import { select } from './elements.js';

/**
 * @typedef {import('../store.js').Reading} Reading
 * @typedef {import('../store.js').Store} Store
 */

const WORDS =
  'One row and one column for each word. Attention to a word is the sum over its pieces, attention from it the mean over them. A score_mod acts on the pieces.';
const NO_PIECES = 'No word here is split into pieces.';
const SPECIAL =
  'Special tokens such as [CLS] and [SEP] mark where a text begins and ends. Many heads rest on them. Hidden, their rows and columns are left out; renormalised, what is left of each row is divided by its sum.';
const NO_SPECIAL = 'There are no special tokens here.';

/**
 * The controls, and the calls that they lead to. What Python says about the source decides what is possible.
 * @param {import('../api.js').Api} api @param {Store} store
 */
export function mountReading(api, store) {
  const box = h('input', { type: 'checkbox', onchange: () => choose({ words: box.checked }) });
  const words = h('label', { class: 'check small' }, box, 'Merge word pieces');
  const options = /** @type {[string, string][]} */ ([['show', 'shown'], ['hide', 'hidden'], ['renormalise', 'hidden, renormalised']]);
  const list = select('Special tokens', options, 'show', (special) => choose(/** @type {Partial<Reading>} */ ({ special })));
  list.className = 'input compact';
  const special = h('label', { class: 'check small special-tokens', title: SPECIAL }, 'Special tokens', list);
  const problem = h('span', { class: 'small', role: 'status' });
  /** Whether the visitor has chosen it here. An address names positions as they will be, and nothing has to move. */
  let moves = false;

  /** @param {Partial<Reading>} patch */
  const choose = (patch) => {
    moves = true;
    store.set({ reading: { ...store.state.reading, ...patch } });
  };

  const ask = latest(
    async () => {
      const { source, sourceNumber, reading } = store.state;
      if (!source?.reading || isSame(source.reading, reading)) return;
      const read = await api.readAs(reading);
      // Another source has come meanwhile, whose own answer says how it is read.
      if (store.state.sourceNumber !== sourceNumber) return;
      const focus = focusOf(store.state);
      openSource(store, read, moves ? refocus(source, read, focus) : focus);
    },
    (error) => {
      problem.textContent = shortError(error);
      const { source } = store.state;
      if (source?.reading) store.set({ reading: source.reading });
    },
  );

  store.on(['source', 'reading'], ({ source, reading }) => {
    problem.textContent = '';
    box.checked = reading.words;
    list.value = reading.special;
    if (!source) return;
    show(words, box, Boolean(source.canMergeWords) || reading.words, source.canMergeWords ? WORDS : NO_PIECES);
    show(special, list, Boolean(source.specialTokens) || reading.special !== 'show', source.specialTokens ? SPECIAL : NO_SPECIAL);
    if (source.reading && !isSame(source.reading, reading)) ask(undefined);
    else moves = false;
  });

  return { elements: [words, special, problem] };
}

/** @param {HTMLElement} label @param {HTMLInputElement | HTMLSelectElement} control @param {boolean} possible @param {string} title */
function show(label, control, possible, title) {
  control.disabled = !possible;
  label.classList.toggle('inactive', !possible);
  label.title = title;
}
