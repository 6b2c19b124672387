/** The page's side of the worker: starts it, calls it, stops it and starts another one. */

import * as Comlink from 'comlink';

/**
 * @typedef {import('../worker.js').Info} Info
 * @typedef {import('./boot.js').BootProgress} BootProgress
 * @typedef {import('./output.js').Line} Line
 *
 * @typedef StartOptions
 * @property {boolean} [profile] whether to write down more than usual about the start
 * @property {boolean} [forLater] whether to download, after the first map, what later visits start faster from
 */

/** What a call rejects with when Python was stopped before it was answered. */
export class StoppedError extends Error {
  name = 'StoppedError';
}

/**
 * Events: `progress` (detail BootProgress), `ready` (Info), `failed` (Error), `output` (Line[]), `opened` (SourceInfo, by a
 * cell of the console), `lost` (string), `stopped`.
 */
export class Runtime extends EventTarget {
  /** @type {Promise<Info>} resolves when Python can be used */
  ready;
  /** @type {Info | null} */
  info = null;
  /** What of the page a cell of the console sees; the page sets it. @type {() => Record<string, number>} */
  focus = () => ({});
  #base;
  #options;
  /** @type {Worker} */
  #worker;
  /** @type {Comlink.Remote<import('../worker.js').PyWorker>} */
  #remote;
  /** @type {Set<(error: Error) => void>} rejects the calls that wait for the worker */
  #waiting = new Set();

  /** @param {string} base the site's folder @param {StartOptions} [options] */
  constructor(base, options = {}) {
    super();
    this.#base = base;
    this.#options = options;
    [this.#worker, this.#remote, this.ready] = this.#start();
  }

  /**
   * Runs Python; resolves with its last expression as plain data, rejects with the traceback.
   * @param {string} source
   * @returns {Promise<any>}
   */
  async run(source) {
    await this.ready;
    return this.#ask(this.#remote.run(String(source), this.focus()));
  }

  /** @param {string} source @returns {Promise<import('../types').Shown>} */
  async show(source) {
    await this.ready;
    return this.#ask(this.#remote.show(source, this.focus()));
  }

  /**
   * @param {string} method
   * @param {Record<string, any>} [payload]
   * @param {(...news: any[]) => void} [onProgress]
   * @returns {Promise<any>}
   */
  async call(method, payload = {}, onProgress) {
    await this.ready;
    return withNews(onProgress, (news) => this.#ask(this.#remote.call(method, payload, news)));
  }

  /** @param {string} method @param {string} name @returns {Promise<any>} */
  async open(method, name) {
    await this.ready;
    return this.#ask(this.#remote.open(method, name));
  }

  /** Another viewer in the same Python, for a file and on the same device. */
  async openFileViewer() {
    await this.ready;
    /** @type {number} */
    const number = await this.#ask(this.#remote.openFileViewer());
    return {
      /** @type {import('../api.js').Call} */
      call: (method, payload = {}, onProgress) =>
        withNews(onProgress, (news) => this.#ask(this.#remote.call(method, payload, news, number))),
      close: () => void this.#remote.closeFileViewer(number),
    };
  }

  /**
   * @param {(stage: string, loaded: number, total: number) => void} onProgress
   * @param {Record<string, any>} [writer] how the language model is to be loaded, where that is asked for
   * @returns {Promise<{ loaded: boolean }>} whether it was loaded, or cancelled
   */
  async loadModel(onProgress, writer) {
    await this.ready;
    return withNews(onProgress, (news) => this.#ask(this.#remote.loadModel(/** @type {any} */ (news), writer)));
  }

  /** After `loadModel`, however soon. */
  async cancelLoad() {
    await this.ready; // as long as the load waited
    await this.#remote.cancelLoad();
  }

  /** The worker's part of the start, in the page's time. @returns {Promise<import('./profile.js').Profile>} */
  async profile() {
    const { spans, imports } = await this.#ask(this.#remote.profile());
    return {
      spans: spans.map((/** @type {import('./profile.js').Span} */ span) => ({ ...span, at: span.at - performance.timeOrigin })),
      imports,
    };
  }

  /** Asks for a new device after a loss. */
  async renew() {
    await this.ready;
    /** @type {Info} */
    const info = await this.#ask(this.#remote.renew());
    this.info = info;
    return info;
  }

  /** Ends Python at once, whatever it is doing. */
  end() {
    this.#worker.terminate();
    const error = new StoppedError('Python was stopped.');
    for (const reject of [...this.#waiting]) reject(error);
    this.info = null;
  }

  /** Ends Python and starts it again: variables are gone, downloads come from the cache. */
  restart() {
    this.end();
    [this.#worker, this.#remote, this.ready] = this.#start();
    this.dispatchEvent(new Event('stopped'));
    return this.ready;
  }

  /** @returns {[Worker, Comlink.Remote<import('../worker.js').PyWorker>, Promise<Info>]} */
  #start() {
    const worker = new Worker(new URL('../worker.js', import.meta.url), { type: 'module', name: 'python' });
    const remote = /** @type {Comlink.Remote<import('../worker.js').PyWorker>} */ (Comlink.wrap(worker));
    const failed = new Promise((_, reject) => {
      worker.addEventListener('error', (event) => reject(new Error(event.message || 'The worker could not be started.')));
    });
    const listeners = Comlink.proxy({
      onProgress: (/** @type {BootProgress} */ progress) => {
        markOnce(`py-attn:${progress.stage}`);
        this.#tell('progress', progress);
      },
      onOutput: (/** @type {Line[]} */ lines) => this.#tell('output', lines),
      onOpened: (/** @type {import('../types').SourceInfo} */ source) => this.#tell('opened', source),
      onLost: (/** @type {string} */ reason) => this.#tell('lost', reason),
    });
    const ready = this.#ask(Promise.race([remote.boot(this.#base, /** @type {any} */ (listeners), this.#options), failed]));
    ready.then(
      (info) => {
        this.info = info;
        markOnce('py-attn:ready');
        this.#tell('ready', info);
      },
      (error) => error instanceof StoppedError || this.#tell('failed', error),
    );
    return [worker, remote, ready];
  }

  /** @param {string} type @param {unknown} detail */
  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  /**
   * A promise that also ends when the worker does.
   * @param {Promise<any>} answer
   * @returns {Promise<any>}
   */
  #ask(answer) {
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject);
      answer.then(resolve, reject).finally(() => this.#waiting.delete(reject));
    });
  }
}

/**
 * Asks the worker for something that reports its progress. News travels by a port of its own, so it may arrive after the
 * answer; such news is not passed on, since it would overwrite what the answer showed.
 * @template T
 * @param {((...news: any[]) => void) | undefined} onNews
 * @param {(onNews: ((...news: any[]) => void) | undefined) => Promise<T>} ask
 * @returns {Promise<T>}
 */
export async function withNews(onNews, ask) {
  let answered = false;
  try {
    return await ask(onNews && Comlink.proxy((/** @type {any[]} */ ...news) => answered || onNews(...news)));
  } finally {
    answered = true;
  }
}

/** Marks when a stage of the first start began; the profile of a visit is read from these. @param {string} name */
function markOnce(name) {
  if (!performance.getEntriesByName(name).length) performance.mark(name);
}
