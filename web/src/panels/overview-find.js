/** The overview's search field, its order, and the labels of the head in focus. */

import { Click } from '../pointer.js';
import { fill, h } from '../dom.js';
import { select } from './elements.js';
import { closest, formatScore, search, shortName, titleOf } from './overview-heads.js';

/**
 * @typedef {import('../types').Label} Label
 * @typedef {import('../types').HeadFindings} HeadFindings
 * @typedef {import('./overview-heads.js').Sort} Sort
 * @typedef {import('./overview-heads.js').Found} Found
 * @typedef {{ layers: number, heads: number }} Shape
 *
 * @typedef {object} Actions
 * @property {(found: Found | null) => void} onFound with each change of what is searched for
 * @property {(head: number) => void} onGo with the head to go to, counted through all layers
 * @property {(sort: Sort) => void} onSort
 */

/** @type {[Sort, string][]} */
const SORTS = [
  ['layer', 'by layer'],
  ['label', 'by label'],
  ['entropy', 'by entropy'],
  ['sparsity', 'by sparsity'],
  ['similarity', 'by similarity'],
];
const SORT_NOTES = {
  layer: `${Click()} a map, or move with the arrow keys.`,
  label: 'Each head stands under the label with its highest score.',
  entropy: 'From the lowest mean entropy of a row to the highest.',
  sparsity: 'From the sparsest weights (Hoyer’s measure) to the most even ones.',
  similarity: 'Like maps stand together (Jensen–Shannon divergence, average linkage).',
};

let counter = 0;

/** @param {Actions} actions */
export function buildFind({ onFound, onGo, onSort }) {
  const suggestions = h('datalist', { id: `labels-${++counter}` });
  const field = h('input', {
    class: 'input compact',
    type: 'search',
    'aria-label': 'Find heads',
    placeholder: 'Find heads: previous …',
    autocomplete: 'off',
    spellcheck: false,
    disabled: true,
  });
  field.setAttribute('list', suggestions.id);
  const order = select('Order of the heads', SORTS, 'layer', (value) => sortBy(/** @type {Sort} */ (value)));
  order.className = 'input compact';
  const note = h('p', { class: 'muted small find-note', role: 'status' });
  const chips = h('div', { class: 'head-labels', role: 'group', 'aria-label': 'Labels of the head in focus' });
  const element = h('div', { class: 'overview-find' }, h('div', { class: 'find-row', role: 'search' }, field, order, suggestions), note, chips);
  /** @type {{ findings: HeadFindings | null, labels: Label[], shape: Shape, found: Found | null, sort: Sort, says: string, sampled: string }} */
  const known = { findings: null, labels: [], shape: { layers: 0, heads: 1 }, found: null, sort: 'layer', says: '', sampled: '' };

  function look() {
    known.found = search(field.value, known.findings, known.labels, known.shape);
    say();
    onFound(known.found);
  }

  function say() {
    note.textContent = known.found ? describeFound(known.found, known) : known.says || `${SORT_NOTES[known.sort]}${known.sampled}`;
  }

  /** @param {Sort} sort */
  function sortBy(sort) {
    known.sort = sort;
    say();
    onSort(sort);
  }

  field.addEventListener('input', look);
  field.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && known.found?.heads.length) onGo(known.found.heads[0]);
    if (event.key === 'Escape' && field.value) {
      event.preventDefault();
      field.value = '';
      look();
    }
  });

  return {
    element,
    get labels() {
      return known.labels;
    },

    /** Another source: its findings are not there yet. @param {Shape} shape */
    begin(shape) {
      Object.assign(known, { findings: null, shape, says: '', sampled: '' });
      field.disabled = false;
      look();
    },

    /** @param {HeadFindings} findings @param {Label[]} labels */
    show(findings, labels) {
      const sampled = findings.step > 1 ? ` Labels come from one of every ${findings.step} rows.` : '';
      if (known.labels !== labels) fill(suggestions, labels.map(({ title }) => h('option', { value: title })));
      Object.assign(known, { findings, labels, says: '', sampled });
      const similarity = /** @type {HTMLOptionElement} */ (order.options[SORTS.length - 1]);
      similarity.disabled = !findings.order.length;
      look();
    },

    /** Why there are no findings. @param {string} why */
    fail(why) {
      known.says = why;
      say();
    },

    /** The labels of a head. @param {number} head counted through all layers */
    mark(head) {
      fill(chips, ...chipsOf(head, known, (title) => {
        field.value = title;
        look();
      }));
    },
  };
}

/**
 * @param {Found} found
 * @param {{ findings: HeadFindings | null, labels: Label[], shape: Shape }} known
 */
function describeFound({ labels, heads, scores }, { findings, labels: all, shape }) {
  if (!findings && !heads.length) return 'The labels of the heads come once all maps are there.';
  const what = labels.length === 1 ? `${labels[0].description} ` : '';
  if (heads.length) {
    const score = labels.length ? ` (${formatScore(scores[0])})` : '';
    const count = heads.length === 1 ? '1 head' : `${heads.length} heads`;
    return `${what}${count}; Enter goes to ${heads.length === 1 ? 'it' : 'the best'}, ${shortName(heads[0], shape.heads)}${score}.`;
  }
  if (!labels.length) return 'No head has that place, and no label has that name.';
  const near = findings && closest(labels[0], findings, all);
  return `${what}No head does that here${near ? `; the closest is ${shortName(near.head, shape.heads)} (${formatScore(near.score)})` : ''}.`;
}

/**
 * @param {number} head
 * @param {{ findings: HeadFindings | null, labels: Label[], shape: Shape }} known
 * @param {(title: string) => void} onPick
 */
function chipsOf(head, { findings, labels, shape }, onPick) {
  if (!findings?.shown[head]) return [];
  const { shown, entropy, sparsity, rows } = findings;
  const chips = shown[head].map(({ name, score }) => {
    const title = titleOf(name, labels);
    const label = labels.find((each) => each.name === name);
    const meaning = `${label?.description ?? ''} Score ${formatScore(score)} of 1, where 0 is chance; from ${rows[name]} ${rows[name] === 1 ? 'row' : 'rows'}.`;
    return h(
      'button',
      { class: 'head-label', type: 'button', title: `${meaning} ${Click()} to find all such heads.`, onclick: () => onPick(title) },
      title,
      ' ',
      h('span', { class: 'number' }, formatScore(score)),
    );
  });
  const figures = Number.isNaN(entropy[head])
    ? ''
    : `entropy ${entropy[head].toFixed(1)} bits · sparsity ${formatScore(sparsity[head])}`;
  return [
    h('span', { class: 'head-place' }, shortName(head, shape.heads)),
    ...(chips.length ? chips : [h('span', { class: 'muted' }, 'no label')]),
    h('span', { class: 'muted head-figures', title: 'Means over the rows: entropy in bits, and Hoyer’s sparsity from 0 (equal weights) to 1 (a single weight).' }, figures),
  ];
}
