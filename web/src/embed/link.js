/**
 * The connection between one widget model and its kernel: calls in both directions, and a check that the kernel still
 * answers. The messages are those of py_attn/remote/protocol.py.
 */

import { whyNoWebGPU } from '../gpu/adapter.js';
import { createDevice } from './devices.js';
import { pack, unpack } from './wire.js';

/**
 * @typedef {object} AnyModel anywidget's
 * @property {(name: string) => any} get
 * @property {(name: string, value: unknown) => void} set
 * @property {() => void} save_changes
 * @property {(content: unknown, callbacks?: unknown, buffers?: (ArrayBuffer | ArrayBufferView)[]) => unknown} send
 * @property {(name: string, listener: (...news: any[]) => void) => void} on
 * @property {(name: string, listener: (...news: any[]) => void) => void} off
 *
 * @typedef {'waiting' | 'live' | 'silent' | 'closed'} LinkState silent: no kernel has answered (yet)
 * @typedef {{ id: string, next: number, links: Set<Link>, devices: Map<string, ReturnType<typeof createDevice>> }} Page
 * @typedef {{ resolve: (value: any) => void, reject: (error: Error) => void, onProgress?: (...news: any[]) => void }} Pending
 * @typedef {(ArrayBuffer | ArrayBufferView)[]} Buffers
 */

const PATIENCE_MS = 3000; // until a kernel that says nothing is called silent
const RETRY_MS = 30_000;
const QUIET_MS = 6000; // without a word while an answer is due, until the kernel is asked whether it is there

/** What all models of a document share; each of them has loaded this module for itself. @returns {Page} */
function thisPage() {
  const shared = /** @type {any} */ (globalThis);
  const key = Symbol.for('py-attn.page');
  shared[key] ??= { id: randomId(), next: 1, links: new Set(), devices: new Map() };
  return shared[key];
}

export class Link {
  /** @type {LinkState} */
  #state = 'waiting';
  /** How many views of the model are shown in this page. */
  #views = 0;
  #delay = PATIENCE_MS;
  /** The name that the kernel gave itself; those of its devices begin with it. */
  #kernel = '';
  /** Whether the host has said that the connection to the kernel broke, and the kernel has not answered since. */
  #dead = false;
  /** @type {Map<number, Pending>} calls without an answer */
  #pending = new Map();
  /** @type {Set<() => void>} */
  #listeners = new Set();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #retry;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #watching;
  #page = thisPage();
  #model;
  #ending = new AbortController();

  /** @param {AnyModel} model */
  constructor(model) {
    this.#model = model;
    this.#page.links.add(this);
    model.on('msg:custom', this.#receive);
    model.on('comm_live_update', this.#broke);
    const { signal } = this.#ending;
    addEventListener('pagehide', () => this.#leave(), { signal });
    addEventListener('pageshow', (event) => event.persisted && this.#hello(), { signal });
    this.#hello();
  }

  get state() {
    return this.#state;
  }

  /** Whether it may still be asked something: the kernel answers, is only busy, or its map is still looked at. */
  get alive() {
    return this.#state !== 'closed' && !(this.#dead && this.#state === 'silent' && this.#views === 0);
  }

  /** Whether a device belongs to this link's kernel. @param {string} device */
  owns(device) {
    return Boolean(this.#kernel) && device.startsWith(`${this.#kernel}:`);
  }

  /** @param {() => void} listener called after each change of state @returns {() => void} ends it */
  onChange(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Calls a method of the viewer in the kernel.
   * @type {import('../api.js').Call}
   */
  call = (method, payload = {}, onProgress) => {
    if (this.#state === 'closed') return Promise.reject(new Error('The view was closed in Python.'));
    const id = this.#page.next++;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject, onProgress });
      this.send({ kind: 'call', id, method }, { payload });
      if (this.#pending.size === 1) this.#watch();
    });
  };

  /** @param {Record<string, any>} message @param {any} [arrays] what may hold typed arrays */
  send(message, arrays = {}) {
    /** @type {ArrayBufferView[]} */
    const buffers = [];
    const content = { ...message, ...pack(arrays, buffers), page: this.#page.id };
    try {
      // Some hosts answer with a promise, some throw where there is no kernel.
      Promise.resolve(this.#model.send(content, undefined, buffers)).catch(() => this.#become('silent'));
    } catch {
      this.#become('silent');
    }
  }

  /** A view was shown (1) or taken away (-1). @param {1 | -1} step */
  countView(step) {
    this.#views += step;
    if (this.#state !== 'closed') this.send({ kind: 'views', count: this.#views });
    if (this.#state === 'silent') this.#abandon();
  }

  /** The model goes from this page. */
  close() {
    if (this.#state === 'closed') return;
    this.#leave();
    this.#end('The view was closed.');
  }

  /** @param {LinkState} next */
  #become(next) {
    if (this.#state === next || this.#state === 'closed') return;
    this.#state = next;
    for (const listener of [...this.#listeners]) listener();
  }

  /** Asks whether a kernel is there, and again after a while when none answers. */
  #hello() {
    clearTimeout(this.#retry);
    const reason = whyNoWebGPU();
    this.send({ kind: 'hello', webgpu: !reason, reason });
    this.#retry = setTimeout(() => {
      this.#become('silent');
      this.#abandon();
      this.#delay = Math.min(2 * this.#delay, RETRY_MS);
      this.#hello();
    }, this.#delay);
  }

  /** A message from the kernel has come. */
  #heard() {
    clearTimeout(this.#retry);
    this.#delay = PATIENCE_MS;
    if (this.#state === 'silent') this.#become('live');
    this.#watch();
  }

  /** While answers are due, asks after a silence whether the kernel is still there. */
  #watch() {
    clearTimeout(this.#watching);
    if (this.#pending.size) this.#watching = setTimeout(() => this.#hello(), QUIET_MS);
  }

  #receive = (/** @type {any} */ message, /** @type {Buffers} */ buffers = []) => {
    if (message?.page !== undefined && message.page !== this.#page.id) return;
    const { kind, id } = message ?? {};
    if (kind === 'answer') this.#settle(id, message, buffers);
    this.#heard();
    if (kind === 'welcome') this.#welcome(message.kernel ?? '');
    else if (kind === 'progress') this.#pending.get(id)?.onProgress?.(...message.news);
    else if (kind === 'ping') this.send({ kind: 'pong', id });
    else if (kind === 'bridge') this.#runOnDevice(message.device, unpack(message.ops, buffers));
    else if (kind === 'closed') this.#end('The view was closed in Python.');
  };

  /** @param {string} kernel */
  #welcome(kernel) {
    this.#kernel = kernel;
    this.#dead = false;
    this.#become('live');
    this.send({ kind: 'views', count: this.#views });
  }

  /** @param {number} id @param {any} message @param {Buffers} buffers */
  #settle(id, message, buffers) {
    const asked = this.#pending.get(id);
    this.#pending.delete(id);
    if (!message.error) return asked?.resolve(unpack(message.result, buffers));
    const error = new Error(message.error.message);
    error.name = message.error.type;
    return asked?.reject(error);
  }

  /** @param {string} name @param {import('./devices.js').Command[]} commands */
  #runOnDevice(name, commands) {
    const { devices, links } = this.#page;
    let device = devices.get(name);
    if (!device) {
      device = createDevice((reason) => {
        devices.delete(name);
        const owners = [...links].filter((one) => one.owns(name));
        owners[0]?.send({ kind: 'lost', device: name, reason });
      });
      devices.set(name, device);
    }
    device.run(commands, (id, result, error) => {
      if (error === undefined) this.send({ kind: 'bridge-answer', id }, { result });
      else this.send({ kind: 'bridge-answer', id, error });
    });
    if (commands.some(({ op }) => op === 'destroy')) devices.delete(name);
  }

  /** Frees the devices of a kernel that no link of this page can reach any more. */
  #abandon() {
    const { devices, links } = this.#page;
    for (const [name, device] of devices) {
      if (!this.owns(name) || [...links].some((one) => one.owns(name) && one.alive)) continue;
      devices.delete(name);
      device.destroy();
    }
  }

  #broke = () => {
    this.#dead = true;
    this.#hello();
  };

  #leave() {
    this.send({ kind: 'closed' });
  }

  /** @param {string} reason */
  #end(reason) {
    this.#become('closed');
    clearTimeout(this.#retry);
    clearTimeout(this.#watching);
    this.#model.off('msg:custom', this.#receive);
    this.#model.off('comm_live_update', this.#broke);
    this.#ending.abort();
    for (const { reject } of this.#pending.values()) reject(new Error(reason));
    this.#pending.clear();
    this.#page.links.delete(this);
    this.#abandon();
  }
}

/** Also where there is no secure context, and so no crypto.randomUUID. */
function randomId() {
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (word) => word.toString(16).padStart(8, '0')).join('');
}
