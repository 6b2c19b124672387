/**
 * The only JavaScript that touches navigator.gpu.
 *
 * Python (py_attn/gpu) decides everything; this side keeps the WebGPU objects behind integer handles
 * and does what it is told. A program is a stream of u32 words, one record per dispatch:
 *
 *   pipeline, params offset, params size, x, y, z, count, then count × (buffer, byte offset, byte size)
 *
 * Its parts are in gpu/: the queue and waiting for it, what a dispatch is bound to, errors, clocks.
 */

import { Bindings } from './gpu/bindings.js';
import { Clock } from './gpu/clock.js';
import { Errors } from './gpu/errors.js';
import { Queue } from './gpu/queue.js';

/**
 * @typedef {{ pipeline: GPUComputePipeline, layout: GPUBindGroupLayout, access: string, label: string, made: Promise<number> }} Pipeline
 * @typedef {{ pipeline: Pipeline, bindings: GPUBindGroup, offset: number, size: number, grid: [number, number, number] }} Dispatch
 * @typedef {{ getBuffer(type: string): { data: Uint8Array | Uint32Array, release(): void } }} PythonBuffer
 * @typedef {{ load(key: string): Promise<string>, save(key: string, text: string): Promise<void> }} Notes
 * @typedef {(name: string, progress?: (loaded: number, total: number) => void) => Promise<ArrayBuffer>} FetchAsset
 */

// https://github.com/gpuweb/gpuweb/blob/main/proposals/subgroup-matrix.md
const SUBGROUP_MATRIX = 'chromium-experimental-subgroup-matrix';
const OPTIONAL_FEATURES = /** @type {GPUFeatureName[]} */ ([
  'timestamp-query',
  'subgroups',
  'shader-f16',
  SUBGROUP_MATRIX,
]);

const LIMITS = /** @type {const} */ ([
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'minStorageBufferOffsetAlignment',
  'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupSizeY',
  'maxComputeWorkgroupsPerDimension',
]);

/** Says in one sentence why there is no WebGPU here and what to do, or '' when there may be. */
export function whyNoWebGPU() {
  if (!globalThis.isSecureContext) {
    return 'WebGPU needs a secure page: open it over https, or from localhost.';
  }
  if (!navigator.gpu) {
    return (
      'This browser offers no WebGPU here. It is in Chrome and Edge 113+, Safari 26+ and Firefox 141+ ' +
      '(on Linux, Chrome may need chrome://flags/#enable-unsafe-webgpu).'
    );
  }
  return '';
}

/**
 * The subgroup matrices of an adapter: component type, result type, M, N, K.
 * @param {GPUAdapterInfo} info
 */
function matrixConfigs(info) {
  const { subgroupMatrixConfigs = [] } =
    /** @type {{ subgroupMatrixConfigs?: { componentType: string, resultComponentType: string, M: number, N: number, K: number }[] }} */ (
      info
    );
  return [...subgroupMatrixConfigs].map((c) => [c.componentType, c.resultComponentType, c.M, c.N, c.K]);
}

/**
 * @param {{ fetchAsset: FetchAsset, notes?: Notes }} site where the site's files come from, and what the browser keeps
 */
export function createBridge({ fetchAsset, notes }) {
  return {
    async requestDevice() {
      const reason = whyNoWebGPU();
      if (reason) throw new Error(reason);
      const adapter = await navigator.gpu.requestAdapter({ powerPreference: 'high-performance' });
      if (!adapter) {
        throw new Error(
          'WebGPU is there but found no adapter: the graphics driver may be blocked or missing; ' +
            'chrome://gpu tells why.',
        );
      }
      /** @type {Record<string, number>} */
      const requiredLimits = {};
      for (const name of LIMITS) requiredLimits[name] = adapter.limits[name];
      const device = await adapter.requestDevice({
        requiredFeatures: OPTIONAL_FEATURES.filter((feature) => adapter.features.has(feature)),
        requiredLimits,
      });
      return new DeviceBridge(device, adapter);
    },
    fetchAsset,
    /** @param {string} name */
    loadNote: async (name) => (await notes?.load(name)) ?? '',
    /** @param {string} name @param {string} text */
    saveNote: async (name, text) => notes?.save(name, text),
  };
}

export class DeviceBridge {
  /** @type {Map<number, GPUBuffer>} */
  #buffers = new Map();
  /** @type {Map<number, Pipeline>} */
  #pipelines = new Map();
  /** @type {Map<number, Dispatch[]>} */
  #programs = new Map();
  /** @type {Map<number, Promise<[number | null, number][]>>} */
  #timings = new Map();
  #next = 1;
  #lost = '';
  #device;
  #adapter;
  #errors;
  #queue;
  #bindings;

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
    device.lost.then((info) => {
      this.#lost = `${info.reason}${info.message ? `: ${info.message}` : ''}`;
    });
  }

  /** The adapter in its own words, as JSON. */
  info() {
    const { info, limits } = this.#adapter;
    return JSON.stringify({
      vendor: info.vendor,
      architecture: info.architecture,
      description: info.description,
      software: info.isFallbackAdapter,
      features: [...this.#device.features, ...(navigator.gpu.wgslLanguageFeatures ?? [])],
      limits: Object.fromEntries(LIMITS.map((name) => [name, limits[name]])),
      subgroup_min_size: this.#device.features.has('subgroups') ? info.subgroupMinSize : 0,
      subgroup_max_size: this.#device.features.has('subgroups') ? info.subgroupMaxSize : 0,
      matrix_configs: this.#device.features.has(SUBGROUP_MATRIX) ? matrixConfigs(info) : [],
    });
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

  destroy() {
    this.#device.destroy();
    this.#lost ||= 'destroyed';
  }

  // Buffers

  // Whoever is far away chooses its own handles, so as not to wait for ours.

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
   * Maps a copy of a part of a buffer; the caller copies `bytes` out and calls `release`.
   * @param {number} handle @param {number} offset @param {number} size
   */
  async readBuffer(handle, offset, size) {
    const staging = this.#errors.guarded('read-back', ['validation', 'out-of-memory'], () => {
      const made = this.#device.createBuffer({
        label: `read-back of ${size} bytes`,
        size,
        usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
      });
      const encoder = this.#device.createCommandEncoder();
      encoder.copyBufferToBuffer(this.#buffer(handle), offset, made, 0, size);
      this.#queue.submit(encoder);
      return made;
    });
    try {
      await this.#queue.after(staging.mapAsync(GPUMapMode.READ));
    } catch (error) {
      throw new Error(this.#lost || String(/** @type {Error} */ (error).message));
    }
    return { bytes: new Uint8Array(staging.getMappedRange()), release: () => staging.destroy() };
  }

  // Pipelines

  /** @param {string} label @param {string} wgsl @param {string} access one letter a buffer: r or w @param {number} [handle] */
  createPipeline(label, wgsl, access, handle) {
    const begun = performance.now();
    const device = this.#device;
    for (const filter of /** @type {GPUErrorFilter[]} */ (['validation', 'internal'])) device.pushErrorScope(filter);
    const layout = this.#bindings.layout(access);
    const module = device.createShaderModule({ label, code: wgsl });
    const pipeline = device.createComputePipeline({ label, layout: layout.pipeline, compute: { module } });
    const scopes = [device.popErrorScope(), device.popErrorScope()];
    const made = Promise.all(scopes).then(async (errors) => {
      const elapsed = performance.now() - begun;
      const failed = errors.find((error) => error);
      if (failed) {
        const messages = (await module.getCompilationInfo()).messages.filter(({ type }) => type === 'error');
        const first = messages[0];
        this.#errors.add({
          kind: 'shader',
          label,
          message: first ? first.message : failed.message,
          line: first ? first.lineNum : 0,
        });
      }
      return elapsed * 1000;
    });
    this.#errors.wait(made);
    return this.#keep(this.#pipelines, { pipeline, layout: layout.group, access, label, made }, handle);
  }

  /** @param {number} handle */
  destroyPipeline(handle) {
    this.#pipelines.delete(handle);
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

  /** @param {PythonBuffer} words @param {number} [handle] */
  createProgram(words, handle) {
    const view = words.getBuffer('u32');
    try {
      return this.#keep(this.#programs, this.#decode(/** @type {Uint32Array} */ (view.data)), handle);
    } finally {
      view.release();
    }
  }

  /** Decodes and submits a program that is used once. @param {PythonBuffer} words @param {PythonBuffer} params */
  runProgram(words, params) {
    const view = words.getBuffer('u32');
    try {
      this.#run(this.#decode(/** @type {Uint32Array} */ (view.data)), params);
    } finally {
      view.release();
    }
  }

  /** @param {number} handle */
  destroyProgram(handle) {
    this.#programs.delete(handle);
  }

  /** @param {number} handle @param {PythonBuffer} params */
  submitProgram(handle, params) {
    this.#run(this.#program(handle), params);
  }

  /** @param {Dispatch[]} dispatches @param {PythonBuffer} params */
  #run(dispatches, params) {
    this.#writeParams(params);
    this.#errors.guarded(dispatches[0]?.pipeline.label ?? 'program', ['validation'], () => {
      const encoder = this.#device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      for (const dispatch of dispatches) this.#encode(pass, dispatch);
      pass.end();
      this.#queue.submit(encoder);
    });
  }

  /**
   * Submits each dispatch by itself, or all of them together, with timestamps where the device has them.
   * @param {number} handle @param {PythonBuffer} params @param {boolean} [together] @param {number} [ticket]
   */
  submitTimed(handle, params, together = false, ticket) {
    const dispatches = this.#program(handle);
    const passes = together ? [dispatches] : dispatches.map((dispatch) => [dispatch]);
    const { queue } = this.#device;
    this.#writeParams(params);
    const clock = this.#device.features.has('timestamp-query') ? new Clock(this.#device, passes.length) : null;
    /** @type {Promise<number>[]} */
    const walls = [];
    let before = Promise.resolve(0);
    passes.forEach((timed, index) => {
      this.#errors.guarded(timed[0]?.pipeline.label ?? 'program', ['validation'], () => {
        const encoder = this.#device.createCommandEncoder();
        const pass = encoder.beginComputePass(clock ? { timestampWrites: clock.writes(index) } : {});
        for (const dispatch of timed) this.#encode(pass, dispatch);
        pass.end();
        this.#queue.submit(encoder);
      });
      const submitted = performance.now();
      const done = queue.onSubmittedWorkDone().then(() => performance.now());
      walls.push(Promise.all([before, done]).then(([earlier, now]) => (now - Math.max(submitted, earlier)) * 1000));
      before = done;
    });
    const gpu = clock ? clock.read() : Promise.resolve(passes.map(() => null));
    const result = Promise.all([gpu, Promise.all(walls)]).then(([ticks, wall]) =>
      wall.map((us, index) => /** @type {[number | null, number]} */ ([ticks[index], us])),
    );
    result.catch(() => {});
    return this.#keep(this.#timings, result, ticket);
  }

  /** @param {number} ticket @returns {Promise<string>} JSON of [gpu µs or null, wall µs] per pass */
  async timings(ticket) {
    const result = this.#timings.get(ticket);
    this.#timings.delete(ticket);
    return JSON.stringify(result && (await this.#queue.hurried(result)));
  }

  /** Notes an error that the next `synchronize` tells. @param {string} label @param {unknown} error */
  note(label, error) {
    this.#errors.add({ kind: 'internal', label, message: error instanceof Error ? error.message : String(error), line: 0 });
  }

  /** Waits for everything submitted; returns the errors since the last call as JSON. */
  async synchronize() {
    await this.#queue.idle();
    // Error scopes answer in the order of the queue, so the last of them comes after all earlier work was checked.
    return JSON.stringify(await this.#errors.take());
  }

  // Inside

  /** @param {Uint32Array} words @returns {Dispatch[]} */
  #decode(words) {
    const dispatches = [];
    for (let at = 0; at < words.length; ) {
      const pipeline = this.#pipelines.get(words[at]);
      if (!pipeline) throw new Error(`no pipeline ${words[at]}`);
      const end = at + 7 + 3 * words[at + 6];
      dispatches.push({
        pipeline,
        bindings: this.#bindings.storage(pipeline, words.subarray(at + 7, end)),
        offset: words[at + 1],
        size: words[at + 2],
        grid: /** @type {[number, number, number]} */ ([words[at + 3], words[at + 4], words[at + 5]]),
      });
      at = end;
    }
    return dispatches;
  }

  /** @param {PythonBuffer} params */
  #writeParams(params) {
    const view = params.getBuffer('u8');
    try {
      this.#bindings.writeParams(/** @type {Uint8Array<ArrayBuffer>} */ (view.data));
    } finally {
      view.release();
    }
  }

  /** @param {GPUComputePassEncoder} pass @param {Dispatch} dispatch */
  #encode(pass, { pipeline, bindings, offset, size, grid }) {
    pass.setPipeline(pipeline.pipeline);
    pass.setBindGroup(0, bindings);
    pass.setBindGroup(1, this.#bindings.params(offset, size));
    pass.dispatchWorkgroups(...grid);
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
