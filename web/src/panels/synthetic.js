/** The form for synthetic input. */

import { fill, h } from '../dom.js';
import { formatCount } from '../format.js';
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
 * What is wrong with a value, in a few words, or ''.
 * @param {string} name of the field @param {string} text @param {string} heads what the field Heads holds
 */
export function problemOf(name, text, heads) {
  const { label, value, min, max, step = 1 } = { ...SIZES, ...OPTIONS }[name];
  if (!text.trim()) return value === '' ? '' : `${label} is missing`;
  const number = Number(text);
  if (!Number.isFinite(number) || number < min || number > max) return `${label}: ${min} to ${formatCount(max)}`;
  if (step === 1 && !Number.isInteger(number)) return `${label}: a whole number`;
  if (name === 'kv_heads' && Number(heads) % number) return `KV heads must divide Heads (${heads})`;
  return '';
}

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
  const form = h('form', { class: 'synthetic-form', noValidate: true }, labelled(SIZES, sizes), maskField, labelled(OPTIONS, options), make);
  fill(element, form);

  const all = { ...sizes, ...options };
  /** Says beside each field what is wrong with it; gives the first such field. */
  const check = () => {
    const wrong = Object.entries(all).filter(([name, input]) => showProblem(input, problemOf(name, given(input), sizes.heads.value)));
    return wrong[0]?.[1];
  };
  form.addEventListener('input', check);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const wrong = check();
    if (wrong) return wrong.focus();
    onSubmit(/** @type {Shape} */ ({ ...values(sizes), mask: mask.value, ...values(options) }));
    return undefined;
  });
  return {
    submit: () => form.requestSubmit(),
    /** @param {Shape} shape */
    set(shape) {
      mask.value = shape.mask;
      for (const [name, input] of Object.entries({ ...sizes, ...options })) {
        input.value = String(shape[/** @type {keyof Shape} */ (name)] ?? '');
      }
      check();
    },
  };
}

/** @param {Record<string, Field>} fields @returns {Record<string, HTMLInputElement>} */
function inputs(fields) {
  return Object.fromEntries(Object.entries(fields).map(([name, one]) => [name, numberInput(one)]));
}

/** @param {Record<string, Field>} fields @param {Record<string, HTMLInputElement>} controls */
function labelled(fields, controls) {
  return Object.entries(fields).map(([name, { label }]) => {
    const problem = h('span', { class: 'field-problem small', id: `synthetic-${name}-problem`, 'aria-live': 'polite', hidden: true });
    controls[name].setAttribute('aria-describedby', problem.id);
    return h('div', { class: 'field-box' }, field(label, controls[name]), problem);
  });
}

/** What a field holds; text that is no number counts as such. @param {HTMLInputElement} input */
function given(input) {
  return input.validity.badInput ? 'no number' : input.value;
}

/** @param {HTMLInputElement} input @param {string} text '' for none @returns {boolean} whether there is one */
function showProblem(input, text) {
  const line = /** @type {HTMLElement} */ (input.closest('.field-box')?.lastElementChild);
  line.textContent = text;
  line.hidden = !text;
  input.setAttribute('aria-invalid', String(Boolean(text)));
  return Boolean(text);
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
