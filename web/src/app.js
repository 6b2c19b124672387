/** The page: puts the panels together around one runtime. */

import { createApi } from './api.js';
import { fill, h, icon, ICONS } from './dom.js';
import { shortError } from './format.js';
import { card, mount } from './mount.js';
import { mountConsole } from './panels/console.js';
import { mountDecode } from './panels/decode.js';
import { mountEdit } from './panels/edit.js';
import { mountInput } from './panels/input.js';
import { mountAdapter, mountBanner, mountBoot, webgpuHelp } from './panels/status.js';
import { createModel, openSource } from './store.js';
import { isDark, toggleTheme, watchTheme } from './theme.js';

/** @typedef {import('./runtime/client.js').Runtime} Runtime */

const SAMPLE = 'sample/minilm.npz';
const REPEATED_LOSS_MS = 20_000;
const HAD_MODEL = 'py-attn.model';
/** Where the page begins: the head of the sample that finds whom “it” means. */
const FIRST_LOOK = { layer: 5, head: 11, query: 9, key: 2 };

/**
 * @param {HTMLElement} element
 * @param {Runtime} runtime
 */
export function mountApp(element, runtime) {
  const page = layOut(element);
  const store = createModel((method, payload, onProgress) => runtime.call(method, payload, onProgress), {
    ...FIRST_LOOK,
    style: { colormap: isDark() ? 'rocket' : 'rocket_r', scale: 'sqrt', pool: 'max' },
  });
  const api = createApi(store.call);
  let hasModel = false;

  const boot = mountBoot(page.boot);
  const banner = mountBanner(page.banner);
  const adapter = mountAdapter(page.adapter);
  const { parts } = mount(page.view, store, { kernel: page.kernel });
  for (const name of /** @type {const} */ (['overview', 'focus', 'links'])) parts[name].id = name;
  const stop = () => void runtime.restart().catch(() => {});
  const edit = mountEdit(page.edit, api, store, stop);
  mountDecode(page.decode, api, store);
  const python = mountConsole(page.console, { show: (source) => runtime.show(source), stop });
  const input = mountInput(page.input, store, {
    openSample: async () => open(await runtime.open('open_sample', SAMPLE)),
    openText: async (text) => open(await api.openText(text)),
    openSynthetic: async (shape) => open(await api.openSynthetic(shape)),
    loadModel,
    cancelModel: () => void runtime.cancelLoad(),
    hasModel: () => hasModel,
  });

  /** @param {import('./types').SourceInfo} source */
  function open(source) {
    openSource(store, source);
  }

  /** @param {(stage: string, loaded: number, total: number) => void} onProgress */
  async function loadModel(onProgress) {
    hasModel = (await runtime.loadModel(onProgress)).loaded;
    if (hasModel) rememberModel();
    return hasModel;
  }

  /** @param {import('./runtime/client.js').Info} info */
  async function begin(info) {
    adapter.show(info);
    store.set({ info });
    if (!info.webgpu) {
      banner.show('warn', 'No WebGPU here.', `${info.reason} Everything below is computed by the numpy reference instead.`, webgpuHelp());
    }
    python.setReady(true);
    if (!store.state.source) {
      boot.show({ stage: 'sample', loaded: 0, total: 0 });
      const sample = await runtime.open('open_sample', SAMPLE);
      open(sample);
      input.ready(sample.title);
    }
    boot.done();
  }

  runtime.addEventListener('progress', (event) => boot.show(/** @type {CustomEvent} */ (event).detail));
  runtime.addEventListener('output', (event) => python.print(/** @type {CustomEvent} */ (event).detail));
  runtime.addEventListener('failed', (event) => failed(/** @type {CustomEvent} */ (event).detail));
  runtime.addEventListener('ready', (event) => {
    const first = !store.state.source;
    begin(/** @type {CustomEvent} */ (event).detail)
      .then(() => (first ? firstVisit() : afterStop()))
      .catch(failed);
  });
  runtime.addEventListener('stopped', () => {
    hasModel = false;
    python.setReady(false);
    adapter.set('starting');
    banner.show('info', 'Python was stopped.', 'It is starting again; your text is kept, variables are gone.');
  });
  runtime.addEventListener('lost', (event) => void recover(/** @type {CustomEvent} */ (event).detail));

  /** @param {Error} error */
  function failed(error) {
    adapter.set('failed');
    boot.fail(shortError(error), () => location.reload());
  }

  async function firstVisit() {
    void python.openEditor();
    void edit.openEditor();
    // A sentence from the last visit needs no click when the weights are in the browser's cache anyway.
    if (input.pending && hadModel()) await input.start();
  }

  async function afterStop() {
    await reopen();
    banner.show('info', 'Python is back.', 'The console begins anew; your text was kept.');
  }

  let lostAt = -Infinity;

  /** @param {string} reason */
  async function recover(reason) {
    // What takes the GPU down again and again is not tried a third time.
    const again = performance.now() - lostAt < REPEATED_LOSS_MS;
    lostAt = performance.now();
    hasModel = false;
    python.setReady(false);
    banner.show('warn', 'The GPU was lost', `(${reason}). Asking for a new one; your input is kept.`);
    try {
      const info = await runtime.renew();
      await begin(info);
      if (again) {
        open(await runtime.open('open_sample', SAMPLE));
        banner.show('warn', 'The GPU was lost twice in a row.', 'The sample is shown instead of your input, which may be too much for it.');
        return;
      }
      await reopen();
      banner.show('info', 'A new GPU device is here.', 'Everything was computed again from your input.');
    } catch (error) {
      banner.show('warn', 'No new GPU device could be had.', shortError(error));
    }
  }

  /** Shows again what was shown, on a new device or in a new Python. */
  async function reopen() {
    const { source } = store.state;
    if (source?.kind === 'text') await loadModel(() => {});
    if (source?.kind === 'sample') open(await runtime.open('open_sample', SAMPLE));
    else await input.replay();
  }

  document.addEventListener('click', goTo);
  watchTheme(recolor);
  page.theme.addEventListener('click', () => {
    toggleTheme();
    recolor();
  });

  function recolor() {
    const base = store.state.style.colormap.replace(/_r$/u, '');
    store.set({ style: { ...store.state.style, colormap: isDark() ? base : `${base}_r` } });
  }
}

/** Follows a link within the page without touching the address, where the sentence lies. @param {MouseEvent} event */
function goTo(event) {
  const link = event.target instanceof Element ? event.target.closest('a[href^="#"]') : null;
  const target = link && document.getElementById(link.getAttribute('href')?.slice(1) ?? '');
  if (!target) return;
  event.preventDefault();
  target.tabIndex = -1;
  target.focus({ preventScroll: true });
  target.scrollIntoView();
}

/** @param {HTMLElement} element */
function layOut(element) {
  const adapter = h('span', { role: 'status' });
  const theme = h(
    'button',
    { class: 'button icon', type: 'button', 'aria-label': 'Light or dark', title: 'Light or dark' },
    icon(ICONS.sun),
  );
  const boot = h('div', { class: 'boot' });
  const banner = h('div', { class: 'banner' });
  const input = h('section', { class: 'input-panel', 'aria-label': 'Input' });
  const view = h('div');
  const panels = {
    edit: card('edit', 'Edit the score'),
    kernel: card('kernel', 'Kernel'),
    decode: card('decode', 'Decode'),
    console: card('console', 'Python console'),
  };
  for (const [id, panel] of Object.entries(panels)) panel.id = id;
  fill(
    element,
    h(
      'div',
      { class: 'page' },
      h(
        'header',
        { class: 'masthead' },
        h('a', { class: 'wordmark', href: '#app' }, mark(), 'py-attn'),
        h(
          'nav',
          { 'aria-label': 'Sections' },
          ['Overview', 'Focus', 'Edit', 'Kernel', 'Decode'].map((name) => h('a', { href: `#${name.toLowerCase()}` }, name)),
          h('a', { href: '#console' }, 'Python'),
          h('a', { href: './bench.html' }, 'Bench'),
        ),
        h('div', { class: 'end' }, adapter, theme),
      ),
      h(
        'div',
        { class: 'hero' },
        h('h1', null, 'Attention you can see, run and check'),
        h(
          'p',
          null,
          'A real transformer in this tab: Python plans the work, WGSL kernels do it on your GPU, and every result is held against float64.',
        ),
      ),
      h(
        'main',
        null,
        banner,
        h('div', { class: 'input-zone' }, input, boot),
        view,
        h('div', { class: 'single' }, panels.edit),
        h('div', { class: 'pair' }, panels.kernel, panels.decode),
        h('div', { class: 'single' }, panels.console),
      ),
      h(
        'footer',
        { class: 'foot' },
        h('span', null, 'Everything is computed in this tab; nothing is sent anywhere.'),
        h('span', null, 'Model: all-MiniLM-L6-v2 (Apache-2.0). Python: Pyodide.'),
      ),
    ),
  );
  return { adapter, theme, boot, banner, input, view, ...panels };
}

function mark() {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('aria-hidden', 'true');
  for (const [fillColor, d] of [
    ['#fcc488', 'M1 1h4v4H1z'],
    ['#f56b5c', 'M6 6h4v4H6z'],
    ['#b73779', 'M1 6h4v4H1zM11 11h4v4h-4z'],
    ['#721f81', 'M1 11h4v4H1zM6 11h4v4H6z'],
  ]) {
    const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
    path.setAttribute('d', d);
    path.setAttribute('fill', fillColor);
    svg.append(path);
  }
  return svg;
}

function rememberModel() {
  try {
    localStorage.setItem(HAD_MODEL, 'yes');
  } catch {
    // Then the next visit asks again.
  }
}

function hadModel() {
  try {
    return localStorage.getItem(HAD_MODEL) === 'yes';
  } catch {
    return false;
  }
}
