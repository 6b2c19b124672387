/**
 * The line between one widget model and its kernel: asks, is asked, and notices when nobody answers. The messages
 * are those of py_attn/remote/protocol.py.
 */

import { whyNoWebGPU } from '../bridge.js';
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
 * @typedef {ReturnType<typeof createLink>} Link
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

/** @param {AnyModel} model */
export function createLink(model) {
  const page = thisPage();
  /** @type {LinkState} */
  let state = 'waiting';
  let views = 0;
  let delay = PATIENCE_MS;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let watching;
  /** @type {Map<number, { resolve: (value: any) => void, reject: (error: Error) => void, onProgress?: (...news: any[]) => void }>} */
  const pending = new Map();
  /** @type {Set<() => void>} */
  const listeners = new Set();
  let kernel = '';
  let dead = false; // the host has said that the line to the kernel broke, and nobody has answered since

  /** @param {LinkState} next */
  function become(next) {
    if (state === next || state === 'closed') return;
    state = next;
    for (const listener of [...listeners]) listener();
  }

  /** @param {Record<string, any>} message @param {any} [arrays] what may hold typed arrays */
  function send(message, arrays = {}) {
    /** @type {ArrayBufferView[]} */
    const buffers = [];
    const content = { ...message, ...pack(arrays, buffers), page: page.id };
    try {
      // Some hosts answer with a promise, some throw where there is no kernel.
      Promise.resolve(model.send(content, undefined, buffers)).catch(() => become('silent'));
    } catch {
      become('silent');
    }
  }

  function hello() {
    clearTimeout(timer);
    const reason = whyNoWebGPU();
    send({ kind: 'hello', webgpu: !reason, reason });
    timer = setTimeout(() => {
      become('silent');
      abandon();
      delay = Math.min(2 * delay, RETRY_MS);
      hello();
    }, delay);
  }

  /** Somebody is there. */
  function heard() {
    clearTimeout(timer);
    delay = PATIENCE_MS;
    if (state === 'silent') become('live');
    watch();
  }

  /** Whoever waits for an answer wants to know when there may be none. */
  function watch() {
    clearTimeout(watching);
    if (pending.size) watching = setTimeout(hello, QUIET_MS);
  }

  /** @param {any} message @param {(ArrayBuffer | ArrayBufferView)[]} [buffers] */
  function receive(message, buffers = []) {
    if (message?.page !== undefined && message.page !== page.id) return;
    const { kind, id } = message ?? {};
    if (kind === 'answer') settle(id, message, buffers);
    heard();
    if (kind === 'welcome') {
      kernel = message.kernel ?? '';
      dead = false;
      become('live');
      send({ kind: 'views', count: views });
    } else if (kind === 'progress') pending.get(id)?.onProgress?.(...message.news);
    else if (kind === 'ping') send({ kind: 'pong', id });
    else if (kind === 'bridge') runOnDevice(message.device, unpack(message.ops, buffers));
    else if (kind === 'closed') end('The view was closed in Python.');
  }

  /** @param {number} id @param {any} message @param {(ArrayBuffer | ArrayBufferView)[]} buffers */
  function settle(id, message, buffers) {
    const asked = pending.get(id);
    pending.delete(id);
    if (!message.error) return asked?.resolve(unpack(message.result, buffers));
    const error = new Error(message.error.message);
    error.name = message.error.type;
    return asked?.reject(error);
  }

  /** @param {string} name @param {import('./devices.js').Command[]} commands */
  function runOnDevice(name, commands) {
    let device = page.devices.get(name);
    if (!device) {
      device = createDevice((reason) => {
        page.devices.delete(name);
        const tellers = [...page.links].filter((one) => one.owns(name));
        tellers[0]?.send({ kind: 'lost', device: name, reason });
      });
      page.devices.set(name, device);
    }
    device.run(commands, (id, result, error) =>
      error === undefined ? send({ kind: 'bridge-answer', id }, { result }) : send({ kind: 'bridge-answer', id, error }),
    );
    if (commands.some(({ op }) => op === 'destroy')) page.devices.delete(name);
  }

  /** Frees the devices of a kernel that nobody in this page speaks for any more. */
  function abandon() {
    for (const [name, device] of page.devices) {
      if (!link.owns(name) || [...page.links].some((one) => one.owns(name) && one.alive)) continue;
      page.devices.delete(name);
      device.destroy();
    }
  }

  /** @param {string} reason */
  function end(reason) {
    become('closed');
    clearTimeout(timer);
    clearTimeout(watching);
    model.off('msg:custom', receive);
    model.off('comm_live_update', again);
    removeEventListener('pagehide', leave);
    removeEventListener('pageshow', comeBack);
    for (const { reject } of pending.values()) reject(new Error(reason));
    pending.clear();
    page.links.delete(link);
    abandon();
  }

  const leave = () => send({ kind: 'closed' });
  const comeBack = (/** @type {PageTransitionEvent} */ event) => event.persisted && hello();
  const again = () => {
    dead = true;
    hello();
  };

  const link = {
    get state() {
      return state;
    },

    /** @param {() => void} listener called after each change of state @returns {() => void} ends it */
    onChange(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },

    /**
     * Calls a method of the viewer in the kernel.
     * @type {import('../api.js').Call}
     */
    call(method, payload = {}, onProgress) {
      if (state === 'closed') return Promise.reject(new Error('The view was closed in Python.'));
      const id = page.next++;
      return new Promise((resolve, reject) => {
        pending.set(id, { resolve, reject, onProgress });
        send({ kind: 'call', id, method }, { payload });
        if (pending.size === 1) watch();
      });
    },

    /** A view was shown (1) or taken away (-1). @param {1 | -1} step */
    countView(step) {
      views += step;
      if (state !== 'closed') send({ kind: 'views', count: views });
      if (state === 'silent') abandon();
    },

    /** Whether it may still be asked something: the kernel answers, is only busy, or its map is still looked at. */
    get alive() {
      return state !== 'closed' && !(dead && state === 'silent' && views === 0);
    },

    /** Whether a device is this link's kernel's: its name begins with the kernel's. @param {string} device */
    owns: (device) => Boolean(kernel) && device.startsWith(`${kernel}:`),

    send,

    /** The model goes from this page. */
    close() {
      if (state === 'closed') return;
      leave();
      end('The view was closed.');
    },
  };

  page.links.add(link);
  model.on('msg:custom', receive);
  model.on('comm_live_update', again);
  addEventListener('pagehide', leave);
  addEventListener('pageshow', comeBack);
  hello();
  return link;
}

/** Also where there is no secure context, and so no crypto.randomUUID. */
function randomId() {
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (word) => word.toString(16).padStart(8, '0')).join('');
}
