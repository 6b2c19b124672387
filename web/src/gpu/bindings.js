/** The layouts and bind groups of dispatches: group 0 holds a dispatch's storage buffers, group 1 its params (params.js). */

import { Params } from './params.js';

const MOST_BIND_GROUPS = 512;
const LEAST_SHARED_PARAMS = 1 << 14;

export class Bindings {
  /** @type {Map<string, { group: GPUBindGroupLayout, pipeline: GPUPipelineLayout }>} */
  #layouts = new Map();
  /** @type {Map<string, GPUBindGroup>} by layout and buffers: calls in a row mostly have the same */
  #bindGroups = new Map();
  #device;
  #errors;
  #buffer;
  #paramsLayout;

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
    /** The params of programs that are run once. */
    this.shared = new Params(device, this.#paramsLayout, (bytes) => Math.max(LEAST_SHARED_PARAMS, 2 * bytes));
  }

  /** Params for a program that is submitted again. */
  ownParams() {
    return new Params(this.#device, this.#paramsLayout);
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
}
