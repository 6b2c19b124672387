/** The state of the page: how far loading is, which adapter computes, and what went wrong. */

import { fill, h } from '../dom.js';
import { formatBytes } from '../format.js';
import { isFirefox } from '../gpu/adapter.js';

export const STAGES = /** @type {const} */ ({
  download: 'Downloading Python, numpy and py-attn',
  python: 'Starting Python',
  packages: 'Installing packages',
  gpu: 'Asking for a GPU',
  sample: 'Opening the sample',
});
const MAX_ADAPTER = 34; // characters
const ORDER = /** @type {(keyof typeof STAGES)[]} */ (Object.keys(STAGES));

/**
 * How far loading is.
 * @param {{ stage: keyof typeof STAGES, loaded: number, total: number }} progress bytes, where they are known
 */
export function describeProgress({ stage, loaded, total }) {
  const number = ORDER.indexOf(stage);
  const done = total ? loaded / total : 0;
  return {
    number,
    label: `${STAGES[stage]} …`,
    detail: total ? `${formatBytes(loaded)} of ${formatBytes(total)}` : `step ${number + 1} of ${ORDER.length}`,
    // The download takes most of a first visit, and none of a later one.
    share: stage === 'download' ? 0.7 * done : 0.7 + 0.3 * (number / ORDER.length),
  };
}

/** @param {HTMLElement} element */
export function mountBoot(element) {
  const label = h('p', { class: 'boot-label' }, 'Starting');
  const bytes = h('p', { class: 'boot-bytes muted' }, ' ');
  const bar = h('progress', { max: 1, 'aria-label': 'Loading' });
  const steps = ORDER.map((stage) => h('li', { dataset: { stage } }, STAGES[stage]));
  fill(element, h('div', { class: 'boot-line' }, label, bytes), bar, h('ol', { class: 'boot-steps sr-only' }, steps));
  element.setAttribute('role', 'status');

  return {
    /** @param {{ stage: keyof typeof STAGES, loaded: number, total: number }} progress */
    show(progress) {
      if (element.dataset.state === 'failed') return; // other downloads still report for a moment
      element.dataset.state = 'loading';
      const { number, label: text, detail, share } = describeProgress(progress);
      label.textContent = text;
      bytes.textContent = detail;
      bar.value = share;
      steps.forEach((step, i) => (i === number ? step.setAttribute('aria-current', 'step') : step.removeAttribute('aria-current')));
    },

    done() {
      element.dataset.state = 'done';
      label.textContent = 'Ready';
      bytes.textContent = ' ';
      bar.value = 1;
    },

    /** @param {string} message @param {() => void} retry */
    fail(message, retry) {
      element.dataset.state = 'failed';
      fill(
        element,
        h('p', { class: 'boot-label' }, 'The page could not be started.'),
        h('p', { class: 'muted' }, message),
        h('button', { class: 'button', type: 'button', onclick: retry }, 'Try again'),
      );
    },
  };
}

/** @param {HTMLElement} element */
export function mountBanner(element) {
  element.setAttribute('role', 'status');
  element.hidden = true;
  return {
    /** @param {'info' | 'warn'} tone @param {string} title @param {(Node | string)[]} rest */
    show(tone, title, ...rest) {
      element.dataset.tone = tone;
      const close = h(
        'button',
        { class: 'button compact', type: 'button', 'aria-label': 'Close this message', onclick: () => (element.hidden = true) },
        'OK',
      );
      fill(element, h('div', null, h('strong', null, title), ' ', ...rest), close);
      element.hidden = false;
    },
    hide: () => (element.hidden = true),
  };
}

/** What a visitor can do about missing WebGPU. */
export function webgpuHelp() {
  return h(
    'details',
    { class: 'help' },
    h('summary', null, 'What you can do'),
    h(
      'ul',
      null,
      ...(isFirefox() ? firefoxHelp() : chromeHelp()).map((words) => h('li', null, ...words)),
      h('li', null, 'Open the page over https or from localhost: WebGPU exists only in secure contexts.'),
    ),
  );
}

/** @param {string} text */
const code = (text) => h('code', null, text);

const chromeHelp = () => [
  ['Use Chrome or Edge 113+, Safari 26+ (macOS, iOS, iPadOS), or Firefox 141+ (Windows; 145+ on macOS).'],
  ['On Linux, Chrome may need ', code('chrome://flags/#enable-unsafe-webgpu'), ' and a Vulkan driver.'],
  ['Look for a blocked driver in ', code('chrome://gpu'), '.'],
];

const firefoxHelp = () => [
  ['Set ', code('dom.webgpu.enabled'), ' to true in ', code('about:config'), '. By itself Firefox has WebGPU on Windows and macOS.'],
  ['Look under Graphics in ', code('about:support'), ' for a blocked driver; ', code('gfx.webgpu.ignore-blocklist'), ' uses it all the same.'],
  ['Or use Chrome or Edge 113+, or Safari 26+.'],
];

/** What computes, in a few words. @param {{ webgpu: boolean, software: boolean, adapter: string }} info */
export function describeChip({ webgpu, software, adapter }) {
  if (!webgpu) return { state: 'none', text: 'numpy reference, no WebGPU' };
  const name = adapter.length > MAX_ADAPTER ? adapter.split(' ').slice(0, 2).join(' ') : adapter;
  if (!software) return { state: 'gpu', text: name };
  return { state: 'software', text: name.endsWith('software adapter') ? name : `${name}: software adapter` };
}

/** @param {HTMLElement} element */
export function mountAdapter(element) {
  const label = h('span', null, 'starting');
  fill(element, label);
  element.classList.add('chip');
  return {
    /** @param {import('../runtime/client.js').Info} info */
    show(info) {
      const { state, text } = describeChip(info);
      element.dataset.state = state;
      label.textContent = text;
      element.title = `${info.adapter}\n${info.features.join(', ')}`;
    },

    /** @param {'failed' | 'starting'} state */
    set(state) {
      element.dataset.state = state;
      label.textContent = state === 'failed' ? 'not started' : 'starting';
    },
  };
}
