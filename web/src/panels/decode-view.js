/** The elements of the decoding panel, and how a step is shown in them. */

import { fill, h, ICONS } from '../dom.js';
import { formatBytes, formatError, formatToken, formatWeight, withMinus } from '../format.js';
import { explained } from '../term.js';
import { field, heading, iconButton, select, tableCaption, tableHead, tokenMark } from './elements.js';
import { tableMenu } from './table-menu.js';
import { capacityChoices, isCrowded, slotsOf } from './slots.js';

/**
 * @typedef {import('../types').DecodeStep} DecodeStep
 * @typedef {ReturnType<typeof buildDecode>} View
 *
 * @typedef {object} Actions
 * @property {() => void} reopen with another capacity
 * @property {() => void} repeat the step, with other splits
 * @property {() => void} play or pause
 * @property {(position: number | 'last') => void} seek
 * @property {(steps: number) => void} stepBy
 * @property {() => import('../table-text.js').Table | null} table of the splits
 */

const DIFFERS =
  'These weights differ from those of the map: here a query sees only the positions up to its own, as when a text is written; in the map it also sees those behind it.';
const SPLITS = [1, 2, 3, 4, 6, 8];
const SPEEDS = /** @type {[string, string][]} */ ([
  ['1200', 'slow'], // milliseconds from one position to the next
  ['500', 'normal'],
  ['120', 'fast'],
]);

/** @param {Actions} actions */
export function buildDecode(actions) {
  const capacity = select('Cache capacity', [], '', actions.reopen);
  const splits = select('Splits', SPLITS.map((n) => [String(n), String(n)]), '4', actions.repeat);
  const speed = select('Speed', SPEEDS, '500');
  const { controls, play, slider } = buildControls(actions);
  const now = h('p', { class: 'decode-now', role: 'status' }, ' ');
  const slots = h('ol', { class: 'slots', tabIndex: 0, 'aria-label': 'Cache slots' });
  const { table, body } = splitTable();
  const result = h('div', { class: 'decode-result' }, table);
  const combine = h('p', { class: 'combine' }, ' ');
  const form = h('div', { class: 'row-form' }, field('Capacity', capacity), field('Splits', splits), field('Speed', speed));
  const about = 'One causal query at a time over a growing KV cache, as a language model does for every new token.';
  const differs = h('p', { class: 'muted small decode-differs', hidden: true }, DIFFERS);
  const head = h('header', null, heading('Decode', ...explained(about, 'causal', 'query', 'KV cache', 'token')), form);
  const parts = [head, differs, controls, now, slots, result, h('div', { class: 'beside-menu' }, combine, tableMenu('Partial results', actions.table))];
  return { parts, capacity, splits, speed, play, slider, now, slots, body, result, combine, differs };
}

/** @param {Actions} actions */
function buildControls({ play: toggle, seek, stepBy }) {
  const play = iconButton('Play', ICONS.play, toggle);
  const slider = h('input', {
    type: 'range',
    min: '0',
    max: '0',
    value: '0',
    class: 'decode-slider',
    'aria-label': 'Position',
    oninput: () => seek(Number(slider.value)),
  });
  const controls = h(
    'div',
    { class: 'decode-controls', role: 'group', 'aria-label': 'Steps' },
    iconButton('First position', ICONS.first, () => seek(0)),
    iconButton('Back', ICONS.back, () => stepBy(-1)),
    play,
    iconButton('Step', ICONS.forward, () => stepBy(1)),
    iconButton('Last position', ICONS.last, () => seek('last')),
    slider,
  );
  return { controls, play, slider };
}

function splitTable() {
  const body = h('tbody');
  const head = tableHead([
    { label: 'Split' },
    { label: 'Positions' },
    { label: 'LSEₛ', title: 'log-sum-exp of the scores of the split', numeric: true },
    { label: 'exp(LSEₛ − LSE)', title: 'weight of the split’s output', numeric: true },
  ]);
  const caption = tableCaption('Partial results of the splits and how they are combined');
  return { table: h('table', { class: 'splits' }, caption, head, body), body };
}

/** @param {View} view @param {number} length of the source */
export function fillCapacities({ capacity }, length) {
  fill(capacity, capacityChoices(length).map(([value, label]) => h('option', { value }, label)));
}

/** Shows a message in the place of a step. @param {View} view @param {string} message */
export function clearStep({ now, slots, body, combine }, message) {
  now.textContent = message;
  fill(slots);
  fill(body);
  fill(combine, ' ');
}

/** @param {View} view @param {DecodeStep} step @param {string[]} tokens @param {string} where layer and head */
export function showStep(view, step, tokens, where) {
  fill(
    view.now,
    'Query ',
    tokenMark(tokens[step.position], step.position),
    ` at position ${step.position} · cache ${step.length} of ${step.capacity}, ${formatBytes(step.nbytes)} · ${where}`,
  );
  showSlots(view.slots, step, tokens);
  const top = Math.max(...step.splits.map(({ factor }) => factor)) || 1;
  fill(view.body, step.splits.map((split, i) => splitLine(split, i, top)));
  fill(
    view.combine,
    h('span', { class: 'formula' }, `LSE = ln Σ exp(LSEₛ) = ${withMinus(step.lse.toFixed(4))}`),
    h('span', { class: 'formula' }, 'out = Σ exp(LSEₛ − LSE) · outₛ'),
    h('span', { class: 'muted small' }, describeErrors(step)),
  );
}

/** @param {DecodeStep} step */
function describeErrors({ combined, error }) {
  return `Combined in numpy, the splits differ by ${formatError(combined)} from the reduce kernel, which is ${formatError(error)} away from float64.`;
}

/** @param {HTMLElement} element @param {DecodeStep} step @param {string[]} tokens */
function showSlots(element, step, tokens) {
  element.classList.toggle('many', isCrowded(step));
  const top = Math.max(...step.weights) || 1;
  fill(element, slotsOf(step).map((slot) => (slot ? slotItem(slot, tokens, step.position, top) : emptySlot())));
}

function emptySlot() {
  return h('li', { class: 'slot empty', 'aria-label': 'empty' }, h('span', null, ' '));
}

/** @param {import('./slots.js').Slot} slot @param {string[]} tokens @param {number} newest position @param {number} top the largest weight */
function slotItem({ position, weight, split }, tokens, newest, top) {
  return h(
    'li',
    {
      class: position === newest ? 'slot new' : 'slot',
      title: `position ${position}, weight ${formatWeight(weight)}`,
      style: { '--share': weight / top, '--split': split },
    },
    h('bdi', { dir: 'auto' }, formatToken(tokens[position])),
    h('span', { class: 'slot-weight' }, weight.toFixed(3)),
  );
}

/** @param {DecodeStep['splits'][number]} split @param {number} index @param {number} top the largest factor */
function splitLine({ start, stop, lse, factor }, index, top) {
  return h(
    'tr',
    { style: { '--share': factor / top } },
    h('th', { scope: 'row' }, h('i', { class: 'swatch', style: { '--split': index } }), String(index + 1)),
    h('td', null, stop > start ? `${start} – ${stop - 1}` : 'none'),
    h('td', { class: 'number' }, Number.isFinite(lse) ? withMinus(lse.toFixed(4)) : '−∞'),
    h('td', { class: 'number factor' }, formatWeight(factor)),
  );
}
