/** The form for made-up input. */

import { fill, h } from '../dom.js';

/** @typedef {import('../types').SyntheticShape} Shape */

const MASKS = [
  ['causal', 'causal'],
  ['none', 'none'],
  ['padding', 'padding: the last quarter hidden'],
  ['documents', 'four documents in a row'],
  ['alibi', 'ALiBi, causal'],
];

/**
 * @param {HTMLElement} element
 * @param {(shape: Shape) => void} onSubmit
 */
export function mountSynthetic(element, onSubmit) {
  const numbers = {
    length: number('Length', 256, 1, 32768),
    heads: number('Heads', 8, 1, 64),
    kv_heads: number('KV heads', 2, 1, 64),
    head_dim: number('Head dim', 64, 1, 512),
    window: number('Window', '', 0, 32768, 'off'),
    softcap: number('Softcap', '', 0, 1000, 'off', 'any'),
    seed: number('Seed', 1, 0, 999999),
  };
  const mask = h('select', { 'aria-label': 'Mask' }, MASKS.map(([value, label]) => h('option', { value }, label)));
  const form = h(
    'form',
    { class: 'synthetic-form' },
    numbers.length.field,
    numbers.heads.field,
    numbers.kv_heads.field,
    numbers.head_dim.field,
    h('label', { class: 'field wide' }, 'Mask', mask),
    numbers.window.field,
    numbers.softcap.field,
    numbers.seed.field,
    h('button', { class: 'button primary', type: 'submit' }, 'Make'),
  );
  fill(element, form);

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    onSubmit({
      length: Number(numbers.length.input.value),
      heads: Number(numbers.heads.input.value),
      kv_heads: Number(numbers.kv_heads.input.value),
      head_dim: Number(numbers.head_dim.input.value),
      mask: mask.value,
      window: optional(numbers.window.input),
      softcap: optional(numbers.softcap.input),
      seed: Number(numbers.seed.input.value),
    });
  });
  return { submit: () => form.requestSubmit() };
}

/** @param {HTMLInputElement} input */
function optional(input) {
  return input.value === '' ? null : Number(input.value);
}

/**
 * @param {string} label @param {number | string} value @param {number} min @param {number} max
 * @param {string} [placeholder] @param {number | 'any'} [step]
 */
function number(label, value, min, max, placeholder = '', step = 1) {
  const input = h('input', {
    type: 'number',
    inputMode: 'numeric',
    value: String(value),
    min: String(min),
    max: String(max),
    step: String(step),
    placeholder,
    required: value !== '',
  });
  return { input, field: h('label', { class: 'field' }, label, input) };
}
