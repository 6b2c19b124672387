/**
 * The bind groups of a dispatch: group 0 holds its storage buffers, group 1 its params. All params lie in one buffer, and
 * every offset has a bind group of its own: with a dynamic offset the largest prefill tile took 3% longer.
 */

const MOST_BIND_GROUPS = 512;
const MOST_PARAMS_GROUPS = 4096;

export class Bindings {
  /** @type {Map<string, { group: GPUBindGroupLayout, pipeline: GPUPipelineLayout }>} */
  #layouts = new Map();
  /** @type {Map<string, GPUBindGroup>} by layout and buffers: calls in a row mostly have the same */
  #bindGroups = new Map();
  /** @type {Map<string, GPUBindGroup>} by offset and size */
  #paramsGroups = new Map();
  #device;
  #errors;
  #buffer;
  #paramsLayout;
  #params;

  /**
   * @param {GPUDevice} device
   * @param {import('./errors.js').Errors} errors
   * @param {(handle: number) => GPUBuffer} buffer
   */
  constructor(device, errors, buffer) {
    this.#device = device;
    this.#errors = errors;
    this.#buffer = buffer;
    this.#paramsLayout = device.createBindGroupLayout({
      label: 'params',
      entries: [{ binding: 0, visibility: GPUShaderStage.COMPUTE, buffer: { type: 'uniform' } }],
    });
    this.#params = this.#createParams(1 << 14);
  }

  /** @param {string} access one letter a buffer: r or w */
  layout(access) {
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
   * The bind group of a dispatch's storage buffers.
   * @param {{ layout: GPUBindGroupLayout, access: string, label: string }} pipeline
   * @param {Uint32Array} words (buffer, byte offset, byte size) of each binding
   */
  storage({ layout, access, label }, words) {
    const key = `${access} ${words}`;
    let group = this.#bindGroups.get(key);
    if (!group) {
      /** @type {GPUBindGroupEntry[]} */
      const entries = [];
      for (let at = 0; at < words.length; at += 3) {
        const resource = { buffer: this.#buffer(words[at]), offset: words[at + 1], size: words[at + 2] };
        entries.push({ binding: entries.length, resource });
      }
      group = this.#errors.guarded(label, ['validation'], () => this.#device.createBindGroup({ layout, entries }));
      if (this.#bindGroups.size === MOST_BIND_GROUPS) this.#bindGroups.clear();
      this.#bindGroups.set(key, group);
    }
    return group;
  }

  /** Drops all bind groups, as a buffer of theirs is about to be destroyed. */
  forgetBuffers() {
    this.#bindGroups.clear();
  }

  /** The bind group of a dispatch's params. @param {number} offset @param {number} size in bytes */
  params(offset, size) {
    const key = `${offset} ${size}`;
    let group = this.#paramsGroups.get(key);
    if (!group) {
      group = this.#device.createBindGroup({
        layout: this.#paramsLayout,
        entries: [{ binding: 0, resource: { buffer: this.#params, offset, size } }],
      });
      if (this.#paramsGroups.size === MOST_PARAMS_GROUPS) this.#paramsGroups.clear();
      this.#paramsGroups.set(key, group);
    }
    return group;
  }

  /** Sets the params of what is submitted next. @param {Uint8Array<ArrayBuffer>} bytes */
  writeParams(bytes) {
    if (bytes.byteLength > this.#params.size) {
      this.#params.destroy();
      this.#params = this.#createParams(2 * bytes.byteLength);
      this.#paramsGroups.clear();
    }
    // The queue orders this write after every earlier submission, so one buffer serves them all.
    this.#device.queue.writeBuffer(this.#params, 0, bytes);
  }

  /** @param {number} size */
  #createParams(size) {
    return this.#device.createBuffer({
      label: 'params',
      size,
      usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
    });
  }
}
