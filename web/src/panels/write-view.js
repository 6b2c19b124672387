/** The elements of the Write panel. */

import { h, segmented } from '../dom.js';
import { field } from './elements.js';
import { buildLoading } from './loading.js';
import { PROMPTS, promptButtons } from './write-prompts.js';

/**
 * @typedef {object} Actions
 * @property {() => void} generate begin anew, or stop
 * @property {() => void} goOn
 * @property {() => void} step write one token
 * @property {() => void} back drop the last token
 * @property {() => void} cancel the download
 * @property {(over: Exclude<import('../types').Over, 'rollout'>) => void} colourBy
 */

const CHOICES = [
  { value: 'plain', label: 'Plain', title: 'the model goes on with the prompt' },
  { value: 'chat', label: 'Chat', title: 'the model answers the prompt' },
];
const COLOURS = [
  { value: 'head', label: 'This head' },
  { value: 'layer', label: 'Its layer', title: 'the mean over the heads of its layer' },
  { value: 'all', label: 'All heads', title: 'the mean over all heads of all layers' },
];

/** @param {Actions} actions */
export function buildWrite(actions) {
  const { form, prompt, chat, generate } = promptForm(actions);
  const prompts = promptButtons(prompt, chat);
  const buttons = {
    goOn: button('Go on', 'Write on from the end of the text', actions.goOn),
    step: button('Step', 'Write one token', actions.step),
    back: button('Back', 'Drop the last token', actions.back),
  };
  const sampling = samplingFields();
  const controls = h(
    'div',
    { class: 'write-controls' },
    h('div', { class: 'write-buttons', role: 'group', 'aria-label': 'Steps' }, Object.values(buttons)),
    chat,
    h('div', { class: 'row-form write-sampling' }, Object.values(sampling).map(({ label }) => label)),
  );
  const loading = buildLoading(actions.cancel, 'SmolLM2');
  const message = h('p', { class: 'input-message small', role: 'status' }, ' ');
  const colours = segmented('Colour the text by', COLOURS, 'head', (value) => actions.colourBy(/** @type {any} */ (value)));
  const looking = h('p', { class: 'muted small write-looking' }, ' ');
  const figures = h('p', { class: 'small write-numbers' }, ' ');
  return { form, prompt, prompts, chat, generate, ...buttons, sampling, controls, loading, message, colours, looking, figures };
}

/** @param {Actions} actions */
function promptForm({ generate: onGenerate }) {
  const prompt = h('textarea', {
    class: 'sentence',
    rows: 2,
    dir: 'auto',
    spellcheck: false,
    'aria-label': 'Prompt',
    placeholder: 'Type what the text begins with',
    maxLength: 100_000,
    value: PROMPTS[0].text,
  });
  const generate = h('button', { class: 'button primary', type: 'submit', disabled: true }, 'Generate');
  const form = h('form', { class: 'sentence-form' }, prompt, generate);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    onGenerate();
  });
  prompt.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!generate.disabled && generate.dataset.does === 'generate') form.requestSubmit();
  });
  return { form, prompt, chat: segmented('How the prompt is read', CHOICES, 'plain', () => {}), generate };
}

function samplingFields() {
  return {
    count: number('New tokens', { min: 0, max: 100_000, step: 1, value: 120 }),
    temperature: number('Temperature', { min: 0, max: 5, step: 0.1, value: 0, title: '0 always takes the likeliest token' }),
    topK: number('Top-k', { min: 1, max: 49_152, step: 1, value: '', placeholder: 'all', title: 'choose among so many likeliest tokens' }),
    topP: number('Top-p', { min: 0.01, max: 1, step: 0.01, value: '', placeholder: 'all', title: 'choose among the likeliest tokens that have this probability together' }),
    seed: number('Seed', { min: 0, max: 4_294_967_295, step: 1, value: 0, title: 'the same seed repeats a text' }),
  };
}

/** @param {string} name @param {Record<string, any>} props */
function number(name, props) {
  const input = h('input', { type: 'number', ...props });
  return { label: field(name, input), input, read: () => (input.value === '' ? null : Number(input.value)) };
}

/** @param {string} label @param {string} title @param {() => void} onClick */
function button(label, title, onClick) {
  return h('button', { class: 'button', type: 'button', title, disabled: true, onclick: onClick }, label);
}
