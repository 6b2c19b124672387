/** What the page says about itself: how far loading is, which adapter computes, and what went wrong. */

import { fill, h } from '../dom.js';
import { formatBytes } from '../format.js';

export const STAGES = /** @type {const} */ ({
  download: 'Downloading Python, numpy and py-attn',
  python: 'Starting Python',
  packages: 'Installing packages',
  gpu: 'Asking for a GPU',
  sample: 'Opening the sample',
});
const ORDER = /** @type {(keyof typeof STAGES)[]} */ (Object.keys(STAGES));

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
    show({ stage, loaded, total }) {
      if (element.dataset.state === 'failed') return; // the other downloads go on for a moment
      element.dataset.state = 'loading';
      const number = ORDER.indexOf(stage);
      label.textContent = `${STAGES[stage]} …`;
      bytes.textContent = total ? `${formatBytes(loaded)} of ${formatBytes(total)}` : `step ${number + 1} of ${ORDER.length}`;
      // The download is most of a first visit, and nothing of a later one.
      bar.value = stage === 'download' ? 0.7 * (total ? loaded / total : 0) : 0.7 + 0.3 * (number / ORDER.length);
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

/** What to do about missing WebGPU. */
export function webgpuHelp() {
  return h(
    'details',
    { class: 'help' },
    h('summary', null, 'What you can do'),
    h(
      'ul',
      null,
      h('li', null, 'Use Chrome or Edge 113+, Safari 26+ (macOS, iOS, iPadOS), or Firefox 141+ (Windows; 145+ on macOS).'),
      h('li', null, 'On Linux, Chrome may need ', h('code', null, 'chrome://flags/#enable-unsafe-webgpu'), ' and a Vulkan driver.'),
      h('li', null, 'Open the page over https or from localhost: WebGPU exists only in secure contexts.'),
      h('li', null, 'See ', h('code', null, 'chrome://gpu'), ' (or ', h('code', null, 'about:support'), ') for a blocked driver.'),
    ),
  );
}

/** @param {HTMLElement} element */
export function mountAdapter(element) {
  const text = h('span', null, 'starting');
  fill(element, text);
  element.classList.add('chip');
  return {
    /** @param {import('../runtime/client.js').Info} info */
    show(info) {
      element.dataset.state = !info.webgpu ? 'none' : info.software ? 'software' : 'gpu';
      text.textContent = !info.webgpu
        ? 'numpy reference, no WebGPU'
        : info.software
          ? `${short(info.adapter)}: software adapter`
          : short(info.adapter);
      element.title = `${info.adapter}\n${info.features.join(', ')}`;
    },

    /** @param {'failed' | 'starting'} state */
    set(state) {
      element.dataset.state = state;
      text.textContent = state === 'failed' ? 'not started' : 'starting';
    },
  };
}

/** @param {string} adapter */
function short(adapter) {
  return adapter.length > 34 ? `${adapter.split(' ').slice(0, 2).join(' ')}` : adapter;
}
