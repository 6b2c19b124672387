/** The elements of the comparison. */

import { choose, fill, h, putPixels, segmented } from '../dom.js';
import { formatTick } from '../format.js';
import { field, heading, select } from './elements.js';
import { tableMenu } from './table-menu.js';
import { CACHES } from './compare-words.js';

/**
 * @typedef {import('../store.js').Compare} Compare
 *
 * @typedef {object} Actions
 * @property {(kind: Compare['with']) => void} begin
 * @property {(compare: Compare) => void} compareWith
 * @property {() => void} takeFocus makes the head in focus the one that is compared with
 * @property {() => void} stop
 */

const KINDS = [
  { value: 'head', label: 'Another head' },
  { value: 'unedited', label: 'Without my score_mod', title: 'the same head before and after the functions under “Edit the score”' },
  { value: 'text', label: 'Another text', title: 'the same head of another sentence' },
  { value: 'cache', label: 'Another cache', title: 'the same head with its keys read from a cache of fewer bits' },
];
const INVITATION = 'Choose what the head in focus is compared with: both maps then stand side by side, with their difference.';

/** @param {Actions} actions */
export function buildCompare(actions) {
  const close = () => {
    actions.stop();
    kinds.querySelector('input')?.focus(); // the button that had the focus is hidden now
  };
  const stop = h('button', { class: 'button compact', type: 'button', hidden: true, onclick: close }, 'Close');
  const kinds = segmented('What the head in focus is compared with', KINDS, '', (kind) => actions.begin(/** @type {any} */ (kind)));
  const fields = h('div', { class: 'compare-fields row-form' });
  const note = h('p', { class: 'compare-note muted small', role: 'status' }, INVITATION);
  const body = h('div', { class: 'compare-body', hidden: true });
  const about = 'A is always the head in focus: choose another one above, and its map follows.';
  const parts = [
    h('header', null, heading('Compare', about), stop),
    h('div', { class: 'compare-choice' }, kinds, fields),
    note,
    body,
  ];
  /** @type {Fields | null} */
  let made = null;
  let madeFor = '';
  return {
    parts,
    fields,
    note,
    body,
    /** @param {Compare | null} compare @param {import('../types').SourceInfo | null} source @param {boolean} canEdit */
    show(compare, source, canEdit) {
      choose(kinds, compare?.with ?? '');
      stop.hidden = !compare;
      body.hidden = !compare;
      if (!compare) note.textContent = INVITATION;
      note.classList.remove('bad');
      for (const input of kinds.querySelectorAll('input')) {
        const label = /** @type {HTMLElement} */ (input.parentElement);
        label.hidden = input.value !== compare?.with && !isPossible(input.value, source, canEdit);
      }
      const wanted = [compare?.with, source?.layers, source?.heads].join();
      if (!made || wanted !== madeFor) {
        made = fieldsFor(compare?.with, source, actions);
        fill(fields, ...made.parts);
      }
      madeFor = wanted;
      if (compare) made.follow(compare);
    },
  };
}

/** @param {string} kind @param {import('../types').SourceInfo | null} source @param {boolean} canEdit */
function isPossible(kind, source, canEdit) {
  if (kind === 'head') return true;
  if (source?.kind === 'weights') return false;
  if (kind === 'unedited') return canEdit;
  return kind !== 'text' || !source || source.kind === 'sample' || source.kind === 'text';
}

/**
 * The fields for a kind of comparison. They follow what is compared without being made anew, so that they keep the
 * keyboard's focus.
 * @typedef {{ parts: HTMLElement[], follow: (compare: Compare) => void }} Fields
 * @param {Compare['with'] | undefined} kind @param {import('../types').SourceInfo | null} source @param {Actions} actions
 * @returns {Fields}
 */
function fieldsFor(kind, source, actions) {
  if (kind === 'head') return headFields(source, actions);
  if (kind === 'cache') return cacheField(actions);
  if (kind === 'text') return textField(actions);
  const about = kind ? 'A has the functions that you write under “Edit the score”, B does not.' : '';
  return { parts: [h('p', { class: 'muted small' }, about)], follow: () => {} };
}

/** @param {import('../types').SourceInfo | null} source @param {Actions} actions @returns {Fields} */
function headFields(source, { compareWith, takeFocus }) {
  const number = (/** @type {number} */ count) =>
    h('input', { type: 'number', min: 0, max: count - 1, step: 1, required: true, onchange: () => changed() });
  const layer = number(source?.layers ?? 1);
  const head = number(source?.heads ?? 1);
  const changed = () => {
    if (!layer.reportValidity() || !head.reportValidity()) return;
    compareWith({ with: 'head', layer: layer.valueAsNumber, head: head.valueAsNumber });
  };
  const take = h('button', { class: 'button', type: 'button', onclick: takeFocus }, 'Take the head in focus as B');
  return {
    parts: [field('Layer of B', layer), field('Head of B', head), take],
    follow(compare) {
      if (compare.with === 'head') [layer.value, head.value] = [String(compare.layer), String(compare.head)];
    },
  };
}

/** @param {Actions} actions @returns {Fields} */
function cacheField({ compareWith }) {
  const dtype = select('Cache that B is read from', CACHES, CACHES[0][0], (to) => compareWith({ with: 'cache', dtype: to }));
  dtype.className = 'input compact';
  return {
    parts: [dtype],
    follow(compare) {
      if (compare.with === 'cache') dtype.value = compare.dtype;
    },
  };
}

/** @param {Actions} actions @returns {Fields} */
function textField({ compareWith }) {
  const input = h('input', { class: 'input', type: 'text', maxLength: 4000, required: true, 'aria-label': 'The text of B' });
  const send = (/** @type {Event} */ event) => {
    event.preventDefault();
    compareWith({ with: 'text', text: input.value });
  };
  let followed = '';
  return {
    parts: [h('form', { class: 'compare-text', onsubmit: send }, input, h('button', { class: 'button', type: 'submit' }, 'Show'))],
    follow(compare) {
      // What is being typed stays as it is while the same text is compared.
      if (compare.with !== 'text' || compare.text === followed) return;
      followed = input.value = compare.text;
    },
  };
}

/** Three maps with their names and legends, and the figures below. @param {() => import('../table-text.js').Table | null} table of the figures */
export function buildMaps(table) {
  const maps = { a: mapFigure(), b: mapFigure(), difference: mapFigure() };
  const cell = h('dd');
  const largest = h('dd');
  const variation = h('dd');
  const shannon = h('dd');
  const definition = h('p', { class: 'muted small' });
  const spoken = h('p', { class: 'sr-only', role: 'status' });
  const figures = h(
    'dl',
    { class: 'compare-figures' },
    pair('Chosen cell', cell),
    pair('Largest |A − B|', largest),
    pair('Total variation distance', variation),
    pair('Jensen–Shannon divergence', shannon),
  );
  const parts = [
    h('div', { class: 'compare-maps' }, Object.values(maps).map(({ element }) => element)),
    figures,
    h('div', { class: 'beside-menu' }, definition, tableMenu('The comparison', table)),
    spoken,
  ];
  return { parts, maps, cell, largest, variation, shannon, definition, spoken };
}

/** @param {string} term @param {HTMLElement} value */
function pair(term, value) {
  return h('div', null, h('dt', null, term), value);
}

function mapFigure() {
  const name = h('figcaption', { class: 'small' }, ' ');
  const box = h('div', { class: 'compare-map' });
  const strip = h('canvas', { class: 'legend-strip', width: 256, height: 1 });
  const ticks = h('div', { class: 'legend-ticks' });
  const legend = h('div', { class: 'compare-legend', role: 'img' }, strip, ticks);
  const missing = h('p', { class: 'compare-missing muted small', hidden: true });
  return {
    element: h('figure', null, name, box, missing, legend),
    name,
    box,
    /** Why there is no map, '' where there is one. @param {string} why */
    lack(why) {
      missing.textContent = why;
      missing.hidden = !why;
      box.hidden = legend.hidden = Boolean(why);
    },
    /** @param {import('../types').Legend} colors @param {number} most the value at the legend's end @param {boolean} isSigned */
    showLegend({ rgba, ticks: places }, most, isSigned) {
      putPixels(strip, rgba, 256, 1);
      legend.setAttribute('aria-label', `Colours from ${isSigned ? formatTick(-most, true) : 0} to ${formatTick(most, isSigned)}`);
      fill(
        ticks,
        places.map(({ value, at }) => h('span', { style: { '--at': at } }, formatTick(value * most, isSigned))),
      );
    },
  };
}
