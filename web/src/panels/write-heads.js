/** Which heads take part: a switch for each, layers from left to right. */

import { h } from '../dom.js';
import { SHAPE } from './write-state.js';
import { headsAfter, moveInGrid } from './write-words.js';

/**
 * @param {import('../store.js').Store} store
 * @param {(off: [layer: number, head: number][]) => void} onChange
 */
export function mountHeads(store, onChange) {
  /** @type {Set<string>} "layer/head" of the heads that are off */
  let off = new Set();
  let at = { layer: 0, head: 0 };
  const grid = h('div', { class: 'head-grid', role: 'grid', 'aria-label': 'Heads, by layer from left to right' });
  const buttons = Array.from({ length: SHAPE.heads }, (_, head) => Array.from({ length: SHAPE.layers }, (__, layer) => cell(layer, head)));
  grid.append(...buttons.map((row) => h('div', { role: 'row', class: 'head-row' }, row)));
  const count = h('p', { class: 'muted small', role: 'status' }, ' ');
  const actions = /** @type {const} */ ([
    ['head', 'This head'],
    ['layer', 'Its layer'],
    ['others', 'All but this head'],
    ['none', 'All on'],
  ]).map(([which, label]) =>
    h('button', { class: 'button compact', type: 'button', onclick: () => apply(headsAfter(which, off, store.state.layer, store.state.head, SHAPE)) }, label),
  );
  const element = h(
    'section',
    { class: 'write-heads', 'aria-label': 'Heads' },
    h('h3', null, 'Heads'),
    h('p', { class: 'muted small' }, 'A head that is off adds nothing to the tokens that come next. Click a head, or switch the one in focus:'),
    h('div', { class: 'write-buttons' }, actions),
    grid,
    count,
  );

  /** @param {number} layer @param {number} head */
  function cell(layer, head) {
    return h('button', {
      class: 'head-cell',
      type: 'button',
      role: 'gridcell',
      tabIndex: layer || head ? -1 : 0,
      title: `Layer ${layer} · head ${head}`,
      onclick: () => apply(headsAfter('head', off, layer, head, SHAPE)),
      onfocus: () => move(layer, head),
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        const to = moveInGrid(event.key, layer, head, SHAPE);
        if (!to) return;
        event.preventDefault();
        buttons[to[1]][to[0]].focus();
      },
    });
  }

  /** @param {number} layer @param {number} head */
  function move(layer, head) {
    buttons[at.head][at.layer].tabIndex = -1;
    at = { layer, head };
    buttons[head][layer].tabIndex = 0;
  }

  /** @param {Set<string>} next */
  function apply(next) {
    off = next;
    paint();
    onChange(list());
  }

  function list() {
    return [...off].map((name) => /** @type {[number, number]} */ (name.split('/').map(Number)));
  }

  function paint() {
    const { layer, head, source } = store.state;
    buttons.forEach((row, i) =>
      row.forEach((button, l) => {
        const isOff = off.has(`${l}/${i}`);
        button.classList.toggle('off', isOff);
        button.classList.toggle('focused', source?.kind === 'written' && l === layer && i === head);
        button.setAttribute('aria-label', `Layer ${l}, head ${i}, ${isOff ? 'off' : 'on'}`);
        button.setAttribute('aria-selected', String(!isOff));
      }),
    );
    count.textContent = off.size ? `${off.size} of ${SHAPE.layers * SHAPE.heads} heads are off.` : 'All heads are on.';
  }

  store.on(['layer', 'head', 'sourceNumber'], paint);
  paint();
  return {
    element,
    list,
    /** Shows which heads are off, without a word to the model. @param {[layer: number, head: number][]} heads */
    show(heads) {
      off = new Set(heads.map(([layer, head]) => `${layer}/${head}`));
      paint();
    },
  };
}
