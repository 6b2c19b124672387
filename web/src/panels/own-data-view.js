/** The elements of the panel of own data. */

import { fill, h, segmented } from '../dom.js';
import { formatBytes, formatCount } from '../format.js';
import { field, select } from './elements.js';

/**
 * @typedef {object} Listeners
 * @property {(files: File[]) => void} onFiles
 * @property {(holds: import('../types').Holds) => void} onExample
 * @property {(choices: import('../types').FileChoices) => void} onChoices
 * @property {(holds: import('../types').Holds) => void} onSave
 */

const ACCEPTED = '.npz,.npy,.safetensors,.json';
const COPIED_MS = 1500;
/** Four lines each. The second and third need no more than numpy or safetensors. */
const RECIPES = {
  'Hugging Face': `inputs = tokenizer(text, return_tensors="pt")  # the model: attn_implementation="eager"
layers = model(**inputs, output_attentions=True).attentions
maps = {f"attentions_{i}": layer.detach().float().numpy() for i, layer in enumerate(layers)}
np.savez("maps.npz", tokens=tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]), **maps)`,
  PyTorch: `from safetensors.torch import save_file  # float32, float16 or bfloat16
about = {"tokens": json.dumps(tokens), "causal": "true"}
tensors = {"query": query, "key": key, "value": value}  # [B, H, S, D]; fewer key heads are fine
save_file({name: x.contiguous() for name, x in tensors.items()}, "layer.safetensors", about)`,
  NumPy: `# [S, D] up to [layers, B, H, S, D]; value, scale, window, softcap and mask may be there too
np.savez("layer.npz", query=query, key=key, causal=True, tokens=tokens)
# or probabilities, [S, S] up to [layers, B, H, S, S]
np.savez("maps.npz", attentions=attentions, tokens=tokens)`,
};
const AXES = /** @type {Record<string, string>} */ ({ L: 'layers', B: 'batch', H: 'heads', S: 'positions', D: 'dims' });

/** @param {Listeners} listeners */
export function buildOwnData({ onFiles, onExample, onChoices, onSave }) {
  const message = h('p', { class: 'input-message small own-message', role: 'status' }, '');
  const found = h('div', { class: 'own-found', hidden: true });
  const text = (/** @type {string} */ label, /** @type {() => void} */ onclick) =>
    h('button', { class: 'button compact', type: 'button', onclick }, label);
  const examples = h(
    'div',
    { class: 'own-row', role: 'group', 'aria-label': 'Examples' },
    h('span', { class: 'muted small' }, 'No file at hand? Try'),
    text('Example with queries and keys', () => onExample('queries')),
    text('Example with attentions', () => onExample('attentions')),
  );
  const saving = h(
    'div',
    { class: 'own-row', role: 'group', 'aria-label': 'Save what is shown' },
    h('span', { class: 'muted small' }, 'Save what is shown as .npz:'),
    text('Queries and keys', () => onSave('queries')),
    text('Attentions', () => onSave('attentions')),
  );
  /** The form for tokens and what it asks for: it stays, opened or filled in, while a file is read in another way. */
  const tokens = { asks: '', form: /** @type {HTMLElement | null} */ (null) };
  return {
    parts: [dropZone(onFiles), message, found, examples, recipes(), saving],

    /** @param {'wait' | 'note' | 'bad'} tone @param {string} words */
    say(tone, words) {
      message.textContent = words;
      message.dataset.tone = tone;
    },

    /** @param {string} name @param {number} size @param {import('../types').OpenedFile} source */
    describe(name, size, source) {
      const asks = JSON.stringify([name, size, source.file.hasTokens, source.length]);
      if (!tokens.form || tokens.asks !== asks) {
        tokens.form = tokensForm(source.file.hasTokens, source.length, (given) => onChoices({ tokens: given }));
        tokens.asks = asks;
      }
      found.hidden = false;
      fill(found, ...description(name, size, source, onChoices, tokens.form));
    },
  };
}

/** @param {(files: File[]) => void} onFiles */
function dropZone(onFiles) {
  const chooser = h('input', { type: 'file', accept: ACCEPTED, hidden: true, 'aria-label': 'File with your data' });
  chooser.addEventListener('change', () => {
    onFiles([...(chooser.files ?? [])]);
    chooser.value = ''; // the same file may be chosen again after it has changed
  });
  return h(
    'div',
    { class: 'own-zone' },
    h(
      'div',
      null,
      h('p', null, 'Drop a file here or anywhere on the page.'),
      h(
        'p',
        { class: 'muted small' },
        '.npz, .npy, .safetensors or .json with queries and keys, or with attentions as Hugging Face models return them. It is read in this tab and never sent anywhere.',
      ),
    ),
    h('button', { class: 'button primary', type: 'button', onclick: () => chooser.click() }, 'Open a file'),
    chooser,
  );
}

/**
 * What was found in a file, and what may be said about it instead.
 * @param {string} name @param {number} size @param {import('../types').OpenedFile} source
 * @param {Listeners['onChoices']} onChoices @param {HTMLElement} tokens the form for them
 */
function description(name, size, { file, layers, heads, length }, onChoices, tokens) {
  const count = (/** @type {number} */ n, /** @type {string} */ one) => `${formatCount(n)} ${one}${n === 1 ? '' : 's'}`;
  return [
    h(
      'p',
      { class: 'own-file' },
      h('strong', { dir: 'auto' }, name),
      h('span', { class: 'muted' }, ` ${formatBytes(size)} · ${count(layers, 'layer')} of ${count(heads, 'head')}, ${count(length, 'token')}`),
    ),
    h('ul', { class: 'own-arrays mono small', 'aria-label': 'What was found in the file' }, file.found.map((line) => h('li', { dir: 'auto' }, line))),
    h(
      'div',
      { class: 'own-row' },
      file.layouts.length > 1 &&
        field(
          'Axes',
          select('Axes', file.layouts.map((layout) => [layout, axesInWords(layout)]), file.layout, (layout) => onChoices({ layout })),
        ),
      tokens,
    ),
  ];
}

/** "BHSS" as "batch, heads, queries, keys". @param {string} layout */
function axesInWords(layout) {
  const words = [...layout].map((letter) => AXES[letter] ?? letter);
  if (layout.endsWith('SS')) words.splice(-2, 2, 'queries', 'keys');
  return words.join(', ');
}

/** @param {boolean} hasTokens @param {number} length @param {(tokens: string[]) => void} onTokens */
function tokensForm(hasTokens, length, onTokens) {
  const area = h('textarea', {
    class: 'input own-tokens',
    rows: 3,
    dir: 'auto',
    spellcheck: false,
    'aria-label': 'Tokens',
    placeholder: `${formatCount(length)} tokens: one a line, a JSON list, or one line with spaces between them`,
  });
  const form = h('form', { class: 'own-tokens-form' }, area, h('button', { class: 'button compact', type: 'submit' }, 'Use these tokens'));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const tokens = readTokens(area.value);
    if (tokens.length) onTokens(tokens);
  });
  return h(
    'details',
    { class: 'own-details' },
    h('summary', null, hasTokens ? 'Replace the tokens' : 'The file names no tokens: add them'),
    form,
  );
}

/** The tokens of a text: a JSON list, one a line, or one line with spaces between them. @param {string} text */
export function readTokens(text) {
  try {
    const list = JSON.parse(text);
    if (Array.isArray(list)) return list.map(String);
  } catch {
    // No JSON.
  }
  const lines = text.replace(/\r?\n$/u, '').split(/\r?\n/u);
  return lines.length > 1 ? lines : text.split(/\s+/u).filter(Boolean);
}

function recipes() {
  const code = h('pre', { class: 'own-code', tabIndex: 0, role: 'region', 'aria-label': 'Python' });
  const names = /** @type {(keyof typeof RECIPES)[]} */ (Object.keys(RECIPES));
  const show = (/** @type {string} */ name) => (code.textContent = RECIPES[/** @type {keyof typeof RECIPES} */ (name)]);
  const copy = h('button', { class: 'button compact', type: 'button' }, 'Copy');
  copy.addEventListener('click', async () => {
    await navigator.clipboard.writeText(code.textContent ?? '');
    copy.textContent = 'Copied';
    setTimeout(() => (copy.textContent = 'Copy'), COPIED_MS);
  });
  show(names[0]);
  const choice = segmented('Library', names.map((name) => ({ value: name, label: name })), names[0], show);
  return h(
    'details',
    { class: 'own-details' },
    h('summary', null, 'How to save such a file in Python'),
    h('div', { class: 'own-recipe' }, h('div', { class: 'own-row' }, choice, copy), code),
  );
}
