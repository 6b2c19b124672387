/**
 * The only JavaScript that touches navigator.gpu.
 *
 * Python (py_attn/gpu) decides everything; this side keeps the WebGPU objects behind integer handles
 * and does what it is told. A program is a stream of u32 words, one record per dispatch:
 *
 *   pipeline, params offset, params size, x, y, z, count, then count × (buffer, byte offset, byte size)
 *
 * Group 0 holds a dispatch's storage buffers, group 1 its params at a dynamic offset.
 */

/**
 * @typedef {{ kind: string, label: string, message: string, line: number }} ReportedError
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

/**
 * For so long a wait asks the GPU process over and over. Chromium's looks for finished work when commands
 * reach it, and otherwise 2 ms later and then every millisecond: longer than most of our kernels run. A
 * software adapter needs the processor that asking takes.
 */
const ASK_MS = { hardware: 10, software: 1.5 };

const MOST_BIND_GROUPS = 512;

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
  /** @type {Map<string, { group: GPUBindGroupLayout, pipeline: GPUPipelineLayout }>} */
  #layouts = new Map();
  /** @type {Map<number, GPUBindGroup>} */
  #paramsGroups = new Map();
  /** @type {Map<string, GPUBindGroup>} by layout and buffers: calls in a row mostly have the same */
  #bindGroups = new Map();
  /** @type {Set<Promise<unknown>>} error scopes that have not answered yet */
  #scopes = new Set();
  /** @type {ReportedError[]} */
  #errors = [];
  #next = 1;
  #lost = '';
  /** How often work was handed to the queue, and up to which of these times it is known to be done. */
  #given = 0;
  #done = 0;
  #device;
  #adapter;
  #paramsLayout;
  #params;

  /**
   * @param {GPUDevice} device
   * @param {GPUAdapter} adapter
   */
  constructor(device, adapter) {
    this.#device = device;
    this.#adapter = adapter;
    this.#paramsLayout = device.createBindGroupLayout({
      label: 'params',
      entries: [
        { binding: 0, visibility: GPUShaderStage.COMPUTE, buffer: { type: 'uniform', hasDynamicOffset: true } },
      ],
    });
    this.#params = this.#createParams(1 << 14);
    device.lost.then((info) => {
      this.#lost = `${info.reason}${info.message ? `: ${info.message}` : ''}`;
    });
    device.addEventListener('uncapturederror', (event) => {
      event.preventDefault();
      this.#report('device', /** @type {GPUUncapturedErrorEvent} */ (event).error);
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
    const buffer = this.#guarded(label, ['validation', 'out-of-memory'], () =>
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
    this.#bindGroups.clear();
  }

  /** @param {number} handle @param {number} offset @param {PythonBuffer} data */
  writeBuffer(handle, offset, data) {
    const view = data.getBuffer('u8');
    try {
      this.#device.queue.writeBuffer(this.#buffer(handle), offset, /** @type {Uint8Array<ArrayBuffer>} */ (view.data));
      this.#given++;
    } finally {
      view.release();
    }
  }

  /**
   * Maps a copy of a part of a buffer; the caller copies `bytes` out and calls `release`.
   * @param {number} handle @param {number} offset @param {number} size
   */
  async readBuffer(handle, offset, size) {
    const staging = this.#guarded('read-back', ['validation', 'out-of-memory'], () => {
      const made = this.#device.createBuffer({
        label: `read-back of ${size} bytes`,
        size,
        usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
      });
      const encoder = this.#device.createCommandEncoder();
      encoder.copyBufferToBuffer(this.#buffer(handle), offset, made, 0, size);
      this.#submit(encoder);
      return made;
    });
    const given = this.#given;
    try {
      await this.#hurried(staging.mapAsync(GPUMapMode.READ));
      this.#done = Math.max(this.#done, given);
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
    const layout = this.#layout(access);
    const module = device.createShaderModule({ label, code: wgsl });
    const pipeline = device.createComputePipeline({ label, layout: layout.pipeline, compute: { module } });
    const scopes = [device.popErrorScope(), device.popErrorScope()];
    const made = Promise.all(scopes).then(async (errors) => {
      const elapsed = performance.now() - begun;
      const failed = errors.find((error) => error);
      if (failed) {
        const messages = (await module.getCompilationInfo()).messages.filter(({ type }) => type === 'error');
        const first = messages[0];
        this.#errors.push({
          kind: 'shader',
          label,
          message: first ? first.message : failed.message,
          line: first ? first.lineNum : 0,
        });
      }
      return elapsed * 1000;
    });
    this.#wait(made);
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
    this.#guarded(dispatches[0]?.pipeline.label ?? 'program', ['validation'], () => {
      const encoder = this.#device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      for (const dispatch of dispatches) this.#encode(pass, dispatch);
      pass.end();
      this.#submit(encoder);
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
      this.#guarded(timed[0]?.pipeline.label ?? 'program', ['validation'], () => {
        const encoder = this.#device.createCommandEncoder();
        const pass = encoder.beginComputePass(clock ? { timestampWrites: clock.writes(index) } : {});
        for (const dispatch of timed) this.#encode(pass, dispatch);
        pass.end();
        this.#submit(encoder);
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
    return JSON.stringify(result && (await this.#hurried(result)));
  }

  /** Notes an error that the next `synchronize` tells. @param {string} label @param {unknown} error */
  note(label, error) {
    this.#errors.push({ kind: 'internal', label, message: error instanceof Error ? error.message : String(error), line: 0 });
  }

  /** Waits for everything submitted; returns the errors since the last call as JSON. */
  async synchronize() {
    // After a read-back there is nothing left to wait for.
    const given = this.#given;
    if (given > this.#done) await this.#hurried(this.#device.queue.onSubmittedWorkDone().catch(() => {}));
    this.#done = Math.max(this.#done, given);
    // Error scopes answer in the order of the queue, so the last of them comes after all earlier work was checked.
    await Promise.all(this.#scopes);
    const errors = this.#errors;
    this.#errors = [];
    return JSON.stringify(errors);
  }

  // Inside

  /** @param {GPUCommandEncoder} encoder */
  #submit(encoder) {
    this.#device.queue.submit([encoder.finish()]);
    this.#given++;
  }

  /**
   * Waits for something that happens once the GPU has done its work.
   * @template T
   * @param {Promise<T>} happens
   * @returns {Promise<T>}
   */
  async #hurried(happens) {
    let waiting = true;
    const settled = () => {
      waiting = false;
    };
    happens.then(settled, settled);
    const until = performance.now() + ASK_MS[this.#adapter.info.isFallbackAdapter ? 'software' : 'hardware'];
    while (waiting && !this.#lost && performance.now() < until) {
      this.#device.pushErrorScope('validation');
      await this.#device.popErrorScope().catch(settled);
    }
    return happens;
  }

  /** @param {Uint32Array} words @returns {Dispatch[]} */
  #decode(words) {
    const dispatches = [];
    for (let at = 0; at < words.length; ) {
      const pipeline = this.#pipelines.get(words[at]);
      if (!pipeline) throw new Error(`no pipeline ${words[at]}`);
      const end = at + 7 + 3 * words[at + 6];
      dispatches.push({
        pipeline,
        bindings: this.#bindGroup(pipeline, words.subarray(at + 7, end)),
        offset: words[at + 1],
        size: words[at + 2],
        grid: /** @type {[number, number, number]} */ ([words[at + 3], words[at + 4], words[at + 5]]),
      });
      at = end;
    }
    return dispatches;
  }

  /** @param {Pipeline} pipeline @param {Uint32Array} words (buffer, byte offset, byte size) of each binding */
  #bindGroup({ layout, access, label }, words) {
    const key = `${access} ${words}`;
    let group = this.#bindGroups.get(key);
    if (!group) {
      /** @type {GPUBindGroupEntry[]} */
      const entries = [];
      for (let at = 0; at < words.length; at += 3) {
        const resource = { buffer: this.#buffer(words[at]), offset: words[at + 1], size: words[at + 2] };
        entries.push({ binding: entries.length, resource });
      }
      group = this.#guarded(label, ['validation'], () => this.#device.createBindGroup({ layout, entries }));
      if (this.#bindGroups.size === MOST_BIND_GROUPS) this.#bindGroups.clear();
      this.#bindGroups.set(key, group);
    }
    return group;
  }

  /** @param {GPUComputePassEncoder} pass @param {Dispatch} dispatch */
  #encode(pass, { pipeline, bindings, offset, size, grid }) {
    pass.setPipeline(pipeline.pipeline);
    pass.setBindGroup(0, bindings);
    pass.setBindGroup(1, this.#paramsGroup(size), [offset]);
    pass.dispatchWorkgroups(...grid);
  }

  /** @param {PythonBuffer} params */
  #writeParams(params) {
    const view = params.getBuffer('u8');
    try {
      if (view.data.byteLength > this.#params.size) {
        this.#params.destroy();
        this.#params = this.#createParams(2 * view.data.byteLength);
        this.#paramsGroups.clear();
      }
      // The queue orders this write after every earlier submission, so one buffer serves them all.
      this.#device.queue.writeBuffer(this.#params, 0, /** @type {Uint8Array<ArrayBuffer>} */ (view.data));
    } finally {
      view.release();
    }
  }

  /** @param {number} size */
  #createParams(size) {
    return this.#device.createBuffer({
      label: 'params',
      size,
      usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
    });
  }

  /** @param {number} size */
  #paramsGroup(size) {
    let group = this.#paramsGroups.get(size);
    if (!group) {
      group = this.#device.createBindGroup({
        layout: this.#paramsLayout,
        entries: [{ binding: 0, resource: { buffer: this.#params, size } }],
      });
      this.#paramsGroups.set(size, group);
    }
    return group;
  }

  /** @param {string} access */
  #layout(access) {
    let layout = this.#layouts.get(access);
    if (!layout) {
      const group = this.#device.createBindGroupLayout({
        label: access,
        entries: [...access].map((letter, binding) => ({
          binding,
          visibility: GPUShaderStage.COMPUTE,
          buffer: { type: /** @type {GPUBufferBindingType} */ (letter === 'w' ? 'storage' : 'read-only-storage') },
        })),
      });
      const pipeline = this.#device.createPipelineLayout({ bindGroupLayouts: [group, this.#paramsLayout] });
      layout = { group, pipeline };
      this.#layouts.set(access, layout);
    }
    return layout;
  }

  /**
   * Runs `work` inside error scopes; what they catch is reported with `label`.
   * @template T
   * @param {string} label @param {GPUErrorFilter[]} filters @param {() => T} work
   * @returns {T}
   */
  #guarded(label, filters, work) {
    for (const filter of filters) this.#device.pushErrorScope(filter);
    try {
      return work();
    } finally {
      for (let i = 0; i < filters.length; i++) {
        this.#wait(
          this.#device.popErrorScope().then((error) => {
            if (error) this.#report(label, error);
          }),
        );
      }
    }
  }

  /** @param {Promise<unknown>} promise */
  #wait(promise) {
    // A lost device rejects its scopes; `lost` tells that better.
    /** @type {Promise<unknown>} */
    const answered = promise.catch(() => {}).then(() => this.#scopes.delete(answered));
    this.#scopes.add(answered);
  }

  /** @param {string} label @param {GPUError} error */
  #report(label, error) {
    const kind =
      error instanceof GPUOutOfMemoryError
        ? 'out-of-memory'
        : error instanceof GPUInternalError
          ? 'internal'
          : 'validation';
    this.#errors.push({ kind, label, message: error.message, line: 0 });
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

/** Two timestamps for each of some dispatches. */
class Clock {
  #device;
  #count;
  #queries;

  /** @param {GPUDevice} device @param {number} count */
  constructor(device, count) {
    this.#device = device;
    this.#count = count;
    this.#queries = device.createQuerySet({ type: 'timestamp', count: 2 * count });
  }

  /** @param {number} index @returns {GPUComputePassTimestampWrites} */
  writes(index) {
    return { querySet: this.#queries, beginningOfPassWriteIndex: 2 * index, endOfPassWriteIndex: 2 * index + 1 };
  }

  /** @returns {Promise<number[]>} microseconds per dispatch */
  async read() {
    const size = 16 * this.#count;
    const usage = GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC;
    const resolved = this.#device.createBuffer({ size, usage });
    const staging = this.#device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    const encoder = this.#device.createCommandEncoder();
    encoder.resolveQuerySet(this.#queries, 0, 2 * this.#count, resolved, 0);
    encoder.copyBufferToBuffer(resolved, 0, staging, 0, size);
    this.#device.queue.submit([encoder.finish()]);
    try {
      await staging.mapAsync(GPUMapMode.READ);
      const ticks = new BigInt64Array(staging.getMappedRange());
      return Array.from({ length: this.#count }, (_, i) => Number(ticks[2 * i + 1] - ticks[2 * i]) / 1000);
    } finally {
      for (const resource of [resolved, staging, this.#queries]) resource.destroy();
    }
  }
}
