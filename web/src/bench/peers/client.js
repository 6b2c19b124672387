/** The bench's side of the peers: a worker for each, which is ended when its peer fails so that the next workload starts a new one. */

import * as Comlink from 'comlink';

/**
 * @typedef {import('../types').Workload} Workload
 * @typedef {import('../types').Ours} Ours
 * @typedef {import('../types').Peer} Peer
 */

export const PEERS = ['onnxruntime-web', 'jax-js'];
/** Those that compute the language model. */
export const MODEL_PEERS = ['wllama on WebGPU', 'wllama on the CPU'];
/** A peer's result may be this far from the float64 reference, over the largest value: other orders of summation. */
/** @type {Record<string, number>} */
const TOLERANCE = { float32: 2e-5, float16: 1e-2 };
const TIMEOUT_MS = 90_000;
const MODEL_TIMEOUT_MS = 240_000;
/** A peer's text may differ where two tokens are about as likely; it begins with these characters. */
const SAME_CHARACTERS = 16;
/** Larger inputs and outputs are ours alone: what runs out of memory may take the browser's GPU process with it. */
const MOST_BYTES = 700e6;

export class Peers {
  /** @type {Map<string, [Worker, Comlink.Remote<import('./worker.js').PeerWorker>]>} */
  #workers = new Map();

  /** A peer's version. @param {string} name */
  async version(name) {
    return this.#ask(name, (remote) => remote.version(name));
  }

  /**
   * Checks and times one workload; null where the library has no such operation.
   * @param {string} name
   * @param {Workload} workload
   * @param {Ours} ours
   * @param {{ seconds: number, f16: boolean }} options
   * @returns {Promise<Peer | null>}
   */
  async run(name, workload, ours, options) {
    try {
      if (!ours.expected || !ours.rows || bytesOf(workload) > MOST_BYTES) return null;
      if (!(await this.#ask(name, (remote) => remote.supports(name, workload)))) return null;
      const task = { workload, sets: Math.min(ours.sets, 4), rows: ours.rows, ...options };
      const { wall, got } = await this.#ask(name, (remote) => remote.run(name, task));
      const { error, largest } = difference(got, ours.expected);
      const tolerance = TOLERANCE[workload.dtype] * largest;
      const work = workload.bytes === null ? workload.flops / 1e6 : workload.bytes / 1e3;
      return { peer: name, wall, rate: work / wall.row_us, error, ok: error <= tolerance };
    } catch (error) {
      this.stop(name);
      return { peer: name, unavailable: String(/** @type {Error} */ (error)?.message ?? error).slice(0, 300) };
    }
  }

  /**
   * Checks and times the language model; the figures are by the names of our rows.
   * @param {string} name
   * @param {import('../types').ModelPeerTask} task
   * @returns {Promise<{ values?: Record<string, number>, ok?: boolean, notes?: string[], text?: string, unavailable?: string }>}
   */
  async runModel(name, task) {
    try {
      const found = await this.#ask(name, (remote) => remote.runModel(name, task, new URL('.', document.baseURI).href), MODEL_TIMEOUT_MS);
      return { ...found, ok: sameBeginning(found.text, task.checked.text) };
    } catch (error) {
      return { unavailable: String(/** @type {Error} */ (error)?.message ?? error).slice(0, 300) };
    } finally {
      this.stop(name);
    }
  }

  /** @param {string} name */
  stop(name) {
    this.#workers.get(name)?.[0].terminate();
    this.#workers.delete(name);
  }

  stopAll() {
    for (const name of [...this.#workers.keys()]) this.stop(name);
  }

  /**
   * @template T
   * @param {string} name
   * @param {(remote: Comlink.Remote<import('./worker.js').PeerWorker>) => Promise<T>} question
   * @param {number} [patience] in milliseconds
   * @returns {Promise<T>}
   */
  async #ask(name, question, patience = TIMEOUT_MS) {
    let pair = this.#workers.get(name);
    if (!pair) {
      const worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name });
      pair = [worker, Comlink.wrap(worker)];
      this.#workers.set(name, pair);
    }
    const [worker, remote] = pair;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const ended = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no answer within ${patience / 1000} s`)), patience);
      worker.onerror = (event) => reject(new Error(event.message || 'its worker failed'));
    });
    try {
      return await Promise.race([question(remote), /** @type {Promise<never>} */ (ended)]);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Whether a text begins as another, of which it may be a part. @param {string} text @param {string} expected */
export function sameBeginning(text, expected) {
  const length = Math.min(SAME_CHARACTERS, text.length, expected.length);
  return length > 0 && text.slice(0, length) === expected.slice(0, length);
}

/** @param {Float32Array[]} got @param {number[][]} expected */
function difference(got, expected) {
  let error = 0;
  let largest = 0;
  expected.forEach((row, r) =>
    row.forEach((value, d) => {
      const off = Math.abs(got[r][d] - value);
      error = off <= error ? error : Number.isNaN(off) ? Infinity : off;
      largest = Math.max(largest, Math.abs(value));
    }),
  );
  return { error, largest };
}

/** Bytes of a workload's inputs and outputs. @param {Workload} workload */
function bytesOf({ bytes, batch, heads, kv_heads, queries, keys, head_dim }) {
  return bytes ?? 8 * batch * head_dim * (heads * queries + kv_heads * keys);
}
