/** What an element shows: a file's attention, computed in the Python that all elements of the page share. */

import { shortError } from '../format.js';
import { mount } from '../mount.js';
import { PARTS, aboutUnknown, readParts } from '../parts.js';
import { STAGES } from '../panels/status.js';
import { createModel, openSource } from '../store.js';
import { themedColormap } from '../theme.js';
import { Shell } from './shell.js';
import { acquireRuntime, releaseRuntime } from './shared.js';

/**
 * @typedef {import('../store.js').State} State
 * @typedef {import('../runtime/client.js').Runtime} Runtime
 * @typedef {{ base: string, initial: Partial<State>, onReady: () => void, onError: (error: Error) => void }} Options
 */

export class FileView {
  /** @type {import('../mount.js').View | null} */
  #view = null;
  /** @type {Runtime | null} */
  #runtime = null;
  /** @type {ReturnType<Runtime['openFileViewer']> | null} */
  #viewer = null;
  /** @type {Promise<ArrayBuffer> | null} of the file that was opened last */
  #bytes = null;
  /** Counts the files, so that an answer about an earlier one can be recognised. */
  #number = 0;
  #waiting = false;
  #isDark = false;
  #parts = PARTS;
  /** @type {string[]} names of parts that are not known */
  #unknown = [];
  /** What is said about the file. */
  #note = '';
  #ending = new AbortController();
  #options;
  #shell;

  /**
   * @param {HTMLElement} host
   * @param {Options} options
   */
  constructor(host, options) {
    this.#options = options;
    this.model = createModel(
      async (method, payload, onProgress) => (await this.#viewer)?.call(method, payload, onProgress),
      options.initial,
    );
    this.#shell = new Shell(host, { onTheme: (isDark) => this.#setDark(isDark) });
  }

  /**
   * Shows a file. A later call wins over an earlier one that is still in progress.
   * @param {Promise<ArrayBuffer>} bytes
   */
  async open(bytes) {
    const number = ++this.#number;
    const isOver = () => number !== this.#number || this.#ending.signal.aborted;
    this.#bytes = bytes;
    this.#waiting = true;
    try {
      if (!this.#view) this.#shell.say('wait', 'Starting …');
      const python = this.#start();
      const [data, info] = await Promise.all([bytes, python.ready]);
      this.#viewer ??= python.openFileViewer();
      const source = await this.model.call('open_file', { data: new Uint8Array(data) });
      if (isOver()) return;
      this.model.set({ info });
      this.#show(source, info);
    } catch (error) {
      if (!isOver()) this.#fail(error);
    }
  }

  /** A theme of the view's own; '' follows the host. @param {'light' | 'dark' | ''} theme */
  setTheme(theme) {
    this.#shell.setTheme(theme);
  }

  /** A colour map by its plain name. @param {string} name */
  setColormap(name) {
    this.model.set({ style: { ...this.model.state.style, colormap: themedColormap(name, this.#isDark) } });
  }

  /** Which parts are shown, by their names with spaces or commas between them. @param {string} names */
  setParts(names) {
    const { parts, unknown } = readParts(names);
    if (unknown.length) console.warn(`<py-attn> ${aboutUnknown(unknown)}`);
    const changed = parts.join() !== this.#parts.join();
    this.#parts = parts;
    this.#unknown = unknown;
    if (!this.#view) return;
    if (changed) this.#mount();
    this.#say();
  }

  /** @param {import('../heatmap/export.js').Format} format */
  async exported(format) {
    if (!this.#view) throw new Error('There is no map yet.');
    return this.#view.exported(format);
  }

  destroy() {
    this.#ending.abort();
    this.#view?.destroy();
    this.#shell.destroy();
    this.#viewer?.then(({ close }) => close(), () => {});
    if (this.#runtime) releaseRuntime(this.model);
  }

  #start() {
    if (this.#runtime) return this.#runtime;
    const runtime = acquireRuntime(this.model, this.#options.base);
    this.#runtime = runtime;
    // When Python did not start, the next file starts it again.
    runtime.ready.catch(() => (this.#runtime = this.#viewer = null));
    const { signal } = this.#ending;
    runtime.addEventListener('progress', (event) => this.#tell(/** @type {CustomEvent} */ (event).detail), { signal });
    runtime.addEventListener('renewed', () => this.#bytes && void this.open(this.#bytes), { signal });
    runtime.addEventListener('given-up', (event) => this.#fail(/** @type {CustomEvent} */ (event).detail), { signal });
    return runtime;
  }

  /** @param {import('../types').SourceInfo & { note: string }} source @param {import('../runtime/client.js').Info} info */
  #show(source, info) {
    openSource(this.model, source);
    this.#waiting = false;
    if (!this.#view) this.#mount();
    this.#shell.setTitle(source.title);
    const numpy = info.webgpu ? '' : `Computed by numpy, without a GPU. ${info.reason}`;
    this.#note = [source.note, numpy].join(' ').trim();
    this.#say();
    this.#options.onReady();
  }

  #mount() {
    this.#view?.destroy();
    this.#view = mount(this.#shell.content, this.model, { only: this.#parts });
  }

  #say() {
    const isEmpty = this.model.state.source?.kind === 'weights' && this.#parts.join() === 'kernel';
    const empty = isEmpty ? 'The file holds weights, which have no kernel behind them.' : '';
    this.#shell.say('note', '', [this.#note, aboutUnknown(this.#unknown), empty].filter(Boolean).join(' '));
  }

  /** @param {{ stage: keyof typeof STAGES, loaded: number, total: number }} progress */
  #tell({ stage, loaded, total }) {
    if (!this.#waiting || this.#view) return;
    this.#shell.say('wait', `${STAGES[stage]} …`, '', stage === 'download' && total ? loaded / total : undefined);
  }

  /** @param {unknown} error */
  #fail(error) {
    this.#view?.destroy();
    this.#view = null;
    this.#waiting = false;
    this.#shell.say('bad', 'This cannot be shown.', shortError(error));
    this.#options.onError(error instanceof Error ? error : new Error(String(error)));
  }

  /** @param {boolean} now */
  #setDark(now) {
    this.#isDark = now;
    const { style } = this.model.state;
    this.model.set({ style: { ...style, colormap: themedColormap(style.colormap, now) } });
  }
}
