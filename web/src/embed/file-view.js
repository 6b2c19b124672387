/** What an element shows: a file's attention, computed in the Python that all elements of the page share. */

import { shortError } from '../format.js';
import { mount } from '../mount.js';
import { STAGES } from '../panels/status.js';
import { createModel, openSource } from '../store.js';
import { themedColormap } from '../theme.js';
import { createShell } from './shell.js';
import { acquireRuntime, releaseRuntime } from './shared.js';

/**
 * @typedef {import('../store.js').State} State
 * @typedef {ReturnType<typeof createFileView>} FileView
 * @typedef {{ base: string, initial: Partial<State>, onReady: () => void, onError: (error: Error) => void }} Options
 */

/**
 * @param {HTMLElement} host
 * @param {Options} options
 */
export function createFileView(host, { base, initial, onReady, onError }) {
  /** @type {import('./../mount.js').View | null} */
  let view = null;
  /** @type {ReturnType<import('../runtime/client.js').Runtime['openFileViewer']> | null} */
  let viewer = null;
  /** @type {Promise<ArrayBuffer> | null} */
  let bytes = null;
  let number = 0;
  let waiting = false;
  let isDark = false;

  const model = createModel(
    async (method, payload, onProgress) => (await viewer)?.call(method, payload, onProgress),
    initial,
  );
  const shell = createShell(host, { onTheme: setDark });
  /** @type {import('../runtime/client.js').Runtime | null} */
  let runtime = null;
  const ending = new AbortController();

  /** @param {boolean} now */
  function setDark(now) {
    isDark = now;
    const { style } = model.state;
    model.set({ style: { ...style, colormap: themedColormap(style.colormap, isDark) } });
  }

  function start() {
    if (runtime) return runtime;
    runtime = acquireRuntime(model, base);
    // When Python did not start, another try begins anew.
    runtime.ready.catch(() => (runtime = viewer = null));
    const { signal } = ending;
    runtime.addEventListener('progress', (event) => tell(/** @type {CustomEvent} */ (event).detail), { signal });
    runtime.addEventListener('renewed', () => bytes && void open(bytes), { signal });
    runtime.addEventListener('given-up', (event) => fail(/** @type {CustomEvent} */ (event).detail), { signal });
    return runtime;
  }

  /** @param {{ stage: keyof typeof STAGES, loaded: number, total: number }} progress */
  function tell({ stage, loaded, total }) {
    if (waiting && !view) shell.say('wait', `${STAGES[stage]} …`, '', stage === 'download' && total ? loaded / total : undefined);
  }

  /** @param {unknown} error */
  function fail(error) {
    view?.destroy();
    view = null;
    waiting = false;
    shell.say('bad', 'This cannot be shown.', shortError(error));
    onError(error instanceof Error ? error : new Error(String(error)));
  }

  /**
   * Shows a file. A later call wins over an earlier one that is still under way.
   * @param {Promise<ArrayBuffer>} given
   */
  async function open(given) {
    const mine = ++number;
    bytes = given;
    waiting = true;
    try {
      if (!view) shell.say('wait', 'Starting …');
      const python = start();
      const [data, info] = await Promise.all([given, python.ready]);
      viewer ??= python.openFileViewer();
      const source = await model.call('open_file', { data: new Uint8Array(data) });
      if (mine !== number || ending.signal.aborted) return;
      model.set({ info });
      openSource(model, source);
      waiting = false;
      view ??= mount(shell.content, model);
      shell.setTitle(source.title);
      shell.say('note', '', [source.note, info.webgpu ? '' : `Computed by numpy, without a GPU. ${info.reason}`].join(' ').trim());
      onReady();
    } catch (error) {
      if (mine === number && !ending.signal.aborted) fail(error);
    }
  }

  return {
    model,
    open,
    setTheme: shell.setTheme,

    /** A colour map by its plain name. @param {string} name */
    setColormap(name) {
      model.set({ style: { ...model.state.style, colormap: themedColormap(name, isDark) } });
    },

    /** @param {import('../heatmap/export.js').Format} format */
    async exported(format) {
      if (!view) throw new Error('There is no map yet.');
      return view.exported(format);
    },

    destroy() {
      ending.abort();
      view?.destroy();
      shell.destroy();
      viewer?.then(({ close }) => close(), () => {});
      if (runtime) releaseRuntime(model);
    },
  };
}
