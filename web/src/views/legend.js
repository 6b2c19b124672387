/** The heads that are shown together, each with its hue, a switch, and its weight of the cell that is spoken of. */

import { fill, h, icon, ICONS } from '../dom.js';
import { formatWeight } from '../format.js';
import { MAX_HEADS, isHead, toggleHead } from '../store.js';
import { drawnHeads, SCREEN_HUES } from './shade.js';

/** @typedef {import('../store.js').Head} Head */

/** What is said where several heads are not drawn, or no more of them can be. */
const NOTES = {
  over: 'Several heads are shown together where the map is that of “This head”.',
  map: 'The map shows the head in focus; “Text” and “Lines” draw them together.',
  full: 'Eight heads are as many as can be told apart.',
};

/** @param {Head} one */
const key = ({ layer, head }) => `${layer}/${head}`;
/** @param {Head} one */
export const nameOf = ({ layer, head }) => `L${layer} H${head}`;

/** @param {import('../store.js').Store} store @param {() => void} onChange a head was switched on or off */
export function mountLegend(store, onChange) {
  /** Heads that are switched off. @type {Set<string>} */
  const off = new Set();
  const chips = h('ul', { class: 'head-chips', 'aria-label': 'Heads shown together' });
  const add = h('select', { class: 'input compact', 'aria-label': 'Add a head', onchange: () => choose() });
  const clear = h('button', { class: 'button compact', type: 'button', onclick: () => store.set({ heads: [] }) }, 'Only this head');
  const note = h('p', { class: 'muted small head-note' });
  const element = h('div', { class: 'head-legend' }, chips, add, clear, note);
  let shape = '';
  /** @type {HTMLElement[]} */
  let figures = [];

  const choose = () => {
    const [layer, head] = add.value.split('/').map(Number);
    add.value = '';
    const one = { layer, head };
    if (!drawnHeads(store.state).some((other) => isHead(other, one))) toggleHead(store, one);
  };

  /** @param {import('../types').SourceInfo} source */
  const offer = ({ layers, heads }) => {
    if (shape === `${layers}/${heads}`) return;
    shape = `${layers}/${heads}`;
    const groups = Array.from({ length: layers }, (_, layer) =>
      h('optgroup', { label: `Layer ${layer}` }, Array.from({ length: heads }, (__, head) => h('option', { value: `${layer}/${head}` }, nameOf({ layer, head })))),
    );
    fill(add, h('option', { value: '' }, 'Add a head …'), ...groups);
  };

  const draw = () => {
    const { source, over, heads, openAs } = store.state;
    if (!source) return;
    offer(source);
    const drawn = drawnHeads(store.state);
    const isOne = over === 'head';
    const isFull = drawn.length >= MAX_HEADS;
    element.hidden = !heads.length && (openAs === 'map' || !isOne);
    add.hidden = !isOne || layersTimesHeads(source) < 2;
    add.disabled = isFull;
    clear.hidden = !isOne || !heads.length;
    note.textContent = !isOne && heads.length ? NOTES.over : isFull ? NOTES.full : openAs === 'map' ? NOTES.map : '';
    note.hidden = !note.textContent;
    figures = drawn.map(() => h('span', { class: 'number' }, ''));
    fill(chips, isOne ? drawn.map((one, i) => chip(one, i, drawn.length > 1)) : []);
  };

  /** @param {Head} one @param {number} place @param {boolean} several */
  const chip = (one, place, several) => {
    const isOn = !off.has(key(one));
    const flip = () => {
      if (isOn) off.add(key(one));
      else off.delete(key(one));
      draw();
      onChange();
      /** @type {HTMLElement | undefined} */ (chips.querySelectorAll('.head-switch')[place])?.focus();
    };
    const swatch = h('i', { class: 'head-swatch', style: { '--hue': SCREEN_HUES[place] } });
    const title = isOn ? 'Click to hide its weights' : 'Click to show its weights';
    return h(
      'li',
      { class: `head-chip${isOn ? '' : ' off'}`, 'aria-current': several && isHead(one, store.state) ? 'true' : null },
      h('button', { class: 'head-switch', type: 'button', title, 'aria-pressed': String(isOn), onclick: flip }, swatch, nameOf(one), figures[place]),
      several && h('button', { class: 'pin-drop head-drop', type: 'button', 'aria-label': `Let ${nameOf(one)} go`, onclick: () => toggleHead(store, one) }, icon(ICONS.close)),
    );
  };

  store.on(['sourceNumber', 'source', 'layer', 'head', 'heads', 'over', 'openAs'], draw);
  return {
    element,

    /** Which of the heads are drawn, by their places; all where all are switched off. */
    get on() {
      const drawn = drawnHeads(store.state);
      const all = drawn.map((_, place) => place);
      const shown = store.state.over === 'head' ? all.filter((place) => !off.has(key(drawn[place]))) : all;
      return shown.length ? shown : all;
    },

    /** Writes a weight beside each head. @param {(number | undefined)[]} weights */
    say(weights) {
      figures.forEach((figure, place) => (figure.textContent = weights[place] === undefined ? '…' : formatWeight(weights[place])));
    },
  };
}

/** @param {import('../types').SourceInfo} source */
function layersTimesHeads({ layers, heads }) {
  return layers * heads;
}
