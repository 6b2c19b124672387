/**
 * The layouts and bind groups of dispatches. One group holds a dispatch's storage buffers and behind them its params
 * (params.js): to record a dispatch takes the browser's GPU process 0.3 to 1.2 µs more where they have a second group
 * (bench/NOTES.md). A text that declares its params in group 1 has them there.
 */

import { Params } from './params.js';

const MOST_BIND_GROUPS = 4096;
const LEAST_SHARED_PARAMS = 1 << 14;

/** By the letters of `access`, and of params. @type {Record<string, GPUBufferBindingType>} */
const TYPES = { r: 'read-only-storage', w: 'storage', u: 'uniform' };

/**
 * @typedef {object} Layout what pipelines bind
 * @property {string} letters one for each binding of group 0, ending in u if the params are the last of them
 * @property {GPUBindGroupLayout[]} groups
 * @property {GPUPipelineLayout} pipeline
 */

export class Bindings {
  /** By their letters. @type {Map<string, Layout>} */
  #layouts = new Map();
  /**
   * By the buffer of the params, and all else that is bound: calls in a row mostly have the same.
   * @type {WeakMap<GPUBuffer, Map<string, GPUBindGroup[]>>}
   */
  #bindGroups = new WeakMap();
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
    this.#paramsLayout = this.#groupLayout('u');
    /** The params of programs that are run once. */
    this.shared = new Params(device, (bytes) => Math.max(LEAST_SHARED_PARAMS, 2 * bytes));
  }

  /** Params for a program that is submitted again. */
  ownParams() {
    return new Params(this.#device);
  }

  /**
   * What pipelines of a text bind.
   * @param {string} wgsl @param {string} access one letter a buffer: r or w
   * @returns {Layout}
   */
  layout(wgsl, access) {
    const isBehind = hasParamsBehind(access.length, wgsl);
    const letters = isBehind ? `${access}u` : access;
    let layout = this.#layouts.get(letters);
    if (!layout) {
      const groups = [this.#groupLayout(letters), ...(isBehind ? [] : [this.#paramsLayout])];
      layout = { letters, groups, pipeline: this.#device.createPipelineLayout({ bindGroupLayouts: groups }) };
      this.#layouts.set(letters, layout);
    }
    return layout;
  }

  /** @param {string} letters */
  #groupLayout(letters) {
    return this.#device.createBindGroupLayout({
      label: letters,
      entries: [...letters].map((letter, binding) => ({
        binding,
        visibility: GPUShaderStage.COMPUTE,
        buffer: { type: TYPES[letter] },
      })),
    });
  }

  /**
   * The bind groups of a dispatch, by their numbers.
   * @param {import('./runner.js').Dispatch} dispatch
   * @param {Params} params to which its own were written
   */
  groups(dispatch, params) {
    const { buffer } = params;
    const place = params.placeOf(dispatch);
    const { bound } = dispatch;
    if (bound?.buffer === buffer && bound.place === place) return bound.groups;
    const groups = this.#kept(buffer, `${place} ${dispatch.size} ${dispatch.pipeline.layout.letters} ${dispatch.buffers}`, () =>
      this.#create(dispatch, { buffer, offset: place, size: dispatch.size }),
    );
    dispatch.bound = { buffer, place, groups };
    return groups;
  }

  /** @param {GPUBuffer} buffer @param {string} key @param {() => GPUBindGroup[]} create */
  #kept(buffer, key, create) {
    let kept = this.#bindGroups.get(buffer);
    if (!kept || kept.size >= MOST_BIND_GROUPS) this.#bindGroups.set(buffer, (kept = new Map()));
    let groups = kept.get(key);
    if (!groups) kept.set(key, (groups = create()));
    return groups;
  }

  /** @param {import('./runner.js').Dispatch} dispatch @param {GPUBufferBinding} params */
  #create({ pipeline: { layout: { groups }, label }, buffers }, params) {
    /** @type {GPUBufferBinding[]} */
    const resources = [];
    for (let at = 0; at < buffers.length; at += 3) {
      resources.push({ buffer: this.#buffer(buffers[at]), offset: buffers[at + 1], size: buffers[at + 2] });
    }
    const bound = groups.length === 1 ? [[...resources, params]] : [resources, [params]];
    return groups.map((layout, group) => {
      const entries = bound[group].map((resource, binding) => ({ binding, resource }));
      return this.#errors.guarded(label, ['validation'], () => this.#device.createBindGroup({ layout, entries }));
    });
  }

  /** Drops all bind groups, as a buffer of theirs is about to be destroyed. */
  forgetBuffers() {
    this.#bindGroups = new WeakMap();
  }
}

/**
 * Whether a text declares its params in group 0, behind so many buffers.
 * @param {number} buffers @param {string} wgsl
 */
function hasParamsBehind(buffers, wgsl) {
  const group = '@group\\s*\\(\\s*0[iu]?\\s*\\)';
  const binding = `@binding\\s*\\(\\s*${buffers}[iu]?\\s*\\)`;
  const declaration = new RegExp(`(${group}\\s*${binding}|${binding}\\s*${group})\\s*var\\s*<\\s*uniform\\s*>`);
  return declaration.test(wgsl.replace(/\/\/[^\n]*|\/\*[^]*?\*\//g, ' '));
}
