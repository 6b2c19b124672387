/** What to look at: a sentence, or something made up. */

import { choose, fill, h, segmented } from '../dom.js';
import { formatBytes, shortError } from '../format.js';
import { mountSynthetic } from './synthetic.js';

const MODEL_BYTES = 90_868_376;
const PAUSE_MS = 700; // of typing, before the sentence is run

/**
 * @typedef {object} Actions what the page does when it is asked to
 * @property {(text: string) => Promise<void>} openText
 * @property {(shape: import('../types').SyntheticShape) => Promise<void>} openSynthetic
 * @property {() => Promise<void>} openSample
 * @property {(onProgress: (stage: string, loaded: number, total: number) => void) => Promise<boolean>} loadModel
 * @property {() => void} cancelModel
 * @property {() => boolean} hasModel
 */

/**
 * @param {HTMLElement} element
 * @param {import('../store.js').Store} store
 * @param {Actions} actions
 */
export function mountInput(element, store, actions) {
  const mode = segmented(
    'Input',
    [
      { value: 'sentence', label: 'Sentence' },
      { value: 'synthetic', label: 'Synthetic' },
    ],
    'sentence',
    (value) => show(value),
  );
  const area = h('textarea', {
    class: 'sentence',
    rows: 1,
    dir: 'auto',
    spellcheck: false,
    'aria-label': 'Sentence',
    placeholder: 'Type a sentence',
    maxLength: 100_000,
    disabled: true,
  });
  const submit = h('button', { class: 'button primary', type: 'submit', disabled: true }, 'Show attention');
  const form = h('form', { class: 'sentence-form' }, area, submit);
  const bar = h('progress', { max: 1, value: 0, 'aria-label': 'Loading the model' });
  const loadingText = h('span', { class: 'small' }, '');
  const cancel = h('button', { class: 'button compact', type: 'button', onclick: actions.cancelModel }, 'Cancel');
  const loading = h('div', { class: 'model-loading', hidden: true }, loadingText, bar, cancel);
  const message = h('p', { class: 'input-message small', role: 'status' }, ' ');
  const synthetic = h('div', { hidden: true });
  const sentence = h('div', { class: 'sentence-box' }, form);
  fill(element, mode, sentence, synthetic, h('div', { class: 'input-foot' }, loading, message));
  const synthForm = mountSynthetic(synthetic, (shape) => void run(() => actions.openSynthetic(shape)));

  let sample = '';
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let busy = false;

  /** @param {string} value */
  function show(value) {
    choose(mode, value);
    sentence.hidden = value !== 'sentence';
    synthetic.hidden = value !== 'synthetic';
    say('');
    if (value === 'synthetic') synthForm.submit();
    else if (!area.value || area.value === sample) void run(actions.openSample);
    else if (actions.hasModel()) void start();
  }

  /** @param {string} text @param {'' | 'bad'} [tone] */
  function say(text, tone = '') {
    message.textContent = text || ' ';
    message.dataset.tone = tone;
  }

  /** @param {() => Promise<void>} work */
  async function run(work) {
    busy = true;
    element.setAttribute('aria-busy', 'true');
    try {
      await work();
      const { source } = store.state;
      say(source?.note ?? '');
    } catch (error) {
      say(shortError(error), 'bad');
    } finally {
      busy = false;
      element.setAttribute('aria-busy', 'false');
      label();
    }
  }

  async function start() {
    clearTimeout(timer);
    const text = area.value;
    if (!text.trim()) {
      say('Type a few words first: there is nothing to attend to in an empty sentence.');
      return;
    }
    if (text === sample) return run(actions.openSample);
    if (!actions.hasModel() && !(await load())) return;
    await run(() => actions.openText(text));
    // What was typed meanwhile comes next.
    if (area.value !== text && area.value.trim()) void start();
  }

  async function load() {
    submit.disabled = true;
    loading.hidden = false;
    say('');
    const tell = (/** @type {string} */ stage, /** @type {number} */ loaded, /** @type {number} */ total) => {
      if (stage === 'vocabulary') return; // a blink beside the weights
      bar.value = total ? loaded / total : 0;
      cancel.disabled = stage === 'upload'; // from here on it is a moment
      loadingText.textContent =
        stage === 'upload'
          ? `Uploading MiniLM · ${formatBytes(loaded)} of ${formatBytes(total)}`
          : `Loading MiniLM · ${formatBytes(loaded)} of ${formatBytes(total)}`;
    };
    tell('weights', 0, MODEL_BYTES);
    try {
      if (await actions.loadModel(tell)) return true;
      say('Loading was cancelled. The sample stays; the button starts again.');
    } catch (error) {
      say(`MiniLM could not be loaded: ${shortError(error)} Try again with the button.`, 'bad');
    } finally {
      loading.hidden = true;
      submit.disabled = false;
    }
    return false;
  }

  function label() {
    const needsModel = area.value !== sample && !actions.hasModel();
    submit.textContent = needsModel ? `Load MiniLM (${formatBytes(MODEL_BYTES)}) and show` : 'Show attention';
  }

  function grow() {
    area.style.height = 'auto';
    area.style.height = `${Math.min(area.scrollHeight + 2, 180)}px`;
  }

  new ResizeObserver(grow).observe(form);
  area.addEventListener('input', () => {
    grow();
    label();
    remember(area.value === sample ? '' : area.value);
    clearTimeout(timer);
    if (!area.value.trim()) say('Type a few words first: there is nothing to attend to in an empty sentence.');
    else {
      if (!busy) say('');
      if (actions.hasModel()) timer = setTimeout(() => !busy && void start(), PAUSE_MS);
    }
  });
  area.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (!busy) void start();
  });

  return {
    /** The page is ready: the sample is there. @param {string} text */
    ready(text) {
      sample = text;
      area.disabled = false;
      submit.disabled = false;
      if (!area.value) area.value = remembered() || text;
      grow();
      label();
    },
    /** What was typed is not what is shown: the text of an earlier visit. */
    get pending() {
      return area.value !== sample;
    },
    /** Shows again what the visitor has put in, after a new device or a new Python. */
    async replay() {
      if (!synthetic.hidden) return synthForm.submit();
      if (area.value !== sample && area.value.trim() && actions.hasModel()) return start();
      return undefined;
    },
    start,
  };
}

/** The sentence lies in the address, so that it survives a reload and can be passed on. @param {string} text */
function remember(text) {
  const hash = text && text.length <= 2000 ? `#text=${encodeURIComponent(text)}` : '';
  history.replaceState(null, '', hash || location.pathname + location.search);
}

function remembered() {
  const match = /^#text=(.*)$/u.exec(location.hash);
  try {
    return match ? decodeURIComponent(match[1]) : '';
  } catch {
    return '';
  }
}
