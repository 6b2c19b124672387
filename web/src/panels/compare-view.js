/** The elements of the comparison. */

import { choose, fill, h, putPixels, segmented } from '../dom.js';
import { formatTick } from '../format.js';
import { field, heading, select } from './elements.js';
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
  const stop = h('button', { class: 'button compact', type: 'button', hidden: true, onclick: actions.stop }, 'Close');
  const kinds = segmented('What the head in focus is compared with', KINDS, '', (kind) => actions.begin(/** @type {any} */ (kind)));
  const fields = h('div', { class: 'compare-fields row-form' });
  const note = h('p', { class: 'compare-note muted small', role: 'status' }, INVITATION);
  const body = h('div', { class: 'compare-body', hidden: true });
  const about = 'A is always the head in focus: choose another one above, and its map follows.';
  const parts = [
    h('header', null, heading('Compare', about), stop),
    h('div', { class: 'compare-choice' }, h('div', { class: 'scroll-x' }, kinds), fields),
    note,
    body,
  ];
  let drawn = '';
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
      // What is being typed stays as it is while the same thing is compared.
      const now = JSON.stringify([compare, source?.layers, source?.heads]);
      if (now !== drawn) fill(fields, ...fieldsFor(compare, source, actions));
      drawn = now;
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

/** @param {Compare | null} compare @param {import('../types').SourceInfo | null} source @param {Actions} actions */
function fieldsFor(compare, source, actions) {
  switch (compare?.with) {
    case 'head':
      return headFields(compare, source, actions);
    case 'cache': {
      const dtype = select('Cache that B is read from', CACHES, compare.dtype, (to) => actions.compareWith({ with: 'cache', dtype: to }));
      dtype.className = 'input compact';
      return [dtype];
    }
    case 'text':
      return [textForm(compare.text, actions)];
    case 'unedited':
      return [h('p', { class: 'muted small' }, 'A has the functions that you write under “Edit the score”, B does not.')];
    default:
      return [];
  }
}

/** @param {Compare & { with: 'head' }} compare @param {import('../types').SourceInfo | null} source @param {Actions} actions */
function headFields(compare, source, { compareWith, takeFocus }) {
  /** @param {'layer' | 'head'} name @param {string} label @param {number} count */
  const number = (name, label, count) => {
    const input = h('input', {
      type: 'number',
      min: 0,
      max: count - 1,
      step: 1,
      required: true,
      value: compare[name],
      onchange: () => input.reportValidity() && compareWith({ ...compare, [name]: input.valueAsNumber }),
    });
    return field(label, input);
  };
  return [
    number('layer', 'Layer of B', source?.layers ?? 1),
    number('head', 'Head of B', source?.heads ?? 1),
    h('button', { class: 'button', type: 'button', onclick: takeFocus }, 'Take the head in focus as B'),
  ];
}

/** @param {string} text @param {Actions} actions */
function textForm(text, { compareWith }) {
  const input = h('input', { class: 'input', type: 'text', value: text, maxLength: 4000, required: true, 'aria-label': 'The text of B' });
  return h(
    'form',
    {
      class: 'compare-text',
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        compareWith({ with: 'text', text: input.value });
      },
    },
    input,
    h('button', { class: 'button', type: 'submit' }, 'Show'),
  );
}

/** Three maps with their names and legends, and the figures below. */
export function buildMaps() {
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
    definition,
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
