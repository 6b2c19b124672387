/** The form for synthetic input. */

import { fill, h } from '../dom.js';
import { field, select } from './elements.js';

/**
 * @typedef {import('../types').SyntheticShape} Shape
 * @typedef {object} Field
 * @property {string} label
 * @property {number | ''} value at first; a field that begins empty may stay so
 * @property {number} min @property {number} max
 * @property {number | 'any'} [step]
 */

const MASKS = /** @type {[string, string][]} */ ([
  ['causal', 'causal'],
  ['none', 'none'],
  ['padding', 'padding: the last quarter masked'],
  ['documents', 'four documents in a row'],
  ['alibi', 'ALiBi, causal'],
]);
const SIZES = /** @type {Record<string, Field>} */ ({
  length: { label: 'Length', value: 256, min: 1, max: 32768 },
  heads: { label: 'Heads', value: 8, min: 1, max: 64 },
  kv_heads: { label: 'KV heads', value: 2, min: 1, max: 64 },
  head_dim: { label: 'Head dim', value: 64, min: 1, max: 512 },
});
const OPTIONS = /** @type {Record<string, Field>} */ ({
  window: { label: 'Window', value: '', min: 0, max: 32768 },
  softcap: { label: 'Softcap', value: '', min: 0, max: 1000, step: 'any' },
  seed: { label: 'Seed', value: 1, min: 0, max: 999999 },
});

/**
 * @param {HTMLElement} element
 * @param {(shape: Shape) => void} onSubmit
 */
export function mountSynthetic(element, onSubmit) {
  const sizes = inputs(SIZES);
  const options = inputs(OPTIONS);
  const mask = select('Mask', MASKS, 'causal');
  const maskField = field('Mask', mask);
  maskField.classList.add('wide');
  const make = h('button', { class: 'button primary', type: 'submit' }, 'Make');
  const form = h('form', { class: 'synthetic-form' }, labelled(SIZES, sizes), maskField, labelled(OPTIONS, options), make);
  fill(element, form);

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    onSubmit(/** @type {Shape} */ ({ ...values(sizes), mask: mask.value, ...values(options) }));
  });
  return {
    submit: () => form.requestSubmit(),
    /** @param {Shape} shape */
    set(shape) {
      mask.value = shape.mask;
      for (const [name, input] of Object.entries({ ...sizes, ...options })) {
        input.value = String(shape[/** @type {keyof Shape} */ (name)] ?? '');
      }
    },
  };
}

/** @param {Record<string, Field>} fields @returns {Record<string, HTMLInputElement>} */
function inputs(fields) {
  return Object.fromEntries(Object.entries(fields).map(([name, one]) => [name, numberInput(one)]));
}

/** @param {Record<string, Field>} fields @param {Record<string, HTMLInputElement>} controls */
function labelled(fields, controls) {
  return Object.entries(fields).map(([name, { label }]) => field(label, controls[name]));
}

/** @param {Field} field */
function numberInput({ value, min, max, step = 1 }) {
  return h('input', {
    type: 'number',
    inputMode: 'numeric',
    value: String(value),
    min: String(min),
    max: String(max),
    step: String(step),
    placeholder: value === '' ? 'off' : '',
    required: value !== '',
  });
}

/** The numbers of some inputs; an empty one is null. @param {Record<string, HTMLInputElement>} controls */
function values(controls) {
  return Object.fromEntries(
    Object.entries(controls).map(([name, { value }]) => [name, value === '' ? null : Number(value)]),
  );
}
