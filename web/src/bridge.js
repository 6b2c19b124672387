/**
 * What Python calls in JavaScript. This file and its parts in gpu/ are the only ones that touch navigator.gpu.
 *
 * Python (py_attn/gpu) decides everything; this side keeps the WebGPU objects behind integer handles and carries out
 * Python's calls.
 */

import { describeAdapter, requestDevice } from './gpu/adapter.js';
import { Bindings } from './gpu/bindings.js';
import { Errors } from './gpu/errors.js';
import { checkShader, compilePipeline, createPipeline } from './gpu/pipelines.js';
import { Queue } from './gpu/queue.js';
import { ReadBacks } from './gpu/read-backs.js';
import { Runner } from './gpu/runner.js';

/** Of so many pipelines it is remembered what Python asked for. */
const MOST_ASKED = 16;

/**
 * @typedef {import('./gpu/pipelines.js').Pipeline} Pipeline
 * @typedef {import('./gpu/pipelines.js').Source} Source
 * @typedef {import('./gpu/runner.js').Program} Program
 * @typedef {{ getBuffer(type: string): { data: Uint8Array | Uint32Array, release(): void } }} PythonBuffer
 * @typedef {{ load(key: string): Promise<string>, save(key: string, text: string): Promise<void> }} Notes
 * @typedef {(name: string, progress?: (loaded: number, total: number) => void) => Promise<ArrayBuffer>} FetchAsset
 */

/**
 * @param {{ fetchAsset: FetchAsset, notes?: Notes }} site how the site's files are fetched, and where short texts are stored
 */
export function createBridge({ fetchAsset, notes }) {
  return {
    async requestDevice() {
      const { adapter, device } = await requestDevice();
      return new DeviceBridge(device, adapter);
    },
    fetchAsset,
    /** Like `fetchAsset`, for files that are too large for Python's memory. @type {(...given: Parameters<FetchAsset>) => Promise<Asset>} */
    openAsset: async (name, progress) => new Asset(await fetchAsset(name, progress)),
    /** @param {string} name */
    loadNote: async (name) => (await notes?.load(name)) ?? '',
    /** @param {string} name @param {string} text */
    saveNote: async (name, text) => notes?.save(name, text),
  };
}

/** A file of the site. Its bytes stay here until it is closed; Python reads what it wants of them. */
export class Asset {
  #bytes;

  /** @param {ArrayBuffer} buffer */
  constructor(buffer) {
    this.#bytes = new Uint8Array(buffer);
  }

  /** Its length in bytes; 0 once it is closed. */
  get size() {
    return this.#bytes.length;
  }

  /** A view of the bytes from `begin` up to `end`. @param {number} begin @param {number} end */
  read(begin, end) {
    return this.#bytes.subarray(begin, end);
  }

  close() {
    this.#bytes = new Uint8Array(0);
  }
}

export class DeviceBridge {
  /** @type {Map<number, GPUBuffer>} */
  #buffers = new Map();
  /** @type {Map<number, Pipeline>} */
  #pipelines = new Map();
  /** @type {Map<string, Pipeline>} compiled before Python asked for them, by what they are made of */
  #early = new Map();
  /** @type {Source[]} what the first pipelines are made of that Python asked for */
  asked = [];
  /** How many pipelines had been compiled before Python asked for them. */
  takenEarly = 0;
  /** @type {Map<number, Program>} */
  #programs = new Map();
  /** @type {Map<number, Promise<import('./gpu/runner.js').Timing[]>>} */
  #timings = new Map();
  #next = 1;
  #lost = '';
  /** @type {((reason: string) => void) | undefined} */
  #onLost;
  #device;
  #adapter;
  #errors;
  #queue;
  #bindings;
  #runner;
  #readBacks;

  /**
   * @param {GPUDevice} device
   * @param {GPUAdapter} adapter
   */
  constructor(device, adapter) {
    this.#device = device;
    this.#adapter = adapter;
    this.#errors = new Errors(device);
    this.#queue = new Queue(device, adapter.info.isFallbackAdapter, () => Boolean(this.#lost));
    this.#bindings = new Bindings(device, this.#errors, (handle) => this.#buffer(handle));
    this.#runner = new Runner(device, this.#errors, this.#queue, this.#bindings);
    this.#readBacks = new ReadBacks(device);
    device.lost.then((info) => this.#end(`${info.reason}${info.message ? `: ${info.message}` : ''}`));
  }

  /** The adapter in its own words, as JSON. */
  info() {
    return JSON.stringify(describeAdapter(this.#adapter, this.#device));
  }

  /** Why the device was lost, or ''. */
  lost() {
    return this.#lost;
  }

  /**
   * Resolves with the reason once the device is lost.
   * @returns {Promise<string>}
   */
  async whenLost() {
    await this.#device.lost;
    return this.#lost;
  }

  /**
   * Has the reason told once, as soon as the device is lost, so that Python need not ask before each call.
   * @param {(reason: string) => void} told
   */
  onLost(told) {
    if (this.#lost) told(this.#lost);
    else this.#onLost = told;
  }

  destroy() {
    this.#device.destroy();
    this.#end('destroyed');
  }

  /** @param {string} reason */
  #end(reason) {
    this.#lost ||= reason;
    this.#onLost?.(this.#lost);
    this.#onLost = undefined;
  }

  // Buffers

  // A Python that is not in this browser chooses the handles itself, so that it need not wait for an answer.

  /** @param {number} size @param {string} label @param {number} [handle] */
  createBuffer(size, label, handle) {
    const buffer = this.#errors.guarded(label, ['validation', 'out-of-memory'], () =>
      this.#device.createBuffer({
        label,
        size,
        usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
      }),
    );
    return this.#keep(this.#buffers, buffer, handle);
  }

  /** @param {number} handle */
  destroyBuffer(handle) {
    this.#buffers.get(handle)?.destroy();
    this.#buffers.delete(handle);
    this.#bindings.forgetBuffers();
  }

  /** @param {number} handle @param {number} offset @param {PythonBuffer} data */
  writeBuffer(handle, offset, data) {
    const view = data.getBuffer('u8');
    try {
      this.#queue.write(this.#buffer(handle), offset, /** @type {Uint8Array<ArrayBuffer>} */ (view.data));
    } finally {
      view.release();
    }
  }

  /**
   * Copies a part of a file, whose bytes do not pass through Python.
   * @param {number} handle @param {number} offset @param {Asset} asset @param {number} begin @param {number} end
   */
  writeAsset(handle, offset, asset, begin, end) {
    this.#queue.write(this.#buffer(handle), offset, asset.read(begin, end));
  }

  /**
   * Maps a copy of a part of a buffer; the caller copies `bytes` out and calls `release`.
   * @param {number} handle @param {number} offset @param {number} size
   */
  async readBuffer(handle, offset, size) {
    const label = `read-back of ${size} bytes`;
    const staging = this.#errors.guarded(label, ['validation', 'out-of-memory'], () => {
      const taken = this.#readBacks.take(size);
      const encoder = this.#device.createCommandEncoder();
      encoder.copyBufferToBuffer(this.#buffer(handle), offset, taken, 0, size);
      this.#queue.submit(encoder);
      return taken;
    });
    try {
      await this.#queue.after(staging.mapAsync(GPUMapMode.READ, 0, size));
    } catch (error) {
      staging.destroy();
      throw new Error(this.#lost || String(/** @type {Error} */ (error).message));
    }
    return { bytes: new Uint8Array(staging.getMappedRange(0, size)), release: () => this.#readBacks.release(staging) };
  }

  // Pipelines

  /** @param {string} label @param {string} wgsl @param {string} access one letter a buffer: r or w @param {number} [handle] */
  createPipeline(label, wgsl, access, handle) {
    if (this.asked.length < MOST_ASKED) this.asked.push({ label, wgsl, access });
    const early = this.#early.get(keyOf({ label, wgsl, access }));
    if (early) this.takenEarly++;
    const made = early ?? createPipeline(this.#device, this.#errors, this.#bindings, label, wgsl, access);
    return this.#keep(this.#pipelines, made, handle);
  }

  /** Compiles what Python is going to ask for; what cannot be compiled is left to `createPipeline`. @param {Source[]} sources */
  async compileEarly(sources) {
    const compiled = sources.map(async (source) => {
      this.#early.set(keyOf(source), await compilePipeline(this.#device, this.#bindings, source));
    });
    await Promise.allSettled(compiled);
  }

  /** @param {number} handle */
  destroyPipeline(handle) {
    this.#pipelines.delete(handle);
  }

  /** What the compiler says about a text, as JSON; no error is reported. @param {string} wgsl */
  async checkShader(wgsl) {
    return JSON.stringify(await checkShader(this.#device, wgsl));
  }

  /**
   * Microseconds from asking for a pipeline until the browser had made it.
   * @param {number} handle
   * @returns {Promise<number>}
   */
  async compileTime(handle) {
    return (await this.#pipelines.get(handle)?.made) ?? 0;
  }

  // Programs

  /** Decodes a program that is submitted again and again. @param {PythonBuffer} words @param {number} [handle] */
  createProgram(words, handle) {
    const program = { dispatches: this.#decode(words), params: this.#bindings.ownParams() };
    return this.#keep(this.#programs, program, handle);
  }

  /** Decodes and submits a program that is used once. @param {PythonBuffer} words @param {PythonBuffer} params */
  runProgram(words, params) {
    const program = { dispatches: this.#decode(words), params: this.#bindings.shared };
    this.#write(program, params);
    this.#runner.run(program);
  }

  /** @param {number} handle */
  destroyProgram(handle) {
    this.#programs.get(handle)?.params.destroy();
    this.#programs.delete(handle);
  }

  /**
   * Submits a program once; its dispatches run `times` times over.
   * @param {number} handle
   * @param {PythonBuffer | null} [params] those of the submission before, which lie on the GPU, unless given
   * @param {number} [times]
   */
  submitProgram(handle, params, times) {
    const program = this.#program(handle);
    if (params) this.#write(program, params);
    this.#runner.run(program, { times });
  }

  /**
   * Submits each dispatch by itself, or all of them together, and times them; `timings` gives the result.
   * @param {number} handle @param {PythonBuffer} params @param {boolean} [together]
   * @param {number} [times] how many times over each submission runs what it has @param {number} [ticket]
   */
  submitTimed(handle, params, together = false, times = 1, ticket) {
    const program = this.#program(handle);
    this.#write(program, params);
    const result = this.#runner.time(program, together, times);
    result.catch(() => {}); // `timings` reports it
    return this.#keep(this.#timings, result, ticket);
  }

  /** @param {number} ticket @returns {Promise<string>} JSON of [gpu µs or null, wall µs] per pass */
  async timings(ticket) {
    const result = this.#timings.get(ticket);
    this.#timings.delete(ticket);
    return JSON.stringify(result && (await this.#queue.polled(result)));
  }

  /** Records an error that the next `synchronize` reports. @param {string} label @param {unknown} error */
  note(label, error) {
    this.#errors.add({ kind: 'internal', label, message: error instanceof Error ? error.message : String(error), line: 0 });
  }

  /** Whether everything submitted is known to be done, without an error that could be taken. */
  isSettled() {
    return !this.#queue.isBusy && !this.#errors.areAwaited;
  }

  /** Waits for everything submitted, and until its errors can be taken. */
  async settle() {
    await this.#queue.idle();
    // Error scopes answer in the order of the queue, so the last of them comes after all earlier work was checked.
    await this.#errors.settled();
  }

  /**
   * Calls an asynchronous method, and Python with its result or with its error's message. Python that awaited the promise
   * would go on one turn of its event loop later.
   * @param {'settle' | 'readBuffer'} method
   * @param {(result: unknown, error: string) => void} told
   * @param {unknown[]} given
   */
  answer(method, told, ...given) {
    /** @type {Promise<unknown>} */
    const promise = /** @type {any} */ (this)[method](...given);
    promise.then(
      (result) => told(result, ''),
      (error) => told(null, error.message),
    );
  }

  /** The errors since the last call as JSON; an empty text if there are none. */
  takeErrors() {
    const errors = this.#errors.take();
    return errors.length ? JSON.stringify(errors) : '';
  }

  // Inside

  /** @param {PythonBuffer} words */
  #decode(words) {
    const view = words.getBuffer('u32');
    try {
      return this.#runner.decode(/** @type {Uint32Array} */ (view.data), this.#pipelines);
    } finally {
      view.release();
    }
  }

  /** @param {Program} program @param {PythonBuffer} params */
  #write(program, params) {
    const view = params.getBuffer('u8');
    try {
      program.params.write(/** @type {Uint8Array<ArrayBuffer>} */ (view.data), program.dispatches);
    } finally {
      view.release();
    }
  }

  /** @param {number} handle */
  #buffer(handle) {
    const buffer = this.#buffers.get(handle);
    if (!buffer) throw new Error(`no buffer ${handle}`);
    return buffer;
  }

  /** @param {number} handle */
  #program(handle) {
    const program = this.#programs.get(handle);
    if (!program) throw new Error(`no program ${handle}`);
    return program;
  }

  /**
   * @template T
   * @param {Map<number, T>} table @param {T} value @param {number} [handle]
   */
  #keep(table, value, handle = this.#next++) {
    table.set(handle, value);
    return handle;
  }
}

/** @param {Source} source */
function keyOf({ label, wgsl, access }) {
  return `${label} ${access} ${wgsl}`;
}
